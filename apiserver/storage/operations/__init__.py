"""What is done to a store from outside of a server: prepare, check and load it, grant rights on it, run one."""
