"""The shape of objects: declared once per kind, read by decoding, defaulting, validation, OpenAPI and discovery. Pure."""
