"""The feature gates of the kinds, and how fields of disabled gates are dropped.

Upstream: kubernetes/kubernetes `pkg/features/kube_features.go`, `pkg/registry/resource/*/strategy.go` (dropDisabledFields).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery.releases import V1_36, V1_37
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gate, Gates, Spec, Stage, versioned
from apiserver.schema.resource import Object, Prepare

DYNAMIC_RESOURCE_ALLOCATION = Gate("DynamicResourceAllocation", default=True, stage=Stage.GA, locked=True)
_ALLOCATION = (DYNAMIC_RESOURCE_ALLOCATION,)
ADMIN_ACCESS = Gate("DRAAdminAccess", default=True, stage=Stage.GA, locked=True, needs=_ALLOCATION)
PRIORITIZED_LIST = versioned(
    "DRAPrioritizedList",
    Spec(V1_36, default=True, stage=Stage.GA),
    Spec(V1_37, default=True, stage=Stage.GA, locked=True),
    needs=_ALLOCATION,
)
DEVICE_STATUS = versioned(
    "DRAResourceClaimDeviceStatus",
    Spec(V1_36, default=True, stage=Stage.BETA),
    Spec(V1_37, default=True, stage=Stage.GA, locked=True),
)
DEVICE_TAINTS = versioned(
    "DRADeviceTaints",
    Spec(V1_36, default=True, stage=Stage.BETA),
    Spec(V1_37, default=True, stage=Stage.GA),
    needs=_ALLOCATION,
)
DEVICE_TAINT_RULES = versioned(
    "DRADeviceTaintRules",
    Spec(V1_36, default=False, stage=Stage.BETA),
    Spec(V1_37, default=True, stage=Stage.GA),
    needs=(DEVICE_TAINTS,),
)
PARTITIONABLE_DEVICES = Gate("DRAPartitionableDevices", default=True, stage=Stage.BETA, needs=_ALLOCATION)
COMPATIBILITY_GROUPS = versioned(
    "DRADeviceCompatibilityGroups",
    Spec(V1_37, default=False, stage=Stage.ALPHA),
    needs=(*_ALLOCATION, PARTITIONABLE_DEVICES),
)
BINDING_CONDITIONS = Gate(
    "DRADeviceBindingConditions", default=True, stage=Stage.BETA, needs=(*_ALLOCATION, DEVICE_STATUS)
)
GRANULAR_STATUS = Gate(
    "DRAResourceClaimGranularStatusAuthorization",
    default=True,
    stage=Stage.BETA,
    needs=(*_ALLOCATION, DEVICE_STATUS),
)
CONSUMABLE_CAPACITY = Gate("DRAConsumableCapacity", default=True, stage=Stage.BETA, needs=_ALLOCATION)
FRACTIONAL_CAPACITY_RANGE = versioned(
    "DRAFractionalCapacityRange", Spec(V1_37, default=False, stage=Stage.BETA), needs=(CONSUMABLE_CAPACITY,)
)
"""Off while the control plane has to be compatible with the release before (MinCompatibilityVersion), which is the default."""
EXTENDED_RESOURCE = versioned(
    "DRAExtendedResource",
    Spec(V1_36, default=True, stage=Stage.BETA),
    Spec(V1_37, default=True, stage=Stage.GA, locked=True),
    needs=_ALLOCATION,
)
LIST_TYPE_ATTRIBUTES = Gate("DRAListTypeAttributes", default=False, stage=Stage.ALPHA, needs=_ALLOCATION)
DERIVED_ATTRIBUTES = versioned("DRADerivedAttributes", Spec(V1_37, default=False, stage=Stage.ALPHA), needs=_ALLOCATION)
NODE_ALLOCATABLE_RESOURCES = Gate("DRANodeAllocatableResources", default=False, stage=Stage.ALPHA, needs=_ALLOCATION)
_NODE_DECLARED_FEATURES = versioned(
    "NodeDeclaredFeatures",
    Spec(V1_36, default=True, stage=Stage.BETA),
    Spec(V1_37, default=True, stage=Stage.GA, locked=True),
)
OPTIONAL_NODE_OPERATIONS = versioned(
    "DRAOptionalNodeOperations",
    Spec(V1_37, default=False, stage=Stage.ALPHA),
    needs=(*_ALLOCATION, _NODE_DECLARED_FEATURES),
)
RESOURCE_POOL_STATUS = Gate("DRAResourcePoolStatus", default=False, stage=Stage.ALPHA, needs=_ALLOCATION)
PARTITIONABLE_DEVICES_TYPE = versioned(
    "DRAPartitionableDevicesType",
    Spec(V1_37, default=False, stage=Stage.ALPHA),
    needs=(*_ALLOCATION, PARTITIONABLE_DEVICES, RESOURCE_POOL_STATUS),
)
_GENERIC_WORKLOAD = versioned(
    "GenericWorkload",
    Spec(V1_36, default=False, stage=Stage.ALPHA),
    Spec(V1_37, default=False, stage=Stage.BETA),
)

GATES = (
    DYNAMIC_RESOURCE_ALLOCATION,
    ADMIN_ACCESS,
    DEVICE_TAINT_RULES,
    RESOURCE_POOL_STATUS,
    versioned(
        "DRAWorkloadResourceClaims",
        Spec(V1_36, default=False, stage=Stage.ALPHA),
        Spec(V1_37, default=False, stage=Stage.BETA),
        needs=(*_ALLOCATION, _GENERIC_WORKLOAD),
    ),
    COMPATIBILITY_GROUPS,
    FRACTIONAL_CAPACITY_RANGE,
    DERIVED_ATTRIBUTES,
    OPTIONAL_NODE_OPERATIONS,
    PARTITIONABLE_DEVICES_TYPE,
)
"""Gates of the API group that no field depends on: an operator can give all components of a cluster one list."""

SELECTOR_GATES = (CONSUMABLE_CAPACITY, LIST_TYPE_ATTRIBUTES)
"""Gates that decide what an expression about devices may use."""

Place = tuple[dict[str, Any], frozenset[str]]
"""A struct, and the names of its members that belong to a feature, present or not."""


def _nowhere(obj: Object) -> Iterable[Place]:
    return ()


def _is_there(places: Iterable[Place]) -> bool:
    return any(not names.isdisjoint(struct) for struct, names in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """Members that are kept only while all of the `gates` are on, or when the stored object uses the feature already.

    `places` finds them in an object. `elsewhere` finds members that this write does not set but that use the feature too.
    """

    gates: tuple[Gate, ...]
    places: Callable[[Object], Iterable[Place]]
    elsewhere: Callable[[Object], Iterable[Place]] = _nowhere

    def is_in(self, obj: Object) -> bool:
        return _is_there(self.places(obj))

    def used_in(self, stored: Object) -> bool:
        return self.is_in(stored) or _is_there(self.elsewhere(stored))

    def drop_from(self, obj: Object) -> None:
        for struct, names in self.places(obj):
            if not names.isdisjoint(struct):
                for name in names & struct.keys():
                    del struct[name]


def gates_of(features: Iterable[Feature], *others: Gate) -> tuple[Gate, ...]:
    """Return each gate once."""
    return tuple(dict.fromkeys((*(gate for feature in features for gate in feature.gates), *others)))


def dropping(features: Sequence[Feature]) -> Prepare:
    """Return the hook that drops fields of disabled features. Clients get no warning."""

    @functools.lru_cache(maxsize=1)
    def disabled(gates: Gates) -> list[Feature]:
        return [feature for feature in features if not all(map(gates.enabled, feature.gates))]

    def prepare(context: Context, new: Object, old: Object | None) -> None:
        for feature in disabled(context.gates):
            if feature.is_in(new) and (old is None or not feature.used_in(old)):
                feature.drop_from(new)

    return prepare
