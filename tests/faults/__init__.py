"""Faults injected into real processes, and what must hold afterwards."""
