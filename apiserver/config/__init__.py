"""Settings: flags, configuration files, feature gates and logging."""
