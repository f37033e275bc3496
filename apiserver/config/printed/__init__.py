"""Texts that `sluice` prints about itself: completion scripts, the man page, its version. They are made without importing the server."""
