"""Generations of the composed server in one process: a new one takes over from the present one without losing a request.

A generation is everything that is made for one set of kinds: memory, filters, handlers. A new one is opened beside the present one. It
gets every new request from the moment at which its memory is full.

* Another release has stores of its own, because it reads objects otherwise. The old generation ends its watches, spread over time, finishes
  its requests and closes its stores. Both read the same log, so clients resume their watches from their resourceVersion. Memory holds both
  meanwhile.
* Other definitions of custom resources share the stores. Only the memory of new kinds is filled, and of those whose definition changed:
  their watches end, and clients resume them. Watches of all other kinds go on in the old generation, which ends with the last of them.

Knows neither sockets nor why kinds change.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from apiserver.apigroups import read_otherwise
from apiserver.app import App
from apiserver.filters.state import Request
from apiserver.kinds.served import Kinds
from apiserver.runtime import tasks
from apiserver.schema.resource import Resource
from apiserver.storage.store import Stores
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

MOST_OLD = 8
"""Old generations that may wait for the end of their watches. When there are more, all watches end, the oldest first: each generation holds
its own documents in memory, and a watch lives up to an hour."""
PATIENCE_SECONDS = 60.0
"""How often the log says what a new generation waits for."""


class Generation:
    """One composed server with its stores, which are open. `begin` composes it, `close` closes the stores.

    `custom` are those of the kinds that definitions describe.
    """

    def __init__(
        self, kinds: Kinds, stores: Stores, compose: Callable[[Kinds, Stores], App], *, custom: Sequence[Resource] = ()
    ) -> None:
        self.kinds = kinds
        self.custom = custom
        self.stores = stores
        self.names = frozenset(kind.storage_name for kind in kinds.stored)
        """The stores that it needs."""
        self._compose = compose
        self._app: App | None = None
        self._beside: list[asyncio.Task[None]] = []
        self._closed = False

    @property
    def app(self) -> App:
        assert self._app is not None
        return self._app

    def begin(self) -> None:
        """Compose the server, and start the tasks that it needs beside requests."""
        app = self._app = self._compose(self.kinds, self.stores)
        self._start("admission", app.admission.prepare)
        if app.control is not None:
            self._start("controllers", partial(app.control.run, self.stores.ready))

    def _start(self, name: str, run: Callable[[], Awaitable[None]]) -> None:
        self._beside.append(asyncio.create_task(tasks.supervised(run, name=name), name=name))

    async def complete(self) -> None:
        """Wait until everything that requests need is in memory."""
        await self.stores.ready()
        if self._app is not None and self._app.control is not None:
            await self._app.control.prepare()

    async def close(self) -> None:
        """End everything. A second call does nothing."""
        if not self._closed:
            self._closed = True
            await self.end_tasks()
            await self.stores.close()

    def changed_since(self, old: Generation) -> list[Resource]:
        """Return the kinds that the old generation has by another definition."""
        before = {kind.storage_name: kind for kind in old.custom if kind.stored is kind}
        stored = [kind for kind in self.custom if kind.stored is kind]
        return [kind for kind in stored if before.get(kind.storage_name, kind) is not kind]

    async def end_tasks(self) -> None:
        """End the tasks beside requests."""
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)


class Generations:
    """The present generation, which gets every new request, and the old ones that still finish requests.

    `watch_seconds`: over how long an old generation spreads the end of its watches. `request_seconds`: how long its requests may take.
    """

    def __init__(self, first: Generation, *, watch_seconds: float, request_seconds: float) -> None:
        first.begin()
        self.present = first
        self._watch_seconds = watch_seconds
        self._request_seconds = request_seconds
        self._old: dict[Generation, asyncio.Task[None]] = {}
        self._new: Generation | None = None
        self._replaced = asyncio.Event()

    def handle(self, request: Request) -> Awaitable[Any]:
        """Handle a request in the present generation, to its end."""
        return self.present.app.handler(request)

    def filling(self) -> bool:
        return self.present.app.filling()

    async def replace(self, new: Generation, *, join: Callable[[], Awaitable[None]] | None = None) -> None:
        """Let the new generation take over once it is complete. It is closed if it cannot, or if this is cancelled.

        `join` makes the stores that both share follow what only the new one needs; None if it has stores of its own.
        """
        old = self.present
        self._new = new
        try:
            if join is not None:
                await join()
            else:
                await _patiently(new)
                await _catch_up(new.stores, old.stores)
            new.begin()
            await new.complete()
            await new.app.admission.prepare_once()
        except BaseException:
            self._new = None
            await self._close(new)
            raise
        self.present, self._new = new, None
        if join is not None:
            # In the same step: no request of the new generation meets objects that were read by the former definition.
            read_otherwise(new.stores, new.changed_since(old))
            new.stores.end_watches(of=old.names - new.names)
        about = {
            "release": str(new.kinds.release), "before": str(old.kinds.release),
            "kinds": len(new.names), "kindsBefore": len(old.names),
        }  # fmt: skip
        logger.info("a new generation serves", extra=about)
        self._replaced.set()
        self._replaced = asyncio.Event()
        self._old[old] = asyncio.create_task(self._retire(old, alone=join is None), name="retirement")

    async def replaced(self) -> None:
        """Wait until a new generation serves."""
        await self._replaced.wait()

    async def _retire(self, old: Generation, *, alone: bool) -> None:
        try:
            if alone:
                await old.app.end_watches(self._watch_seconds)
            async with asyncio.timeout(self._request_seconds):
                await (old.app.finish() if alone else old.app.drain.idle(watches=False))
        except TimeoutError:
            drain = old.app.drain
            about = {"requests": drain.requests, "watches": drain.watches}
            logger.warning("an old generation is closed before its last request", extra=about)
        if not alone:
            await self._leave(old)
            if len(self._old) > MOST_OLD:
                await old.app.end_watches(self._watch_seconds)
            await old.app.drain.idle()
        await self._close(old)
        del self._old[old]
        logger.info("an old generation is closed", extra={"release": str(old.kinds.release)})

    async def _leave(self, generation: Generation) -> None:
        """Free the memory of kinds that no other generation needs."""
        await generation.end_tasks()
        needed = frozenset().union(*(other.names for other in self._sharing(generation)))
        left, generation.names = generation.names - needed, frozenset()
        for name in left & generation.stores.keys():
            await generation.stores.remove(name)

    def _sharing(self, generation: Generation) -> list[Generation]:
        """Return the other generations with the same stores."""
        others = (self.present, *self._old, *([self._new] if self._new is not None else []))
        return [other for other in others if other is not generation and other.stores is generation.stores]

    async def _close(self, generation: Generation) -> None:
        """Close a generation that is not the present one. The metrics of its kinds are those of the present one again."""
        if self._sharing(generation):
            await self._leave(generation)
            return
        await generation.close()
        generation.stores.hide_metrics()
        self.present.stores.show_metrics()
        await generation.stores.forget()

    # ------------------------------------------------------------------------------------------------------------ the end of the process

    def _apps(self) -> list[App]:
        return [self.present.app, *(old.app for old in self._old)]

    @property
    def unfinished(self) -> tuple[int, int]:
        """How many requests and watches are being served."""
        apps = self._apps()
        return sum(app.drain.requests for app in apps), sum(app.drain.watches for app in apps)

    def stopping(self) -> None:
        """Be unready from now on."""
        for app in self._apps():
            app.stopping = True

    def drain(self, *, handed_over: bool) -> None:
        """From now on, refuse watches or leave them to a successor, and end connections with their response."""
        for app in self._apps():
            app.drain.stop(handed_over=handed_over)

    async def end_watches(self, seconds: float) -> None:
        """End every watch, spread over this time."""
        await asyncio.gather(*(app.end_watches(seconds) for app in self._apps()))

    async def finish(self) -> None:
        """Wait until no request is being served."""
        await asyncio.gather(*(app.finish() for app in self._apps()))

    async def end_tasks(self) -> None:
        """End the tasks beside requests."""
        await self.present.end_tasks()

    async def close(self) -> None:
        """Close all stores."""
        retiring = [*self._old.values()]
        for task in retiring:
            task.cancel()
        await asyncio.gather(*retiring, return_exceptions=True)
        for generation in (*self._old, self.present):
            await generation.close()


async def _patiently(new: Generation) -> None:
    complete = asyncio.ensure_future(new.complete())
    try:
        while not (await asyncio.wait((complete,), timeout=PATIENCE_SECONDS))[0]:
            about = {"release": str(new.kinds.release), "reason": new.stores.why_not_ready() or "unknown"}
            logger.warning("a new generation cannot serve yet: the present one goes on", extra=about)
        await complete
    finally:
        complete.cancel()


async def _catch_up(new: Stores, old: Stores) -> None:
    """Wait until the new memory is not behind the old one: reads from memory should not show an older state than before."""
    for name in new.keys() & old.keys():
        with contextlib.suppress(StorageError):
            await new[name].reach(old[name].applied)
