"""Compile a checked tree into a program, and evaluate it."""
