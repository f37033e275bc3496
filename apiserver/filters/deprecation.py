"""Report a request for a deprecated version: a warning in its answer, a metric, and audit annotations.

Upstream: kubernetes/apiserver `pkg/endpoints/{installer,metrics/metrics}.go`.
"""

from __future__ import annotations

from apiserver import metrics
from apiserver.apimachinery.request import RequestInfo
from apiserver.schema.resource import Resource
from apiserver.wire.response import Exchange

DEPRECATED, REMOVED_RELEASE = "k8s.io/deprecated", "k8s.io/removed-release"


def note(exchange: Exchange, info: RequestInfo, resource: Resource) -> None:
    """Note a request that reached an endpoint of such a version, whatever its answer."""
    assert resource.deprecation is not None
    removed = resource.deprecation.removed
    exchange.warnings.add(resource.deprecation_warning)
    exchange.annotations.add(DEPRECATED, "true")
    if removed:
        exchange.annotations.add(REMOVED_RELEASE, removed)
    metrics.DEPRECATED_APIS.labels(info.group, info.version, info.resource, info.subresource, removed).set(1)
