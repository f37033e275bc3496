"""Behaviour that is promised to clients, as tables and stories that do not care how it is built."""
