"""Apply patches: a live object and a patch give a new object. Pure."""
