"""Apply and update objects, and compute the fields that each manager owns.

Upstream: kubernetes-sigs/structured-merge-diff `merge/{update,conflict}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol

from structuredmerge.comparison import Comparison, compare
from structuredmerge.fieldset import fields_of
from structuredmerge.merging import merge
from structuredmerge.paths import Path
from structuredmerge.reconciliation import reconcile
from structuredmerge.removal import remove
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import Scalar, Type, choose
from structuredmerge.values import equal

__all__ = ["UNCHANGED", "Conflict", "Conflicts", "Managers", "OneVersion", "Owned", "Versions", "apply", "update"]


class _Unchanged:
    """The result of an apply that changes nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()


class Owned(NamedTuple):
    """The fields of one manager: paths in objects of `version`, and whether the manager applied them."""

    set: Set
    version: str
    applied: bool


Managers = Mapping[str, Owned]
"""The managers by the texts of their identities."""


class Conflict(NamedTuple):
    """A path of another manager that would get another value."""

    manager: str
    path: Path


class Conflicts(Exception):
    """An apply changes fields of other managers.

    The conflicts are sorted by manager, and by path within a manager.
    """

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


class Versions(Protocol):
    """The types and conversions of the versions of an object."""

    def type_at(self, version: str) -> Type | None:
        """Return the type of objects of this version; None when objects cannot be converted to it."""

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        """Return the value in another version, where it must be valid. The argument is not changed.

        Both versions have a type. Raises ValueError.
        """

    def ignored(self, version: str) -> Set:
        """Return the paths that no write of this version changes, because the endpoint resets them."""


class OneVersion:
    """Implements `Versions` for objects that have a single version. Managers of other versions are dropped."""

    def __init__(self, version: str, type_: Type, *, ignored: Set = EMPTY) -> None:
        self._version, self._type, self._ignored = version, type_, ignored

    def type_at(self, version: str) -> Type | None:
        return self._type if version == self._version else None

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        return value

    def ignored(self, version: str) -> Set:
        return self._ignored


def apply(
    live: Any,
    patch: Any,
    *,
    version: str,
    managers: Managers,
    manager: str,
    versions: Versions,
    force: bool,
    spelled: Callable[[], Any] | None = None,
) -> tuple[Any, Managers]:
    """Apply a patch: return the new object, or UNCHANGED, and the fields of each manager.

    Both objects are of `version`, and valid. Fields that the manager applied before and does not apply now are removed,
    unless another manager owns them.

    If the manager applied in another version before, the result was converted there and back. It is then compared with
    `spelled()`, the live object in the form in which upstream compares converted objects.

    Laws: the applier owns exactly the paths of the patch. A second, equal apply changes nothing, but null and an empty
    container may replace each other. With `force` there are no conflicts; without conflicts `force` changes nothing.

    Raises Conflicts when the result differs from the live object at paths of other managers. With `force` these
    managers lose the paths.
    """
    type_ = _type(versions, version)
    known = _servable(managers, versions)
    seen = _seen(live, version, known, versions)
    last = known.get(manager)
    fields = fields_of(patch, type_).without(versions.ignored(version))
    known[manager] = Owned(fields, version, applied=True)
    new = merge(live, patch, type_)
    if last is not None and last.set:
        with _prefixed("failed to prune fields"):
            new = _pruned(new, last, managers=known, applier=manager, versions=versions)
        if last.version != version and spelled is not None:
            seen[version] = spelled()
    comparisons = _Comparisons(seen, new, version, versions)
    left = _left(comparisons, known, manager, force=force)
    return UNCHANGED if comparisons.nothing_changed() else new, left


def update(
    live: Any,
    new: Any,
    *,
    version: str,
    managers: Managers,
    manager: str,
    versions: Versions,
    before: str = "",
    forgone: Set = EMPTY,
) -> Managers:
    """Return the fields of each manager after `new` replaced `live`.

    Both objects are of `version`, and valid except for repeated items.

    `before` is the identity under which this manager wrote earlier, if it had another. That identity loses changed
    paths only if they are `forgone`. So a reader who combines both mostly finds the same sets as before.

    Laws: the manager owns all paths that it changed or added, and its earlier paths that it did not remove. No other
    manager owns a changed path. No manager owns a path without a value. An update that changes nothing changes no set.
    """
    known = _servable(managers, versions)
    comparisons = _Comparisons(_seen(live, version, known, versions), new, version, versions)
    left = _left(comparisons, known, manager, force=True, before=before, forgone=forgone)
    removed, changed = comparisons.at(version)
    owned = left[manager].set if manager in left else EMPTY
    after = ((owned - removed) | changed).without(versions.ignored(version))
    if after:
        left[manager] = Owned(after, version, applied=False)
    else:
        left.pop(manager, None)
    return left


@contextmanager
def _prefixed(where: str) -> Iterator[None]:
    """Prefix the error of a failed conversion with its place, as upstream does."""
    try:
        yield
    except ValueError as e:
        raise type(e)(f"{where}: {e}") from None


def _type(versions: Versions, version: str) -> Type:
    type_ = versions.type_at(version)
    assert type_ is not None, "a request is of a version that is served"
    return type_


