"""Every kind is complete and consistent in itself, whatever it is a kind of."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterator

import pytest

from apiserver import resources
from apiserver.apimachinery.releases import SUPPORTED, V1_36, V1_37, Release
from apiserver.codecs.objects import canonical
from apiserver.kinds.served import Kinds
from apiserver.schema import types
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Resource
from apiserver.schema.types import ListOf, ListType, MapOf, Struct, Type

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "apiserver"
MODEL = "io.k8s.api.resource.v1"

NUMBERS = """
AllocatedDeviceStatus: driver=1 pool=2 device=3 shareID=7 conditions=4 data=5 networkData=6
AllocationResult: devices=1 nodeSelector=3 allocationTimestamp=5
CELDeviceSelector: expression=1
CapacityRequestPolicy: default=1 validValues=3 validRange=4
CapacityRequestPolicyRange: min=1 max=2 step=3
CapacityRequirements: requests=1
Counter: value=1
CounterSet: name=1 counters=2
Device: name=1 attributes=2 capacity=3 consumesCounters=4 nodeName=5 nodeSelector=6 allNodes=7 taints=8 bindsToNode=9
    bindingConditions=10 bindingFailureConditions=11 allowMultipleAllocations=12 nodeAllocatableResourceMappings=13
DeviceAllocationConfiguration: source=1 requests=2 deviceConfiguration=3
DeviceAllocationResult: results=1 config=2
DeviceAttribute: int=2 bool=3 string=4 version=5 ints=6 bools=7 strings=8 versions=9
DeviceCapacity: value=1 requestPolicy=2
DeviceClaim: requests=1 constraints=2 config=3
DeviceClaimConfiguration: requests=1 deviceConfiguration=2
DeviceClass: metadata=1 spec=2
DeviceClassConfiguration: deviceConfiguration=1
DeviceClassSpec: selectors=1 config=2 extendedResourceName=4
DeviceConfiguration: opaque=1
DeviceConstraint: requests=1 matchAttribute=2 distinctAttribute=3
DeviceCounterConsumption: counterSet=1 counters=2
DeviceRequest: name=1 exactly=2 firstAvailable=3
DeviceRequestAllocationResult: request=1 driver=2 pool=3 device=4 adminAccess=5 tolerations=6 bindingConditions=7
    bindingFailureConditions=8 shareID=9 consumedCapacity=10
DeviceSelector: cel=1
DeviceSubRequest: name=1 deviceClassName=2 selectors=3 allocationMode=4 count=5 tolerations=6 capacity=7
DeviceTaint: key=1 value=2 effect=3 timeAdded=4
DeviceTaintRule: metadata=1 spec=2 status=3
DeviceTaintRuleSpec: deviceSelector=1 taint=2
DeviceTaintRuleStatus: conditions=1
DeviceTaintSelector: driver=2 pool=3 device=4
DeviceToleration: key=1 operator=2 value=3 effect=4 tolerationSeconds=5
ExactDeviceRequest: deviceClassName=1 selectors=2 allocationMode=3 count=4 adminAccess=5 tolerations=6 capacity=7
NetworkDeviceData: interfaceName=1 ips=2 hardwareAddress=3
NodeAllocatableResourceMapping: capacityKey=1 allocationMultiplier=2
OpaqueDeviceConfiguration: driver=1 parameters=2
ResourceClaim: metadata=1 spec=2 status=3
ResourceClaimConsumerReference: apiGroup=1 resource=3 name=4 uid=5
ResourceClaimSpec: devices=1
ResourceClaimStatus: allocation=1 reservedFor=2 devices=4
ResourceClaimTemplate: metadata=1 spec=2
ResourceClaimTemplateSpec: metadata=1 spec=2
ResourcePool: name=1 generation=2 resourceSliceCount=3
ResourceSlice: metadata=1 spec=2
ResourceSliceSpec: driver=1 pool=2 nodeName=3 nodeSelector=4 allNodes=5 devices=6 perDeviceNodeSelection=7
    sharedCounters=8
"""
"""Protobuf numbers of kubernetes/api `resource/v1/types.go` at release-1.36, members in the order in which Go writes them."""

NUMBERS_OF_V1BETA1 = """
BasicDevice: attributes=1 capacity=2 consumesCounters=3 nodeName=4 nodeSelector=5 allNodes=6 taints=7 bindsToNode=8
    bindingConditions=9 bindingFailureConditions=10 allowMultipleAllocations=11 nodeAllocatableResourceMappings=12
Device: name=1 basic=2
DeviceRequest: name=1 deviceClassName=2 selectors=3 allocationMode=4 count=5 adminAccess=6 firstAvailable=7 tolerations=8
    capacity=9
