"""YAML as Kubernetes reads it: on the terms of JSON."""
