"""The vocabulary of Kubernetes: errors, names, selectors, options. Pure; knows neither HTTP nor storage."""
