"""ResourceQuota: what a namespace may use of a kind, and who has claimed how much of it."""
