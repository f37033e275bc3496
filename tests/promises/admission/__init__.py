"""What admission does to a change: webhooks, policies and quota, on kube-apiserver's own kinds and on ours behind it."""
