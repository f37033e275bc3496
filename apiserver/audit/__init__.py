"""What is recorded about requests: which of them and how much, the events that they leave, and where these go."""
