"""The Kubernetes releases that this server can be, and declarations that hold for some of them.

A declaration that differs by release says so where it stands: `since(V1_37, new, before=old)`. `at(release, declaration)` returns it as it
is in one release. Every reader gets the result and knows nothing of releases.

Upstream: kubernetes/component-base `compatibility/version.go`, `featuregate/feature_gate.go` (VersionedSpecs).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast


class Release(NamedTuple):
    """A minor release of Kubernetes, as in `1.36`."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


V1_36 = Release(1, 36)
V1_37 = Release(1, 37)
SUPPORTED = (V1_36, V1_37)
"""The releases that this server can be, oldest first."""
NEWEST = SUPPORTED[-1]


def nearest(release: Release) -> Release:
    """Return the supported release that is closest to this one: the constant itself."""
    return next((known for known in reversed(SUPPORTED) if known <= release), SUPPORTED[0])


class _Nothing(Enum):
    NOTHING = 0


NOTHING = _Nothing.NOTHING
"""The value of releases without the declaration: an element of a tuple or a mapping is left out, everything else is None."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Varying:
    """A value that differs by release: `old` before the release `turn`, `new` from then on. `what` says the difference in a sentence, where
    the declaration does not."""

    turn: Release
    old: Any
    new: Any
    what: str = ""

    def at(self, release: Release) -> Any:
        return self.new if release >= self.turn else self.old


def since(release: Release, value: T, *, before: T | _Nothing = NOTHING, what: str = "") -> T:
    """Declare a value that holds from this release on; earlier ones have `before`.

    The result stands for the value in a declaration, which must pass `at` before it is read.
    """
    return cast("T", Varying(release, before, value, what))


def until(release: Release, value: T, *, after: T | _Nothing = NOTHING, what: str = "") -> T:
    """Declare a value that holds before this release, the first one without it; later ones have `after`."""
    return cast("T", Varying(release, value, after, what))


def changed(declaration: T, change: Callable[[Any], T]) -> T:
    """Return the declaration with a change applied to it in each of its releases."""
    if not isinstance(declaration, Varying):
        return change(declaration)
    old, new = (side if side is NOTHING else changed(side, change) for side in (declaration.old, declaration.new))
    return cast("T", Varying(declaration.turn, old, new, declaration.what))


def at(release: Release, declaration: T) -> T:
    """Return the declaration as it is in this release.

    Looks into dataclasses, tuples, lists and mappings, but not into functions. A part without differences stays the same object, and a
    shared part is made once for each release.
    """
    return cast("T", _resolver(release)(declaration))


@functools.cache
def _resolver(release: Release) -> _Resolver:
    return _Resolver(release)


class _Resolver:
    def __init__(self, release: Release) -> None:
        self._release = release
        self._done: dict[int, tuple[object, object]] = {}
        """Results by identity, with the declaration, so that the identity stays taken. Declarations live as long as the program."""

    def __call__(self, value: object) -> object:
        match value:
            case Varying():
                return self(value.at(self._release))
            case tuple() if type(value) is tuple:
                return self._sequence(value)
            case list():
                made = self._sequence(items := tuple(value))
                return value if made is items else list(made)
            case dict() | MappingProxyType():
                return self._mapping(value)
            case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
                return self._declaration(value)
            case _:
                return value

    def _sequence(self, values: tuple[object, ...]) -> tuple[object, ...]:
        made = tuple(item for item in map(self, values) if item is not NOTHING)
        return values if len(made) == len(values) and all(map(operator.is_, made, values)) else made

    def _mapping(self, values: Mapping[object, object]) -> Mapping[object, object]:
        made = {key: item for key, value in values.items() if (item := self(value)) is not NOTHING}
        return values if len(made) == len(values) and all(made[key] is values[key] for key in made) else made

    def _declaration(self, value: Any) -> object:
        known = self._done.get(id(value))
        if known is None:
            changed = {}
            for field in dataclasses.fields(value):
                old = getattr(value, field.name)
                new = self(old)
                if new is not old:
                    changed[field.name] = None if new is NOTHING else new
            known = self._done[id(value)] = value, dataclasses.replace(value, **changed) if changed else value
        return known[1]


class Difference(NamedTuple):
    """A declaration that differs: the names on the way to it, joined by dots, the attribute that differs ("" for a whole element), and the
    values."""

    path: str
    attribute: str
    varying: Varying


def differences(declaration: object, path: str = "") -> Iterator[Difference]:
    """Yield every difference below a declaration, each once. Names are those of kinds, members, subresources, columns and the like."""
    seen: set[int] = set()

    def walk(value: object, path: str, attribute: str) -> Iterator[Difference]:
        if isinstance(value, Varying):
            if id(value) in seen:
                return
            seen.add(id(value))
            named = next((name for side in (value.new, value.old) if (name := _name(side))), "")
            yield Difference(_joined(path, named), "" if named else attribute, value)
            for side in (value.old, value.new):
                yield from walk(side, path, attribute)
        elif isinstance(value, (tuple, list)):
            for item in value:
                yield from walk(item, path, attribute)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                yield from walk(item, _joined(path, str(key)), attribute)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type) and id(value) not in seen:
            seen.add(id(value))
            inner = _joined(path, _name(value))
            for field in dataclasses.fields(value):
                yield from walk(getattr(value, field.name), inner, field.name)

    return walk(declaration, path, "")


def _name(value: object) -> str:
    """Return the name of a declaration: not that of a struct, which is the type of a member that has a name."""
    if isinstance(value, Enum) or hasattr(value, "fields"):
        return ""
    name = getattr(value, "kind", None) or getattr(value, "name", None)
    return name if isinstance(name, str) else ""


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name
