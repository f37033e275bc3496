"""Find the objects that have a value in a field, without a look at the others. Pure.

    place 0 ("spec.nodeName")    "node-1" → ("node-1-gpu", "node-1-nic")     sorted keys
                                 "node-2" → ("node-2-gpu",)

There is one such map for each place that the kind's declaration names (`Resource.listed_by`). It follows the newest state. A state
keeps its answer for a value until an object gets or loses that value. Then a list at the older state looks at all objects.

Upstream: kubernetes/kubernetes `pkg/registry/resource/resourceslice/strategy.go` (Indexers); kubernetes/apiserver
`pkg/storage/selection_predicate.go` (MatcherIndex), `pkg/storage/cacher/watch_cache.go` (waitAndListLatestRV).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from apiserver.watchcache.blocks import Frozen, beyond
from apiserver.watchcache.entry import Event, EventType, Key, Revision
from apiserver.watchcache.scope import Field

MANY = 256
"""Keys of one value above which they are in a list. A tuple is smaller, and the garbage collector does not look into it, but each change
copies it."""
CHANGES = 1024
"""Changed values whose revision is remembered. They decide which older states are looked up, not which answers are right."""
FILLED_AT_ONCE = 2000
"""Objects or values per step of a fill: half a millisecond."""

_UNKNOWN = Revision(1 << 64)

Keys = tuple[Key, ...] | list[Key]


class Lookup:
    """The sorted keys of each value at some places of `Entry.fields`.

    The owner calls `fill` once, unless it begins without objects, then `follow` for each event.
    """

    __slots__ = ("_changed", "_keys", "_known_from")

    def __init__(self, places: Sequence[int], *, since: Revision | None) -> None:
        """`since` is the revision of a state without objects; None if `fill` comes first."""
        self._keys: dict[int, dict[str, Keys]] = {place: {} for place in places}
        self._known_from = _UNKNOWN if since is None else since
        self._changed: dict[Field, Revision] = {}

    def keys(self, field: Field, prefix: str, *, start: str, at: Revision) -> Sequence[Key] | None:
        """Return the keys that begin with `prefix`, from the key `start` on, in the state at a revision. None: this is not known."""
        place, value = field
        values = self._keys.get(place)
        if values is None or at < self._known_from or self._changed.get(field, at) > at:
            return None
        keys = values.get(value, ())
        end = beyond(prefix)
        return keys[bisect_left(keys, max(prefix, start)) : len(keys) if end is None else bisect_left(keys, end)]

    def fill(self, state: Frozen, *, at: Revision) -> Iterator[None]:
        """Take the objects of a state, in steps."""
        for place, values in self._keys.items():
            several: list[str] = []
            for number, entry in enumerate(state.scan(), 1):
                key, value = entry.key, entry.fields[place]
                held = values.setdefault(value, (key,))
                if isinstance(held, list):
                    held.append(key)
                elif held[0] is not key:
                    values[value] = [*held, key]
                    several.append(value)
                if number % FILLED_AT_ONCE == 0:
                    yield
            for number, value in enumerate(several, 1):
                keys = values[value]
                if len(keys) <= MANY:
                    values[value] = tuple(keys)
                if number % FILLED_AT_ONCE == 0:
                    yield
        self._known_from = at

    def clear(self) -> Iterator[None]:
        """Forget all keys, in steps. Older states are not looked up any more."""
        self._known_from = _UNKNOWN
        for values in self._keys.values():
            while values:
                for _ in range(min(FILLED_AT_ONCE, len(values))):
                    values.popitem()
                yield

    def follow(self, event: Event) -> None:
        """Take a change. Its `previous` is the entry of the object before, and shares `fields` if they are equal."""
        before = None if event.previous is None else event.previous.fields
        after = None if event.type is EventType.DELETED else event.entry.fields
        if before is after:
            return
        for place, values in self._keys.items():
            if before is not None and after is not None and before[place] == after[place]:
                continue
            if before is not None:
                _remove(values, before[place], event.entry.key)
                self._note((place, before[place]), event.revision)
            if after is not None:
                _add(values, after[place], event.entry.key)
                self._note((place, after[place]), event.revision)

    def _note(self, field: Field, revision: Revision) -> None:
        changed = self._changed
        changed.pop(field, None)
        changed[field] = revision
        if len(changed) > CHANGES:
            oldest = next(iter(changed))
            self._known_from = max(self._known_from, changed.pop(oldest))


def _add(values: dict[str, Keys], value: str, key: Key) -> None:
    keys = values.get(value, ())
    at = bisect_left(keys, key)
    if isinstance(keys, list):
        keys.insert(at, key)
    elif len(keys) < MANY:
        values[value] = (*keys[:at], key, *keys[at:])
    else:
        values[value] = [*keys[:at], key, *keys[at:]]


def _remove(values: dict[str, Keys], value: str, key: Key) -> None:
    keys = values[value]
    at = bisect_left(keys, key)
    if len(keys) == 1:
        del values[value]
    elif isinstance(keys, list) and len(keys) > MANY // 2:
        del keys[at]
    else:
        values[value] = (*keys[:at], *keys[at + 1 :])
