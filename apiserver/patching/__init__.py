"""A live object and a request make a new object. Pure."""
