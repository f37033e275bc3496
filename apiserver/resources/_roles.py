"""The roles that the kinds grant something to.

Upstream: kubernetes/kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go` (system:kube-scheduler),
`test/e2e/dra/test-driver/deploy/example/plugin-permissions.yaml` (the kubelet plugin of a driver).
"""

from __future__ import annotations

SCHEDULER, DRIVER = "scheduler", "driver"
READ = ("get", "list", "watch")
