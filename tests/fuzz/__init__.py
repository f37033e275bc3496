"""Random input, drawn from a seed, judged by us and by the real thing: `make fuzz`."""
