"""Random changes of objects that use features behind gates, judged by us and by a real kube-apiserver with the same gates: what is
dropped, what is kept since the stored object uses it, what is refused."""

from __future__ import annotations

import asyncio
import copy
import json
import pathlib
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver import resources
from apiserver.apimachinery.releases import V1_37, Release, at, since, until
from apiserver.codecs.objects import canonical, decoding
from apiserver.storage.store import Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.connection import Connection
from tests.e2e.controlplane.plane import ControlPlane
from tests.fixtures.composed import Composed, composed
from tests.fixtures.valkey import Server

Object = dict[str, Any]
RELEASE = Release(*map(int, binaries.minor().split(".")))
KINDS = {resource.kind: resource for resource in at(RELEASE, resources.RESOURCES)}
LISTS = "DRAListTypeAttributes=true"
ON = at(
    RELEASE,
    since(
        V1_37,
        f"{LISTS},DRANodeAllocatableResources=true,DRADerivedAttributes=true,DRADeviceCompatibilityGroups=true,"
        "DRAFractionalCapacityRange=true,DRAOptionalNodeOperations=true,DRAResourcePoolStatus=true,"
        "DRAPartitionableDevicesType=true",
        before=f"{LISTS},DRANodeAllocatableResources=true",
    ),
)
"""With these everything can be stored."""
TAINTS_OFF = at(
    RELEASE, since(V1_37, "DRADeviceTaints=false,DRADeviceTaintRules=false", before="DRADeviceTaints=false")
)
STATUS_OFF = "DRADeviceBindingConditions=false,DRAResourceClaimGranularStatusAuthorization=false"
PARTS_OFF = "DRAPartitionableDevices=false,DRAConsumableCapacity=false"
LOCKABLE_OFF = at(
    RELEASE,
    until(
        V1_37, ("DRAResourceClaimDeviceStatus=false", "DRAPrioritizedList=false", "DRAExtendedResource=false"), after=()
    ),
)
"""Gates that the later release has locked."""
SETS = (
    ON,
    "",
    TAINTS_OFF,
    "DRAPartitionableDevices=false",
    "DRADeviceBindingConditions=false",
    STATUS_OFF,
    "DRAConsumableCapacity=false",
    f"DRAConsumableCapacity=false,{LISTS}",
    *([f"{STATUS_OFF},{LOCKABLE_OFF[0]}", ",".join(LOCKABLE_OFF[1:])] if LOCKABLE_OFF else []),
    ",".join([STATUS_OFF, TAINTS_OFF, PARTS_OFF, *LOCKABLE_OFF[:2]]),
    *at(
        RELEASE,
        since(
            V1_37,
            (
                "DRADerivedAttributes=true",
                f"DRADerivedAttributes=true,{LISTS}",
                "DRADeviceCompatibilityGroups=true,DRAFractionalCapacityRange=true",
                "DRAOptionalNodeOperations=true,DRANodeAllocatableResources=true",
            ),
            before=(),
        ),
    ),
)
FLAGS = at(RELEASE, since(V1_37, ("--disable-admission-plugins=NodeDeclaredFeatureValidator",), before=()))
"""A plugin refuses nodeAllocatableResources of missing nodes. It judges in kube-apiserver only."""
NAMESPACE, GROUP, TIME = "fuzz", "resource.k8s.io", "2026-06-01T12:00:00Z"

TAINT = {"key": "a", "effect": "NoSchedule", "timeAdded": TIME}
COUNTERS = {"c": {"value": "1"}}
POLICY = {"default": "1Gi", "validValues": ["1Gi", "2Gi"]}
FRACTION = {"default": "500m", "validRange": {"min": "500m", "step": "250m"}}
CONSUMED = {"counterSet": "s", "counters": COUNTERS}
DERIVED = {"name": "derived/x", "expression": "device.driver"}
SHARE = "0b6d53b0-0000-4000-8000-000000000001"
NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
CEL = (
    "device.driver == 'a'",
    "device.allowMultipleAllocations == true",
    "device.attributes['a.example.com'].links.includes(1)",
    "device.attributes['a.example.com'].links",
    "device.attributes['a.example.com'].links.exists(x, x == 1)",
)

Change = Callable[[Object], None]


def _sets(*path: str | int, to: Any) -> Change:
    """Set a member of an object; do nothing if its parent is missing."""

    def change(obj: Any) -> None:
        for step in path[:-1]:
            if isinstance(obj, dict) and step not in obj:
                return
            obj = obj[step]
        obj[path[-1]] = copy.deepcopy(to)

    return change


