"""The forms of an answer: what of an object is shown (whole, table, partial) in which syntax. Pure."""
