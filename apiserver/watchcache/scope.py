"""Match changes with watchers: for one event, for a segment of events, and for all watchers at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apiserver.watchcache.entry import Event, Key

Field = tuple[int, str]
"""The place of an indexed field among the resource's, and a value of it."""
Route = tuple[str, Key | None, Field | None]
"""A Scope as a dictionary key: prefix, key, field."""


class Touched(NamedTuple):
    """The subjects of some events: keys and namespace prefixes, and per indexed field all old and new values."""

    names: frozenset[str]
    values: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class Scope:
    """The changes that may concern a watcher: all; those in a namespace (`prefix="ns/"`); those of one `key`; those before or
    after which an indexed field has a value (`field=(place, value)`); or the latter within a namespace.

    It narrows the search for events and watchers. A watcher still tests each event with its whole selector.
    """

    prefix: str = ""
    key: Key | None = None
    field: Field | None = None

    def __post_init__(self) -> None:
        if self.prefix and not self.prefix.endswith("/"):
            raise ValueError(f"a prefix is a namespace and a slash, not {self.prefix!r}")
        if self.key is not None and (self.prefix or self.field is not None):
            raise ValueError("a key says it all")

    @property
    def route(self) -> Route:
        return self.prefix, self.key, self.field

    def among(self, events: Sequence[Event]) -> Sequence[Event]:
        """Those of the events. An update that moves an object from value a to b concerns the scopes of both."""
        if self.key is not None:
            return [event for event in events if event.entry.key == self.key]
        if self.field is not None:
            place, value = self.field
            events = [
                event
                for event in events
                if event.entry.fields[place] == value
                or (event.previous is not None and event.previous.fields[place] == value)
            ]
        prefix = self.prefix
        return [event for event in events if event.entry.key.startswith(prefix)] if prefix else events

    def within(self, touched: Touched) -> bool:
        """False only when none of those events can be one of them."""
        if self.key is not None:
            return self.key in touched.names
        if self.prefix and self.prefix not in touched.names:
            return False
        return self.field is None or self.field[1] in touched.values[self.field[0]]


def touched(events: Sequence[Event]) -> Touched:
    """Return the subjects of at least one event."""
    entries = [event.entry for event in events]
    entries += [event.previous for event in events if event.previous is not None]
    keys: set[str] = {entry.key for entry in entries}
    prefixes = {key[: key.find("/") + 1] for key in keys}
    width = len(entries[0].fields)
    values = tuple(frozenset(entry.fields[place] for entry in entries) for place in range(width))
    return Touched(frozenset(keys | prefixes), values)


def routes(event: Event) -> list[Route]:
    """The routes of all scopes that admit the event, each once."""
    entry, previous = event.entry, event.previous
    prefix = entry.key[: entry.key.find("/") + 1]
    fields = {*enumerate(entry.fields)}
    if previous is not None and previous.fields is not entry.fields:
        fields.update(enumerate(previous.fields))
    found: list[Route] = [("", None, None), ("", entry.key, None)]
    found += [("", None, field) for field in fields]
    if prefix:
        found.append((prefix, None, None))
        found += [(prefix, None, field) for field in fields]
    return found
