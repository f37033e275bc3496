"""Ask the real API server about identity, permission, trust and namespaces. Knows neither kinds nor the store."""
