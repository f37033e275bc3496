"""Validate objects by their declared shape: a quick verdict, and the texts of the errors."""