DeviceSubRequest: name=1 deviceClassName=2 selectors=3 allocationMode=4 count=5 tolerations=7 capacity=8
ExactDeviceRequest:
DeviceTaintRule:
DeviceTaintRuleSpec:
DeviceTaintRuleStatus:
DeviceTaintSelector:
"""
"""Where `resource/v1beta1/types.go` differs; what is empty it does not have."""

NUMBERS_OF_1_37 = """
Device: name=1 attributes=2 capacity=3 consumesCounters=4 nodeName=5 nodeSelector=6 allNodes=7 taints=8 bindsToNode=9
    bindingConditions=10 bindingFailureConditions=11 allowMultipleAllocations=12 nodeAllocatableResources=14
DeviceCounterConsumption: counterSet=1 counters=2 compatibilityGroups=3
DeviceDerivedAttribute: name=1 expression=2
DeviceRequestAllocationResult: request=1 driver=2 pool=3 device=4 adminAccess=5 tolerations=6 bindingConditions=7
    bindingFailureConditions=8 shareID=9 consumedCapacity=10 skipNodeOperations=11
DeviceSubRequest: name=1 deviceClassName=2 selectors=3 allocationMode=4 count=5 tolerations=6 capacity=7
    derivedAttributes=8
ExactDeviceRequest: deviceClassName=1 selectors=2 allocationMode=3 count=4 adminAccess=5 tolerations=6 capacity=7
    derivedAttributes=8
NodeAllocatableMapping: capacityKey=1 capacityMultiplier=2 deviceMultiplier=3
NodeAllocatableOverhead: perPod=1 perContainer=2
NodeAllocatableResource: mapping=3 overhead=4
NodeAllocatableResourceMapping:
ResourceSliceSpec: driver=1 pool=2 nodeName=3 nodeSelector=4 allNodes=5 devices=6 perDeviceNodeSelection=7
    sharedCounters=8 partitionTypeAttribute=9 skipNodeOperations=10
"""
NUMBERS_OF_1_37_V1BETA1 = """
BasicDevice: attributes=1 capacity=2 consumesCounters=3 nodeName=4 nodeSelector=5 allNodes=6 taints=7 bindsToNode=8
    bindingConditions=9 bindingFailureConditions=10 allowMultipleAllocations=11 nodeAllocatableResources=14
DeviceRequest: name=1 deviceClassName=2 selectors=3 allocationMode=4 count=5 adminAccess=6 firstAvailable=7 tolerations=8
    capacity=9 derivedAttributes=10
DeviceSubRequest: name=1 deviceClassName=2 selectors=3 allocationMode=4 count=5 tolerations=7 capacity=8
    derivedAttributes=9
"""
"""Where the types of release-1.37 differ."""
NUMBERS_OF_V1ALPHA3 = """
DeviceTaint: key=1 value=2 effect=3 timeAdded=4
DeviceTaintRule: metadata=1 spec=2 status=3
DeviceTaintRuleSpec: deviceSelector=1 taint=2
DeviceTaintRuleStatus: conditions=1
DeviceTaintSelector: driver=2 pool=3 device=4
PartitionTypeStatus: attribute=4 type=1 total=2 allocatable=3
PoolStatus: driver=1 poolName=2 generation=9 resourceSliceCount=8 totalDevices=4 allocatedDevices=5 availableDevices=6
    unavailableDevices=7 nodeName=3 validationError=10 partitionSummary=11 shareableSummary=13
ResourcePoolStatusRequest: metadata=1 spec=2 status=3
ResourcePoolStatusRequestSpec: driver=1 poolName=2 limit=3 defaultPartitionTypeAttribute=4
ResourcePoolStatusRequestStatus: poolCount=6 pools=2 conditions=3
ShareableCapacityStatus: name=1 total=2 consumed=3 available=4
ShareableSummaryStatus: fullyAvailableDevices=1 partiallyAvailableDevices=2 capacity=3
"""
"""Those of `resource/v1alpha3/types.go`."""
NUMBERS_OF_1_36_V1ALPHA3 = """
PartitionTypeStatus:
PoolStatus: driver=1 poolName=2 generation=9 resourceSliceCount=8 totalDevices=4 allocatedDevices=5 availableDevices=6
    unavailableDevices=7 nodeName=3 validationError=10
