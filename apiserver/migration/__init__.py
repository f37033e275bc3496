"""Objects of a group between the store and a kube-apiserver that serves the group itself: the administrator's side of a take-over."""
