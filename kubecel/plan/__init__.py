"""From a checked tree to a program, and its evaluation."""
