"""Move objects of a group between the store and a kube-apiserver that serves the group itself: the commands for a take-over."""
