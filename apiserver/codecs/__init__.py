"""Objects to text and back: JSON, YAML, protobuf, and the decoded forms between them."""
