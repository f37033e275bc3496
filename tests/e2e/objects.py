"""The objects that end-to-end tests create, smallest valid form."""

from __future__ import annotations

from typing import Any

GROUP = "resource.sluice.dev"
V1 = f"/apis/{GROUP}/v1"

Object = dict[str, Any]


def claims(namespace: str) -> str:
    """The path of the collection."""
    return f"{V1}/namespaces/{namespace}/resourceclaims"


def device_class(name: str, **metadata: Any) -> Object:
    return {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": name, **metadata}, "spec": {}}


def claim(name: str, **metadata: Any) -> Object:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"devices": {"requests": requests}},
    }


def resource_slice(name: str, **metadata: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, **metadata},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
        },
    }


def owned_by(owner: Object, **more: Any) -> Object:
    """The metadata of a dependant."""
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
    return {"ownerReferences": [reference | more]}
