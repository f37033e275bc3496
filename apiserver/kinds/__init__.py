"""What is served: the kinds of an installation, the packages they come from, their versions and roles."""
