"""What one kind declares. Generic code receives a `Resource` and never imports one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from apiserver.apimachinery.errors import GroupKind, GroupResource
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gate, Gates
from apiserver.schema.types import Struct
from kubetext.quantity import Quantity

Object = dict[str, Any]
"""A decoded API object. Handlers own the one they were given; a stored one is never changed in place."""

Texts = Callable[[Object], Iterable[str]]
Prepare = Callable[[Context, Object, Object | None], None]
Validate = Callable[[Context, Object, Object | None], Iterable[FieldError]]
Warn = Callable[[Context, Object, Object | None], Iterable[str]]
"""Hooks see the new object and the stored one, which is None on create. They are pure but for `new`, and run in threads too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a change needs beyond the request that was authorized: that its user may also do one of `verbs`, asked in this order, with
    `subresource` of the same resource, whether there is such an endpoint or not.

    The question names `name`, and the object's namespace if it is `namespaced`. A refusal is a cause at `path`: `text`, then why.
    """

    path: Path = field(compare=False)
    text: str
    verbs: tuple[str, ...]
    subresource: str
    name: str = ""
    namespaced: bool = False


Require = Callable[[Context, Object, Object], Iterable[FieldError | Permission]]
"""What its user must be allowed for a change, each once it is prepared: asked of the authorizer, or refused already."""


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
"""What can be done with most kinds, in the order of discovery documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What somebody whose work this kind is for may do with it, or with `subresource` of it, which need not be an endpoint. `role` says
    who, in a word: the ClusterRole of that name (`schema.roles`) has the grants of all kinds, and those of "view", "edit" and "admin" are
    added to the cluster's default roles."""

    role: str
    verbs: Sequence[str]
    subresource: str = ""


class Owner(NamedTuple):
    """A pod in the namespace of an object."""

    name: str
    uid: str


class Around(NamedTuple):
    """What usage depends on beyond the object: `facts` about each object of another kind, by its name, and what of all this a pod has
    `taken` already, by the name in a quota."""

    gates: Gates
    facts: Mapping[str, str]
    taken: Mapping[str, Quantity]


