"""Lists and their encodings."""
