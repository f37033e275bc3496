"""Libraries: each file declares the functions of one, with types, costs and implementations."""
