"""Libraries: each module declares the functions of one, with types, costs and implementations."""
