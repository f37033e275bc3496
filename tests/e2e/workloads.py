"""Workloads of a cluster with devices, in `resource.k8s.io`, without a kubelet: nodes, slices, claims, and pods that want some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import V1_37, Release, since
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.connection import Connection

RELEASE = Release(*map(int, binaries.minor().split(".")))
"""That of the chosen control plane."""
V1 = "/apis/resource.k8s.io/v1"
CORE = "/api/v1"
DRIVER, CLASS = "gpu.example.com", "gpus"
MERGE = {"Content-Type": "application/merge-patch+json"}

Object = dict[str, Any]


@dataclass(frozen=True)
class Rules:
    """How a release has DeviceTaintRules: the version of the group in which scheduler and controllers read them, and the flags that
    kube-apiserver and its clients need."""

    version: str
    flags: Sequence[str] = ()


RULES = releases.at(
    RELEASE, since(V1_37, Rules("v1"), before=Rules("v1beta2", ("--feature-gates=DRADeviceTaintRules=true",)))
)


def made(admin: Connection, path: str, body: Object) -> Object:
    reply = admin.ask("POST", path, body)
    assert reply.status == 201, reply.text
    found: Object = reply.json
    return found


def node(admin: Connection, name: str) -> None:
    """Create a node with capacity for pods; nothing needs its kubelet."""
    made(admin, f"{CORE}/nodes", {"metadata": {"name": name}})
    room = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "100"}}}
    assert admin.ask("PATCH", f"{CORE}/nodes/{name}/status", room, headers=MERGE).status == 200


def resource_slice(node: str, *, count: int) -> Object:
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{n}"} for n in range(count)],
        },
    }


def devices(admin: Connection, node: str, *, count: int) -> None:
    """Create the class of all devices, if it is missing, and so many of them on a node."""
    assert admin.ask("POST", f"{V1}/deviceclasses", {"metadata": {"name": CLASS}, "spec": {}}).status in (201, 409)
    made(admin, f"{V1}/resourceslices", resource_slice(node, count=count))


def claim_spec(*, config: Sequence[Object] = ()) -> Object:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": CLASS}}]
    return {"devices": {"requests": requests, **({"config": list(config)} if config else {})}}


def claim(name: str, *, config: Sequence[Object] = (), **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "spec": claim_spec(config=config)}


def template(admin: Connection, name: str, *, namespace: str = "default") -> None:
    path = f"{V1}/namespaces/{namespace}/resourceclaimtemplates"
    made(admin, path, {"metadata": {"name": name}, "spec": {"spec": claim_spec()}})


def pod(
    admin: Connection, name: str, *, template: str = "", claim: str = "", namespace: str = "default", **spec: Any
) -> Object:
    """One that wants a claim made of the template, or one that is there."""
    source = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    body = {
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "c", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", **source}],
            "tolerations": [{"operator": "Exists"}],
            **spec,
        },
    }
    return made(admin, f"{CORE}/namespaces/{namespace}/pods", body)


def is_bound(admin: Connection, pod: str, *, namespace: str = "default") -> bool:
    return bool(admin.ask("GET", f"{CORE}/namespaces/{namespace}/pods/{pod}").json["spec"].get("nodeName"))


def claims_of(admin: Connection, pod: str, *, namespace: str = "default") -> list[Object]:
    """The claims that belong to a pod."""
    items = admin.ask("GET", f"{V1}/namespaces/{namespace}/resourceclaims").json["items"]
    return [
        item for item in items if any(owner["name"] == pod for owner in item["metadata"].get("ownerReferences", ()))
    ]
