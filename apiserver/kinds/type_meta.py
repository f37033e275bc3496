"""Read kind and apiVersion of a document as upstream's serializer does, and find that kind among the known ones.

Upstream: kubernetes/apimachinery `pkg/runtime/serializer/json/{meta,json}.go`, `pkg/runtime/{error,scheme}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from apiserver.codecs.json import as_written
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Resource
from kubetext import quoting

MEMBERS = ("kind", "apiVersion")
SCHEME = "apiserver"
"""The scheme's name in errors. Upstream names a scheme by the file that made it."""

_OPTIONS = frozenset({"ListOptions", "GetOptions", "DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions"})
IN_EVERY_VERSION = _OPTIONS | {"WatchEvent"}
"""Registered in every group-version, besides its kinds."""
UNVERSIONED = frozenset({"Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"})
"""Registered by their bare names, with any apiVersion."""
_META = _OPTIONS | {"WatchEvent", "Table", "TableOptions", "PartialObjectMetadata", "PartialObjectMetadataList"}
_META_VERSION = "meta.k8s.io/v1"
_CORE = IN_EVERY_VERSION | {"List"}
"""The kinds of version v1 without a group that are known to servers without core kinds."""
_DELETION = frozenset({"CreateOptions", "UpdateOptions"})
"""Known by their bare names where DeleteOptions are read."""
_GO_STRUCT = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


class Unreadable(ValueError):
    """Kind and apiVersion could not be read. The text is upstream's."""


class Unfit(ValueError):
    """The document has a kind that cannot be used here. The text is upstream's."""


class TypeMeta(NamedTuple):
    """Group, version and kind that a document states; empty for absent ones."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def completed(self, resource: Resource) -> TypeMeta:
        """Return the same, with the endpoint's values for absent ones."""
        kind = self.kind or resource.kind
        if not self.version and self.group in ("", resource.group):
            return TypeMeta(resource.group, resource.version, kind)
        return self._replace(kind=kind)


_LENGTHS = frozenset(map(len, ("kind", "apiVersion")))


def read(value: Any) -> TypeMeta:
    """Return kind and apiVersion of a document. Raises Unreadable. Names are matched in any case here, as in upstream's first reading."""
    if value is not None and not isinstance(value, dict):
        raise _mismatch(value, f"value of type {_GO_STRUCT}")
    found = {"kind": "", "apiversion": ""}
    for name, x in [member for member in as_written.members(value or {}) if len(member[0]) in _LENGTHS]:
        folded = name.casefold()
        if folded in found and x is not None:
            if not isinstance(x, str):
                member = "kind" if folded == "kind" else "apiVersion"
                raise _mismatch(x, f"struct field .{member} of type string")
            found[folded] = x
    group, version = _group_version(found["apiversion"])
    return TypeMeta(group, version, found["kind"])


def of_message(api_version: str, kind: str, *, group: str, version: str) -> TypeMeta:
    """Return the type that a protobuf envelope states. Without a valid version it has the expected group and version."""
    try:
        stated = TypeMeta(*_group_version(api_version), kind)
    except Unreadable:
        stated = TypeMeta("", "", kind)
    return stated if stated.version else TypeMeta(group, version, kind)


def _mismatch(value: Any, into: str) -> Unreadable:
    text = f"json: cannot unmarshal {json_kind(value)} into Go {into}"
    return Unreadable(f"couldn't get version/kind; json parse error: {text}")


def json_kind(value: Any) -> str:
    """Return Go's name of a JSON value's type."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _group_version(text: str) -> tuple[str, str]:
    group, slash, version = text.partition("/")
    if "/" in version:
        raise Unreadable(f"unexpected GroupVersion string: {text}")
    return (group, version) if slash else ("", group)


def hub_type(resource: Resource) -> str:
    """Return the version-independent type of a kind as Go prints it: its package is named for the group."""
    return f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"


def find(meta: TypeMeta, kinds: Kinds) -> Resource | None:
    """Return the known kind that a document states, in exactly that version."""
    return kinds.named(meta.group, meta.version, meta.kind)


def unregistered(meta: TypeMeta, kinds: Iterable[Resource], into: str) -> Unfit:
    """Return why a document of an unknown kind cannot become `into`."""
    for r in kinds:
        if (r.group, r.version) == (meta.group, meta.version) and meta.kind in (r.list_kind, *IN_EVERY_VERSION):
            return unconvertible(meta, into)
    known = meta.kind in UNVERSIONED or (meta.api_version == "v1" and meta.kind in _CORE)
    return unconvertible(meta, into) if known else not_registered(meta)


def not_registered(meta: TypeMeta, scheme: str = SCHEME) -> Unfit:
    version = quoting.go_quote(meta.api_version)
    return Unfit(f'no kind {quoting.go_quote(meta.kind)} is registered for version {version} in scheme "{scheme}"')


def not_registered_internally(kind: str, group: str, scheme: str = SCHEME) -> Unfit:
    """Return the error for a document without apiVersion where upstream does not complete it."""
    where = f"the internal version of group {quoting.go_quote(group)}"
    return Unfit(f'no kind {quoting.go_quote(kind)} is registered for {where} in scheme "{scheme}"')


def unconvertible(meta: TypeMeta, into: str) -> Unfit:
    """Return the error for a known kind. Its Go package is named for the version, or is that of the meta types."""
    package = "v1" if meta.kind in UNVERSIONED | IN_EVERY_VERSION else meta.version
    return Unfit(f"converting ({package}.{meta.kind}) to ({into}): unknown conversion")


def check_delete_options(meta: TypeMeta) -> None:
    """Accept DeleteOptions of any version, also without kind and version. Raises Unfit."""
    if meta.kind in ("", "DeleteOptions"):
        return
    completed = meta if meta.version or meta.group else meta._replace(group="meta.k8s.io", version="v1")
    known = meta.kind in UNVERSIONED | _DELETION or (completed.api_version == _META_VERSION and meta.kind in _META)
    raise unconvertible(completed, "v1.DeleteOptions") if known else not_registered(completed)
