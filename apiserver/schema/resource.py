"""The declaration of one kind. Generic code receives a `Resource` and never imports one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from apiserver.apimachinery.errors import GroupKind, GroupResource
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema.context import Context
from apiserver.schema.custom import Custom
from apiserver.schema.declarations import Declarations
from apiserver.schema.featuregate import Gate, Gates
from apiserver.schema.types import Struct
from kubetext.quantity import Quantity

Object = dict[str, Any]
"""A decoded API object. Handlers own the object they were given. A stored object is never changed in place."""

Texts = Callable[[Object], Iterable[str]]
Prepare = Callable[[Context, Object, Object | None], None]
Validate = Callable[[Context, Object, Object | None], Iterable[FieldError]]
Warn = Callable[[Context, Object, Object | None], Iterable[str]]
"""Hooks get the new object and the stored one, which is None on create. They are pure except for changes of `new`, and run in threads
too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """A permission that a change needs beyond the authorized request: its user must be allowed one of `verbs`, checked in this order, on
    `subresource` of the same resource. The subresource need not be an endpoint.

    The check names `name`, and the object's namespace if `namespaced`. A refusal is a cause at `path`: `text`, then the reason.
    """

    path: Path = field(compare=False)
    text: str
    verbs: tuple[str, ...]
    subresource: str
    name: str = ""
    namespaced: bool = False


Require = Callable[[Context, Object, Object], Iterable[FieldError | Permission]]
"""Returns the permissions that a prepared change needs, for the authorizer, and errors that refuse it already."""


def _nothing(context: Context, new: Object, old: Object | None) -> None:
    return None


def _no_requirements(context: Context, new: Object, old: Object) -> Iterable[FieldError | Permission]:
    return ()


def _no_errors(context: Context, new: Object, old: Object | None) -> Iterable[FieldError]:
    return ()


def _no_warnings(context: Context, new: Object, old: Object | None) -> Iterable[str]:
    return ()


def _no_texts(obj: Object) -> Iterable[str]:
    return ()


def _never(obj: Object) -> bool:
    return False


def _as_it_is(obj: Object) -> None:
    return None


VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
"""The verbs of most kinds, in the order of discovery documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Permissions that a role needs for its work with this kind, or with `subresource` of it, which need not be an endpoint.

    `role` names the role in a word: the ClusterRole of that name (`kinds.roles`) has the grants of all kinds. Grants of "view", "edit" and
    "admin" are added to the cluster's default roles.
    """

    role: str
    verbs: Sequence[str]
    subresource: str = ""


class Owner(NamedTuple):
    """A pod in the namespace of an object."""

    name: str
    uid: str


class Around(NamedTuple):
    """The inputs of usage besides the object. `facts` has the facts about each object of another kind, by its name. `taken` is the usage
    that a pod has already, by the name in a quota."""

    gates: Gates
    facts: Mapping[str, str]
    taken: Mapping[str, Quantity]


