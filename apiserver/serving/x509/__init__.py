"""X.509 certificates by the rules of Go."""
