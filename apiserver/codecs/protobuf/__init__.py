"""Protobuf messages of declared kinds, the envelope around them, and templates for similar objects."""
