"""The operations of each path, independent of the version of OpenAPI. Knows no kind.

Operation ids, parameters and answers are upstream's. Upstream: kubernetes/apiserver `pkg/endpoints/installer.go`,
`pkg/endpoints/openapi/openapi.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from apiserver.discovery import served
from apiserver.schema import machinery
from apiserver.schema.openapi import Definitions, Kind, Schema
from apiserver.schema.resource import Resource, Subresource

Reference = Callable[[Definitions], Schema]
"""Refers to a definition, in the document that asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter in the query, or in the path."""

    name: str
    doc: str
    type: str = "string"
    in_path: bool = False
    shared: bool = True
    """False: version 2 repeats it at every operation, where old clients look for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The body of an operation. `patch` bodies have media types of their own; a custom resource has no strategic merge patch."""

    reference: Reference
    required: bool = True
    patch: bool = False
    strategic: bool = True
    own: bool = False
    """Whether the body is the kind itself, and so belongs to this operation alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method at one path. `answers` maps the HTTP status of success to the returned definition."""

    method: str
    id: str
    doc: str
    answers: dict[int, Reference]
    action: str = ""
    parameters: Sequence[Parameter] = ()
    body: Body | None = None
    streams: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """A path, the common parts of its operations, and the operations by method. `kind` is None for discovery."""

    path: str
    tag: str
    operations: Sequence[Operation]
    parameters: Sequence[Parameter] = ()
    kind: Kind | None = None


def _parameter(name: str, doc: str, type: str = "string", *, shared: bool = True) -> Parameter:  # noqa: A002
    return Parameter(name=name, doc=doc, type=type, shared=shared)


_VERSIONS = "https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions"

PRETTY = _parameter(
    "pretty", "With true, the answer is indented. The default is false, except for browsers, curl and wget."
)
NAMESPACE = Parameter(name="namespace", in_path=True, doc="The namespace.")
DRY_RUN = _parameter(
    "dryRun",
    "With All, the request goes through every stage but nothing is stored. No other value is allowed.",
    shared=False,
)
FIELD_MANAGER = _parameter(
    "fieldManager",
    "Who makes this change: at most 128 bytes of printable characters. The default is taken from the User-Agent.",
)
PATCH_MANAGER = _parameter(
    "fieldManager",
    "Who makes this change: at most 128 bytes of printable characters. Required for apply patches; for all others the default is "
    "taken from the User-Agent.",
)
FIELD_VALIDATION = _parameter(
    "fieldValidation",
    "What becomes of unknown and repeated members of the sent object. Ignore: they are dropped, of repeated ones the last counts. "
    "Warn (the default): the same, with a warning for each. Strict: the request fails and names them all.",
    shared=False,
)
FORCE = _parameter(
    "force", "Whether an apply patch takes fields over from their managers. Only for apply patches.", "boolean"
)

_LIST = (
    _parameter(
        "continue",
        "The token that came with the last part of a list cut short by limit; asks for the next part. All other parameters must stay the "
        "same. A token that is too old is answered with 410 and a new one, with which the list goes on from its latest state. "
        "Not for watches.",
    ),
    _parameter("fieldSelector", "Selects objects by their fields. The default is all."),
    _parameter("labelSelector", "Selects objects by their labels. The default is all."),
    _parameter(
        "limit",
        "How many objects are returned at most. If more are left, the list carries a token for the parameter continue. All parts of a list "
        "show one state of the collection. Not for watches.",
        "integer",
    ),
    _parameter("resourceVersion", f"From which version of the collection the request may be served; see {_VERSIONS}."),
    _parameter(
        "resourceVersionMatch",
        f"How resourceVersion is meant by a list: NotOlderThan or Exact. Recommended wherever resourceVersion is set; see {_VERSIONS}.",
    ),
    _parameter(
        "sendInitialEvents",
        "Whether a watch begins with events that make up the current state, followed by a bookmark with the annotation "
        '"k8s.io/initial-events-end": "true" if bookmarks are allowed. Needs resourceVersionMatch=NotOlderThan; the state is at least as '
        "new as resourceVersion, or the newest when that is unset. The default is true for resourceVersion unset or 0, else false.",
        "boolean",
    ),
    _parameter(
        "shardSelector",
        "Selects a share of the objects by a hash, as shardRange(object.metadata.uid, '0x0', '0x8000000000000000'), several of which may "
        "be joined with ||. Alpha: without the feature gate ShardedListAndWatch it is ignored.",
    ),
    _parameter(
        "timeoutSeconds", "After how many seconds a watch ends, whatever happens on it. Lists ignore it.", "integer"
    ),
)
_WATCH = (
    _parameter(
        "allowWatchBookmarks",
        "Whether a watch may send bookmarks: events that carry nothing but a resourceVersion, about once a minute. Lists ignore it.",
        "boolean",
    ),
    _parameter(
        "watch", "Whether to stay connected and be sent every change of the objects instead of a list.", "boolean"
    ),
)
_DELETE = (
    DRY_RUN,
    _parameter(
        "gracePeriodSeconds",
        "How long the object may take to end; 0 means at once. Kinds that end at once ignore it.",
        "integer",
    ),
    _parameter(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "Asks for the removal of an object that cannot be read from the store any more, without regard to finalizers and preconditions. "
        "What depends on a proper deletion may break. Off by default.",
        "boolean",
    ),
    _parameter(
        "orphanDependents",
        "Deprecated: use propagationPolicy. Whether dependents are left behind. Cannot be combined with propagationPolicy.",
        "boolean",
    ),
    _parameter(
        "propagationPolicy",
        "What becomes of dependents: Orphan leaves them, Background has them collected afterwards, Foreground has them deleted first. "
        "Cannot be combined with orphanDependents.",
    ),
)
_WRITE = (DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION)
_PATCH = (DRY_RUN, PATCH_MANAGER, FIELD_VALIDATION, FORCE)

DEPRECATED_WATCH = "Deprecated: use the parameter watch of the list instead{}."


def group(name: str) -> Path:
    """Describe a group's document. The core group has no APIGroup, so its APIVersions."""
    tag = _tag(name)
    shape, kind = (machinery.API_GROUP, "APIGroup") if name else (machinery.API_VERSIONS, "APIVersions")
    reference: Reference = lambda d: d.message(shape, [("", "v1", kind)])  # noqa: E731
    operation = Operation(
        method="get", id=f"get{_capital(tag)}{kind}", doc="The versions of the group.", answers={200: reference}
    )
    return Path(path=f"{served.root(name)}/", tag=tag, operations=[operation])