def _servable(managers: Managers, versions: Versions) -> dict[str, Owned]:
    """Return the managers whose versions can be converted to, with their sets adapted to the current types."""
    known: dict[str, Owned] = {}
    for name, owned in managers.items():
        type_ = versions.type_at(owned.version)
        if type_ is not None:
            reconciled = reconcile(owned.set, type_)
            known[name] = owned if reconciled is owned.set else owned._replace(set=reconciled)
    return known


def _seen(live: Any, version: str, managers: Managers, versions: Versions) -> dict[str, Any]:
    """Return the live object in its own version and in those of its managers.

    Each must be complete, whatever the write does.
    """
    others = {owned.version for owned in managers.values()} - {version}
    return {version: live, **{other: versions.convert(live, version, other) for other in sorted(others)}}


class _Comparisons:
    """The differences between two objects, in each version of the first. Each version is compared once."""

    def __init__(self, seen: Mapping[str, Any], new: Any, version: str, versions: Versions) -> None:
        self._seen, self._new, self._version, self._versions = seen, new, version, versions
        self._whole = compare(seen[version], new, _type(versions, version))
        self._at = {version: self._counting(self._whole, version)}

    def nothing_changed(self) -> bool:
        """Return whether the objects are equal, including the order of items and ignored paths."""
        return not any(self._whole) and equal(self._seen[self._version], self._new)

    def at(self, version: str) -> tuple[Set, Set]:
        """Return the removed paths, and those modified or added, without ignored ones."""
        found = self._at.get(version)
        if found is None:
            with _prefixed("failed to convert new object"):
                new = self._versions.convert(self._new, self._version, version)
            found = self._counting(compare(self._seen[version], new, _type(self._versions, version)), version)
            self._at[version] = found
        return found

    def _counting(self, found: Comparison, version: str) -> tuple[Set, Set]:
        found = found.without(self._versions.ignored(version))
        return found.removed, found.modified | found.added


def _left(
    comparisons: _Comparisons,
    managers: Managers,
    writer: str,
    *,
    force: bool,
    before: str = "",
    forgone: Set = EMPTY,
) -> dict[str, Owned]:
    """Return the remaining fields of each manager, without managers that own nothing.

    `before` loses only `forgone` paths to the writer. Raises Conflicts unless forced.
    """
    left: dict[str, Owned] = {}
    conflicts: list[Conflict] = []
    for name, owned in managers.items():
        if name == writer:
            left[name] = owned
            continue
        removed, changed = comparisons.at(owned.version)
        lost = owned.set & (changed & forgone if name == before else changed)
        if lost and not force:
            conflicts += (Conflict(name, path) for path in lost.paths())
        rest = owned.set - lost - removed
        left[name] = owned if rest is owned.set else owned._replace(set=rest)
    if conflicts:
        raise Conflicts(sorted(conflicts, key=lambda conflict: conflict.manager))
    return {name: owned for name, owned in left.items() if owned.set}


def _pruned(merged: Any, last: Owned, *, managers: Managers, applier: str, versions: Versions) -> Any:
    """Return the merged object without the paths that only the applier's last apply owned.

    `managers` hold the new paths of the applier, whose version is that of the result.

    Law: only paths that the applier owned before are removed. A container is removed once nothing in it belongs to
    another manager.
    """
    version, before = managers[applier].version, last.version
    type_ = _type(versions, before)
    owned = last.set.named(type_)
    alternative = choose(_type(versions, version), merged)
    if not isinstance(alternative, Scalar) and (alternative.atomic or not merged):
        # An atomic or empty value has no parts to keep: remove all of it.
        return None
    if all(other.version == before for other in managers.values()) and not owned - managers[applier].set.named(type_):
        # The manager applies the same paths again. Converting there and back could lose a value (a null) that the other
        # version cannot represent.
        return merged
    with _prefixed("failed to convert merged object to last applied version"):
        whole = versions.convert(merged, version, before)
    pruned = remove(whole, owned, type_)
    if pruned is whole:
        return merged
    fields = fields_of(whole, type_).named(type_)
    with _prefixed("failed add back owned items"):
        pruned = _with_owned(whole, pruned, fields=fields, version=before, managers=managers, versions=versions)
    dangling = (fields - fields_of(pruned, type_).named(type_)) & owned
    return versions.convert(remove(whole, dangling, type_), before, version)


def _with_owned(merged: Any, pruned: Any, *, fields: Set, version: str, managers: Managers, versions: Versions) -> Any:
    """Return the pruned object with all owned paths put back.

    Both objects, the fields of the merged one, and the result are of `version`.
    """
    by_version: dict[str, Set] = {version: EMPTY}
    for owned in managers.values():
        by_version[owned.version] = by_version.get(owned.version, EMPTY) | owned.set
    here = version
    # The version of the pruned object comes first: converting it may need the paths that are put back.
    for there, owned_there in by_version.items():
        type_ = _type(versions, there)
        if there != here:
            with _prefixed(f"failed to convert merged object at version {there}"):
                merged = versions.convert(merged, here, there)
            with _prefixed(f"failed to convert pruned object at version {there}"):
                pruned = versions.convert(pruned, here, there)
            fields = fields_of(merged, type_).named(type_)
            here = there
        kept = fields_of(pruned, type_).named(type_) | owned_there.named(type_)
        pruned = remove(merged, fields - kept, type_)
    return versions.convert(pruned, here, version)
