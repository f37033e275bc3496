"""Two replicas on one store, under every sort of load: all clients see one history."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import pathlib
import random
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

from apiserver import apigroups
from apiserver.config import config
from tests.faults.history import History
from tests.faults.load import COLORS, FORMS, NAMESPACES, SELECTIONS, Clients, Resource, Watcher, watchers
from tests.faults.pair import GROUP, Replica, pair
from tests.faults.seen import Selection
from tests.faults.writing import APPLY, Writer, check_writes
from tests.fixtures.valkey import Addressed, Server, install

PLURALS = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")
KINDS = apigroups.storage_names(config.parse(["dev"], {}).serving, alone=True)
SEED = 1
SECONDS = 120.0
"""How long something may take on a loaded machine."""


class Scenario:
    """Three clients that list, as many watchers as are wanted, and four writers, from `begin` to `end`."""

    def __init__(self, clients: Clients, *, objects: int, watching: int, chunk: int, pause: float) -> None:
        self.clients = clients
        claims = Resource("resourceclaims", namespaced=True, count=objects // 2)
        self.resources = [claims, Resource("resourceslices", namespaced=False, count=objects)]
        self._watchers = watchers(clients, self.resources, watching)
        self._chunk, self._pause = chunk, pause
        self._draw = random.Random(clients.seed)
        self._going: list[asyncio.Task[None]] = []
        self._working: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        for resource in self.resources:
            await self._fill(resource)
        runs = [self.clients.follow(resource) for resource in self.resources]
        self._going = [asyncio.create_task(run) for run in (*runs, *(watcher.run() for watcher in self._watchers))]
        runs = [self.clients.list_for_ever(number, self.resources, self._chunk) for number in range(3)]
        runs += [Writer(self.clients, number, self.resources, self._pause).run() for number in range(4)]
        self._working = [asyncio.create_task(run) for run in runs]

    async def _fill(self, resource: Resource) -> None:
        namespaces = NAMESPACES if resource.namespaced else ("",)
        rest = iter(list(itertools.product(namespaces, resource.names)))

        async def create() -> None:
            for key in rest:
                made = resource.make(key, color=self._draw.choice(COLORS), mark="first")
                await self._acknowledged("POST", resource.path(key[0]), made)

        await asyncio.gather(*(create() for _ in range(8)))
        state = msgspec.json.decode((await self.clients.get(resource.path(), draw=self._draw))[1])
        resource.acknowledged = int(state["metadata"]["resourceVersion"])
        resource.history = History(resource.acknowledged, state["items"])

    async def _acknowledged(self, method: str, path: str, body: Any, **options: Any) -> int:
        status, answer = await self.clients.ask(method, path, body, draw=self._draw, **options)
        assert status in (200, 201), answer
        return int(msgspec.json.decode(answer)["metadata"]["resourceVersion"])

    async def written(self, more: int) -> None:
        """Returns after so many further writes."""
        goal = len(self.clients.writes) + more
        await self._until(lambda: len(self.clients.writes) >= goal, f"{more} writes")

    async def end(self) -> None:
        """Wait until every client has received everything, and compare it."""
        self.clients.stopping = True
        await asyncio.wait_for(asyncio.gather(*self._working), SECONDS)
        for resource in self.resources:
            last = await self._last(resource)
            await self._until(lambda at=resource, last=last: at.history.position >= last, "the history")  # type: ignore[misc]
        for watcher in self._watchers:
            await self._told(watcher)
            watcher.check(whole=True)
        check_writes(self.clients.writes, self.resources)
        for resource in self.resources:
            whole = Selection()
            resource.history.check_list(
                FORMS[0], whole, await self.clients.listed(resource, FORMS[0], whole, self._draw)
            )

    async def _last(self, resource: Resource) -> int:
        """Make a change that each selection receives, after all others; return the version of the last one."""
        version = 0
        for chosen, turn in itertools.product(SELECTIONS[resource.plural], range(2)):
            namespace = (chosen.namespace or "a") if resource.namespaced else ""
            name = chosen.name or next(
                name for name in resource.names if resource.node(name) == (chosen.node or resource.node(name))
            )
            made = resource.make((namespace, name), color=chosen.color or "green", mark=f"last {turn} of {chosen}")
            made |= {"apiVersion": f"{GROUP}/v1", "kind": resource.kind}
            query = {"fieldManager": "one", "force": "true"}
            path, headers = resource.path(namespace, name), {"Content-Type": APPLY}
            version = await self._acknowledged("PATCH", path, made, headers=headers, query=query)
        return version

    async def _told(self, watcher: Watcher) -> None:
        """Wait until a watcher has received the last change."""
        last = watcher.last()
        await self._until(lambda: watcher.position >= last, f"the last event, {last}, of {watcher.name}")

    async def _until(self, happens: Callable[[], bool], what: str) -> None:
        """Raises what one of the clients found."""
        end = time.monotonic() + SECONDS
        while not happens():
            for task in (*self._going, *self._working):
                if task.done():
                    task.result()
            assert time.monotonic() < end, f"{what} did not come"
            await asyncio.sleep(0.02)

    async def leave(self) -> None:
        tasks = [*self._going, *self._working]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def scenario(
    folder: pathlib.Path, store: Addressed, *, flags: Sequence[Sequence[str]], seed: int, **load: Any
) -> AsyncIterator[tuple[Scenario, list[Replica]]]:
    """A running one. `flags` are those of each replica."""
    await install(store, *KINDS)
    with contextlib.ExitStack() as stack:
        authorities, replicas = await asyncio.to_thread(stack.enter_context, pair(folder, store, flags))
        clients = Clients(authorities, replicas, seed)
        running = Scenario(clients, **load)
        try:
            await running.begin()
            yield running, replicas
        finally:
            await running.leave()
            await clients.close()


async def restart(running: Scenario, replica: Replica, number: signal.Signals, writes: int) -> None:
    """Stop a replica for so many writes. On SIGTERM it answers every request and ends every watch cleanly."""
    before = len(running.clients.left_alone)
    code = await asyncio.to_thread(replica.stop, number)
    if number == signal.SIGTERM:
        assert code == 0, replica.log.read_text()[-4000:]
        assert [one for one in running.clients.left_alone[before:] if one.startswith(replica.name)] == []
    await running.written(writes)
    await asyncio.to_thread(replica.start)


async def test_clients_of_two_replicas_see_one_history_during_restart_and_kill(
    tmp_path: pathlib.Path, own_server: Server
) -> None:
    """Invariants 1, 3, 5, 6, 8, 10 and 12, in every form, of a replica that remembers forms and of one that makes them each time."""
    flags = [[], ["--encoding-cache-bytes=0"]]
    load = {"objects": 160, "watching": 20, "chunk": 50, "pause": 0.02}
    async with scenario(tmp_path, own_server, flags=flags, seed=SEED, **load) as (running, (first, second)):
        await running.written(150)
        await restart(running, first, signal.SIGTERM, 50)
        await running.written(100)
        await restart(running, second, signal.SIGKILL, 50)
        await running.written(100)
        await running.end()
        assert running.clients.counts["lists"] > 20
        assert running.clients.counts["events"] > 200
