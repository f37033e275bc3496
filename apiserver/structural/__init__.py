"""Structural schemas at work: pruning, defaults, validation, rules and merges of custom resources. Knows no kind."""
