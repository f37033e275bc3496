"""Who manages which field of an object: metadata.managedFields, and server-side apply. Pure.

Upstream: kubernetes/apimachinery `pkg/util/managedfields`.
"""
