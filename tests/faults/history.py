"""The history of one resource, as a watcher of everything receives it. Lists and watches are compared with it."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from tests.faults.seen import Form, Key, Listed, Object, Seen, Selection, Told, bare, key_of, version_of


class Broken(AssertionError):
    """A promise was not kept."""


class History:
    """Begins with a list."""

    def __init__(self, version: int, items: Iterable[Object]) -> None:
        self.start = self.position = version
        self.log: list[tuple[int, Key]] = []
        self._versions: dict[Key, list[int]] = defaultdict(list)
        self._sorted: list[Key] = []
        self._objects: dict[tuple[Key, int], Object | None] = {}
        self._looks: dict[tuple[type[Form], Key, int, bool], int] = {}
        for obj in items:
            self._keep(key_of(obj), version_of(obj), obj)

    def _keep(self, key: Key, version: int, obj: Object | None) -> None:
        self._versions[key].append(version)
        self._objects[key, version] = bare(obj) if obj is not None else None

    def add(self, kind: str, obj: Object) -> None:
        """The next change. Raises Broken for one that cannot be."""
        if kind == "BOOKMARK":
            self.position = max(self.position, version_of(obj))
            return
        key, version, before = key_of(obj), version_of(obj), self.newest(key_of(obj))
        if version <= (self.log[-1][0] if self.log else self.start):
            raise Broken(f"{kind} of {key} at {version} comes after {self.log[-1:]}")
        if (kind == "ADDED") != (before is None):
            raise Broken(f"{kind} of {key} at {version}: before, it was {before}")
        if kind == "DELETED" and obj["metadata"] != {**before["metadata"], "resourceVersion": str(version)}:  # type: ignore[index]
            raise Broken(f"{key} was deleted at {version} as {obj}, and was {before}")
        self.log.append((version, key))
        self._keep(key, version, None if kind == "DELETED" else obj)
        self.position = version

    def newest(self, key: Key) -> Object | None:
        versions = self._versions.get(key)
        return self._objects[key, versions[-1]] if versions else None

    def at(self, key: Key, version: int) -> Object | None:
        versions = self._versions.get(key, [])
        place = bisect.bisect_right(versions, version)
        return self._objects[key, versions[place - 1]] if place else None

    def keys(self) -> list[Key]:
        return list(self._versions)

    def versions(self, key: Key) -> list[int]:
        """When the object was changed."""
        return self._versions.get(key, [])

    def look(self, form: Form, key: Key, version: int, *, gone: bool = False) -> Seen:
        """How an object looks at the version of its change; for a deleted one, how it looked before."""
        known, mine = self._looks, (type(form), key, version, gone)
        if mine not in known:
            obj = self.at(key, version - 1 if gone else version)
            assert obj is not None, (key, version)
            if gone:
                obj = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(version)}}
            known[mine] = form.look(obj)
        return Seen(key, version, known[mine])

    def check_list(self, form: Form, chosen: Selection, listed: Listed) -> None:
        """It is the state at its version."""
        expected = []
        if len(self._sorted) != len(self._versions):
            self._sorted = sorted(self._versions, key="/".join)
        for key in self._sorted:
            obj = self.at(key, listed.version)
            if obj is not None and chosen.selects(obj):
                expected.append(self.look(form, key, version_of(obj)))
        if listed.items != expected:
            raise Broken(
                f"list of {chosen} as {type(form).__name__} at {listed.version}: {difference(listed.items, expected)}"
            )

    def events(self, form: Form, chosen: Selection, after: int) -> Iterator[Told]:
        """Events that a watch of this selection receives after a version."""
        for version, key in self.log[bisect.bisect_right(self.log, (after, ("\U0010ffff", ""))) :]:
            before, now = self.at(key, version - 1), self.at(key, version)
            if chosen.selects(now):
                yield Told("MODIFIED" if chosen.selects(before) else "ADDED", self.look(form, key, version))
            elif chosen.selects(before):
                yield Told("DELETED", self.look(form, key, version, gone=True))

    def check_watch(self, form: Form, chosen: Selection, after: int, told: list[Told], *, whole: bool) -> None:
        """These are the events after a version, in their order, and a bookmark stands behind all that it covers. `whole`: up to the end."""
        expected = list(self.events(form, chosen, after))
        changes = [event for event in told if event.type != "BOOKMARK"]
        if changes != expected[: len(changes)] or (whole and len(changes) < len(expected)):
            raise Broken(f"watch of {chosen} as {type(form).__name__} after {after}: {difference(changes, expected)}")
        place = 0
        for event in told:
            if event.type != "BOOKMARK":
                place += 1
                continue
            covered = event.seen.version
            if place < len(expected) and expected[place].seen.version <= covered:
                raise Broken(f"watch of {chosen} as {type(form).__name__}: bookmark {covered} before {expected[place]}")
            if place and expected[place - 1].seen.version > covered:
                raise Broken(
                    f"watch of {chosen} as {type(form).__name__}: bookmark {covered} after {expected[place - 1]}"
                )

    def marks(self) -> Counter[str]:
        """How often each writer's mark was put on an object."""
        found: Counter[str] = Counter()
        for version, key in self.log:
            before, now = self.at(key, version - 1), self.at(key, version)
            if now is not None and (before is None or mark_of(before) != mark_of(now)):
                found[mark_of(now)] += 1
        return found


def mark_of(obj: Object) -> str:
    mark: str = obj["metadata"].get("annotations", {}).get("mark", "")
    return mark


def difference(found: list[object] | list[Seen] | list[Told], expected: list[object] | list[Seen] | list[Told]) -> str:
    place = next(
        (at for at, (one, other) in enumerate(zip(found, expected, strict=False)) if one != other),
        min(len(found), len(expected)),
    )
    around = slice(max(0, place - 2), place + 3)
    return f"{len(found)} for {len(expected)}; at {place}: {found[around]} for {expected[around]}"
