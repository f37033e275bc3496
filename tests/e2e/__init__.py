"""End to end: a real server process, real TLS, real kubectl."""
