"""Kubernetes' own specs for dynamic resource allocation, against both servers of the group."""
