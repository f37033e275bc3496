"""Audit requests: select them by policy, build their events, and deliver these to log and webhook."""
