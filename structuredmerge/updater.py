"""Apply and update: what an object becomes, and who manages what of it afterwards.

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
    """What an apply makes of the live object if it is that object."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = _Unchanged()


class Owned(NamedTuple):
    """What one manager owns: paths of objects of a version, and whether it applied them."""

    set: Set
    version: str
    applied: bool


Managers = Mapping[str, Owned]
"""By the texts of their identities."""


class Conflict(NamedTuple):
    """A path that another manager owns and somebody wants another value at."""

    manager: str
    path: Path


class Conflicts(Exception):
    """An apply wants what others own. The conflicts are sorted by manager, those of one as its set iterates."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__(f"{len(conflicts)} conflicts")
        self.conflicts = conflicts


class Versions(Protocol):
    """What has to be known of the versions in which an object is written."""

    def type_at(self, version: str) -> Type | None:
        """The type of objects of this version; None: nothing can be converted to it."""

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        """The value, which is not changed, in another version, where it must be valid. Both can be converted to. Raises ValueError."""

    def ignored(self, version: str) -> Set:
        """The paths that the write cannot touch, whatever its object says (those that the endpoint resets)."""


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
    """The live object with the patch applied, or UNCHANGED, and what everybody owns of it. Both objects are of `version`, and valid.

    Where the manager applied in another version before, what was merged has been there and back. It is compared with the live object as
    it is `spelled`, if that is given.

    Laws: who applies the same twice changes nothing the second time, nulls and containers without anything excepted, of which one may
    take the place of another; the applier owns the paths of the patch, no more and no fewer; with `force` there are no conflicts, and
    where nobody conflicts it changes nothing.

    What the manager applied before and does not apply any more goes, unless somebody else owns it. Raises Conflicts when the outcome has
    other values than the live object at paths that others own, unless forced: then they lose these.
    """
    type_ = _type(versions, version)
    known = _servable(managers, versions)
    seen = _seen(live, version, known, versions)
    last = known.get(manager)
    fields = fields_of(patch, type_).without(versions.ignored(version))
    known[manager] = Owned(fields, version, applied=True)
    new = merge(live, patch, type_)
    if last is not None and last.set:
        with _telling("failed to prune fields"):
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
    """What everybody owns once `new` has taken the place of `live`. Both are of `version`, and valid but for items that are there twice.

    `before` is as whom the manager wrote before, if not as itself: what that one owned it does not lose by a change, but for paths that are
    `forgone`. Whoever puts the two together then finds the same sets as before, mostly.

    Laws: the manager owns all that it changed or added, and what it owned before and did not remove; nobody else owns anything of that;
    nobody owns what is not there any more. An update that changes nothing changes no set.
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
def _telling(where: str) -> Iterator[None]:
    """A conversion that is refused says where it was, as upstream's errors do."""
    try:
        yield
    except ValueError as e:
        raise type(e)(f"{where}: {e}") from None


def _type(versions: Versions, version: str) -> Type:
    type_ = versions.type_at(version)
    assert type_ is not None, "a request is of a version that is served"
    return type_


def _servable(managers: Managers, versions: Versions) -> dict[str, Owned]:
    """The managers whose versions can be converted to, with their sets as they would be by the types of today."""
    known: dict[str, Owned] = {}
    for name, owned in managers.items():
        type_ = versions.type_at(owned.version)
        if type_ is not None:
            reconciled = reconcile(owned.set, type_)
            known[name] = owned if reconciled is owned.set else owned._replace(set=reconciled)
    return known


def _seen(live: Any, version: str, managers: Managers, versions: Versions) -> dict[str, Any]:
    """The live object in its own version, and in those of its managers, where it must be whole whatever comes of the write."""
    others = {owned.version for owned in managers.values()} - {version}
    return {version: live, **{other: versions.convert(live, version, other) for other in sorted(others)}}


class _Comparisons:
    """What is different between two objects, as seen from the versions in which the first one is given; compared once in each."""

    def __init__(self, seen: Mapping[str, Any], new: Any, version: str, versions: Versions) -> None:
        self._seen, self._new, self._version, self._versions = seen, new, version, versions
        self._whole = compare(seen[version], new, _type(versions, version))
        self._at = {version: self._counting(self._whole, version)}

    def nothing_changed(self) -> bool:
        """Whether the objects are equal, the order of items included and whatever is ignored."""
        return not any(self._whole) and equal(self._seen[self._version], self._new)

    def at(self, version: str) -> tuple[Set, Set]:
        """What is removed, and what is modified or added, but for what is ignored."""
        found = self._at.get(version)
        if found is None:
            with _telling("failed to convert new object"):
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
    """What everybody owns still, those who own nothing left out; `before` loses to the writer what is `forgone` alone. Raises Conflicts
    unless forced."""
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
    """What was merged without what the applier applied before, does not apply any more, and nobody owns. `managers` hold what it applies
    now; the result is of that version.

    Law: nothing goes that the applier did not own before; a container goes once nothing in it is left that somebody else owns.
    """
    version, before = managers[applier].version, last.version
    type_ = _type(versions, before)
    owned = last.set.named(type_)
    alternative = choose(_type(versions, version), merged)
    if not isinstance(alternative, Scalar) and (alternative.atomic or not merged):
        # There are no parts to tell apart: all of it goes.
        return None
    if all(other.version == before for other in managers.values()) and not owned - managers[applier].set.named(type_):
        # Whatever it applied before it applies again. What another version has no word for (a null) goes on the way there and back.
        return merged
    with _telling("failed to convert merged object to last applied version"):
        whole = versions.convert(merged, version, before)
    pruned = remove(whole, owned, type_)
    if pruned is whole:
        return merged
    fields = fields_of(whole, type_).named(type_)
    with _telling("failed add back owned items"):
        pruned = _with_owned(whole, pruned, fields=fields, version=before, managers=managers, versions=versions)
    dangling = (fields - fields_of(pruned, type_).named(type_)) & owned
    return versions.convert(remove(whole, dangling, type_), before, version)


def _with_owned(merged: Any, pruned: Any, *, fields: Set, version: str, managers: Managers, versions: Versions) -> Any:
    """What was pruned with what somebody owns put back. Both objects, the fields of what was merged, and the result are of `version`."""
    by_version: dict[str, Set] = {version: EMPTY}
    for owned in managers.values():
        by_version[owned.version] = by_version.get(owned.version, EMPTY) | owned.set
    here = version
    # That of the pruned object is the first: what is put back may be needed to convert it.
    for there, owned_there in by_version.items():
        type_ = _type(versions, there)
        if there != here:
            with _telling(f"failed to convert merged object at version {there}"):
                merged = versions.convert(merged, here, there)
            with _telling(f"failed to convert pruned object at version {there}"):
                pruned = versions.convert(pruned, here, there)
            fields = fields_of(merged, type_).named(type_)
            here = there
        kept = fields_of(pruned, type_).named(type_) | owned_there.named(type_)
        pruned = remove(merged, fields - kept, type_)
    return versions.convert(pruned, here, version)
