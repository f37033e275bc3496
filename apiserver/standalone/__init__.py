"""What a cluster has beside its API servers, for servers without a cluster: namespaces, reviews of access, and the collection of garbage.

`sluice dev` and `sluice serve --standalone` compose it; behind a kube-apiserver none of it runs.
"""
