"""Track the managers of an object's fields: metadata.managedFields, and server-side apply. Pure.

Upstream: kubernetes/apimachinery `pkg/util/managedfields`.
"""
