"""Admission for every plugin: attributes of a change, matching rules, the chain, CEL expressions."""
