"""Requests that nobody means well, drawn from a seed, and what the server must stay meanwhile."""
