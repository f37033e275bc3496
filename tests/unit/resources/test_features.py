"""Members behind a feature gate, and their fate when the gate is off."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle
from tests.unit.resources.samples import CLAIM, KINDS, NOW, RESULT, SLICE, context_of, decoded, with_spec

TOLERATION = {"key": "a", "operator": "Exists"}
WISH = {"deviceClassName": "c", "tolerations": [TOLERATION], "capacity": {"requests": {"memory": "1Gi"}}}
REQUESTS = [{"name": "main", "exactly": WISH}, {"name": "other", "firstAvailable": [{"name": "a", **WISH}]}]
DEVICES = {"requests": REQUESTS, "constraints": [{"matchAttribute": "a/b"}, {"distinctAttribute": "a/b"}]}
DEVICE = {
    "name": "gpu-0",
    "attributes": {"model": {"string": "x"}, "links": {"ints": [1]}},
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "nodeName": "n1",
    "nodeSelector": {"nodeSelectorTerms": []},
    "allNodes": False,
    "taints": [{"key": "a", "effect": "None"}],
    "bindsToNode": False,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["f"],
    "allowMultipleAllocations": False,
    "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}},
}
ALLOCATED = {
    **RESULT,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["f"],
    "shareID": "s",
    "consumedCapacity": {"memory": "1"},
}
STATUS = {"allocation": {"devices": {"results": [ALLOCATED]}}, "devices": [{**RESULT, "shareID": "s"}]}
COUNTERS = [{"name": "s", "counters": {"c": {"value": "1"}}}]
USING: dict[str, dict[str, Any]] = {
    "DeviceClass": {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "a.example/gpu"}},
    "ResourceClaim": {**with_spec(CLAIM, devices=DEVICES), "status": STATUS},
    "ResourceClaimTemplate": {**CLAIM, "spec": {"spec": {"devices": DEVICES}}},
    "ResourceSlice": with_spec(SLICE, devices=[DEVICE], sharedCounters=COUNTERS, perDeviceNodeSelection=False),
}
"""Every field that any gate guards, in use."""

SPEC = {
    "DRAPrioritizedList": {"firstAvailable", "firstAvailable.capacity"},
    "DRADeviceTaints": {"tolerations"},
    "DRAConsumableCapacity": {"distinctAttribute", "exactly.capacity", "firstAvailable.capacity"},
}
GUARDED: dict[str, dict[str, set[str]]] = {
    "DeviceClass": {"DRAExtendedResource": {"extendedResourceName"}},
    "ResourceClaim": {
        **SPEC,
        "DRAConsumableCapacity": {*SPEC["DRAConsumableCapacity"], "shareID", "consumedCapacity"},
        "DRAResourceClaimDeviceStatus": {"status.devices", "bindingConditions", "bindingFailureConditions"},
        "DRADeviceBindingConditions": {"bindingConditions", "bindingFailureConditions"},
    },
    "ResourceClaimTemplate": SPEC,
    "ResourceSlice": {
        "DRADeviceTaints": {"taints"},
        "DRAPartitionableDevices": {
            *("spec.sharedCounters", "spec.perDeviceNodeSelection", "consumesCounters"),
            *("device.nodeName", "nodeSelector", "allNodes"),
        },
        "DRADeviceBindingConditions": {"bindsToNode", "bindingConditions", "bindingFailureConditions"},
        "DRAResourceClaimDeviceStatus": {"bindsToNode", "bindingConditions", "bindingFailureConditions"},
        "DRAConsumableCapacity": {"allowMultipleAllocations", "requestPolicy"},
        "DRAListTypeAttributes": {"ints"},
        "DRANodeAllocatableResources": {"nodeAllocatableResourceMappings"},
    },
}
SELECTING = {"DRAConsumableCapacity", "DRAListTypeAttributes"}
"""Gates that decide which members an expression about devices may use."""
GATES = [(kind, gate) for kind, gates in GUARDED.items() for gate in gates]
LOOSE = {member for gates in GUARDED.values() for members in gates.values() for member in members}


def present(value: Any, at: str = "") -> Iterator[str]:
    """The guarded members of a value. A name that has another meaning elsewhere is recognised by its parent."""
    if isinstance(value, dict):
        for name, inner in value.items():
            place = "device" if at == "devices" else at
            yield from {name, f"{place}.{name}"} & LOOSE
            yield from present(inner, name)
    elif isinstance(value, list):
        for item in value:
            yield from present(item, at)


def prepared(resource: Resource, old: dict[str, Any] | None, *off: str) -> tuple[Object, set[str]]:
    """With every gate on but those that are `off` and those that need them. Without `old` it is created, and then gets its status."""
    new = decoded(resource, USING[resource.kind])
    stored = None if old is None else decoded(resource, old)
    on = {g.name: not {g.name, *(needed.name for needed in g.needs)} & set(off) for g in resource.gates}
    context = context_of(resource, **on)
    resource.prepare(context, new, stored)
    for sub in resource.subresources:
        sub.prepare(context, new, decoded(resource, CLAIM) if stored is None else stored)
    return new, set(present(new))


@pytest.mark.parametrize("kind", sorted(GUARDED))
def test_the_kinds_declare_the_gates_of_1_36(kind: str) -> None:
    declared = set(GUARDED[kind]) | (SELECTING if kind != "ResourceSlice" else set())
    if kind == "ResourceClaim":
        declared |= {"DRAResourceClaimGranularStatusAuthorization"}
    assert {gate.name for gate in KINDS[kind].gates} == declared
    off = {gate.name for gate in KINDS[kind].gates if not gate.default}
    assert off == {"DRAListTypeAttributes", "DRANodeAllocatableResources"} & declared


@pytest.mark.parametrize("kind", sorted(GUARDED))
def test_nothing_goes_while_every_gate_is_on(kind: str) -> None:
    new, found = prepared(KINDS[kind], None)
    assert new == decoded(KINDS[kind], USING[kind])
    assert found == set().union(*GUARDED[kind].values())


@pytest.mark.parametrize(("kind", "gate"), GATES)
def test_exactly_what_a_gate_guards_goes_while_it_is_off(kind: str, gate: str) -> None:
    everything = set().union(*GUARDED[kind].values())
    assert prepared(KINDS[kind], None, gate)[1] == everything - GUARDED[kind][gate]


@pytest.mark.parametrize(("kind", "gate"), GATES)
def test_features_that_the_stored_object_uses_stay(kind: str, gate: str) -> None:
    stored = copy.deepcopy(USING[kind])
    new, _ = prepared(KINDS[kind], stored, gate)
    assert new == decoded(KINDS[kind], USING[kind])


def test_a_use_of_one_feature_does_not_save_another() -> None:
    tainted = with_spec(SLICE, devices=[{"name": "x", "taints": [{"key": "a", "effect": "None"}]}])
    _, found = prepared(KINDS["ResourceSlice"], tainted, "DRADeviceTaints", "DRAPartitionableDevices")
    assert "taints" in found
    assert "consumesCounters" not in found


def test_features_used_by_a_status_do_not_enable_them_in_the_spec() -> None:
    """The other way round it does: upstream looks at spec and status before it drops from the status, and at the spec alone before that."""
    claim, off = KINDS["ResourceClaim"], "DRAConsumableCapacity"
    bare = {**CLAIM, "status": STATUS}
    _, found = prepared(claim, bare, off)
    assert not {"distinctAttribute", "exactly.capacity"} & found
    assert {"shareID", "consumedCapacity"} <= found
    _, found = prepared(claim, {**USING["ResourceClaim"], "status": {}}, off)
    assert {"distinctAttribute", "exactly.capacity", "shareID", "consumedCapacity"} <= found


@pytest.mark.parametrize(("kind", "generation"), [("ResourceSlice", 8), ("DeviceClass", 7)])
def test_dropped_fields_are_a_change_of_a_slice_but_not_of_a_class(kind: str, generation: int) -> None:
    resource = KINDS[kind]
    gates = ("DRADeviceTaints", "DRAExtendedResource")
    off = context_of(resource, **{gate.name: False for gate in resource.gates if gate.name in gates})
    stored = decoded(resource, SLICE if kind == "ResourceSlice" else {"metadata": {"name": "c"}, "spec": {}})
    stored["metadata"] |= {"uid": "u", "generation": 7}
    new = copy.deepcopy(stored)
    if kind == "ResourceSlice":
        new["spec"]["devices"][0]["taints"] = [{"key": "a", "effect": "None", "timeAdded": NOW}]
    else:
        new["spec"]["extendedResourceName"] = "a.example/gpu"
    lifecycle.prepare_update(off, resource, new, stored, sub=None)
    assert new["spec"] == stored["spec"]
    assert new["metadata"]["generation"] == generation
