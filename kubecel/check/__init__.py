"""Type-check a syntax tree in an environment, and estimate its cost."""