def _without(*path: str) -> Change:
    """Takes a member out."""

    def change(obj: Any) -> None:
        for step in path[:-1]:
            obj = obj[step]
        obj.pop(path[-1], None)

    return change


def _device(at: int, name: str, to: Any) -> Change:
    return _sets("spec", "devices", at, name, to=to)


SLICE_CHANGES = (
    _device(0, "taints", [TAINT]),
    _device(1, "taints", []),
    _sets("spec", "sharedCounters", to=[{"name": "s", "counters": COUNTERS}]),
    _sets("spec", "perDeviceNodeSelection", to=True),
    _sets("spec", "perDeviceNodeSelection", to=False),
    _device(0, "consumesCounters", [CONSUMED]),
    _device(0, "nodeName", "n1"),
    _device(1, "nodeSelector", NODE),
    _device(1, "allNodes", True),
    _device(0, "bindsToNode", True),
    _device(1, "bindsToNode", False),
    _device(0, "bindingConditions", ["a"]),
    _device(1, "bindingFailureConditions", ["f"]),
    _device(0, "allowMultipleAllocations", True),
    _sets("spec", "devices", 0, "capacity", "memory", "requestPolicy", to=POLICY),
    _sets("spec", "devices", 0, "capacity", "memory", "requestPolicy", to={}),
    _device(0, "nodeAllocatableResourceMappings", {"cpu": {"allocationMultiplier": "2"}}),
    _device(0, "nodeAllocatableResources", {"cpu": {"mapping": {"deviceMultiplier": "2"}}}),
    _device(1, "nodeAllocatableResources", {"cpu": {"overhead": {"perPod": "1"}}, "memory": {}}),
    _sets("spec", "devices", 0, "capacity", "memory", "requestPolicy", to=FRACTION),
    _sets("spec", "devices", 0, "consumesCounters", to=[{**CONSUMED, "compatibilityGroups": ["g"]}]),
    _sets("spec", "partitionTypeAttribute", to="a.example.com/kind"),
    _sets("spec", "skipNodeOperations", to=["*"]),
    _sets("spec", "skipNodeOperations", to=["NodePrepareResources", "x"]),
    _sets("spec", "devices", 0, "attributes", "links", to={"ints": [1]}),
    _sets("spec", "devices", 1, "attributes", to={"links": {"strings": ["a"]}, "b": {"bools": []}}),
    _sets("spec", "devices", 1, "attributes", to={"links": {"versions": ["1.0.0"], "int": 1}}),
    _without("spec", "nodeName"),
)


def _spec_changes(*at: str) -> tuple[Change, ...]:
    """Changes of a claim's spec at this path."""
    requests = (*at, "devices", "requests")
    alternative = {"name": "a", "deviceClassName": "c"}
    return (
        _sets(*requests, 1, to={"name": "other", "firstAvailable": [alternative]}),
        _sets(*requests, 1, to={"name": "other", "firstAvailable": [{**alternative, "tolerations": [{"key": "a"}]}]}),
        _sets(*requests, 1, to={"name": "other", "firstAvailable": [{**alternative, "capacity": {}}]}),
        _sets(*requests, 0, "exactly", "tolerations", to=[{"operator": "Exists"}]),
        _sets(*requests, 0, "exactly", "tolerations", to=[]),
        _sets(*requests, 0, "exactly", "derivedAttributes", to=[DERIVED]),
        _sets(*requests, 0, "exactly", "derivedAttributes", to=[{**DERIVED, "expression": CEL[3]}]),
        _sets(*requests, 1, to={"name": "other", "firstAvailable": [{**alternative, "derivedAttributes": [DERIVED]}]}),
        _sets(*at, "devices", "constraints", to=[{"matchAttribute": "derived/x"}]),
        _sets(*requests, 0, "exactly", "capacity", to={"requests": {"memory": "1Gi"}}),
        _sets(*at, "devices", "constraints", to=[{"matchAttribute": "a.example.com/b"}]),
        _sets(*at, "devices", "constraints", to=[{"distinctAttribute": "a.example.com/b"}]),
        _sets(*at, "devices", "constraints", to=[{"requests": ["main"]}]),
        *(_sets(*requests, 0, "exactly", "selectors", to=[{"cel": {"expression": text}}]) for text in CEL),
    )


