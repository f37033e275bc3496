"""Pages that show people what a running server does."""
