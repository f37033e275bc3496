"""Events of a watch that asked for bookmarks, which come whenever the server likes: about once a minute, and soon after the marker."""

from __future__ import annotations

from collections.abc import Iterable

from tests.promises.api.client import Event, Watch


def besides_bookmarks(events: Iterable[Event]) -> list[Event]:
    """Without what only tells how far the watch is. The marker, which says that the initial events are over, stays."""
    return [(kind, obj) for kind, obj in events if kind != "BOOKMARK" or "annotations" in obj["metadata"]]


def changes(watch: Watch, count: int) -> list[Event]:
    """The next events that tell a change; waits for them."""
    seen: list[Event] = []
    while len(seen) < count:
        seen += besides_bookmarks([watch.next()])
    return seen
