"""CustomResourceDefinitions: read, judged, and made into kinds."""
