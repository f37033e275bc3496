"""Describe what is served: groups, resources, OpenAPI."""
