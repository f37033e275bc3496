"""Back the store up into a file, verify such a file, and restore it into an empty store (docs/backup.md)."""
