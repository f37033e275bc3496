"""YAML as Kubernetes reads it: by the rules of JSON."""
