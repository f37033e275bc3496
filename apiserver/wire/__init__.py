"""Bytes and objects: negotiation, decoding, representations. Pure, except response."""
