"""Priority and fairness of requests: who waits, who is served, who is refused. Knows no HTTP, no store and no cluster."""