def _no_owner(obj: Object) -> Owner | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumption:
    """What objects of a kind use up of the ResourceQuotas of their namespace, besides their number.

    It is measured in the group `home` alone: the quota controller of a cluster has to measure the same. `measures(name, around)` says
    whether a name in a quota is about this kind, and `usage(obj, around)` how much the object uses, by name. Facts are what `reads` tells
    of each object of the kind whose plural is `beside`, in the same group; the pod is the `owner` that asked for the object, if any.
    """

    home: str
    beside: str
    reads: Callable[[Object], str]
    measures: Callable[[str, Around], bool]
    usage: Callable[[Object, Around], Mapping[str, Quantity]]
    owner: Callable[[Object], Owner | None] = _no_owner


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the kind's Table; `cell(object, now)` computes its value, `now` in seconds since the epoch.

    Rows are remembered, so a cell that changes with time says `since(object)`, the moment from which its age counts, None if unknown.
    `reads` are the members that both look at, `spec.pool.name`, or with all below them, `spec.pool`. They are shown an object that may
    have nothing else, unless it is None: then each row takes as long as to decode the whole object.
    A cell has the JSON type that `type` names, or is None; that of a `date` is an age, a text (upstream: kubernetes/apimachinery
    `pkg/apis/meta/v1/types.go` TableColumnDefinition). `schema.columns.member` makes a column of a member. A cell that raises is shown
    as `<error>`, and the log names it.
    """

    name: str
    cell: Callable[[Object, float], Any]
    reads: Sequence[str] | None = field(default=None, hash=False)
    type: Literal["string", "integer", "number", "boolean", "date", "array"] = "string"
    format: str = ""
    description: str = ""
    priority: int = 0
    since: Callable[[Object], float | None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subresource:
    """A part of the object with its own endpoint. Writing it takes the members named in `owns` from the request and keeps the rest.

    `prepare` and `validate` work as the kind's own hooks do; there is always a stored object. What `requires` tells is judged, and
    listed, before anything that is wrong with the object. `verbs` are those of the endpoint. `initial`: what it owns may be given with a
    new object.
    """

    name: str
    owns: tuple[str, ...]
    prepare: Prepare = _nothing
    requires: Require = _no_requirements
    validate: Validate = _no_errors
    verbs: Sequence[str] = ("get", "patch", "update")
    initial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Deprecation:
    """Whoever asks for a deprecated version is warned. Releases are `<major>.<minor>`: since which it is deprecated, and in which it is not
    served any more, "" for none yet.

    Upstream: kubernetes/apiserver `pkg/endpoints/deprecation/deprecation.go`.
    """

    since: str
    removed: str = ""


class Refused(ValueError):
    """What `Conversion.to_storage` raises for values that the stored version cannot hold: the client gets 422 with these errors.

    Their paths are those of the version in which the object was sent.
    """

    def __init__(self, *errors: FieldError) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors


@dataclass(frozen=True, slots=True)
class Conversion:
    """The way from a version to the one that is stored, and back.

    Both functions take an object that is theirs to change, decoded and without kind and apiVersion, and return the other one. They are
    pure. What one version cannot say should survive in the other, in an annotation for example, so that a client which writes what it
    read changes nothing else; all other metadata is the same in both. `to_storage` may raise Refused. `from_storage` may not: what is
    stored can be read in every version.
    """

    to_storage: Callable[[Object], Object]
    from_storage: Callable[[Object], Object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A further version of a kind, beside the one in which it is declared and stored.

    `conversion` is left out where JSON is the same in both: then the stored bytes are served as they are.
    Rules, selectable fields and subresources are those of the stored version; so are the columns, whose cells are asked about objects of
    this one, if it names none. `home` is the one group in which the version is served unless the operator says otherwise; "": in any.
    """

    name: str
    shape: Struct
    conversion: Conversion | None = None
    columns: Sequence[Column] | None = None
    home: str = ""
    deprecation: Deprecation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A kind in one version, as every generic room sees it.

    `group` may be left empty in the declaration: the kind is then in the group that the operator chose. `version` is the one in which
    objects are stored, `versions` are served beside it; `schema.kinds` makes a Resource of each, which is `stored_as` this one.
    Hooks run on decoded objects of the stored version; all have safe defaults:

        prepare(context, new, old)       after decoding and defaulting, before validation; may change `new`
        validate(context, new, old)      rules that the shape cannot declare; the shape's declared rules and immutability run by
                                         themselves
        warnings(context, new, old)      texts for Warning headers
        expressions(new)                 what `context.cel` will be asked to judge, so that long work is kept off the event loop
        gates                            the feature gates that the hooks ask about
        validate_shape_on_update         False where upstream checks an update for immutability only (claims)
        rechecks_metadata                False where the kind's own update check does not repeat the create check of metadata (slices);
                                         it shows in how often a metadata error is listed

    `selectable` maps a field label to the path of its value ("spec.nodeName"); `metadata.name` and, for namespaced kinds,
    `metadata.namespace` are always selectable. `own_field_labels` words an unknown label as upstream does for a kind that registers
    its own set. `node_field` is the label of the one whose value is the node that an object belongs to: nodes see and change only their
    own. `tracks_generation`: generation is 1 on create and rises with every change of spec; with `counts_dropped` (slices) also when
    `prepare` takes back what would have changed. `grants` is what roles need beyond those of a namespace, which follow from the rest.
    `consumption` is what quotas count besides the objects.

    `verbs` are those that the kind has. `virtual`: its objects are questions, which the answer to a create completes; none is stored.
    A deleted object that `lingers` stays until an update leaves one that does not, as if it had a finalizer; `ending` changes an object
    whose deletion begins.
    """

    kind: str
    plural: str
    singular: str
    namespaced: bool
    shape: Struct
    version: str = "v1"
    group: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: Sequence[Column] = ()
    selectable: Mapping[str, str] = field(default_factory=dict)
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
    home: str = ""
    stored_as: Resource | None = None
    conversion: Conversion | None = None

    @property
    def stored(self) -> Resource:
        """The kind in the version in which it is stored: itself, for nearly all."""
        return self if self.stored_as is None else self.stored_as

    @property
    def storage_name(self) -> str:
        """What the store calls the kind: `<group>/<plural>`."""
        return f"{self.group}/{self.plural}"

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

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
        """What whoever asks for a deprecated version is warned with; "" for any other. Upstream's words."""
        if self.deprecation is None:
            return ""
        text = f"{self.api_version} {self.kind} is deprecated in v{self.deprecation.since}+"
        return f"{text}, unavailable in v{self.deprecation.removed}+" if self.deprecation.removed else text

    @property
    def head(self) -> bytes:
        """What turns a stored object's bytes into a served one: put in front of everything after its opening brace."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    def subresource(self, name: str) -> Subresource | None:
        return next((s for s in self.subresources if s.name == name), None)
