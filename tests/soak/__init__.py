"""A soak: clients of every sort for a long time, and a judge of what must not grow meanwhile."""
