"""Reach the primaries of the store: find each one, keep a session with it, and follow the logs that it holds."""
