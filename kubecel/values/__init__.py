"""Types and values of CEL, and the operations on them."""
