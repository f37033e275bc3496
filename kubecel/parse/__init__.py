"""Parse the text of an expression into a syntax tree."""
