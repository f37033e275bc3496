"""Shapes of messages that are not kinds of their own: Status, DeleteOptions, WatchEvent, PartialObjectMetadata, discovery. Knows no kind.

Member names, order and protobuf numbers are those of kubernetes/apimachinery `pkg/apis/meta/v1/{types,watch}.go`.
"""

from __future__ import annotations

from apiserver.schema.shapes import LIST_META, META, OBJECT_META
from apiserver.schema.types import Boolean, Field, Integer, ListOf, Presence, RawJSON, String, Struct

_TEXT = String()
_TEXTS = ListOf(_TEXT)
_VERBS = ListOf(_TEXT, go="v1.Verbs")

STATUS_CAUSE = Struct(
    name="StatusCause",
    model=META,
    doc="One of the reasons for a failure.",
    fields=(
        Field(name="reason", number=1, go="Type", type=_TEXT, doc="A word for programs; empty when nothing is known."),
        Field(name="message", number=2, type=_TEXT, doc="An explanation for people."),
        Field(
            name="field",
            number=3,
            type=_TEXT,
            doc="The member of the sent object that is to blame, written as in JavaScript: spec.devices[0].name. "
            "Fields inside lists may repeat.",
        ),
    ),
)

STATUS_DETAILS = Struct(
    name="StatusDetails",
    model=META,
    doc="What a failure is about. Which members are set depends on the reason.",
    fields=(
        Field(name="name", number=1, type=_TEXT, doc="The name of the object."),
        Field(name="group", number=2, type=_TEXT, doc="The API group of the object."),
        Field(name="kind", number=3, type=_TEXT, doc="The kind of the object, or the resource in plural."),
        Field(name="uid", number=6, go="UID", type=_TEXT, doc="The uid of the object, when there is exactly one."),
        Field(name="causes", number=4, type=ListOf(STATUS_CAUSE), doc="What contributed to the failure."),
        Field(
            name="retryAfterSeconds",
            number=5,
            type=Integer(bits=32),
            doc="After how many seconds the request may be sent again.",
        ),
    ),
)

STATUS = Struct(
    name="Status",
    model=META,
    doc="The answer to a request that returns no object, and to every request that failed.",
    fields=(
        Field(name="metadata", number=1, type=LIST_META, presence=Presence.ALWAYS, doc="Metadata as of a list."),
        Field(name="status", number=2, type=_TEXT, doc="Success or Failure."),
        Field(name="message", number=3, type=_TEXT, doc="An explanation for people."),
        Field(
            name="reason",
            number=4,
            type=_TEXT,
            doc="A word for programs that tells failures of one HTTP status apart; empty when nothing is known.",
        ),
        Field(
            name="details",
            number=5,
            type=STATUS_DETAILS,
            presence=Presence.POINTER,
            doc="More about the failure, as far as the reason calls for it.",
        ),
        Field(name="code", number=6, type=Integer(bits=32), doc="The HTTP status that this answer suggests."),
    ),
)

PRECONDITIONS = Struct(
    name="Preconditions",
    model=META,
    doc="What must hold of an object for the operation to go ahead.",
    fields=(
        Field(
            name="uid",
            number=1,
            go="UID",
            type=String(go="types.UID"),
            presence=Presence.POINTER,
            doc="The uid that the object must have.",
        ),
        Field(
            name="resourceVersion",
            number=2,
            type=_TEXT,
            presence=Presence.POINTER,
            doc="The resourceVersion that the object must have.",
        ),
    ),
)

DELETE_OPTIONS = Struct(
    name="DeleteOptions",
    model=META,
    doc="How an object is to be deleted.",
    fields=(
        Field(
            name="gracePeriodSeconds",
            number=1,
            type=Integer(),
            presence=Presence.POINTER,
            doc="How long the object may take to end; 0 means at once. Kinds that end at once ignore it.",
        ),
        Field(
            name="preconditions",
            number=2,
            type=PRECONDITIONS,
            presence=Presence.POINTER,
            doc="What must hold of the object; if it does not, the answer is 409 Conflict.",
        ),
        Field(
            name="orphanDependents",
            number=3,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="Deprecated: use propagationPolicy. Whether dependents are left behind, by adding or removing the finalizer orphan. "
            "Cannot be combined with propagationPolicy.",
        ),
        Field(
            name="propagationPolicy",
            number=4,
            type=String(go="v1.DeletionPropagation"),
            presence=Presence.POINTER,
            doc="What becomes of dependents: Orphan leaves them, Background has them collected afterwards, Foreground has them "
            "deleted first. The default follows from the object's finalizers and its kind. Cannot be combined with orphanDependents.",
        ),
        Field(
            name="dryRun",
            number=5,
            type=_TEXTS,
            doc="With All, the request goes through every stage but nothing is stored. No other value is allowed.",
        ),
        Field(
            name="ignoreStoreReadErrorWithClusterBreakingPotential",
            number=6,
            type=Boolean(),
            presence=Presence.POINTER,
            doc="Asks for the removal of an object that cannot be read from the store any more, without regard to finalizers and "
            "preconditions. What depends on a proper deletion may break. Off by default.",
        ),
    ),
)

