"""Follow the memory of the stores: every existing object, then every change, in order and without loss.

A follower is a watcher of the hub. Events that the pump offers go to the listener at once; until then it pulls from the ring at its own
pace. It holds nothing itself. When the ring has moved past it, it begins again with every object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter
from typing import Protocol

from apiserver.standalone import graph
from apiserver.storage.errors import Initializing
from apiserver.storage.store import Store
from apiserver.watchcache.entry import Entry, Event, EventType, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Bookmark, Dropped, Wake, Watcher
from apiserver.watchcache.scope import Scope

SLICE_SECONDS = 0.002
"""How long objects are reported before other tasks get their turn."""
PAUSE_SECONDS = 0.05
"""Between attempts while memory is being filled."""
STEP_SECONDS = 0.001
"""Between two checks whether the listener has seen a revision."""


class Listener(Protocol):
    """Receives the objects of one resource. Methods must return at once."""

    def seen(self, resource: str, entry: Entry) -> None:
        """Take an existing, new or changed object."""

    def removed(self, resource: str, entry: Entry) -> None:
        """Take the last state of a removed object."""

    def begun(self, resource: str) -> None:
        """Expect all existing objects from the beginning: objects that are not reported again were removed."""

    def listed(self, resource: str) -> Iterator[None]:
        """Note that all existing objects were reported: a piece of work for each item of the result."""


class Follower:
    """Follows one store for a listener."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._watcher: Watcher | None = None
        self._reported = Revision(-1)
        """The listener's position while objects are being reported to it."""

    @property
    def position(self) -> Revision:
        """The revision up to which everything was reported."""
        return self._reported if self._watcher is None else self._watcher.position

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except (Dropped, Compacted):
                continue
            except Initializing:
                await asyncio.sleep(PAUSE_SECONDS)

    async def caught_up(self) -> None:
        """Wait until everything that was acknowledged before this call was reported. Raises StorageError."""
        revision = await self._store.barrier()
        while self.position < revision:  # noqa: ASYNC110 - memory has it by now: it is a few steps of the loop away
            await asyncio.sleep(STEP_SECONDS)

    async def _follow(self) -> None:
        name, listener = self._store.resource, self._listener
        view = self._store.view()
        watcher = self._store.watch(after=view.revision, scope=Scope(), sink=_ListenerSink(listener, name))
        try:
            self._reported = Revision(-1)
            listener.begun(name)
            began = perf_counter()
            for entry in view.scan(""):
                await graph.prepare(entry)
                listener.seen(name, entry)
                began = await _yielded(began)
            for _ in listener.listed(name):
                began = await _yielded(began)
            while True:
                self._watcher, self._reported = None, watcher.position
                while events := watcher.pull():
                    for event in events:
                        if event.type is not EventType.DELETED:  # only the uid of a removed object counts
                            await graph.prepare(event.entry)
                        _report(listener, name, event)
                        began = await _yielded(began)
                    self._reported = watcher.position
                self._watcher = watcher
                if not watcher.join():
                    await asyncio.sleep(0)
                elif await watcher.wait() is not Wake.BEHIND:
                    await asyncio.sleep(PAUSE_SECONDS)
                    return
        finally:
            self._reported, self._watcher = watcher.position if self._watcher else self._reported, None
            watcher.close()


class _ListenerSink:
    """The sink of a watcher whose client is a listener."""

    def __init__(self, listener: Listener, resource: str) -> None:
        self._listener = listener
        self._resource = resource

    def event(self, event: Event) -> bool:
        if graph.is_large(event.entry):
            return False  # pulled in a step of its own: the one that brought it has looked through it already
        _report(self._listener, self._resource, event)
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        return True


def _report(listener: Listener, name: str, event: Event) -> None:
    if event.type is EventType.DELETED:
        listener.removed(name, event.entry)
    else:
        listener.seen(name, event.entry)


async def _yielded(began: float) -> float:
    """Let other tasks run if this step has lasted long enough. Return when the present step began."""
    if perf_counter() - began <= SLICE_SECONDS:
        return began
    await asyncio.sleep(0)
    return perf_counter()
