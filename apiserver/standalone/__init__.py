"""Stand in for what a cluster has beside its API servers: namespaces, reviews of access, garbage collection.

`sluice dev` and `sluice serve --standalone` compose this package; none of it runs behind a kube-apiserver.
"""