WATCH_EVENT = Struct(
    name="WatchEvent",
    model=META,
    doc="One event of a watch.",
    fields=(
        Field(
            name="type",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="ADDED, MODIFIED, DELETED, BOOKMARK or ERROR.",
        ),
        Field(
            name="object",
            number=2,
            type=RawJSON(),
            presence=Presence.ALWAYS,
            doc="The object after the event; for DELETED its last state, for BOOKMARK one that only carries a resourceVersion, "
            "for ERROR a Status.",
        ),
    ),
)

SCALE_KIND = "autoscaling", "v1", "Scale"
"""Group, version and kind of the scale subresource."""
_SCALE_MODEL = "io.k8s.api.autoscaling.v1"
SCALE = Struct(
    name="Scale",
    model=_SCALE_MODEL,
    doc="How many replicas an object should have, and has.",
    fields=(
        Field(name="metadata", number=1, type=OBJECT_META, doc="Standard metadata."),
        Field(
            name="spec",
            number=2,
            presence=Presence.ALWAYS,
            expected=False,
            doc="The wanted replicas.",
            type=Struct(
                name="ScaleSpec",
                model=_SCALE_MODEL,
                doc="The wanted replicas.",
                fields=(Field(name="replicas", number=1, type=Integer(bits=32), doc="The wanted number of replicas."),),
            ),
        ),
        Field(
            name="status",
            number=3,
            presence=Presence.ALWAYS,
            expected=False,
            doc="The observed replicas.",
            type=Struct(
                name="ScaleStatus",
                model=_SCALE_MODEL,
                doc="The observed replicas.",
                fields=(
                    Field(
                        name="replicas",
                        number=1,
                        type=Integer(bits=32),
                        presence=Presence.ALWAYS,
                        doc="The observed number of replicas.",
                    ),
                    Field(name="selector", number=2, type=_TEXT, doc="The label query over pods, as text."),
                ),
            ),
        ),
    ),
)

PARTIAL_OBJECT_METADATA = Struct(
    name="PartialObjectMetadata",
    model=META,
    doc="The metadata of an object of any kind.",
    fields=(
        Field(name="metadata", number=1, type=OBJECT_META, presence=Presence.ALWAYS, doc="The object's metadata."),
    ),
)

PARTIAL_OBJECT_METADATA_LIST = Struct(
    name="PartialObjectMetadataList",
    model=META,
    doc="The metadata of objects of any kind.",
    fields=(
        Field(name="metadata", number=1, type=LIST_META, presence=Presence.ALWAYS, doc="Metadata as of a list."),
        Field(
            name="items",
            number=2,
            type=ListOf(PARTIAL_OBJECT_METADATA),
            presence=Presence.ALWAYS,
            doc="The metadata of each object.",
        ),
    ),
)

PARTIAL_OBJECT_METADATA_LIST_V1BETA1 = Struct(
    name="PartialObjectMetadataList",
    model=META,
    doc="The metadata of objects of any kind, as meta.k8s.io/v1beta1 numbers it.",
    fields=(
        Field(name="metadata", number=2, type=LIST_META, doc="Metadata as of a list."),
        Field(
            name="items",
            number=1,
            type=ListOf(PARTIAL_OBJECT_METADATA),
            presence=Presence.ALWAYS,
            doc="The metadata of each object.",
        ),
    ),
)

