"""What is served, said aloud: groups, resources, OpenAPI."""
