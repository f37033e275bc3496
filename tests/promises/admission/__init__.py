"""Promises of admission: webhooks, policies and quota, on kube-apiserver's own kinds and on Sluice's behind it."""
