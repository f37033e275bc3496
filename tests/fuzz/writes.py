"""Random writes of one object, as its appliers, its updaters, and those who get something wrong would send them.

A write is drawn from its seed and from the current object: the same twice from objects that are alike. Values are drawn from
few values, so that writers often agree and often do not.
"""

from __future__ import annotations

import copy
import json
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from apiserver import resources
from apiserver.codecs.objects import conversion
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Resource

Object = dict[str, Any]
T = TypeVar("T")

GROUP = "resource.k8s.io"
KINDS: Mapping[tuple[str, str], Resource] = {
    (kind.plural, kind.version): kind for kind in Kinds(resources.RESOURCES, group=GROUP)
}
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
MERGE, JSON_PATCH = "application/merge-patch+json", "application/json-patch+json"
APPLIERS = ("one", "two", "three")
UPDATERS = ("updater", "editor", "one", "kubectl-edit", *(f"many-{number}" for number in range(9)))
AGENTS = ("agent/1.0 (linux/amd64)", "kubectl/v1.36.3 (linux/amd64) kubernetes/0", "", "no slash", "x" * 200, "/1")
STALE = "1"

SHARE, *OWNERS = (str(uuid.UUID(int=number << 64 | number, version=4)) for number in range(1, 5))
LABELS = ("a", "b", "example.com/c.d")
FINALIZERS = tuple(f"example.com/{name}" for name in ("one", "two", "three"))
CONDITIONS = ("Ready", "example.com/Up", "Linked")
TAINT = {"key": "example.com/t", "effect": "NoSchedule"}
TIME = "2024-02-29T12:00:00Z"
DEVICES: Sequence[Sequence[Object]] = (
    ({"name": "gpu-0"},),
    ({"name": "gpu-0", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "1Gi"}}},),
    ({"name": "gpu-0", "taints": [TAINT]},),
    ({"name": "gpu-0", "taints": [{**TAINT, "timeAdded": TIME}]}, {"name": "gpu-1"}),
    (),
)
SPELLED_OTHERWISE: Sequence[Sequence[Object]] = (
    ({"name": "gpu-0", "attributes": {"model": {"string": "x"}}, "capacity": {"memory": {"value": "1024Mi"}}},),
    ({"name": "gpu-0", "taints": [{**TAINT, "timeAdded": TIME}]}, {"name": "gpu-1", "attributes": {}}),
)
"""Devices as an apply spells them, which compares texts. Upstream detects an update's change in an atomic list by comparing Go
values, where one amount may have two forms, and a map without entries is not an absent one."""
EXACTLY = {"deviceClassName": "gpu.example.com"}
CLAIM_SPECS: Sequence[Object] = (
    {"devices": {"requests": [{"name": "gpu", "exactly": EXACTLY}]}},
    {
        "devices": {
            "requests": [{"name": "gpu", "exactly": {**EXACTLY, "tolerations": [{"key": "a"}]}}],
            "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"b": 1, "a": "<&>"}}}],
        }
    },
    {"devices": {}},
)
NODE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}
RESULT = {"request": "gpu", "driver": "gpu.example.com", "pool": "n1"}
REPORTED: Sequence[Object] = (
    {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"},
    {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-1"},
    {"driver": "gpu.example.com", "pool": "n1", "device": "gpu-1", "shareID": SHARE},
)
DATA: Sequence[Any] = ({"b": 1, "a": None}, {"a": [1, {}]}, {}, {"a": 2}, {"b": {"d": 1.0, "c": "ü<"}, "a": 1e21})
DEFAULTED = frozenset(("allocationMode", "count", "operator"))
KEYS = frozenset(("uid", "driver", "pool", "device", "shareID", "type"))
"""Keys of items of lists that are merged."""
DIRECTIVES = ("$patch", "$retainKeys", "$deleteFromPrimitiveList/finalizers", "$setElementOrder/finalizers")
WRONG_ENTRIES: Sequence[Object] = (
    {"operation": "Merge"},
    {"fieldsType": "V2"},
    {"fieldsV1": {"f": {}}},
    {"fieldsV1": {"v:x": {}}},
    {"apiVersion": ""},
    {"apiVersion": f"{GROUP}/v9"},
)


@dataclass(frozen=True, slots=True)
class Step:
    """One write of a sequence, not yet drawn, and the version that it asks in."""

    seed: int
    version: str


@dataclass(frozen=True, slots=True)
class Write:
    """A request. `named` is False where it goes to the collection."""

    method: str
    subresource: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: str
    named: bool = True

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        media = self.headers.get("Content-Type", "")
        agent = self.headers.get("User-Agent", "")[:40]
        return f"{self.method} {self.subresource or 'main'}?{query} {media} by {agent!r}: {self.body}"


class Objects:
    """Draws whole objects of the stored version, each member from few values."""

    def __init__(self, source: random.Random) -> None:
        self._random = source

    def whole(self, plural: str) -> Object:
        spec: Object = getattr(self, plural)()
        return {"metadata": self.metadata(), **spec}

    def one(self, of: Sequence[T]) -> T:
        return self._random.choice(of)

    def chance(self, of: float) -> bool:
        return self._random.random() < of

    def some(self, of: Sequence[T], *, least: int = 0) -> list[T]:
        return self._random.sample(of, self._random.randint(least, len(of)))

    def metadata(self) -> Object:
        return {
            "labels": {name: self.one("123") for name in LABELS},
            "annotations": {"example.com/note": self.one(("ünï", "<&>")), "n": self.one(("", "1"))},
            "finalizers": self.some(FINALIZERS, least=1),
            "ownerReferences": [self.owner(uid) for uid in self.some(OWNERS, least=1)],
        }

    def owner(self, uid: str) -> Object:
        found: Object = {"apiVersion": "v1", "kind": "Pod", "name": self.one("pq"), "uid": uid}
        return found | ({"blockOwnerDeletion": self.chance(0.5)} if self.chance(0.5) else {})

    def resourceslices(self) -> Object:
        pool = {"name": "n1", "generation": self.one((0, 1, 2)), "resourceSliceCount": self.one((1, 2))}
        where: Object = (
            {"nodeName": "n1"} if self.chance(0.95) else self.one(({"allNodes": True}, {"nodeSelector": NODE}))
        )
        spec: Object = {"driver": "gpu.example.com", "pool": pool, **where, "devices": list(self.one(DEVICES))}
        return {"spec": copy.deepcopy(spec)}

    def deviceclasses(self) -> Object:
        spec = {
            "selectors": [{"cel": {"expression": self.one(("true", "device.driver == 'd'"))}}],
            "config": [{"opaque": {"driver": "gpu.example.com", "parameters": copy.deepcopy(self.one(DATA))}}],
            "extendedResourceName": self.one(("example.com/gpu", "example.com/fpga")),
        }
        return {"spec": spec}

    def resourceclaims(self) -> Object:
        return {"spec": copy.deepcopy(self.one(CLAIM_SPECS[:2])), "status": self.status()}

    def resourceclaimtemplates(self) -> Object:
        metadata = {name: value for name, value in self.metadata().items() if name in ("labels", "annotations")}
        return {"spec": {"metadata": metadata, "spec": copy.deepcopy(self.one(CLAIM_SPECS))}}

    def status(self) -> Object:
        results = [{**RESULT, "device": "gpu-0"}, {**RESULT, "device": "gpu-1"}]
        results.append({**RESULT, "device": "gpu-1", "shareID": SHARE})
        allocation: Object = {"devices": {"results": results}}
        if self.chance(0.1):
            allocation["nodeSelector"] = copy.deepcopy(NODE)
        return {
            "allocation": allocation,
            "reservedFor": [{"resource": "pods", "name": f"p-{uid[7]}", "uid": uid} for uid in self.some(OWNERS)],
            "devices": [self.report(device) for device in self.some(REPORTED)],
        }

    def report(self, device: Object) -> Object:
        network = {"interfaceName": self.one(("eth0", "eth1")), "ips": self.some(("192.0.2.5/24", "2001:db8::5/64"))}
        return {
            **device,
            "conditions": [self.condition(kind) for kind in self.some(CONDITIONS)],
            "data": copy.deepcopy(self.one(DATA)),
            "networkData": {**network, "hardwareAddress": self.one(("", "00:00:5e:00:53:01"))},
        }

    def condition(self, kind: str) -> Object:
        found: Object = {"type": kind, "status": self.one(("True", "False")), "lastTransitionTime": TIME}
        return found | {"reason": self.one(("A", "B")), "message": self.one(("", "m"))}


class Draw:
    """One write of an object of a kind: `live` as this version shows it, None if it is missing."""

    def __init__(self, step: Step, plural: str, name: str, namespace: str, live: Object | None) -> None:
        self._random = random.Random(step.seed)
        self._objects = Objects(self._random)
        self._kind = KINDS[plural, step.version]
        self._plural, self._name, self._namespace = plural, name, namespace
        self._live = live
        self._status = False

    def write(self) -> Write:
        if self._live is None:
            makers: Sequence[Callable[[], Write]] = (self._apply, self._create, self._put, self._merge)
            return self._random.choices(makers, (50, 40, 4, 4))[0]()
        self._status = self._plural == "resourceclaims" and self._chance(0.5)
        makers = (
            self._apply,
            self._put,
            self._merge,
            self._strategic,
            self._json_patch,
            self._create,
            self._delete,
        )
        return self._random.choices(makers, (40, 18, 13, 13, 12, 2, 2))[0]()

    # Methods

    def _apply(self) -> Write:
        obj = self._fragment(nulls=0.04)
        if self._plural == "resourceslices" and obj.get("spec") and not self._is_mixed() and self._chance(0.3):
            devices = copy.deepcopy(list(self._one(SPELLED_OTHERWISE)))
            obj["spec"]["devices"] = conversion.served(self._kind, {"spec": {"devices": devices}})["spec"]["devices"]
        if self._live is None or self._chance(0.95):
            obj["metadata"]["name"] = self._name if self._chance(0.99) else "another"
        self._pin(obj, 0.06)
        self._spoil(obj)
        manager = "kubectl" if self._chance(0.06) else self._one(APPLIERS)
        query = {"fieldManager": "" if self._chance(0.01) else manager}
        if self._chance(0.35):
            query["force"] = self._one(("true", "true", "true", "false"))
        return self._request("PATCH", self._document(obj), APPLY, query)

    def _create(self) -> Write:
        obj = self._fragment(nulls=0.02)
        obj["metadata"]["name"] = self._name
        if self._chance(0.15):
            obj["metadata"]["managedFields"] = self._managers([])
        return self._request("POST", self._text(obj), query=self._updater(), named=False)

    def _put(self) -> Write:
        obj = self._fragment() if self._live is None else copy.deepcopy(self._live)
        for _ in range(self._random.randint(0 if self._live else 1, 2)):
            self._change(obj)
        obj["metadata"]["name"] = self._name
        if self._chance(0.2):
            obj["metadata"].pop("resourceVersion", None)
        if self._chance(0.05):
            obj["metadata"]["resourceVersion"] = STALE
        if self._chance(0.25):
            obj["metadata"]["managedFields"] = self._managers(obj["metadata"].get("managedFields") or [])
        if self._chance(0.15):
            obj["metadata"].pop("managedFields", None)
        return self._request("PUT", self._text(obj), query=self._updater())

    def _merge(self) -> Write:
        patch = self._patch()
        return self._request("PATCH", self._text(patch), MERGE, self._updater())

    def _strategic(self) -> Write:
        patch = self._patch()
        for _ in range(self._random.choice((0, 1, 1, 2))):
            self._direct(patch)
        return self._request("PATCH", self._text(patch), STRATEGIC, self._updater())

    def _json_patch(self) -> Write:
        operations = [self._operation() for _ in range(self._random.randint(1, 3))]
        return self._request("PATCH", self._text(operations), JSON_PATCH, self._updater())

    def _text(self, value: Any) -> str:
        """With the blanks that clients in Python write, or without any as those in Go: raw JSON is stored with them."""
        separators = (", ", ": ") if self._chance(0.2) else (",", ":")
        return json.dumps(value, ensure_ascii=False, separators=separators)

    def _delete(self) -> Write:
        return Write("DELETE", "", {}, {}, "")

    def _request(
        self,
        method: str,
        body: str,
        media: str = "application/json",
        query: Mapping[str, str] | None = None,
        *,
        named: bool = True,
    ) -> Write:
        asked = {name: value for name, value in (query or {}).items() if value}
        if self._chance(0.08):
            asked["dryRun"] = "All"
        if self._chance(0.3):
            asked["fieldValidation"] = self._one(("Strict", "Strict", "Warn", "Ignore"))
        headers = {"Content-Type": media, "User-Agent": self._one(AGENTS)}
        return Write(method, "status" if self._status and named else "", asked, headers, body, named)

    def _updater(self) -> dict[str, str]:
        query = {"fieldManager": self._one(UPDATERS)} if self._chance(0.6) else {}
        return query | ({"force": "true"} if self._chance(0.01) else {})

    # Members

    def _one(self, of: Sequence[T]) -> T:
        return self._objects.one(of)

    def _chance(self, of: float) -> bool:
        return self._objects.chance(of)

    def _fragment(self, *, nulls: float = 0.0) -> Object:
        """Part of an object in this version, which names its kind; a new object has everything that it needs."""
        whole = conversion.served(self._kind, self._objects.whole(self._plural))
        spec = whole.pop("spec")
        obj = self._thinned(whole, self._one((0.1, 0.4, 0.7)), nulls)
        obj["metadata"] = obj.get("metadata") or {}
        if self._live is None:
            obj["spec"] = spec
        elif self._chance(0.6) and not self._status:
            keeps = self._plural.startswith("resourceclaim") and self._chance(0.95)
            obj["spec"] = self._kept() if keeps else spec
            if self._chance(0.2):
                obj["spec"] = self._thinned(obj["spec"], 0.3, nulls)
        if "status" in obj and not self._status and self._chance(0.7):
            del obj["status"]
        return {"apiVersion": f"{GROUP}/{self._kind.version}", "kind": self._kind.kind, **obj}

    def _kept(self) -> Object:
        """The spec as it stands, with or without what was defaulted."""
        spec: Object = copy.deepcopy((self._live or {})["spec"])
        return _undefaulted(spec) if self._chance(0.5) else spec

    def _thinned(self, value: Any, chance: float, nulls: float) -> Any:
        """Without some of its members, and of its items in lists that are merged; others may be null or empty."""
        if isinstance(value, dict):
            found = {}
            for name, member in value.items():
                if name in KEYS or not self._chance(chance):
                    found[name] = self._thinned(member, chance, nulls)
                    if nulls and self._chance(nulls):
                        found[name] = self._one((None, type(member)()))
            return found
        if isinstance(value, list) and _is_merged(value):
            # Items are drawn already, and most of their members are required.
            return [self._thinned(item, chance / 8, 0.0) for item in value if not self._chance(chance / 2)]
        return value

    def _is_mixed(self) -> bool:
        """Whether managers see the object in other versions, where it is no text that is compared."""
        entries = (self._live or {}).get("metadata", {}).get("managedFields") or []
        return any(entry.get("apiVersion") != f"{GROUP}/{self._kind.version}" for entry in entries)

    def _pin(self, obj: Object, chance: float) -> None:
        """A uid or a version that must be the object's."""
        live = (self._live or {}).get("metadata", {})
        if self._chance(chance):
            obj["metadata"]["uid"] = self._one((live.get("uid", SHARE), SHARE))
        if self._chance(chance):
            obj["metadata"]["resourceVersion"] = self._one((live.get("resourceVersion", STALE), STALE))
        if self._chance(chance):
            obj["metadata"]["creationTimestamp"] = None

    def _spoil(self, obj: Object) -> None:
        """Rarely: what an apply must not say."""
        if self._chance(0.92):
            return
        if self._chance(0.2):
            obj["metadata"]["managedFields"] = self._one(([], [{}], None, [{"manager": "one"}]))
        elif self._chance(0.2):
            obj[self._one(("kind", "apiVersion"))] = self._one(("", "v1", "ResourceClaimTemplate"))
        elif self._chance(0.2):
            obj["metadata"]["namespace"] = self._one((self._namespace, "another"))
        elif self._chance(0.3):
            obj.setdefault("spec", {})["nothing"] = 1
        elif self._chance(0.5):
            obj["metadata"]["finalizers"] = self._one(
                (["example.com/one"] * 2, "example.com/one", [None], [["a"]], [{}])
            )
        else:
            obj["metadata"]["labels"] = self._one(({"a": 1}, {"a": None}, [], "a"))

    def _document(self, obj: Object) -> str:
        """JSON or YAML; rarely with a member named twice."""
        if self._chance(0.25):
            return yaml.dump(obj, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=self._chance(0.5))
        said = json.dumps(obj, ensure_ascii=self._chance(0.5))
        return said.replace('"labels": {', '"labels": {"a": "3", ', 1) if self._chance(0.03) else said

    def _change(self, obj: Object) -> None:
        """One of a whole object."""
        other = self._fragment()
        part = "status" if self._status or (self._plural == "resourceclaims" and self._chance(0.3)) else "spec"
        choice = self._random.random()
        if choice < 0.4:
            obj["metadata"] |= {name: value for name, value in other["metadata"].items() if self._chance(0.5)}
        elif choice < 0.5:
            obj["metadata"].pop(self._one(("labels", "annotations", "finalizers", "ownerReferences")), None)
        elif choice < 0.6:
            self._repeat(obj)
        elif choice < 0.95 and (made := other.get(part)):
            obj[part] = made if self._chance(0.5) else {**(obj.get(part) or {}), **made}
        else:
            obj.pop(part, None)

    def _repeat(self, obj: Object) -> None:
        """Items twice in a list that is merged."""
        name = self._one(("finalizers", "ownerReferences"))
        held = obj["metadata"].get(name) or self._objects.metadata()[name]
        again = copy.deepcopy(self._one(held))
        if name == "ownerReferences" and self._chance(0.7):
            again["name"] = "again"
        obj["metadata"][name] = [*held, again]

    def _managers(self, held: Sequence[Object]) -> list[Object]:
        """managedFields as clients send them: a reset, some of what is held, or their own."""
        entries = copy.deepcopy(list(held))
        entry: Object = {"manager": "own", "operation": "Update", "apiVersion": f"{GROUP}/v1", "time": TIME}
        entry |= {"fieldsType": "FieldsV1"}
        entry["fieldsV1"] = {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:devices": {}}}
        choice = self._random.random()
        if choice < 0.2:
            return []
        if choice < 0.4:
            return [{}]
        if choice < 0.6 and entries:
            entries.pop(self._random.randrange(len(entries)))
        elif choice < 0.75 and entries:
            self._one(entries).update(self._one(({"manager": "renamed"}, {"operation": "Apply"}, {"time": TIME})))
        elif choice < 0.9:
            entries.append(entry | self._one(({}, {"operation": "Apply"}, {"subresource": "status"}, {"manager": ""})))
        else:
            entries.append(entry | self._one(WRONG_ENTRIES))
        return entries

    def _patch(self) -> Object:
        patch = self._fragment(nulls=0.12)
        if self._chance(0.7):
            patch.pop("apiVersion")
            patch.pop("kind")
        self._pin(patch, 0.05)
        held = (self._live or {}).get("metadata", {}).get("managedFields") or []
        if self._chance(0.08):
            patch["metadata"]["managedFields"] = self._managers(held)
        if self._chance(0.03):
            patch.setdefault("spec", {})["nothing"] = 1
        return patch

    def _direct(self, patch: Object) -> None:
        """Directives of a strategic merge patch; few of them wrong."""
        metadata, choice = patch["metadata"], self._random.random()
        if choice < 0.2:
            metadata["ownerReferences"] = [{"$patch": "delete", "uid": self._one(OWNERS)}]
        elif choice < 0.35:
            # Upstream follows both in no order.
            metadata.pop("finalizers", None)
            metadata["$deleteFromPrimitiveList/finalizers"] = self._objects.some(FINALIZERS)
        elif choice < 0.45:
            metadata["$setElementOrder/finalizers"] = self._objects.some(FINALIZERS, least=1)
        elif choice < 0.55:
            order = self._objects.some(OWNERS, least=1)
            metadata["$setElementOrder/ownerReferences"] = [{"uid": uid} for uid in order]
        elif choice < 0.65:
            self._direct_status(patch)
        elif choice < 0.75:
            metadata["$retainKeys"] = self._objects.some(sorted({*metadata, "labels", "name"}))
        elif choice < 0.85:
            part = self._one(("metadata", "labels", "annotations"))
            within = metadata if part == "metadata" else metadata.setdefault(part, {}) or {}
            within["$patch"] = self._one(("replace", "replace", "delete", "merge"))
        elif choice < 0.9:
            metadata["ownerReferences"] = [{"$patch": "replace"}, self._objects.owner(self._one(OWNERS))]
        else:
            metadata.pop("finalizers", None)
            metadata[self._one(DIRECTIVES)] = self._one(("x", 1, ["x"], [1], {}, None))

    def _direct_status(self, patch: Object) -> None:
        status = patch.setdefault("status", {})
        if isinstance(status, dict):
            order = self._objects.some(OWNERS, least=1)
            status["reservedFor"] = [{"$patch": "delete", "uid": order[0]}]
            if self._chance(0.5):
                status["$setElementOrder/reservedFor"] = [{"uid": uid} for uid in order]

    def _operation(self) -> Object:
        live = self._live or self._fragment()
        made = self._fragment()
        choice = self._random.random()
        if choice < 0.15:
            held = live["metadata"].get("managedFields") or []
            return {"op": "replace", "path": "/metadata/managedFields", "value": self._managers(held)}
        if choice < 0.22:
            version = self._one((live["metadata"].get("resourceVersion", STALE), STALE))
            return {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
        if choice < 0.35:
            return {"op": "add", "path": "/metadata/finalizers/-", "value": self._one(FINALIZERS)}
        if choice < 0.5:
            return {"op": "remove", "path": self._one(_pointers(live))}
        if choice < 0.55:
            return {"op": "test", "path": "/metadata/labels/a", "value": self._one("123")}
        path = self._one(_pointers(made))
        return {"op": self._one(("add", "replace")), "path": path, "value": _at(made, path)}


def _undefaulted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _undefaulted(member) for name, member in value.items() if name not in DEFAULTED}
    return [_undefaulted(item) for item in value] if isinstance(value, list) else value


def _is_merged(items: Sequence[Any]) -> bool:
    return all(
        item in FINALIZERS if isinstance(item, str) else isinstance(item, dict) and _is_keyed(item) for item in items
    )


def _is_keyed(item: Object) -> bool:
    return not KEYS.isdisjoint(item) and "request" not in item


def _pointers(value: Any, at: str = "", depth: int = 3) -> list[str]:
    """To what stands in a value, not too deep."""
    if not depth or not isinstance(value, dict | list):
        return []
    members = value.items() if isinstance(value, dict) else enumerate(value)
    found = []
    for name, member in members:
        path = f"{at}/{str(name).replace('~', '~0').replace('/', '~1')}"
        found += [path, *_pointers(member, path, depth - 1)]
    return found


def _at(value: Any, path: str) -> Any:
    for name in path.split("/")[1:]:
        value = value[int(name)] if isinstance(value, list) else value[name.replace("~1", "/").replace("~0", "~")]
    return value
