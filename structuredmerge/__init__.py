"""Structured merge: who owns which part of a value, and what becomes of it when several write it. Pure; knows no kinds.

Upstream: kubernetes-sigs/structured-merge-diff.
"""
