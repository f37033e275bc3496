"""Validation of objects by their declared shape: a quick verdict, and the errors in words."""