API_RESOURCE = Struct(
    name="APIResource",
    model=META,
    doc="A resource of a group and version, or one of its subresources.",
    fields=(
        Field(
            name="name",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The plural name; for a subresource with its name behind a slash.",
        ),
        Field(
            name="singularName",
            number=6,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The singular name, by which clients may call the resource too.",
        ),
        Field(
            name="namespaced",
            number=2,
            type=Boolean(),
            presence=Presence.ALWAYS,
            doc="Whether objects live in namespaces.",
        ),
        Field(
            name="group",
            number=8,
            type=_TEXT,
            doc="The group of the kind when it is not the one of the list.",
        ),
        Field(
            name="version",
            number=9,
            type=_TEXT,
            doc="The version of the kind when it is not the one of the list.",
        ),
        Field(name="kind", number=3, type=_TEXT, presence=Presence.ALWAYS, doc="The kind of the objects."),
        Field(
            name="verbs",
            number=4,
            type=_VERBS,
            presence=Presence.ALWAYS,
            expected=True,
            doc="The verbs that are served.",
        ),
        Field(name="shortNames", number=5, type=_TEXTS, doc="Abbreviations for command lines."),
        Field(name="categories", number=7, type=_TEXTS, doc="Groups of resources in which this one is included."),
        Field(
            name="storageVersionHash",
            number=10,
            type=_TEXT,
            doc="Changes when objects are stored in another version. Only good for comparing.",
        ),
    ),
)

API_RESOURCE_LIST = Struct(
    name="APIResourceList",
    model=META,
    doc="The resources of a group and version.",
    fields=(
        Field(
            name="groupVersion",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The group and version of these resources.",
        ),
        Field(
            name="resources",
            number=2,
            go="APIResources",
            type=ListOf(API_RESOURCE),
            presence=Presence.ALWAYS,
            expected=True,
            doc="The resources and their subresources.",
        ),
    ),
)

GROUP_VERSION_FOR_DISCOVERY = Struct(
    name="GroupVersionForDiscovery",
    model=META,
    doc="A version of a group, in two spellings.",
    fields=(
        Field(
            name="groupVersion",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="Group and version with a slash between them.",
        ),
        Field(name="version", number=2, type=_TEXT, presence=Presence.ALWAYS, doc="The version alone."),
    ),
)

SERVER_ADDRESS = Struct(
    name="ServerAddressByClientCIDR",
    model=META,
    doc="The address at which clients of one network reach the server.",
    fields=(
        Field(
            name="clientCIDR",
            number=1,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="The network of the clients.",
        ),
        Field(
            name="serverAddress",
            number=2,
            type=_TEXT,
            presence=Presence.ALWAYS,
            doc="A host name or address, with a port if need be.",
        ),
    ),
)

API_GROUP = Struct(
    name="APIGroup",
    model=META,
    doc="An API group and the versions in which it is served.",
    fields=(
        Field(name="name", number=1, type=_TEXT, presence=Presence.ALWAYS, doc="The name of the group."),
        Field(
            name="versions",
            number=2,
            type=ListOf(GROUP_VERSION_FOR_DISCOVERY),
            presence=Presence.ALWAYS,
            expected=True,
            doc="The versions, the preferred one first.",
        ),
        Field(
            name="preferredVersion",
            number=3,
            type=GROUP_VERSION_FOR_DISCOVERY,
            presence=Presence.ALWAYS,
            expected=False,
            doc="The version that clients without a preference should use.",
        ),
        Field(
            name="serverAddressByClientCIDRs",
            number=4,
            type=ListOf(SERVER_ADDRESS),
            doc="Where clients reach the server, by their network; the longest matching prefix counts.",
        ),
    ),
)

LIST = Struct(
    name="List",
    model=META,
    doc="A list of any kind.",
    fields=(
        Field(name="metadata", number=1, type=LIST_META, doc="Metadata as of a list."),
        Field(name="items", number=2, type=ListOf(RawJSON()), presence=Presence.ALWAYS, doc="The objects."),
    ),
)

API_VERSIONS = Struct(
    name="APIVersions",
    model=META,
    doc="The versions of the core group.",
    fields=(
        Field(name="versions", number=1, type=_TEXTS, presence=Presence.ALWAYS, doc="The versions."),
        Field(
            name="serverAddressByClientCIDRs",
            number=2,
            type=ListOf(SERVER_ADDRESS),
            presence=Presence.ALWAYS,
            doc="Where clients reach the server, by their network; the longest matching prefix counts.",
        ),
    ),
)

API_GROUP_LIST = Struct(
    name="APIGroupList",
    model=META,
    doc="The API groups that are served.",
    fields=(Field(name="groups", number=1, type=ListOf(API_GROUP), presence=Presence.ALWAYS, doc="The groups."),),
)
