"""The collections that admission and flow control follow beside namespaces. Knows nothing of their contents.

Upstream: kubernetes/apiserver `pkg/admission/configuration/`, `pkg/admission/plugin/policy/{validating,mutating}/plugin.go`,
`pkg/admission/plugin/resourcequota/resource_access.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from apiserver import metrics
from apiserver.cluster.by_namespace import ByNamespace
from apiserver.cluster.client import Client
from apiserver.cluster.reflector import Reflector

_REGISTRATION = "/apis/admissionregistration.k8s.io/v1"


class Collection(NamedTuple):
    """One collection. `go_type` is its name in upstream's readiness check."""

    path: str
    go_type: str
    plugin: str
    namespaced: bool = False


COLLECTIONS: Mapping[str, Collection] = {
    "mutating_webhooks": Collection(
        f"{_REGISTRATION}/mutatingwebhookconfigurations", "*v1.MutatingWebhookConfiguration", "MutatingAdmissionWebhook"
    ),
    "validating_webhooks": Collection(
        f"{_REGISTRATION}/validatingwebhookconfigurations",
        "*v1.ValidatingWebhookConfiguration",
        "ValidatingAdmissionWebhook",
    ),
    "mutating_policies": Collection(
        f"{_REGISTRATION}/mutatingadmissionpolicies", "*v1.MutatingAdmissionPolicy", "MutatingAdmissionPolicy"
    ),
    "mutating_bindings": Collection(
        f"{_REGISTRATION}/mutatingadmissionpolicybindings",
        "*v1.MutatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
    ),
    "validating_policies": Collection(
        f"{_REGISTRATION}/validatingadmissionpolicies", "*v1.ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy"
    ),
    "validating_bindings": Collection(
        f"{_REGISTRATION}/validatingadmissionpolicybindings",
        "*v1.ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ),
    "quotas": Collection("/api/v1/resourcequotas", "*v1.ResourceQuota", "ResourceQuota", namespaced=True),
}
"""By the names that they have in `admission.sources.Sources`."""


def reflectors(client: Client, asked: Callable[[str], bool]) -> dict[str, Reflector]:
    """Make a reflector for each collection whose plugin is enabled (`asked`). The caller runs them."""
    made = {name: _reflector(client, found) for name, found in COLLECTIONS.items() if asked(found.plugin)}
    for name, reflector in made.items():
        metrics.COPY_AGE_SECONDS.labels(COLLECTIONS[name].path).set_function(partial(getattr, reflector, "age"))
    return made


def _reflector(client: Client, found: Collection) -> Reflector:
    return Reflector(client, found.path, collection=ByNamespace if found.namespaced else dict)


SCHEMAS, LEVELS = "flowschemas", "prioritylevelconfigurations"


def of_flow_control(client: Client, name: str, *, on_change: Callable[[], None]) -> Reflector:
    """Make a reflector of a collection of flow control. The caller runs it."""
    path = f"/apis/flowcontrol.apiserver.k8s.io/v1/{name}"
    made = Reflector(client, path, on_change=on_change)
    metrics.COPY_AGE_SECONDS.labels(path).set_function(lambda: made.age)
    return made
