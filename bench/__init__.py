"""Workloads measured against a running server: rates, latencies, CPU time per operation, memory."""