_RESULT = ("status", "allocation", "devices", "results", 0)
STATUS_CHANGES = (
    _sets("status", "devices", to=[{"driver": "a.example.com", "pool": "n1", "device": "gpu-0"}]),
    _sets("status", "devices", to=[{"driver": "a.example.com", "pool": "n1", "device": "gpu-0", "shareID": SHARE}]),
    _sets("status", "devices", to=[]),
    _sets(*_RESULT, "shareID", to=SHARE),
    _sets(*_RESULT, "consumedCapacity", to={"memory": "1Gi"}),
    _sets(*_RESULT, "consumedCapacity", to={}),
    _sets(*_RESULT, "bindingConditions", to=["a"]),
    _sets(*_RESULT, "bindingConditions", to=[]),
    _sets(*_RESULT, "bindingFailureConditions", to=["f"]),
    _sets(*_RESULT, "tolerations", to=[{"operator": "Exists"}]),
    _sets(*_RESULT, "skipNodeOperations", to=["*"]),
    _sets("status", "allocation", "allocationTimestamp", to=TIME),
    _without("status", "allocation"),
)
CLASS_CHANGES = (
    _sets("spec", "extendedResourceName", to="a.example.com/gpu"),
    *(_sets("spec", "selectors", to=[{"cel": {"expression": text}}]) for text in CEL),
)
CHANGES: Mapping[str, Sequence[Change]] = {
    "ResourceSlice": SLICE_CHANGES,
    "DeviceClass": CLASS_CHANGES,
    "ResourceClaim": _spec_changes("spec"),
    "ResourceClaimTemplate": _spec_changes("spec", "spec"),
}
CLAIM = {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": "c"}}, {"name": "other"}]}}
BARE: Mapping[str, Object] = {
    "ResourceSlice": {
        "spec": {
            "driver": "a.example.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": "gpu-0", "attributes": {"a": {"int": 1}}, "capacity": {"memory": {"value": "80Gi"}}},
                {"name": "gpu-1"},
            ],
        }
    },
    "DeviceClass": {"spec": {}},
    "ResourceClaim": {"spec": CLAIM},
    "ResourceClaimTemplate": {"spec": {"spec": CLAIM}},
}
ALLOCATED = {"driver": "a.example.com", "pool": "n1", "device": "gpu-0", "request": "main"}
STATUS: Object = {"allocation": {"devices": {"results": [ALLOCATED]}}}


@dataclass
class Question:
    """A change of an object that was stored with every gate on, as JSON, or of nothing: a create."""

    kind: str
    sent: Object
    old: Object | None = None
    status: bool = False

    @property
    def plural(self) -> str:
        return KINDS[self.kind].plural

    def path(self, group: str) -> str:
        """Where it is asked, dry."""
        tail = "" if self.old is None else f"/{self.old['metadata']['name']}{'/status' if self.status else ''}"
        return f"{collection(group, self.kind)}{tail}?dryRun=All"

    def body(self, group: str, metadata: Object) -> Object:
        """With what was read of the stored object."""
        named = {"apiVersion": f"{group}/v1", "kind": self.kind, **self.sent}
        return {**named, "metadata": {**self.sent["metadata"], **metadata}}


def collection(group: str, kind: str) -> str:
    within = f"namespaces/{NAMESPACE}/" if KINDS[kind].namespaced else ""
    return f"/apis/{group}/v1/{within}{KINDS[kind].plural}"


