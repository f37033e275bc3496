"""ResourceQuota: limit what a namespace may use of a kind, and claim usage."""
