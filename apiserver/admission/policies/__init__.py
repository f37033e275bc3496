"""Policies of the cluster, written in expressions: which apply to a change, with which parameters, and what they say of it."""
