"""The recorded answers of a real kube-apiserver, played against Sluice behind one."""
