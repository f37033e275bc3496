"""The conductors: one recipe per verb, calling down, never up."""
