"""CEL as Kubernetes configures it: environments by version, schemas of custom resources, composed variables."""
