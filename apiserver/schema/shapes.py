"""Shapes that every kind shares: the metadata of objects and lists, conditions, node selectors. Knows no kind.

Protobuf numbers and member order are those of kubernetes/apimachinery `pkg/apis/meta/v1/types.go` and kubernetes/api `core/v1/types.go`.
The rules of metadata are in `apimachinery.meta`: they depend on the verb, a shape does not.
"""

from __future__ import annotations

from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    ListType,
    MapOf,
    Presence,
    RawJSON,
    String,
    Struct,
    Time,
)

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
CORE = "io.k8s.api.core.v1"

_TEXT = String()
_UID = String(go="types.UID")

OWNER_REFERENCE = Struct(
    name="OwnerReference",
    model=META,
    atomic=True,
    doc="Names an object that owns this one. The owner lives in the same namespace or is cluster-scoped; "
    "when its last owner is gone, an object is collected.",
    fields=[
        Field(
            name="apiVersion",
            number=5,
            go="APIVersion",
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The owner's API group and version.",
        ),
        Field(name="kind", number=1, type=_TEXT, presence=Presence.ALWAYS, doc="The owner's kind."),
        Field(name="name", number=3, type=_TEXT, presence=Presence.ALWAYS, doc="The owner's name."),
        Field(name="uid", number=4, go="UID", type=_UID, presence=Presence.ALWAYS, doc="The owner's uid."),
        Field(
            name="controller",
            number=6,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="Whether this owner is the one controller that manages the object.",
        ),
        Field(
            name="blockOwnerDeletion",
            number=7,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="With true, a foreground deletion of the owner waits until this object is gone. Setting it needs the right to "
            "update the owner's finalizers. Absent means false.",
        ),
    ],
)

FIELDS_V1 = RawJSON(verbatim=False, go="v1.FieldsV1", model=f"{META}.FieldsV1")
"""A set of field paths as a trie of JSON objects."""

MANAGED_FIELDS_ENTRY = Struct(
    name="ManagedFieldsEntry",
    model=META,
    doc="The fields that one manager set with one kind of operation, in one version of the API.",
    fields=[
        Field(name="manager", number=1, type=_TEXT, doc="Who manages the fields below."),
        Field(
            name="operation",
            number=2,
            type=String(go="v1.ManagedFieldsOperationType"),
            doc="The kind of request that made this entry: Apply or Update.",
        ),
        Field(
            name="apiVersion",
            number=3,
            go="APIVersion",
            type=_TEXT,
            doc="The group and version in which the field paths are meant.",
        ),
        Field(
            name="time",
            number=4,
            type=Time(),
            presence=Presence.POINTER,
            doc="When a field was last added to this entry, changed by its manager, or removed from it by its manager. "
            "Losing a field to another manager does not count.",
        ),
        Field(name="fieldsType", number=6, type=_TEXT, doc="The format of the field set. The only value is FieldsV1."),
        Field(
            name="fieldsV1",
            number=7,
            type=FIELDS_V1,
            presence=Presence.POINTER,
            doc="The field set in the format FieldsV1.",
        ),
        Field(
            name="subresource",
            number=8,
            type=_TEXT,
            doc="The subresource through which the fields were written; empty for the main resource. "
            "It tells managers of one name apart.",
        ),
    ],
)

OBJECT_META = Struct(
    name="ObjectMeta",
    model=META,
    doc="What every stored object carries: its identity, and what users and controllers attach to it.",
    fields=[
        Field(
            name="name",
            number=1,
            type=_TEXT,
            doc="The name, unique within a namespace (or within the cluster). It is required on create, unless generateName asks the "
            "server for one, and never changes.",
        ),
        Field(
            name="generateName",
            number=2,
            type=_TEXT,
            doc="A prefix for a name that the server completes with a random suffix. Used only when name is empty. A clash that "
            "the server could not avoid is a 409 AlreadyExists; the client may try again.",
        ),
        Field(
            name="namespace",
            number=3,
            type=_TEXT,
            doc="The namespace within which the name is unique. Empty for cluster-scoped objects. It never changes.",
        ),
        Field(name="selfLink", number=4, type=_TEXT, doc="Deprecated: no longer filled in by servers."),
        Field(
            name="uid",
            number=5,
            go="UID",
            type=_UID,
            doc="Identifies this object in time and space: an object of the same name made later has another uid. "
            "Set by the server on create; never changes.",
        ),
        Field(
            name="resourceVersion",
            number=6,
            type=_TEXT,
            doc="The version of the object as the server stores it. Clients treat it as opaque and send it back unchanged to detect "
            "concurrent writes and to watch.",
        ),
        Field(
            name="generation",
            number=7,
            type=Integer(),
            doc="A number that rises with every change of the desired state. Set by the server.",
        ),
        Field(name="creationTimestamp", number=8, type=Time(), doc="When the object was created. Set by the server."),
        Field(
            name="deletionTimestamp",
            number=9,
            type=Time(),
            presence=Presence.POINTER,
            doc="When the object will be, or was asked to be, deleted. Set by the server on a graceful deletion or while finalizers "
            "are left; it cannot be unset or moved to a later time.",
        ),
        Field(
            name="deletionGracePeriodSeconds",
            number=10,
            type=Integer(),
            presence=Presence.POINTER,
            doc="How many seconds the object may take to end on its own before it is removed. Set together with "
            "deletionTimestamp; may only be shortened.",
        ),
        Field(
            name="labels",
            number=11,
            type=MapOf(_TEXT),
            doc="Keys and values by which objects are grouped and selected.",
        ),
        Field(
            name="annotations",
            number=12,
            type=MapOf(_TEXT),
            doc="Keys and values that tools attach to the object. They cannot be selected by.",
        ),
        Field(
            name="ownerReferences",
            number=13,
            type=ListOf(OWNER_REFERENCE, ListType.MAP, keys=("uid",)),
            patch_strategy="merge",
            patch_merge_key="uid",
            doc="The objects that this one depends on. When all of them are gone it is collected. At most one may be the controller.",
        ),
        Field(
            name="finalizers",
            number=14,
            type=ListOf(_TEXT, ListType.SET),
            patch_strategy="merge",
            doc="What must still be done before the object may be removed. Each entry names the component that removes it; "
            "the order has no meaning. While deletionTimestamp is set, entries can only be taken away.",
        ),
        Field(
            name="managedFields",
            number=17,
            type=ListOf(MANAGED_FIELDS_ENTRY),
            doc="Which manager set which fields. Housekeeping of the server; users rarely need to read or write it.",
        ),
    ],
)

