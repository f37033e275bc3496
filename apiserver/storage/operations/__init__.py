"""Prepare, check and load a store, grant rights on it, and run one."""
