"""Sluice: a Kubernetes aggregated API server that keeps its objects in a log on Redis Streams."""

__version__ = "0.1.0"
