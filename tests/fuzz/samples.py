"""Random objects of the four kinds that break no rule, as drivers, users and schedulers would write them: what mutations begin with.

Each declared member is there in some of them.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Object = dict[str, Any]
T = TypeVar("T")

DRIVERS = ("gpu.example.com", "nic.example.com", "Dra.Example.com", "d")
ATTRIBUTES = ("model", "dra.example.com/numa", "gpu.example.com/family", "x_1", "A")
CAPACITIES = ("memory", "gpu.example.com/cores", "dra.example.com/bandwidth")
AMOUNTS = ("1", "2Gi", "500m", "0.5", "1e3", "1500Mi", "0", "12E", "100k", "5000000000", 7, "1.5Gi", "0.1n", "+3")
LABEL_VALUES = ("", "a", "on-call", "v1.2_3", "X")
EFFECTS = ("NoSchedule", "NoExecute", "None")
TIMES = ("2024-02-29T12:00:00Z", "2025-06-01T23:59:59+02:00", "1970-01-01T00:00:00Z")
EXPRESSIONS = (
    "true",
    'device.driver == "gpu.example.com"',
    'device.attributes["dra.example.com"].numa == 1',
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) >= 0',
    "device.allowMultipleAllocations",
)
PARAMETERS: tuple[Any, ...] = (
    {},
    {"kind": "GpuConfig", "apiVersion": "gpu.example.com/v1", "strategy": "<a>&\u2028"},
    {"a": [1, 1.5, None, True, {"b": "é"}], "c": 10**20},
)
ADDRESSES = ("192.0.2.5/24", "2001:db8::5/64", "::1/128", "10.0.0.0/8")
FINALIZERS = ("example.com/one", "resource.kubernetes.io/delete-protection", "orphan")


class Samples:
    """Draws from one source of randomness."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._names = 0

    # Words

    def _one(self, of: Sequence[T]) -> T:
        return self._random.choice(of)

    def _chance(self, of: float) -> bool:
        return self._random.random() < of

    def _some(self, make: Callable[[], T], most: int, least: int = 0) -> list[T]:
        return [make() for _ in range(self._random.randint(least, most))]

    def _maybe(self, obj: Object, name: str, make: Callable[[], Any], chance: float = 0.4) -> None:
        if self._chance(chance):
            obj[name] = make()

    def _name(self) -> str:
        """One that is used once in an object."""
        self._names += 1
        return f"{self._one(('gpu', 'n', '0', 'a-b'))}-{self._names}"

    def _subdomain(self) -> str:
        return self._one(("gpu", "gpu.example.com", "a-1.b", "9"))

    def _uid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def _flag(self) -> bool:
        return self._chance(0.5)

    # Metadata

    def metadata(self) -> Object:
        name = self._name()
        found: Object = {"generateName": f"{name}-"} if self._chance(0.1) else {"name": name}
        self._maybe(found, "labels", self._labels, 0.2)
        self._maybe(found, "annotations", lambda: {"example.com/Note": "ünï", "a": ""}, 0.15)
        self._maybe(found, "ownerReferences", lambda: self._some(self._owner, 2), 0.15)
        self._maybe(found, "finalizers", lambda: self._random.sample(FINALIZERS, 2), 0.15)
        return found

    def _labels(self) -> Object:
        return {self._one(("app", "example.com/tier", "A.b_c")): self._one(LABEL_VALUES) for _ in range(2)}

    def _owner(self) -> Object:
        owner: Object = {
            "apiVersion": self._one(("v1", "apps/v1")),
            "kind": "Pod",
            "name": self._name(),
            "uid": self._uid(),
        }
        self._maybe(owner, "blockOwnerDeletion", self._flag)
        return owner

    # Slices

    def resourceslices(self) -> Object:
        spec: Object = {
            "driver": self._one(DRIVERS),
            "pool": {
                "name": self._one(("node-1", "a/b.c/d", "pool")),
                "generation": self._one((0, 1, 7)),
                "resourceSliceCount": 1,
            },
        }
        selection = self._one(("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"))
        spec[selection] = {"nodeName": "node-1", "nodeSelector": self._node_selector(terms=1)}.get(selection, True)
        if self._chance(0.25):
            spec["sharedCounters"] = self._some(lambda: {"name": self._name(), "counters": self._counters()}, 3, 1)
        elif self._chance(0.9):
            spec["devices"] = self._some(lambda: self._device(nodes=selection == "perDeviceNodeSelection"), 3)
        return {"metadata": self.metadata(), "spec": spec}

    def _counters(self) -> Object:
        return {name: {"value": self._one(AMOUNTS)} for name in self._random.sample(("memory", "cores", "a-b", "9"), 2)}

    def _device(self, *, nodes: bool) -> Object:
        device: Object = {"name": self._name()}
        shared = self._chance(0.4)
        self._maybe(
            device,
            "attributes",
            lambda: {name: self._attribute() for name in self._random.sample(ATTRIBUTES, self._random.randint(0, 3))},
            0.6,
        )
        self._maybe(
            device,
            "capacity",
            lambda: {
                name: self._capacity(shared=shared)
                for name in self._random.sample(CAPACITIES, self._random.randint(0, 2))
            },
            0.6,
        )
        if nodes:
            selection = self._one(("nodeName", "nodeSelector", "allNodes"))
            device[selection] = {"nodeName": "node-1", "nodeSelector": self._node_selector()}.get(selection, True)
        if self._chance(0.3):
            sets = self._random.sample(("one", "two", "three"), self._random.randint(0, 2))
            device["consumesCounters"] = [{"counterSet": name, "counters": self._counters()} for name in sets]
        self._maybe(device, "taints", lambda: self._some(self._taint, 2))
        self._maybe(device, "bindsToNode", self._flag, 0.2)
        self._maybe(device, "nodeAllocatableResourceMappings", lambda: {"cpu": {"allocationMultiplier": "2"}}, 0.05)
        if shared:
            device["allowMultipleAllocations"] = True
        if self._chance(0.3):
            device |= self._binding()
        return device

    def _attribute(self) -> Object:
        return self._one(
            (
                {"int": self._random.randint(-5, 5)},
                {"bool": self._flag()},
                {"string": self._one(("", "a", "é" * 32))},
                {"version": self._one(("1.2.3", "0.0.0-rc.1+b-1"))},
            )
        )

    def _capacity(self, *, shared: bool) -> Object:
        found: Object = {"value": "10Gi"} if self._chance(0.5) else {"value": self._one(AMOUNTS)}
        if shared and found["value"] == "10Gi":
            self._maybe(found, "requestPolicy", self._policy, 0.7)
        return found

    def _policy(self) -> Object:
        bounds: Object = {"min": "1Gi"}
        self._maybe(bounds, "max", lambda: "9Gi")
        self._maybe(bounds, "step", lambda: "1Gi")
        return self._one(
            (
                {"default": "1Gi"},
                {},
                {"default": "2Gi", "validValues": ["1Gi", "2Gi", "10Gi"]},
                {"default": "4Gi", "validRange": bounds},
            )
        )

    def _taint(self) -> Object:
        taint: Object = {"key": self._one(("a", "example.com/b")), "effect": self._one(EFFECTS)}
        self._maybe(taint, "value", lambda: self._one(LABEL_VALUES))
        self._maybe(taint, "timeAdded", lambda: self._one(TIMES))
        return taint

    def _binding(self) -> Object:
        return {"bindingConditions": ["Ready", "example.com/Up"], "bindingFailureConditions": ["Failed"]}

    def _node_selector(self, terms: int = 2) -> Object:
        return {"nodeSelectorTerms": self._some(self._term, terms, 1)}

    def _term(self) -> Object:
        term: Object = {}
        self._maybe(term, "matchExpressions", lambda: self._some(self._requirement, 2))
        self._maybe(
            term, "matchFields", lambda: [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}], 0.3
        )
        return term

    def _requirement(self) -> Object:
        operator = self._one(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        found: Object = {"key": self._one(("a", "example.com/zone")), "operator": operator}
        if operator in ("In", "NotIn"):
            found["values"] = [self._one(LABEL_VALUES), "b"]
        elif operator in ("Gt", "Lt"):
            found["values"] = [self._one(("1", "a"))]
        return found

    # Classes, claims, templates

    def deviceclasses(self) -> Object:
        spec: Object = {}
        self._maybe(spec, "selectors", lambda: self._some(self._selector, 3))
        self._maybe(spec, "config", lambda: self._some(self._configuration, 2))
        self._maybe(spec, "extendedResourceName", lambda: self._one(("example.com/gpu", "a.b/C_d")))
        return {"metadata": self.metadata(), "spec": spec}

    def devicetaintrules(self) -> Object:
        spec: Object = {"taint": self._taint()}
        self._maybe(spec, "deviceSelector", self._selected, 0.9)
        return {"metadata": self.metadata(), "spec": spec}

    def _selected(self) -> Object:
        found: Object = {}
        self._maybe(found, "driver", lambda: self._one(DRIVERS))
        self._maybe(found, "pool", lambda: self._one(("pool", "a/b.c")))
        self._maybe(found, "device", self._name)
        return found

    def _selector(self) -> Object:
        return {"cel": {"expression": self._one(EXPRESSIONS)}}

    def _configuration(self) -> Object:
        return {"opaque": {"driver": self._one(DRIVERS), "parameters": self._one(PARAMETERS)}}

    def resourceclaims(self) -> Object:
        return {"metadata": self.metadata(), "spec": self._claim_spec()}

    def resourceclaimtemplates(self) -> Object:
        spec: Object = {"spec": self._claim_spec()}
        self._maybe(spec, "metadata", lambda: {"labels": self._labels(), "annotations": {"Example.com/a": "b"}})
        return {"metadata": self.metadata(), "spec": spec}

    def _claim_spec(self) -> Object:
        requests = self._some(self._request, 3)
        known = [name for request in requests for name in names_of(request)]
        devices: Object = {"requests": requests}

        def referring(found: Object) -> Object:
            self._maybe(found, "requests", lambda: self._random.sample(known, min(2, len(known))), 0.6)
            return found

        self._maybe(
            devices,
            "constraints",
            lambda: self._some(
                lambda: referring({self._one(("matchAttribute", "distinctAttribute")): "dra.example.com/numa"}), 2
            ),
        )
        self._maybe(devices, "config", lambda: self._some(lambda: referring(self._configuration()), 2))
        return {"devices": devices}

    def _request(self) -> Object:
        request: Object = {"name": self._name()}
        if self._chance(0.6):
            request["exactly"] = self._wanted()
            self._maybe(request["exactly"], "adminAccess", self._flag, 0.15)
        else:
            request["firstAvailable"] = self._some(lambda: {"name": self._name(), **self._wanted()}, 2, 1)
        return request

    def _wanted(self) -> Object:
        found: Object = {"deviceClassName": self._subdomain()}
        self._maybe(found, "selectors", lambda: self._some(self._selector, 2))
        if self._chance(0.4):
            found |= self._one(
                ({"allocationMode": "All"}, {"allocationMode": "ExactCount", "count": 3}, {"count": 2**40})
            )
        self._maybe(found, "tolerations", lambda: self._some(self._toleration, 2))
        self._maybe(found, "capacity", lambda: self._one(({}, {"requests": {"memory": self._one(AMOUNTS)}})))
        return found

    def _toleration(self) -> Object:
        found: Object = self._one(
            (
                {"operator": "Exists"},
                {"key": "example.com/a", "operator": "Equal", "value": self._one(LABEL_VALUES)},
                {"key": "a"},
            )
        )
        found = dict(found)
        self._maybe(found, "effect", lambda: self._one(EFFECTS))
        self._maybe(found, "tolerationSeconds", lambda: self._one((0, 60, -1)))
        return found

    # The status of a claim

    def status(self, claim: Object) -> Object:
        """One that fits the claim's requests, while nothing is stored."""
        known = [name for request in claim["spec"]["devices"]["requests"] or () for name in names_of(request)]
        found: Object = {}
        if not known or self._chance(0.1):
            return found
        results = self._some(lambda: self._result(known), 3, 1)
        allocation: Object = {"devices": {"results": results}}
        self._maybe(
            allocation["devices"],
            "config",
            lambda: self._some(lambda: {"source": self._one(("FromClass", "FromClaim")), **self._configuration()}, 2),
        )
        self._maybe(allocation, "nodeSelector", self._node_selector)
        self._maybe(allocation, "allocationTimestamp", lambda: self._one(TIMES))
        found["allocation"] = allocation
        self._maybe(found, "reservedFor", lambda: self._some(self._consumer, 3), 0.6)
        if self._chance(0.7):
            found["devices"] = [self._report(result) for result in self._random.sample(results, 1)]
        return found

    def _result(self, known: Sequence[str]) -> Object:
        found: Object = {
            "request": self._one(known),
            "driver": self._one(DRIVERS),
            "pool": "node-1",
            "device": self._name(),
        }
        self._maybe(found, "adminAccess", self._flag, 0.1)
        self._maybe(found, "tolerations", lambda: self._some(self._toleration, 2), 0.2)
        self._maybe(found, "shareID", self._uid, 0.3)
        self._maybe(found, "consumedCapacity", lambda: {"memory": self._one(AMOUNTS)}, 0.3)
        if self._chance(0.2):
            found |= self._binding()
        return found

    def _consumer(self) -> Object:
        found: Object = {"resource": "pods", "name": self._name(), "uid": self._uid()}
        self._maybe(found, "apiGroup", lambda: "apps", 0.2)
        return found

    def _report(self, result: Object) -> Object:
        found: Object = {name: result[name] for name in ("driver", "pool", "device", "shareID") if name in result}
        self._maybe(found, "conditions", lambda: [self._condition(kind) for kind in ("Ready", "example.com/Up")])
        self._maybe(found, "data", lambda: self._one(PARAMETERS))
        self._maybe(
            found,
            "networkData",
            lambda: {"interfaceName": "eth0", "ips": list(ADDRESSES[:2]), "hardwareAddress": "00:00:5e:00:53:01"},
        )
        return found

    def _condition(self, kind: str) -> Object:
        return {
            "type": kind,
            "status": self._one(("True", "False", "Unknown")),
            "lastTransitionTime": self._one(TIMES),
            "reason": self._one(("A", "Reason_1", "a:b,c")),
            "message": self._one(("", "é", "all is well")),
            "observedGeneration": self._one((0, 3)),
        }


def names_of(request: Object) -> list[str]:
    """How a request, and its alternatives, can be referred to."""
    name = request["name"]
    return [name, *(f"{name}/{sub['name']}" for sub in request.get("firstAvailable") or ())]
