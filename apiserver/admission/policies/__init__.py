"""Admission policies in CEL: select those that apply to a change, with their parameters, and evaluate them."""
