"""Keys, bytes and revisions on a Redis stream per resource. Knows neither kinds nor HTTP."""
