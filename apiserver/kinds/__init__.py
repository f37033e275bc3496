"""The served kinds: the kinds of an installation, the packages that declare them, their versions and roles."""
