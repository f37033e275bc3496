"""The set of served kinds, made once at start: kinds of several groups, the versions of each, and the one form in which it is stored.

Router, bodies, discovery, OpenAPI, store names and metrics follow from it; nothing else enumerates kinds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from apiserver.apimachinery.releases import NEWEST, Release, at
from apiserver.kinds import enablement
from apiserver.schema.resource import Resource

GroupVersionResource = tuple[str, str, str]
"""Group, version, plural."""

_NOTHING_ASKED: enablement.Asked = MappingProxyType({})
_VERSION = re.compile(r"v([1-9][0-9]*)(?:(alpha|beta)([1-9][0-9]*))?")
_MATURITY = {None: 0, "beta": 1, "alpha": 2}


class InvalidKinds(ValueError):
    """The kinds cannot be served. `errors` are all reasons."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = list(errors)


class Kinds:
    """The served resources. Every version of a kind is one. The versions of a kind share the store, and one of them is the stored form.

    Iterates in the order of documents: by group, the preferred version first, by name. `known` also has those that are not served.
    """

    def __init__(
        self,
        declared: Iterable[Resource],
        *,
        group: str = "",
        runtime_config: enablement.Asked = _NOTHING_ASKED,
        builtin: Iterable[Resource] = (),
        custom: Iterable[Resource] = (),
        release: Release = NEWEST,
    ) -> None:
        """Set the kinds as they are in a release of Kubernetes. `group` is the group of kinds that name none. `builtin` are kinds of
        Kubernetes' own groups, always served; there an empty group is the core group. `custom` are all versions of custom resources, as
        they are in this release. Raises InvalidKinds for two kinds of one group that share a name."""
        self.release = release
        declared, always = at(release, tuple(declared)), at(release, tuple(builtin))
        defined = tuple(custom)
        stored = [*(kind if kind.group else replace(kind, group=group) for kind in declared), *always]
        errors = list(_clashes([*stored, *(kind for kind in defined if kind.stored is kind)]))
        if errors := errors + list(_mixed(stored, defined)):
            raise InvalidKinds(errors)
        known = [resource for kind in stored for resource in _versions(kind)]
        stored += (kind for kind in defined if kind.stored is kind)
        known += defined
        known.sort(key=lambda r: (r.group, rank(r.version), r.plural))
        self.configurable: Sequence[Resource] = tuple(
            r for r in known if r.custom is None and not any(r.stored is kind for kind in always)
        )
        """The resources that `runtime_config` may name."""
        off = {id(r) for r in self.configurable if not enablement.enabled(runtime_config, r)}
        off |= {id(r) for r in defined if r.custom is not None and not r.custom.served}
        served = [resource for resource in known if id(resource) not in off]
        self.known: Sequence[Resource] = tuple(known)
        self.stored: Sequence[Resource] = tuple(
            sorted((kind for kind in stored if not kind.virtual), key=lambda r: r.storage_name)
        )
        """The stored form of each kind that has one."""
        self._served = tuple(served)
        self._by_path = {(r.group, r.version, r.plural): r for r in served}
        self._by_kind = {(r.group, r.version, r.kind): r for r in known}
        self.custom_groups = frozenset(r.group for r in served if r.custom is not None)
        """The groups that have custom resources. They have no other kinds."""
        self.groups: Mapping[str, Mapping[str, Sequence[Resource]]] = MappingProxyType(_grouped(served))
        """Group name → version, the preferred one first → its resources by name."""

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served)

    def __len__(self) -> int:
        return len(self._served)

    @property
    def paths(self) -> Collection[GroupVersionResource]:
        """Group, version and plural of each served resource."""
        return self._by_path.keys()

    def at(self, group: str, version: str, plural: str) -> Resource | None:
        """Return the resource served under this name in the paths of a group and version."""
        return self._by_path.get((group, version, plural))

    def named(self, group: str, version: str, kind: str) -> Resource | None:
        """Return the resource that documents call by this apiVersion and kind, served or not."""
        return self._by_kind.get((group, version, kind))


def rank(version: str) -> tuple[int, int, int, str]:
    """Return a key of Kubernetes' order of versions: stable ones, then beta, then alpha, higher numbers first, then all others by name.

    Upstream: kubernetes/apimachinery `pkg/version/helpers.go`.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return len(_MATURITY), 0, 0, version
    major, maturity, minor = match.groups()
    return _MATURITY[maturity], -int(major), -int(minor or 0), version


def _versions(kind: Resource) -> Iterator[Resource]:
    """Yield the kind in its stored version, and in each further declared version."""
    yield kind
    for version in kind.versions:
        yield replace(
            kind,
            version=version.name,
            shape=version.shape,
            columns=kind.columns if version.columns is None else version.columns,
            versions=(),
            deprecation=version.deprecation,
            home=version.home,
            returns_deleted=version.returns_deleted,
            needs_version=version.needs_version,
            stored_as=kind,
            conversion=version.conversion,
        )


def _grouped(served: Sequence[Resource]) -> dict[str, Mapping[str, Sequence[Resource]]]:
    found: dict[str, dict[str, list[Resource]]] = {}
    for resource in served:
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return {group: MappingProxyType(versions) for group, versions in found.items()}


def _mixed(declared: Iterable[Resource], defined: Iterable[Resource]) -> Iterator[str]:
    """Yield an error for each group with declared kinds and custom resources. Paths of such a group would have two kinds of answers; in a
    cluster one server answers for a group and version, too."""
    for group in sorted({kind.group for kind in declared} & {kind.group for kind in defined}):
        yield f"the group {group} has other kinds, which no definitions can join"


def _clashes(kinds: Sequence[Resource]) -> Iterator[str]:
    """Yield an error for each name that two kinds of one group claim. kubectl accepts plurals, singulars and short names alike.

    Upstream: kubernetes/apiextensions-apiserver `pkg/controller/status/naming_controller.go`.
    """
    taken: dict[tuple[str, str, str], tuple[int, str]] = {}
    for position, kind in enumerate(kinds):
        resources = {"plural": [kind.plural], "singular": [kind.singular], "short name": kind.short_names}
        named = [("resource", what, name) for what, claimed in resources.items() for name in claimed]
        named += [("kind", "kind", name) for name in (kind.kind, kind.list_kind)]
        for among, what, name in named:
            owner, called = taken.setdefault((kind.group, among, name), (position, what))
            if owner == position:
                continue
            if called == what:
                yield f"two kinds of the group {kind.group} have the {what} {name}"
            else:
                yield f"{kind.kind}: the {what} {name} is the {called} of {kinds[owner].kind} in the group {kind.group}"
