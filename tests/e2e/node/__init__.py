"""A real node without a container registry, and Sluice on it as pods (README.md)."""