CUSTOM = Struct(
    name="Unstructured",
    go="unstructured",
    doc="An object of a custom resource: metadata, and what its definition describes.",
    fields=[Field(name="metadata", number=1, type=OBJECT_META, doc="Standard metadata.")],
    open=True,
)
"""The shape of every custom resource. Definitions come and go at run time, so what is derived from shapes must not grow with them."""

SHARD_INFO = Struct(
    name="ShardInfo",
    model=META,
    doc="The shard selector that a list was filtered with.",
    fields=[
        Field(
            name="selector",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The selector of the request, as the server understood it.",
        ),
    ],
)

LIST_META = Struct(
    name="ListMeta",
    model=META,
    doc="What every list carries beside its items.",
    fields=[
        Field(name="selfLink", number=1, type=_TEXT, doc="Deprecated: no longer filled in by servers."),
        Field(
            name="resourceVersion",
            number=2,
            type=_TEXT,
            doc="The version of the collection that this list shows; opaque. A watch from here misses nothing.",
        ),
        Field(
            name="continue",
            number=3,
            type=_TEXT,
            doc="Set when a limit cut the list short: a token to be sent back unchanged for the next part. All parts show the same "
            "version of the collection. A token expires after a few minutes.",
        ),
        Field(
            name="remainingItemCount",
            number=4,
            type=Integer(),
            presence=Presence.POINTER,
            doc="How many items follow after this part: an estimate. Absent when nothing follows, and when the request "
            "carried a label or field selector.",
        ),
        Field(
            name="shardInfo",
            number=5,
            type=SHARD_INFO,
            presence=Presence.POINTER,
            doc="Set when a shard selector reduced the list to a part of the collection.",
        ),
    ],
)

CONDITION = Struct(
    name="Condition",
    model=META,
    doc="One aspect of an object's current state.",
    fields=[
        Field(
            name="type",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The aspect, in CamelCase or as foo.example.com/CamelCase.",
        ),
        Field(
            name="status",
            number=2,
            type=String(go="v1.ConditionStatus"),
            presence=Presence.ALWAYS,
            doc="True, False or Unknown.",
        ),
        Field(
            name="observedGeneration",
            number=3,
            type=Integer(),
            doc="The metadata.generation from which the condition was derived. Lower than the current one means out of date.",
        ),
        Field(
            name="lastTransitionTime",
            number=4,
            type=Time(),
            presence=Presence.ALWAYS,
            doc="When the status last changed; if that is not known, when the API field last changed.",
        ),
        Field(
            name="reason",
            number=5,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="A word for programs, in CamelCase, that tells why the status last changed.",
        ),
        Field(
            name="message",
            number=6,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="Details for people; may be empty.",
        ),
    ],
)

NODE_SELECTOR_REQUIREMENT = Struct(
    name="NodeSelectorRequirement",
    model=CORE,
    doc="A key, an operator and values: one condition on a node.",
    fields=[
        Field(
            name="key",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The label (or field) of the node that is looked at.",
        ),
        Field(
            name="operator",
            number=2,
            type=String(go="v1.NodeSelectorOperator", known=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
            presence=Presence.ALWAYS,
            doc="How the node's value relates to the values: In, NotIn, Exists, DoesNotExist, Gt or Lt.",
        ),
        Field(
            name="values",
            number=3,
            type=ListOf(_TEXT),
            doc="At least one value for In and NotIn, none for Exists and DoesNotExist, exactly one whole number for Gt and Lt.",
        ),
    ],
)

NODE_SELECTOR_TERM = Struct(
    name="NodeSelectorTerm",
    model=CORE,
    atomic=True,
    doc="Conditions that must all hold. A term without any matches no node.",
    fields=[
        Field(
            name="matchExpressions",
            number=1,
            type=ListOf(NODE_SELECTOR_REQUIREMENT),
            doc="Conditions on the node's labels.",
        ),
        Field(
            name="matchFields",
            number=2,
            type=ListOf(NODE_SELECTOR_REQUIREMENT),
            doc="Conditions on the node's fields.",
        ),
    ],
)

NODE_SELECTOR = Struct(
    name="NodeSelector",
    model=CORE,
    atomic=True,
    doc="Selects nodes: those that at least one of the terms matches.",
    fields=[
        Field(
            name="nodeSelectorTerms",
            number=1,
            type=ListOf(NODE_SELECTOR_TERM),
            presence=Presence.ALWAYS,
            expected=True,
            doc="The terms, of which one must match.",
        ),
    ],
)
