"""Promises of the store, kept on a real Valkey."""