def group_version(name: str, version: str) -> Path:
    """Describe the list of resources of a group and version."""
    tag = _tag(name)
    reference: Reference = lambda d: d.message(machinery.API_RESOURCE_LIST, [("", "v1", "APIResourceList")])  # noqa: E731
    operation = Operation(
        method="get",
        id=f"get{_capital(tag)}{_capital(version)}APIResources",
        doc="The resources that are served.",
        answers={200: reference},
    )
    return Path(path=f"{served.root(name)}/{version}/", tag=f"{tag}_{version}", operations=[operation])


def resource(resource: Resource, kinds: Sequence[Kind]) -> Iterator[Path]:
    """Yield every path of a kind. `kinds` are the groups and versions under which DeleteOptions and WatchEvent are known."""
    return _Paths(resource, kinds).all()


class _Paths:
    def __init__(self, resource: Resource, kinds: Sequence[Kind]) -> None:
        self._resource = resource
        self._kinds = kinds
        self._base = f"{served.root(resource.group)}/{resource.version}"
        self._scope = "/namespaces/{namespace}" if resource.namespaced else ""
        group = _tag(resource.group)
        self._tag = f"{group}_{resource.version}"
        self._group = _capital(group) + _capital(resource.version)
        self._kind = ("Namespaced" if resource.namespaced else "") + resource.kind
        self._name = Parameter(name="name", in_path=True, shared=False, doc=f"The name of the {resource.kind}.")

    def all(self) -> Iterator[Path]:
        # Methods have upstream's order: get, put, post, delete, patch (kubernetes/kube-openapi `pkg/spec3/path.go`).
        plural = self._resource.plural
        outer = (NAMESPACE, PRETTY) if self._scope else (PRETTY,)
        inner = (self._name, *outer)
        collection, item = f"{self._scope}/{plural}", f"{self._scope}/{plural}/{{name}}"
        if self._resource.virtual:
            yield self._alone(collection, self._create(), outer)
            return
        every = [
            self._list(),
            self._create(),
            *([self._delete_all()] if "deletecollection" in self._resource.verbs else []),
        ]
        yield self._path(collection, every, outer)
        yield self._path(item, [self._read(), self._replace(), self._delete(), self._patch()], inner)
        for sub in self._resource.subresources:
            operations = [self._read(sub), self._replace(sub), self._patch(sub)]
            chosen = [op for op, verb in zip(operations, ("get", "update", "patch"), strict=True) if verb in sub.verbs]
            if len(chosen) == 1:
                yield self._alone(f"{item}/{sub.name}", chosen[0], inner)
            else:
                yield self._path(f"{item}/{sub.name}", chosen, inner)
        if self._resource.custom is None:
            yield self._path(f"/watch{collection}", [self._watch_list()], (*outer, *_LIST, *_WATCH))
            yield self._path(f"/watch{item}", [self._watch()], (*inner, *_LIST, *_WATCH))
        if self._scope:
            yield self._path(f"/{plural}", [self._list(everywhere=True)], (PRETTY, *_LIST, *_WATCH))
        if self._scope and self._resource.custom is None:
            yield self._path(f"/watch/{plural}", [self._watch_list(everywhere=True)], (PRETTY, *_LIST, *_WATCH))

    def _path(self, path: str, operations: Sequence[Operation], parameters: Sequence[Parameter]) -> Path:
        kind = (self._resource.group, self._resource.version, self._resource.kind)
        return Path(
            path=self._base + path, tag=self._tag, operations=operations, parameters=_sorted(parameters), kind=kind
        )

    def _alone(self, path: str, operation: Operation, parameters: Sequence[Parameter]) -> Path:
        """Make a path with one operation, whose parameters become the path's."""
        return self._path(path, [replace(operation, parameters=())], (*parameters, *operation.parameters))

    def _id(self, verb: str, rest: str = "", *, kind: str = "", before: str = "") -> str:
        return f"{verb}{self._group}{_capital(before + (kind or self._kind))}{rest}"

    def _shown(self, sub: Subresource | None) -> Reference:
        """Return the reference to what an endpoint shows."""
        if sub is None or sub.shows is None:
            return self._object
        return lambda definitions: definitions.message(machinery.SCALE, [sub.shows or ("", "", "")])

    def _object(self, definitions: Definitions) -> Schema:
        return definitions.object(self._resource)

    def _objects(self, definitions: Definitions) -> Schema:
        return definitions.list(self._resource)

    def _event(self, definitions: Definitions) -> Schema:
        return definitions.event(machinery.WATCH_EVENT, [(g, v, "WatchEvent") for g, v, _ in self._kinds])

    def _options(self, definitions: Definitions) -> Schema:
        return definitions.message(machinery.DELETE_OPTIONS, [(g, v, "DeleteOptions") for g, v, _ in self._kinds])

    def _list(self, *, everywhere: bool = False) -> Operation:
        kind, rest = (self._resource.kind, "ForAllNamespaces") if everywhere else ("", "")
        return Operation(
            method="get",
            id=self._id("list", rest, kind=kind),
            action="list",
            doc=f"Lists or watches {self._resource.kind} objects.",
            parameters=() if everywhere else _sorted((*_LIST, *_WATCH)),
            answers={200: self._objects},
            streams=True,
        )

    def _create(self) -> Operation:
        return Operation(
            method="post",
            id=self._id("create"),
            action="post",
            doc=f"Creates a {self._resource.kind}.",
            parameters=_WRITE,
            body=Body(reference=self._object, own=True),
            answers=dict.fromkeys((200, 201, 202), self._object),
        )

    def _delete_all(self) -> Operation:
        return Operation(
            method="delete",
            id=self._id("delete", before="Collection"),
            action="deletecollection",
            doc=f"Deletes the selected {self._resource.kind} objects.",
            parameters=_sorted((*_LIST, *_DELETE)),
            body=Body(reference=self._options, required=False),
            answers={200: _status},
        )

    def _delete(self) -> Operation:
        return Operation(
            method="delete",
            id=self._id("delete"),
            action="delete",
            doc=f"Deletes a {self._resource.kind}.",
            parameters=_DELETE,
            body=Body(reference=self._options, required=False),
            answers=dict.fromkeys((200, 202), self._object if self._resource.returns_deleted else _status),
        )

    def _read(self, sub: Subresource | None = None) -> Operation:
        return Operation(
            method="get",
            id=self._id("read", _suffix(sub)),
            action="get",
            doc=f"Reads {_part(sub)}{self._resource.kind}.",
            answers={200: self._shown(sub)},
        )

    def _replace(self, sub: Subresource | None = None) -> Operation:
        return Operation(
            method="put",
            id=self._id("replace", _suffix(sub)),
            action="put",
            doc=f"Replaces {_part(sub)}{self._resource.kind}.",
            parameters=_WRITE,
            body=Body(reference=self._shown(sub), own=True),
            answers=dict.fromkeys((200, 201), self._shown(sub)),
        )

    def _patch(self, sub: Subresource | None = None) -> Operation:
        return Operation(
            method="patch",
            id=self._id("patch", _suffix(sub)),
            action="patch",
            doc=f"Changes members of {_part(sub)}{self._resource.kind}.",
            parameters=_PATCH,
            body=Body(reference=Definitions.patch, patch=True, strategic=self._resource.custom is None),
            answers=dict.fromkeys((200, 201), self._shown(sub)),
        )

    def _watch_list(self, *, everywhere: bool = False) -> Operation:
        kind, rest = (self._resource.kind, "ListForAllNamespaces") if everywhere else ("", "List")
        return Operation(
            method="get",
            id=self._id("watch", rest, kind=kind),
            action="watchlist",
            doc=f"Watches {self._resource.kind} objects. " + DEPRECATED_WATCH.format(""),
            answers={200: self._event},
            streams=True,
        )

    def _watch(self) -> Operation:
        return Operation(
            method="get",
            id=self._id("watch"),
            action="watch",
            doc=f"Watches one {self._resource.kind}. "
            + DEPRECATED_WATCH.format(", with a field selector for the name"),
            answers={200: self._event},
            streams=True,
        )


def _status(definitions: Definitions) -> Schema:
    return definitions.message(machinery.STATUS, [("", "v1", "Status")])


def _tag(group: str) -> str:
    return valid_id(group.removesuffix(".k8s.io")) if group else "core"


def _suffix(sub: Subresource | None) -> str:
    return _capital(sub.name) if sub is not None else ""


def _part(sub: Subresource | None) -> str:
    return f"the {sub.name} of a " if sub is not None else "a "


def _sorted(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    return tuple(sorted(parameters, key=lambda parameter: parameter.name))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def valid_id(text: str) -> str:
    """Turn a group into a part of an operation id: remove other characters than letters and digits, capitalize the letter after each."""
    out: list[str] = []
    capital = False
    for i, c in enumerate(text):
        if c.isalpha() or c == "_" or (i and c.isdecimal()):
            out.append(c.upper() if capital and c.isalpha() else c)
            capital = False
        else:
            capital = True
    return "".join(out)


SUCCESS = MappingProxyType({200: "OK", 201: "Created", 202: "Accepted"})
