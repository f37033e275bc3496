"""Convert custom resources between versions by calling the webhook of their definition."""
