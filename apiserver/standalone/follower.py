"""Follows the memory of the stores: every object that is there, then every change, in order and without loss.

A follower is a watcher of the hub. What the pump offers goes to the listener at once; before that it pulls from the ring at its own pace.
It holds nothing itself. When the ring has gone on without it, it begins again with every object.
"""

from __future__ import annotations

import asyncio
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
"""How long objects are handed over before others have their turn."""
PAUSE_SECONDS = 0.05
"""Between attempts while memory is being filled."""
STEP_SECONDS = 0.001
"""Between two looks whether something that memory has was told."""


class Listener(Protocol):
    """Told of one resource's objects; must return at once."""

    def seen(self, resource: str, entry: Entry) -> None:
        """The object is there, or has changed to this."""

    def removed(self, resource: str, entry: Entry) -> None:
        """The object was this when it was removed."""

    def begun(self, resource: str) -> None:
        """All that is there is told from the beginning: what is not told again was removed."""

    def told(self, resource: str) -> None:
        """Everything that was there has been told."""


class Follower:
    """Follows one store for a listener."""

    def __init__(self, store: Store, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        self._watcher: Watcher | None = None
        self._told = Revision(-1)
        """Where the listener is while it is being told something."""

    @property
    def position(self) -> Revision:
        """Everything up to here was told."""
        return self._told if self._watcher is None else self._watcher.position

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self._follow()
            except (Dropped, Compacted):
                continue
            except Initializing:
                await asyncio.sleep(PAUSE_SECONDS)

    async def caught_up(self) -> None:
        """Returns when everything that was acknowledged before this call was told. Raises StorageError when the store cannot be asked."""
        revision = await self._store.barrier()
        while self.position < revision:  # noqa: ASYNC110 - memory has it by now: it is a few steps of the loop away
            await asyncio.sleep(STEP_SECONDS)

    async def _follow(self) -> None:
        name, listener = self._store.resource, self._listener
        view = self._store.view()
        watcher = self._store.watch(after=view.revision, scope=Scope(), sink=_Telling(listener, name))
        try:
            self._told = Revision(-1)
            listener.begun(name)
            began = perf_counter()
            for entry in view.scan(""):
                await graph.prepare(entry)
                listener.seen(name, entry)
                began = await _yielded(began)
            listener.told(name)
            while True:
                self._watcher, self._told = None, watcher.position
                while events := watcher.pull():
                    for event in events:
                        await graph.prepare(event.entry)
                        _tell(listener, name, event)
                        began = await _yielded(began)
                    self._told = watcher.position
                self._watcher = watcher
                if not watcher.join():
                    await asyncio.sleep(0)
                elif await watcher.wait() is not Wake.BEHIND:
                    await asyncio.sleep(PAUSE_SECONDS)
                    return
        finally:
            self._told, self._watcher = watcher.position if self._watcher else self._told, None
            watcher.close()


class _Telling:
    """The sink of a watcher whose client is a listener."""

    def __init__(self, listener: Listener, resource: str) -> None:
        self._listener = listener
        self._resource = resource

    def event(self, event: Event) -> bool:
        if len(event.entry.body) > graph.LARGE:
            return False  # pulled in a step of its own: the one that brought it has looked through it already
        _tell(self._listener, self._resource, event)
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        return True


def _tell(listener: Listener, name: str, event: Event) -> None:
    if event.type is EventType.DELETED:
        listener.removed(name, event.entry)
    else:
        listener.seen(name, event.entry)


async def _yielded(began: float) -> float:
    """Gives way to others when it is time; since when it has not."""
    if perf_counter() - began <= SLICE_SECONDS:
        return began
    await asyncio.sleep(0)
    return perf_counter()
