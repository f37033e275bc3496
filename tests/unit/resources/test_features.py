"""Members behind a feature gate, and their fate when the gate is off."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, SUPPORTED, V1_36, V1_37, Release
from apiserver.resources import _features
from apiserver.schema.featuregate import Gate, Gates, InvalidGates
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import lifecycle
from tests.unit.resources.samples import (
    BY_RELEASE,
    CLAIM,
    KINDS,
    NOW,
    RESULT,
    SLICE,
    all_on,
    context_of,
    decoded,
    with_spec,
)

TOLERATION = {"key": "a", "operator": "Exists"}
OLD_WISH = {"deviceClassName": "c", "tolerations": [TOLERATION], "capacity": {"requests": {"memory": "1Gi"}}}
WISH = {**OLD_WISH, "derivedAttributes": [{"name": "a/b", "expression": "1"}]}
CONSUMED = {"counterSet": "s", "counters": {"c": {"value": "1"}}}


def devices(wish: dict[str, Any]) -> dict[str, Any]:
    requests = [{"name": "main", "exactly": wish}, {"name": "other", "firstAvailable": [{"name": "a", **wish}]}]
    return {"requests": requests, "constraints": [{"matchAttribute": "a/b"}, {"distinctAttribute": "a/b"}]}


OLD_DEVICE = {
    "name": "gpu-0",
    "attributes": {"model": {"string": "x"}, "links": {"ints": [1]}},
    "capacity": {"memory": {"value": "80Gi", "requestPolicy": {"default": "1Gi"}}},
    "consumesCounters": [CONSUMED],
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
DEVICE = {
    **{name: value for name, value in OLD_DEVICE.items() if name != "nodeAllocatableResourceMappings"},
    "consumesCounters": [{**CONSUMED, "compatibilityGroups": ["g"]}],
    "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}},
}
ALLOCATED = {
    **RESULT,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["f"],
    "shareID": "s",
    "consumedCapacity": {"memory": "1"},
}


def status(result: dict[str, Any]) -> dict[str, Any]:
    return {"allocation": {"devices": {"results": [result]}}, "devices": [{**RESULT, "shareID": "s"}]}


STATUS = status({**ALLOCATED, "skipNodeOperations": ["*"]})
COUNTERS = [{"name": "s", "counters": {"c": {"value": "1"}}}]


def using(wish: dict[str, Any], result: dict[str, Any], device: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "DeviceClass": {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "a.example/gpu"}},
        "ResourceClaim": {**with_spec(CLAIM, devices=devices(wish)), "status": status(result)},
        "ResourceClaimTemplate": {**CLAIM, "spec": {"spec": {"devices": devices(wish)}}},
        "ResourceSlice": with_spec(
            SLICE, devices=[device], sharedCounters=COUNTERS, perDeviceNodeSelection=False, **spec
        ),
    }


USING: dict[Release, dict[str, Any]] = {
    V1_36: using(OLD_WISH, ALLOCATED, OLD_DEVICE),
    V1_37: using(
        WISH,
        {**ALLOCATED, "skipNodeOperations": ["*"]},
        DEVICE,
        partitionTypeAttribute="a/b",
        skipNodeOperations=["*"],
    ),
}
"""Every field that any gate guards, in use."""

SPEC = {
    "DRAPrioritizedList": {"firstAvailable", "firstAvailable.capacity"},
    "DRADeviceTaints": {"tolerations"},
    "DRAConsumableCapacity": {"distinctAttribute", "exactly.capacity", "firstAvailable.capacity"},
}
OLD_GUARDED: dict[str, dict[str, set[str]]] = {
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
DERIVED = {"DRADerivedAttributes": {"derivedAttributes"}}
OPERATIONS = {"DRAOptionalNodeOperations": {"skipNodeOperations"}}
GUARDED: dict[Release, dict[str, dict[str, set[str]]]] = {
    V1_36: OLD_GUARDED,
    V1_37: {
        "DeviceClass": OLD_GUARDED["DeviceClass"],
        "ResourceClaim": OLD_GUARDED["ResourceClaim"] | DERIVED | OPERATIONS,
        "ResourceClaimTemplate": SPEC | DERIVED,
        "ResourceSlice": {
            **OLD_GUARDED["ResourceSlice"],
            **OPERATIONS,
            "DRAPartitionableDevices": {
                *OLD_GUARDED["ResourceSlice"]["DRAPartitionableDevices"],
                *("compatibilityGroups", "partitionTypeAttribute"),
            },
            "DRADeviceCompatibilityGroups": {"compatibilityGroups"},
            "DRAPartitionableDevicesType": {"partitionTypeAttribute"},
            "DRANodeAllocatableResources": {"nodeAllocatableResources"},
        },
    },
}
SELECTING = {"DRAConsumableCapacity", "DRAListTypeAttributes"}
"""Gates that decide which members an expression about devices may use."""


def switchable(release: Release) -> Iterator[tuple[Release, str, str]]:
    """Each kind and each of its gates that can be switched off."""
    for kind, guarded in GUARDED[release].items():
        gates = {gate.name: gate.at(release) for gate in KINDS[kind].gates}
        yield from ((release, kind, name) for name in guarded if (gate := gates[name]) is not None and not gate.locked)


GATES = [each for release in SUPPORTED for each in switchable(release)]
LOOSE = {
    member for kinds in GUARDED.values() for gates in kinds.values() for members in gates.values() for member in members
}


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


def prepared(
    resource: Resource, old: dict[str, Any] | None, *off: str, release: Release = NEWEST
) -> tuple[Object, set[str]]:
    """With every gate on but those that are `off` and those that need them. Without `old` it is created, and then gets its status."""
    new = decoded(resource, USING[release][resource.kind])
    stored = None if old is None else decoded(resource, old)
    gates = {gate.name: gate for gate in _features.GATES} | {gate.name: gate for gate in resource.gates}
    on = {
        name: not {name, *(needed.name for needed in gates[name].needs)} & set(off) if name in gates else True
        for name in all_on(resource, release)
    }
    context = context_of(resource, release, **on)
    resource.prepare(context, new, stored)
    for sub in resource.subresources:
        sub.prepare(context, new, decoded(resource, CLAIM) if stored is None else stored)
    return new, set(present(new))


@pytest.mark.parametrize("kind", sorted(OLD_GUARDED))
def test_the_kinds_declare_their_gates(kind: str) -> None:
    declared = set(GUARDED[V1_37][kind]) | (SELECTING if kind != "ResourceSlice" else set())
    if kind == "ResourceSlice":
        declared |= {"DRAFractionalCapacityRange"}
    if kind == "ResourceClaim":
        declared |= {"DRAResourceClaimGranularStatusAuthorization"}
    assert {gate.name for gate in KINDS[kind].gates} == declared
    off = {gate.name for gate in KINDS[kind].gates if not gate.default}
    assert off == {name for name in declared if STAGES[name][1].endswith("off")}


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
@pytest.mark.parametrize("kind", sorted(OLD_GUARDED))
def test_nothing_goes_while_every_gate_is_on(kind: str, release: Release) -> None:
    resource = BY_RELEASE[release][kind]
    new, found = prepared(resource, None, release=release)
    assert new == decoded(resource, USING[release][kind])
    assert found == set().union(*GUARDED[release][kind].values())


@pytest.mark.parametrize(("release", "kind", "gate"), GATES)
def test_exactly_what_a_gate_guards_goes_while_it_is_off(release: Release, kind: str, gate: str) -> None:
    everything = set().union(*GUARDED[release][kind].values())
    resource = BY_RELEASE[release][kind]
    assert prepared(resource, None, gate, release=release)[1] == everything - GUARDED[release][kind][gate]


@pytest.mark.parametrize(("release", "kind", "gate"), GATES)
def test_features_that_the_stored_object_uses_stay(release: Release, kind: str, gate: str) -> None:
    stored, resource = copy.deepcopy(USING[release][kind]), BY_RELEASE[release][kind]
    new, _ = prepared(resource, stored, gate, release=release)
    assert new == decoded(resource, USING[release][kind])


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
    _, found = prepared(claim, {**USING[V1_37]["ResourceClaim"], "status": {}}, off)
    assert {"distinctAttribute", "exactly.capacity", "shareID", "consumedCapacity"} <= found


@pytest.mark.parametrize(("kind", "generation"), [("ResourceSlice", 8), ("DeviceClass", 7)])
def test_dropped_fields_are_a_change_of_a_slice_but_not_of_a_class(kind: str, generation: int) -> None:
    resource = KINDS[kind]
    gates = ("DRADeviceTaints", "DRAExtendedResource")
    switched = {gate.name: False for gate in resource.gates if gate.name in gates}
    off = context_of(resource, V1_36, **switched)
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


STAGES = {
    "DynamicResourceAllocation": ("GA locked on", "GA locked on"),
    "DRAAdminAccess": ("GA locked on", "GA locked on"),
    "DRAPrioritizedList": ("GA on", "GA locked on"),
    "DRAResourceClaimDeviceStatus": ("BETA on", "GA locked on"),
    "DRADeviceTaints": ("BETA on", "GA on"),
    "DRADeviceTaintRules": ("BETA off", "GA on"),
    "DRAPartitionableDevices": ("BETA on", "BETA on"),
    "DRADeviceCompatibilityGroups": ("", "ALPHA off"),
    "DRADeviceBindingConditions": ("BETA on", "BETA on"),
    "DRAResourceClaimGranularStatusAuthorization": ("BETA on", "BETA on"),
    "DRAConsumableCapacity": ("BETA on", "BETA on"),
    "DRAFractionalCapacityRange": ("", "BETA off"),
    "DRAExtendedResource": ("BETA on", "GA locked on"),
    "DRAListTypeAttributes": ("ALPHA off", "ALPHA off"),
    "DRADerivedAttributes": ("", "ALPHA off"),
    "DRANodeAllocatableResources": ("ALPHA off", "ALPHA off"),
    "DRAOptionalNodeOperations": ("", "ALPHA off"),
    "DRAPartitionableDevicesType": ("", "ALPHA off"),
    "DRAResourcePoolStatus": ("ALPHA off", "ALPHA off"),
    "DRAWorkloadResourceClaims": ("ALPHA off", "BETA off"),
    "GenericWorkload": ("ALPHA off", "BETA off"),
    "NodeDeclaredFeatures": ("BETA on", "GA locked on"),
}
"""The gates of 1.36 and 1.37 with default flags, as in kubernetes/kubernetes `pkg/features/kube_features.go`."""


@pytest.mark.parametrize(("release", "index"), [(V1_36, 0), (V1_37, 1)], ids=str)
def test_each_gate_has_the_stage_of_its_release(release: Release, index: int) -> None:
    declared = (*resources.GATES, *(gate for kind in resources.RESOURCES for gate in kind.gates))
    found = {gate.name: described(gate, on=on) for gate, on in Gates(declared, release=release).all()}
    wanted = {name: stages[index] for name, stages in STAGES.items() if stages[index]}
    assert {name: found[name] for name in found if not name.startswith("All")} == wanted


def described(gate: Gate, *, on: bool) -> str:
    return f"{gate.stage or 'GA'}{' locked' if gate.locked else ''} {'on' if on else 'off'}"


NEEDS = {
    "DRADeviceCompatibilityGroups": "DRAPartitionableDevices",
    "DRAFractionalCapacityRange": "DRAConsumableCapacity",
    "DRADeviceTaintRules": "DRADeviceTaints",
    "DRAPartitionableDevicesType": "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims": "GenericWorkload",
}


@pytest.mark.parametrize(("name", "needed"), NEEDS.items())
def test_a_gate_cannot_be_on_without_the_feature_that_it_builds_on(name: str, needed: str) -> None:
    declared = (*resources.GATES, *(gate for kind in resources.RESOURCES for gate in kind.gates))
    with pytest.raises(InvalidGates, match=f"^{name} is enabled, but depends on features that are disabled:.*{needed}"):
        Gates(declared, {"AllBeta": False, name: True, needed: False})