def drawn(kind: str, chance: random.Random, *, status: bool) -> Object:
    """An object that uses some of the features."""
    obj = copy.deepcopy(BARE[kind])
    for change in chance.sample(CHANGES[kind], chance.choice((0, 1, 1, 2, 4, len(CHANGES[kind]) // 2))):
        change(obj)
    if kind.startswith("ResourceClaim"):
        spec = obj["spec"] if kind == "ResourceClaim" else obj["spec"]["spec"]
        requests = spec["devices"]["requests"]
        spec["devices"]["requests"] = [r for r in requests if len(r) > 1]
    if status:
        obj["status"] = copy.deepcopy(STATUS)
        for change in chance.sample(STATUS_CHANGES, chance.choice((0, 1, 2, 4))):
            change(obj)
    return obj


def questions(server: Connection, seed: int, count: int) -> Iterator[Question]:
    """Stores what is to be changed, on a server with every gate on."""
    chance = random.Random(seed)
    made = 0
    while made < count:
        kind = chance.choice(sorted(CHANGES))
        status = kind == "ResourceClaim" and chance.random() < 0.6
        sent = drawn(kind, chance, status=status)
        sent["metadata"] = {"name": f"q{made}"}
        if not status and chance.random() < 0.3:
            made += 1
            yield Question(kind, sent)
            continue
        first = drawn(kind, chance, status=status)
        first["metadata"] = sent["metadata"]
        old = stored(server, kind, first)
        if old is not None:
            if status or chance.random() < 0.5:
                sent["spec"] = copy.deepcopy(old["spec"])
                if not status and kind == "ResourceSlice":
                    for change in chance.sample(SLICE_CHANGES, 2):
                        change(sent)
            made += 1
            yield Question(kind, sent, old, status)


def stored(server: Connection, kind: str, obj: Object) -> Object | None:
    """The object as it was stored; None if it was refused."""
    answer = server.ask("POST", collection(GROUP, kind), {"apiVersion": f"{GROUP}/v1", "kind": kind, **obj})
    if answer.status != 201:
        return None
    old: Object = answer.json
    if "status" in obj:
        path = f"{collection(GROUP, kind)}/{old['metadata']['name']}"
        answer = server.ask("PUT", f"{path}/status", {**old, "status": obj["status"]})
        if answer.status != 200:
            server.ask("DELETE", path)
            return None
        old = answer.json
    return old


def judged(code: int, said: Object) -> Object:
    """The compared part of an answer."""
    if code >= 400:
        causes = said.get("details", {}).get("causes", [])
        return {"code": code, "causes": sorted((c["field"], c["reason"], c["message"]) for c in causes)}
    parts = {name: said[name] for name in ("spec", "status") if said.get(name)}
    return {"code": code, "generation": said["metadata"].get("generation"), **parts}


def theirs(server: Connection, asked: Question) -> Object:
    old = asked.old
    metadata = {} if old is None else {"resourceVersion": old["metadata"]["resourceVersion"]}
    method = "POST" if old is None else "PUT"
    answer = server.ask(method, asked.path(GROUP), asked.body(GROUP, metadata))
    return judged(answer.status, answer.json)


async def ours(server: Composed, asked: Question) -> Object:
    old = asked.old
    if old is None:
        answer = await server.ask("POST", asked.path(server.group), asked.body(server.group, {}))
        return judged(answer.status, answer.json)
    resource = KINDS[asked.kind]
    members = {name: value for name, value in old.items() if name not in ("kind", "apiVersion")}
    metadata = {name: value for name, value in old["metadata"].items() if name != "managedFields"}
    decoded = decoding.decode(resource.shape, {**members, "metadata": metadata}).object
    key = keys.key(metadata.get("namespace", ""), metadata["name"])
    store = server.stores[f"{server.group}/{asked.plural}"]
    entry = await store.commit(
        Write(key, canonical.encode(resource.shape, decoded), Revision(0), metadata["uid"]), dry_run=False
    )
    body = asked.body(server.group, {"resourceVersion": str(entry.revision)})
    answer = await server.ask("PUT", asked.path(server.group), body)
    await store.commit(Write(key, None, entry.revision, metadata["uid"]), dry_run=False)
    return judged(answer.status, answer.json)


def ask_upstream(folder: pathlib.Path, seed: int, count: int) -> tuple[list[Question], dict[str, list[Object]]]:
    """One cluster, whose kube-apiserver is started again with each set of gates."""
    plane = ControlPlane(folder / "plane")
    answers: dict[str, list[Object]] = {}
    try:
        plane.start_etcd()
        for gates in SETS:
            plane.flags = [*FLAGS, *([f"--feature-gates={gates}"] if gates else [])]
            plane.start_apiserver()
            with plane.connect() as server:
                if gates == ON:
                    server.ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
                    asked = list(questions(server, seed, count))
                answers[gates] = [theirs(server, question) for question in asked]
            plane.stop_apiserver()
            print(f"upstream has answered with {gates or 'the defaults'}", flush=True)
    finally:
        plane.stop()
    return asked, answers


def differences(*, seed: int, count: int) -> list[str]:
    """The answers that differ, of `count` changes asked with every set of gates."""
    with tempfile.TemporaryDirectory(prefix="g-") as name:
        folder = pathlib.Path(name)
        asked, answers = ask_upstream(folder, seed, count)
        server = Server(folder / "v")
        server.start()
        try:
            return asyncio.run(_compared(server, asked, answers))
        finally:
            server.stop()


async def _compared(server: Server, asked: list[Question], answers: Mapping[str, list[Object]]) -> list[str]:
    found = []
    for gates, said in answers.items():
        async with composed(server, f"--feature-gates={gates}", f"--emulated-version={RELEASE}") as sluice:
            for question, expected in zip(asked, said, strict=True):
                given = await ours(sluice, question)
                if given != expected:
                    texts = {"old": question.old, "sent": question.sent, "theirs": expected, "ours": given}
                    lines = (f"  {name}: {json.dumps(value)}" for name, value in texts.items())
                    found.append("\n".join((f"{gates}: {question.kind} status={question.status}", *lines)))
    return found
