"""An installation whose answers are recorded objects, for checks that no control plane without nodes can bring about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.cluster.errors import Refused
from apiserver.doctor.findings import Check, Finding, State
from apiserver.doctor.installation import Access, Installation, Names
from apiserver.storage.options import StoreOptions

PLACE = "/api/v1/namespaces/sluice-system"
SERVICE, PODS = f"{PLACE}/services/sluice", f"{PLACE}/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/sluice-system/deployments/sluice"
LABELS = {"app.kubernetes.io/name": "sluice"}

Object = dict[str, Any]


class Recorded(Installation):
    """`answers` by path. A path without one does not exist; None is refused with 403."""

    def __init__(self, answers: Mapping[str, Object | None], **members: Any) -> None:
        super().__init__(
            access=Access(kubeconfig="/none", context="", environ={}),
            names=Names(),
            registered=[],
            store=StoreOptions(url=""),
            resources=[],
            **members,
        )
        self.recorded = {PLACE: {"metadata": {"name": "sluice-system"}}, **answers}

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, Any] | None:
        found = self.recorded.get(path, {})
        if found is None:
            raise Refused(f"{path} is forbidden", code=403)
        return found or None


def service(**spec: Any) -> Object:
    return {"metadata": {"name": "sluice"}, "spec": {"selector": LABELS, "ports": [{"port": 443}], **spec}}


def deployment(*, replicas: int = 1, conditions: Any = (), **status: Any) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "sluice"}]}}
    return {
        "metadata": {"name": "sluice", "namespace": "sluice-system"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template},
        "status": {"conditions": list(conditions), **status},
    }


def pod(*, ready: bool = False, **status: Any) -> Object:
    conditions = [{"type": "Ready", "status": str(ready)}, *status.pop("conditions", [])]
    return {"metadata": {"name": "sluice-1"}, "status": {"phase": "Running", "conditions": conditions, **status}}


async def codes(check: Check, installation: Installation) -> list[str]:
    """The codes of the findings that are wrong."""
    return [each.code for each in await findings(check, installation) if each.state in (State.WARN, State.FAIL)]


async def findings(check: Check, installation: Installation) -> list[Finding]:
    return [each async for each in check.run(installation)]
