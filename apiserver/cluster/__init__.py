"""What is asked of the real API server: identity, permission, trust and namespaces. Knows neither kinds nor the store."""
