"""The work list of the next Kubernetes release: what a kube-apiserver of that version answers otherwise than the recorded one."""
