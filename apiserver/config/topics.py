"""The topics under which `--help`, the man page and the reference list the flags.

The names are those of kube-apiserver's groups of flags where it has them. Upstream: kubernetes/kubernetes
`cmd/kube-apiserver/app/options/options.go`, `pkg/controlplane/apiserver/options/options.go` AddFlags.
"""

from __future__ import annotations

GENERIC = "Generic"
DEVELOPMENT = "Development"
SECURE_SERVING = "Secure serving"
API_ENABLEMENT = "API enablement"
AUTHENTICATION = "Authentication"
AUTHORIZATION = "Authorization"
ADMISSION = "Admission"
AUDITING = "Auditing"
STORE = "Store"
MIGRATION = "Migration"
DIAGNOSIS = "Diagnosis"
MANIFESTS = "Manifests"
FEATURES = "Features"
LOGS = "Logs"
TRACES = "Traces"
MISC = "Misc"
"""The topic of flags whose section names none."""

ORDER = (
    GENERIC,
    DEVELOPMENT,
    SECURE_SERVING,
    API_ENABLEMENT,
    AUTHENTICATION,
    AUTHORIZATION,
    ADMISSION,
    AUDITING,
    STORE,
    MIGRATION,
    DIAGNOSIS,
    MANIFESTS,
    FEATURES,
    LOGS,
    TRACES,
    MISC,
)


def place(topic: str) -> int:
    """Return the place of a topic in a list. Topics that are not in ORDER stand just before MISC."""
    return ORDER.index(topic) if topic in ORDER else len(ORDER) - 2
