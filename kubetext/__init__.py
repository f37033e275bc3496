"""Texts that Go and Kubernetes define: quoting, numbers, durations, quantities, names, UTF-8."""
