"""The allocation of a claim.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`.
"""

from __future__ import annotations

from apiserver.apimachinery.releases import V1_37, since
from apiserver.resources import _configuration
from apiserver.resources._device_requests import DEVICE_TOLERATION, toleration
from apiserver.resources._rules import _formats
from apiserver.resources._rules._formats import MODEL
from apiserver.schema import shapes
from apiserver.schema.types import Boolean, Field, ListOf, MapOf, Presence, Quantity, String, Struct, Time

RESULTS, CONFIGS = 32, 64

DEVICE_RESULT = Struct(
    name="DeviceRequestAllocationResult",
    model=MODEL,
    doc="One device that was allocated for one request.",
    fields=(
        Field(
            name="request",
            number=1,
            type=String(),
            presence=Presence.ALWAYS,
            doc="The request that the device was allocated for; `<request>/<alternative>` when it had alternatives. "
            "A request for several devices has several results.",
        ),
        Field(
            name="driver",
            number=2,
            type=_formats.DRIVER,
            presence=Presence.ALWAYS,
            required=True,
            doc="The driver that makes the device ready on the node.",
        ),
        Field(
            name="pool",
            number=3,
            type=_formats.POOL,
            presence=Presence.ALWAYS,
            required=True,
            doc="The pool of the device. Driver, pool and device name together identify it.",
        ),
        Field(
            name="device",
            number=4,
            type=_formats.LABEL,
            presence=Presence.ALWAYS,
            doc="The device's name in its pool.",
        ),
        Field(
            name="adminAccess",
            number=5,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="True when the device was given for administrative access, without taking it from others.",
        ),
        Field(
            name="tolerations",
            number=6,
            type=ListOf(DEVICE_TOLERATION),
            check=since(
                V1_37,
                _formats.each(toleration),
                what="tolerations of an allocation are checked like those of a request",
            ),
            doc="The tolerations of the request at the time of allocation: what decides later whether a taint ends the use.",
        ),
        _formats.binding_conditions_field(
            "bindingConditions",
            7,
            "The device's binding conditions at the time of allocation: all must be True in the device status before a pod is bound.",
        ),
        _formats.binding_conditions_field(
            "bindingFailureConditions",
            8,
            "The device's binding failure conditions at the time of allocation: one that is True makes the allocation a failure.",
        ),
        Field(
            name="shareID",
            number=9,
            type=String(go="types.UID", check=_formats.uid),
            presence=Presence.POINTER,
            doc="Identifies this share of a device that may be allocated several times: a UUID in lower case.",
        ),
        Field(
            name="consumedCapacity",
            number=10,
            type=MapOf(Quantity(), go_key="v1.QualifiedName"),
            doc="How much of each capacity this share consumes, after rounding as the device's request policy says. The shares of a "
            "device never exceed its capacity. Only for devices that may be allocated several times.",
        ),
        since(
            V1_37,
            _formats.skipped_operations_field(
                11,
                "The calls to the driver on the node that the device did not need at the time of allocation, as its slice said. "
                "Alpha: needs the feature gate DRAOptionalNodeOperations.",
            ),
        ),
    ),
    check=_formats.binding_conditions,
    judged=(
        "request",
        "driver",
        "pool",
        "device",
        "bindingConditions",
        "bindingFailureConditions",
        _formats.BINDING,
        since(V1_37, "tolerations"),
        "shareID",
        since(V1_37, "skipNodeOperations"),
    ),
)

ALLOCATION_CONFIGURATION = Struct(
    name="DeviceAllocationConfiguration",
    model=MODEL,
    doc="Settings for allocated devices, and where they come from.",
    fields=(
        Field(
            name="source",
            number=1,
            type=String(go="v1.AllocationConfigSource", enum=("FromClaim", "FromClass")),
            presence=Presence.ALWAYS,
            required=True,
            doc="FromClass when an administrator set this up in a class, FromClaim when a user did so in the claim.",
        ),
        _configuration.request_names(
            "The requests whose devices get these settings, at most 32; empty means all. For a request with alternatives its "
            "name means whichever alternative was chosen, `<request>/<alternative>` one of them.",
            number=2,
        ),
        _configuration.inlined(3),
    ),
)

ALLOCATED_DEVICES = Struct(
    name="DeviceAllocationResult",
    model=MODEL,
    doc="The devices that were allocated and how they are to be set up.",
    fields=(
        Field(
            name="results",
            number=1,
            type=ListOf(DEVICE_RESULT, max_items=RESULTS),
            doc="All allocated devices, at most 32.",
        ),
        Field(
            name="config",
            number=2,
            type=ListOf(ALLOCATION_CONFIGURATION, max_items=CONFIGS),
            doc="The settings from classes and claim as they were at the time of allocation, in the order in which drivers are to apply "
            "them: first those of the classes, then those of the claim. At most 64.",
        ),
    ),
)

ALLOCATION = Struct(
    name="AllocationResult",
    model=MODEL,
    doc="What was allocated for a claim.",
    fields=(
        Field(
            name="devices",
            number=1,
            type=ALLOCATED_DEVICES,
            presence=Presence.ALWAYS,
            doc="The devices.",
        ),
        Field(
            name="nodeSelector",
            number=3,
            type=shapes.NODE_SELECTOR,
            presence=Presence.POINTER,
            check=_formats.node_selector,
            doc="The nodes from which the devices can be used; absent means all of them. Pods that use the claim run there.",
        ),
        Field(
            name="allocationTimestamp",
            number=5,
            type=Time(),
            presence=Presence.POINTER,
            doc="When the devices were allocated. From then on it is counted how long binding conditions take.",
        ),
    ),
)
