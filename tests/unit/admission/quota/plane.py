"""kube-apiserver as far as quotas and pods are asked of it, and changes to judge."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from apiserver import resources
from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.admission.quota.plugin import ResourceQuota
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.apimachinery.releases import NEWEST, Release
from apiserver.apimachinery.request import Annotations, User, Warnings
from apiserver.cluster.errors import ClusterError, Refused
from apiserver.config import features
from apiserver.filters.request_info import parse
from apiserver.kinds.served import Kinds
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object

DRA, OWN = "resource.k8s.io", "things.example.com"
KINDS = {group: Kinds(resources.RESOURCES, group=group) for group in (DRA, OWN)}
COUNT = f"count/resourceclaims.{DRA}"
CONFLICT = 'Operation cannot be fulfilled on resourcequotas "q": the object has been modified'


def gates(release: Release = NEWEST, **switched: bool) -> Gates:
    declared = dict.fromkeys((*features.GATES, *resources.GATES, *(g for r in resources.RESOURCES for g in r.gates)))
    return Gates(declared, switched, release=release)


class Plane:
    """Quotas by name, all in the namespace "ns". The watch shows an older state until `show`."""

    def __init__(self, *quotas: Object, ready: bool = True) -> None:
        self.live: dict[str, Object] = {quota["metadata"]["name"]: quota for quota in quotas}
        self.shown = copy.deepcopy(self.live)
        self.ready = asyncio.Event()
        if ready:
            self.ready.set()
        self.pods: dict[str, Object] = {}
        self.writes: list[dict[str, str]] = []
        self.asked: list[str] = []
        self.failures: list[ClusterError] = []
        """Answers to the next questions."""
        self.conflicts = 0
        self.writing = asyncio.Event()
        self.held: asyncio.Event | None = None
        self._version = 100

    def show(self) -> None:
        self.shown = copy.deepcopy(self.live)

    def used(self, name: str = "q") -> dict[str, str]:
        found: dict[str, str] = self.live[name]["status"]["used"]
        return found

    def within(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        return list(self.shown.values()) if self.ready.is_set() and namespace == "ns" else []

    async def list(self, namespace: str) -> Sequence[Mapping[str, Any]]:
        await self._answer(f"list {namespace}")
        return list(copy.deepcopy(self.live).values()) if namespace == "ns" else []

    async def get(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        await self._answer(f"get {namespace}/{name}")
        return copy.deepcopy(self.live.get(name))

    async def pod(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        await self._answer(f"pod {namespace}/{name}")
        return self.pods.get(name)

    async def update_status(self, quota: Mapping[str, Any]) -> Mapping[str, Any]:
        self.writing.set()
        if self.held is not None:
            await self.held.wait()
        name = quota["metadata"]["name"]
        await self._answer(f"update {name}")
        if name not in self.live:
            raise refused(404, f'resourcequotas "{name}" not found', "NotFound")
        if quota["metadata"]["resourceVersion"] != self.live[name]["metadata"]["resourceVersion"]:
            self.conflicts += 1
            raise refused(409, CONFLICT, "Conflict")
        assert (quota["kind"], quota["apiVersion"]) == ("ResourceQuota", "v1")
        self._version += 1
        written: Object = copy.deepcopy({**self.live[name], "status": dict(quota["status"])})
        written["metadata"]["resourceVersion"] = str(self._version)
        self.live[name] = written
        self.writes.append(written["status"]["used"])
        return copy.deepcopy(written)

    async def _answer(self, what: str) -> None:
        self.asked.append(what)
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)


def refused(code: int, message: str, reason: str) -> Refused:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message, "details": {}}
    return Refused(message, code=code, status=status)


def quota(hard: Mapping[str, str], used: Mapping[str, str] | None = None, *, name: str = "q", **spec: Any) -> Object:
    """As the quota controller leaves it; nothing of anything is used unless it says otherwise."""
    status: Object = {"hard": dict(hard), "used": dict.fromkeys(hard, "0") if used is None else dict(used)}
    metadata = {"name": name, "namespace": "ns", "resourceVersion": "7", "uid": f"uid-{name}"}
    return {"metadata": metadata, "spec": {"hard": dict(hard), **spec}, "status": status}


@dataclass
class Held:
    name: str
    body: bytes
    readable: bool = True


@dataclass
class Memory:
    """The stored objects of a kind."""

    objects: dict[str, Held] = field(default_factory=dict)
    applied: int = 1
    filling: bool = False
    scans: int = 0

    def put(self, obj: Object) -> None:
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
        self.objects[key] = Held(metadata["name"], orjson.dumps(obj))
        self.applied += 1

    def remove(self, key: str) -> None:
        del self.objects[key]
        self.applied += 1

    async def wait_until_filled(self, *, seconds: float) -> None:
        self.filling = False

    def view(self) -> Memory:
        return self

    def scan(self, prefix: str = "") -> Iterator[Held]:
        self.scans += 1
        return iter([held for key, held in sorted(self.objects.items()) if key.startswith(prefix)])


class Rig:
    """The plugin of one replica."""

    def __init__(
        self,
        plane: Plane,
        *,
        group: str = DRA,
        release: Release = NEWEST,
        on: Mapping[str, bool] | None = None,
        **how: Any,
    ) -> None:
        self.plane, self.group = plane, group
        self.memories = {kind.storage_name: Memory() for kind in KINDS[group].stored}
        self.plugin = ResourceQuota(plane, KINDS[group], self.memories, gates=gates(release, **(on or {})), **how)

    async def ask(
        self,
        operation: Operation = "CREATE",
        *,
        obj: Object | None = None,
        old: Object | None = None,
        plural: str = "resourceclaims",
        namespace: str = "ns",
        version: str = "v1",
        subresource: str = "",
        dry_run: bool = False,
    ) -> None:
        obj = claim() if obj is None else obj
        name = obj["metadata"]["name"]
        method = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}[operation]
        inside = f"/namespaces/{namespace}" if namespace else ""
        path = f"/apis/{self.group}/{version}{inside}/{plural}" + ("" if operation == "CREATE" else f"/{name}")
        path += f"/{subresource}" if subresource else ""
        options: Mapping[Operation, CreateOptions | UpdateOptions | DeleteOptions] = {
            "CREATE": CreateOptions(dry_run=dry_run),
            "UPDATE": UpdateOptions(dry_run=dry_run),
            "DELETE": DeleteOptions(),
        }
        [resource] = [r for r in KINDS[self.group] if r.plural == plural and r.version == version]
        change = Attributes(
            operation=operation,
            info=parse(method, path),
            user=User("jane"),
            resource=resource,
            name=name,
            object=None if operation == "DELETE" else obj,
            old=None if operation == "CREATE" else obj if old is None else old,
            options=options[operation],
            warnings=Warnings(),
            annotations=Annotations(),
        )
        if operation in self.plugin.operations:
            await self.plugin.validate(change)

    async def verdict(self, operation: Operation = "CREATE", **how: Any) -> str:
        """ "" for yes, else the message."""
        try:
            await self.ask(operation, **how)
        except StatusError as error:
            return error.message
        return ""


def claim(*requests: Object, name: str = "c", **metadata: Any) -> Object:
    return {
        "metadata": {"name": name, "namespace": "ns", **metadata},
        "spec": {"devices": {"requests": list(requests)}},
    }


def exactly(device_class: str, count: int = 1, mode: str = "ExactCount") -> Object:
    asked: Object = {"deviceClassName": device_class, "allocationMode": mode}
    return {"name": "r", "exactly": asked | ({"count": count} if mode == "ExactCount" else {})}


def device_class(name: str, extended: str = "") -> Object:
    spec = {"extendedResourceName": extended} if extended else {}
    return {"metadata": {"name": name}, "spec": spec}


def forbidden(text: str, name: str = "c") -> str:
    return f'resourceclaims.{DRA} "{name}" is forbidden: {text}'