def _no_owner(obj: Object) -> Owner | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """The usage of a kind's objects that ResourceQuotas count, besides their number.

    * It is measured in the group `home` only, because the quota controller of a cluster must measure the same.
    * `measures(name, around)` returns whether a name in a quota is about this kind.
    * `usage(obj, around)` returns how much the object uses, by name.
    * Facts are the results of `reads` for each object of the kind whose plural is `beside`, in the same group.
    * `owner` returns the pod that asked for the object, if any.
    """

    home: str
    beside: str
    reads: Callable[[Object], str]
    measures: Callable[[str, Around], bool]
    usage: Callable[[Object, Around], Mapping[str, Quantity]]
    owner: Callable[[Object], Owner | None] = _no_owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the kind's Table. `cell(object, now)` computes its value; `now` is in seconds since the epoch.

    Rows are cached, so a cell that changes with time defines `since(object)`: the moment from which its age counts, or a text that the
    cell shows instead. It shows `ageless` if that is None.

    `reads` are the members that both functions read: `spec.pool.name`, or `spec.pool` with everything below. They get an object that may
    have nothing else. If `reads` is None, each row decodes the whole object.

    A cell has the JSON type that `type` names, or is None. A `date` is an age, a text (upstream: kubernetes/apimachinery
    `pkg/apis/meta/v1/types.go` TableColumnDefinition). `schema.columns.member` makes a column of a member. A cell that raises shows
    `<error>`, and the log names it.
    """

    name: str
    cell: Callable[[Object, float], Any]
    reads: Sequence[str] | None = field(default=None, hash=False)
    type: Literal["string", "integer", "number", "boolean", "date", "array"] = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    since: Callable[[Object], float | str | None] | None = None
    ageless: str | None = "<unknown>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A part of the object with its own endpoint. A write takes the members in `owns` from the request and keeps the rest.

    `prepare` and `validate` work as the kind's own hooks; a stored object always exists. Results of `requires` are checked and listed
    before other errors of the object. `verbs` are those of the endpoint. `initial`: a new object may have the owned members. `shows` is
    group, version and kind of what the endpoint shows, if that is not the object itself.
    """

    name: str
    owns: tuple[str, ...]
    prepare: Prepare = _nothing
    requires: Require = _no_requirements
    validate: Validate = _no_errors
    verbs: Sequence[str] = ("get", "patch", "update")
    initial: bool = False
    shows: tuple[str, str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """The deprecation of a version: requests for it get a warning. Releases are `<major>.<minor>`: `since` deprecates the version, and
    `removed` no longer serves it ("" if not planned). `text` is the warning, if it is not made from these.
    Upstream: kubernetes/apiserver `pkg/endpoints/deprecation/deprecation.go`.
    """

    since: str
    removed: str = ""
    text: str = ""


class Refused(ValueError):
    """`Conversion.to_storage` raises this for values that the stored version cannot hold. The client gets 422 with these errors.

    Their paths are those of the version in which the object was sent.
    """

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Conversion:
    """Converts objects from a version to the stored one, and back.

    Both functions take a decoded object without kind and apiVersion, which they may change, and return the other one. They are pure. Values
    that only one version can express should survive in the other, in an annotation for example. Then a client that writes the object it
    read changes nothing else. All other metadata is the same in both.

    `to_storage` may raise Refused. `from_storage` may not: stored objects can be read in every version.
    """

    to_storage: Callable[[Object], Object]
    from_storage: Callable[[Object], Object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A further version of a kind, besides the one in which it is declared and stored.

    Without `conversion` the JSON is the same in both: the stored bytes are served unchanged.

    Rules, selectable fields and subresources are those of the stored version. So are the columns, if this version names none; their cells
    then get objects of this version. `home` is the one group that serves the version unless the operator changes that; "" is any group, and
    None is no group. `returns_deleted` and `needs_version` are those of Resource.
    """

    name: str
    shape: Struct
    conversion: Conversion | None = None
    columns: Sequence[Column] | None = None
    home: str | None = ""
    deprecation: Deprecation | None = None
    returns_deleted: bool = True
    needs_version: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind in one version, as all generic packages use it.

    An empty `group` means the group that the operator chose. `version` is the one in which objects are stored; `versions` are served
    besides. `kinds.served` makes a Resource of each, which is `stored_as` this one.

    Hooks run on decoded objects of the stored version; all have safe defaults:

        prepare(context, new, old)       after decoding and defaulting, before validation; may change `new`
        validate(context, new, old)      rules that the shape cannot declare; the shape's declared rules and immutability run by
                                         themselves
        warnings(context, new, old)      texts for Warning headers
        expressions(new)                 the expressions for `context.cel`, so that long work is kept off the event loop
        gates                            the feature gates that the hooks check
        validate_shape_on_update         False where upstream checks an update for immutability only (claims)
        declarations                     the validation tags of the types, which run after all these rules (1.37)
        rechecks_metadata                False where the kind's own update check does not repeat the create check of metadata (slices);
                                         it shows in how often a metadata error is listed

    * `listed` is the kind of lists, if it is not the kind with `List` behind it.
    * `selectable` maps a field label to the path of its value ("spec.nodeName"). `metadata.name` and, for namespaced kinds,
      `metadata.namespace` are always selectable.
    * `listed_by` are the selectable fields by which clients list a few of many objects. Memory keeps the keys of each value, so that these
      lists do not look at all objects.
    * `own_field_labels` words an unknown label as upstream does for a kind that registers its own set.
    * `node_field` is the label of the node that an object belongs to: nodes see and change only their own objects.
    * `tracks_generation`: generation is 1 on create and rises with every change of spec. With `counts_dropped` (slices) it also rises when
      `prepare` drops the change.
    * `grants` are the needs of roles beyond those of a namespace, which follow from the rest.
    * `consumption` is what quotas count besides the number of objects.
    * `verbs` are those that the kind has.
    * `virtual`: objects are requests, which the answer to a create completes; none is stored.
    * `lingers`: a deleted object stays until an update makes this False, as if it had a finalizer.
    * `ending` changes an object whose deletion begins.
    * `returns_deleted`: the answer to a DELETE that removes the object is the object; otherwise it is a Status.
    * `needs_version`: an update must name the resourceVersion.
    * `custom`: a definition describes the kind; None for kinds that declare a shape. The shape of all custom resources is the same.
    """

    kind: str
    plural: str
    singular: str
    namespaced: bool
    shape: Struct
    listed: str = ""
    version: str = "v1"
    group: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: Sequence[Column] = ()
    selectable: Mapping[str, str] = field(default_factory=dict)
    listed_by: Sequence[str] = ()
    own_field_labels: bool = False
    node_field: str = ""
    subresources: Sequence[Subresource] = ()
    grants: Sequence[Grant] = ()
    consumption: Consumption | None = None
    has_status: bool = False
    tracks_generation: bool = False
    counts_dropped: bool = False
    name_check: Callable[[str, bool], list[str]] | None = None
    validate_shape_on_update: bool = True
    rechecks_metadata: bool = True
    gates: Sequence[Gate] = ()
    declarations: Declarations | None = None
    prepare: Prepare = _nothing
    validate: Validate = _no_errors
    warnings: Warn = _no_warnings
    expressions: Texts = _no_texts
    verbs: Sequence[str] = VERBS
    virtual: bool = False
    lingers: Callable[[Object], bool] = _never
    ending: Callable[[Object], None] = _as_it_is
    versions: Sequence[Version] = ()
    deprecation: Deprecation | None = None
    returns_deleted: bool = True
    needs_version: bool = False
    home: str | None = ""
    stored_as: Resource | None = None
    conversion: Conversion | None = None
    custom: Custom | None = None

    @property
    def stored(self) -> Resource:
        """The kind in the version in which it is stored: for nearly all kinds, itself."""
        return self if self.stored_as is None else self.stored_as

    @property
    def indexed(self) -> Mapping[str, str]:
        """The labels of the fields that memory indexes, in order, with their paths: those of every version."""
        return self.selectable if self.custom is None else self.custom.indexed

    @property
    def listed_places(self) -> tuple[int, ...]:
        """The places among `indexed` of the fields by which lists find objects."""
        return tuple(place for place, label in enumerate(self.indexed) if label in self.listed_by)

    @property
    def hub(self) -> Resource:
        """The version in which writes are judged: the stored one. Each version of a custom resource has rules of its own, so there it is
        that of the request."""
        return self.stored if self.custom is None else self

    @property
    def converted(self) -> bool:
        """Whether a webhook converts between this version and the stored one. Then the bytes of objects in this version are not those in
        the store: `conversion.converter` makes them."""
        return self.custom is not None and self.custom.webhook is not None and self.stored_as is not None

    @property
    def encoded_version(self) -> str:
        """The version of an object that a request of this version wrote, once it is encoded: the stored one, unless a webhook has to
        convert it before."""
        return self.version if self.converted else self.stored.version

    @property
    def same_json(self) -> bool:
        """Whether objects of this version have the JSON that is stored."""
        return self.conversion is None and not self.converted

    @property
    def storage_name(self) -> str:
        """The store's name of the kind: `<group>/<plural>`."""
        return f"{self.group}/{self.plural}"

    @property
    def list_kind(self) -> str:
        return self.listed or f"{self.kind}List"

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.plural)

    @property
    def group_kind(self) -> GroupKind:
        return GroupKind(self.group, self.kind)

    @property
    def deprecation_warning(self) -> str:
        """The warning for requests of a deprecated version; "" for any other. The text is upstream's."""
        if self.deprecation is None:
            return ""
        if self.deprecation.text:
            return self.deprecation.text
        text = f"{self.api_version} {self.kind} is deprecated in v{self.deprecation.since}+"
        return f"{text}, unavailable in v{self.deprecation.removed}+" if self.deprecation.removed else text

    @property
    def head(self) -> bytes:
        """The bytes that turn a stored object into a served one: they replace its opening brace."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    def subresource(self, name: str) -> Subresource | None:
        return next((s for s in self.subresources if s.name == name), None)
