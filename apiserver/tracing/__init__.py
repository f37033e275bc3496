"""Tracing with OpenTelemetry: its configuration file, the traces that clients state, and the export of spans."""