ResourcePoolStatusRequestSpec: driver=1 poolName=2 limit=3
ShareableCapacityStatus:
ShareableSummaryStatus:
"""
"""Where those of release-1.36 differ."""


def structs(type_: Type) -> Iterator[Struct]:
    """Every struct below, one that is used twice as often as it is used."""
    match type_:
        case Struct():
            yield type_
            for field in type_.fields:
                yield from structs(field.type)
        case ListOf():
            yield from structs(type_.item)
        case MapOf():
            yield from structs(type_.value)


STORED = {"DeviceTaintRule": "v1beta2", "ResourcePoolStatusRequest": "v1alpha3"}
"""The versions that kube-apiserver 1.37 stores, where it is not v1."""


def identified(resource: Resource) -> str:
    return f"{resource.kind} {resource.version}"


VERSIONS = tuple(Kinds(resources.RESOURCES, group="resource.k8s.io").known)
KINDS = pytest.mark.parametrize("resource", VERSIONS, ids=identified)


def test_kinds_are_sorted_and_distinct() -> None:
    plurals = [resource.plural for resource in resources.RESOURCES]
    assert plurals == sorted(set(plurals))
    for names in zip(*((r.kind, r.plural, r.singular, r.list_kind) for r in resources.RESOURCES), strict=True):
        assert len(set(names)) == len(names)


def test_every_public_module_of_the_folder_is_a_kind() -> None:
    modules = [p.stem for p in (PACKAGE / "resources").glob("*.py") if not p.stem.startswith("_")]
    assert len(resources.RESOURCES) == len(modules)


@KINDS
def test_everything_is_described(resource: Resource) -> None:
    for struct in structs(resource.shape):
        assert struct.doc.endswith("."), struct.name
        for field in struct.fields:
            assert field.doc.endswith("."), f"{struct.name}.{field.name}"
            assert "  " not in field.doc, f"{struct.name}.{field.name}"


@KINDS
def test_names_and_protobuf_numbers_are_unique_in_their_struct(resource: Resource) -> None:
    for struct in structs(resource.shape):
        numbers = [field.number for field in struct.fields]
        names = [field.name for field in types.members(struct)]
        assert len(set(numbers)) == len(numbers), struct.name
        assert len(set(names)) == len(names), struct.name


@KINDS
def test_the_keys_of_map_lists_are_members_of_their_items(resource: Resource) -> None:
    for struct in structs(resource.shape):
        for field in struct.fields:
            if isinstance(field.type, ListOf) and field.type.list_type is ListType.MAP:
                assert field.type.keys, field.name
                assert isinstance(field.type.item, Struct)
                assert set(field.type.keys) <= {f.name for f in types.members(field.type.item)}
            if field.patch_merge_key:
                assert isinstance(field.type, ListOf)
                assert field.patch_merge_key in field.type.keys


@KINDS
def test_the_order_of_errors_names_members_and_places_once(resource: Resource) -> None:
    for struct in structs(resource.shape):
        names = {field.name for field in types.members(struct)}
        places = [name for name in struct.judged if not name.startswith("#") and name]
        assert len(set(struct.judged)) == len(struct.judged), struct.name
        assert set(places) | set(struct.alternatives) <= names, struct.name


def test_structs_of_one_name_are_one_definition() -> None:
    found: dict[str, list[tuple[str, int, str]]] = {}
    for resource in VERSIONS:
        for struct in structs(resource.shape):
            parts = [(f.name, f.number, f.doc) for f in struct.fields]
            assert found.setdefault(f"{struct.model or resource.plural}.{struct.name}", parts) == parts, struct.name


def numbers(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in text.split():
        if word.endswith(":"):
            members = found.setdefault(word.removesuffix(":"), [])
        else:
            members.append(word)
    return found


def numbered(*texts: str) -> dict[str, list[str]]:
    """The members of the texts together, the later ones in place of the earlier ones."""
    merged: dict[str, list[str]] = {}
    for text in texts:
        merged |= numbers(text)
    return {name: members for name, members in merged.items() if members}


def without(members: dict[str, list[str]], *prefixes: str) -> dict[str, list[str]]:
    return {name: found for name, found in members.items() if not name.startswith(prefixes)}


RULE = ("DeviceTaintRule", "DeviceTaintSelector")
OF_V1BETA2 = {V1_36: numbered(NUMBERS), V1_37: numbered(NUMBERS, NUMBERS_OF_1_37)}
OF_V1 = OF_V1BETA2 | {V1_36: without(numbered(NUMBERS), *RULE)}
OF_V1ALPHA3 = {
    V1_36: numbered(NUMBERS_OF_V1ALPHA3, NUMBERS_OF_1_36_V1ALPHA3),
    V1_37: numbered(NUMBERS_OF_V1ALPHA3),
}
OF_V1BETA1 = {
    V1_36: numbered(NUMBERS, NUMBERS_OF_V1BETA1),
    V1_37: numbered(NUMBERS, NUMBERS_OF_1_37, NUMBERS_OF_V1BETA1, NUMBERS_OF_1_37_V1BETA1),
}


@pytest.mark.parametrize("release", SUPPORTED, ids=str)
@pytest.mark.parametrize(
    ("version", "expected"),
    [("v1", OF_V1), ("v1beta2", OF_V1BETA2), ("v1beta1", OF_V1BETA1), ("v1alpha3", OF_V1ALPHA3)],
)
def test_protobuf_numbers_and_order_are_those_of_upstream(
    version: str, expected: dict[Release, dict[str, list[str]]], release: Release
) -> None:
    found = {
        struct.name: [f"{field.name}={field.number}" for field in struct.fields]
        for resource in Kinds(resources.RESOURCES, group="resource.k8s.io", release=release).known
        for struct in structs(resource.shape)
        if struct.model == f"io.k8s.api.resource.{version}"
    }
    assert found == expected[release]


@KINDS
def test_the_types_of_a_version_are_its_own(resource: Resource) -> None:
    """Those of other API groups, which all versions share, are of the Go package v1 too."""
    for struct in structs(resource.shape):
        own = struct.model == f"io.k8s.api.resource.{resource.version}"
        assert own or not struct.model.startswith("io.k8s.api.resource.")
        assert struct.go == (resource.version if own else "v1")
        if own:
            named = [field.type for field in struct.fields if isinstance(field.type, types.String)]
            assert {kind.go.rpartition(".")[0] for kind in named} <= {"", "types", resource.version}


@KINDS
def test_a_version_is_stored_in_the_form_of_upstream(resource: Resource) -> None:
    assert resource.stored.version == STORED.get(resource.kind, "v1")
    assert resource.stored.storage_name == resource.storage_name
    assert (resource.deprecation is None) == (resource.version in {"v1", resource.stored.version})
    if resource.conversion is not None:
        zero = canonical.zero(resource.stored.shape)
        assert resource.conversion.to_storage(resource.conversion.from_storage(zero)) == zero


@KINDS
def test_the_shape_has_the_members_that_the_kind_speaks_of(resource: Resource) -> None:
    members = {field.name: field for field in resource.shape.fields}
    assert next(iter(members)) == "metadata"
    assert resource.has_status == ("status" in members)
    for sub in resource.subresources:
        assert set(sub.owns) <= set(members)


@KINDS
def test_selectable_fields_are_texts_of_the_shape(resource: Resource) -> None:
    for path in resource.selectable.values():
        here: Type = resource.stored.shape
        for name in path.split("."):
            assert isinstance(here, Struct)
            here = next(field.type for field in here.fields if field.name == name)
        assert isinstance(here, types.String), path


CELLS = {"string": str, "date": str, "integer": int, "number": int | float, "boolean": bool}
"""Types of cells that are not null, by the type of their column."""


@KINDS
def test_cells_can_be_computed_for_an_object_of_which_nothing_is_set(resource: Resource) -> None:
    zero = canonical.zero(resource.shape)
    if resource.columns:
        assert resource.columns[0].name == "Name"
        assert resource.columns[-1].name == ("Completed" if resource.kind == "ResourcePoolStatusRequest" else "Age")
        assert resource.columns[-1].cell(zero, 0.0) == resource.columns[-1].ageless
    for column in resource.columns:
        cell = column.cell(zero, 0.0)
        assert cell is None or isinstance(cell, CELLS[column.type])
        assert column.description


@KINDS
def test_hooks_take_an_object_of_which_nothing_is_set(resource: Resource) -> None:
    new, old = canonical.zero(resource.stored.shape), canonical.zero(resource.stored.shape)
    context = Context(gates=Gates(resource.gates))
    for stored in (None, old):
        resource.prepare(context, new, stored)
        assert list(resource.validate(context, new, stored)) == []
        assert list(resource.warnings(context, new, stored)) == []
    assert new == old
    for sub in resource.subresources:
        sub.prepare(context, new, old)
        assert list(sub.validate(context, new, old)) == []


def test_only_apigroups_and_app_import_kinds() -> None:
    importers = {PACKAGE / "apigroups.py", PACKAGE / "app.py"}
    for file in PACKAGE.rglob("*.py"):
        if file.is_relative_to(PACKAGE / "resources") or file in importers:
            continue
        text = file.read_text()
        if "resources" not in text:  # so no import says it
            continue
        for node in ast.walk(ast.parse(text)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            assert not any(name.startswith("apiserver.resources") for name in names), file
