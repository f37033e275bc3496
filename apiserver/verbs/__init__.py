"""The verbs: one function for each, which calls lower layers and never higher ones."""
