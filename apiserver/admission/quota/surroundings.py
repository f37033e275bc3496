"""Facts about other objects in memory that the usage of an object depends on, each read and cached once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import orjson

from apiserver.codecs.json import surrogates
from apiserver.schema.featuregate import Gates
from apiserver.schema.resource import Object

Facts = Mapping[str, str]
"""A fact about each object of a kind, by its name."""

BATCH = 200
"""Objects that are read before other tasks get their turn on the event loop."""
FILL_SECONDS = 10.0
"""How long a change waits for memory that is being filled."""


_loads = surrogates.replaced(orjson.loads)


class Held(Protocol):
    """A stored object: its JSON without kind and apiVersion. Each change makes a new one."""

    @property
    def name(self) -> str: ...
    @property
    def body(self) -> bytes: ...
    @property
    def readable(self) -> bool: ...


class View(Protocol):
    def scan(self, prefix: str) -> Iterator[Held]:
        """Yield the objects whose `namespace/name` begins so."""


class Memory(Protocol):
    """All objects of one kind; `applied` differs after each change."""

    @property
    def applied(self) -> int: ...
    @property
    def filling(self) -> bool: ...
    async def wait_until_filled(self, *, seconds: float) -> None: ...
    def view(self) -> View: ...


class Surroundings:
    """Facts by the name under which a kind is stored."""

    def __init__(self, memories: Mapping[str, Memory], gates: Gates) -> None:
        self.gates = gates
        self._memories = memories
        self._read: dict[str, _Facts] = {}

    async def facts(self, stored: str, read: Callable[[Object], str]) -> Facts:
        """Return what `read` returns for each object of a kind, by name. `read` must be the same for a kind; nothing is read twice."""
        memory = self._memories[stored]
        if memory.filling:
            await memory.wait_until_filled(seconds=FILL_SECONDS)
        known = self._read.setdefault(stored, _Facts())
        if memory.applied != known.at:
            await known.renew(memory, read)
        return known.facts

    async def mentioning(self, stored: str, namespace: str, text: str) -> list[Object]:
        """Return the objects of a namespace whose JSON contains the text."""
        wanted, found = text.encode(), []
        for at, held in enumerate(self._memories[stored].view().scan(f"{namespace}/")):
            if at % BATCH == BATCH - 1:
                await asyncio.sleep(0)
            if held.readable and wanted in held.body:
                found.append(_loads(held.body))
        return found


class _Facts:
    def __init__(self) -> None:
        self.at = -1
        self.facts: Facts = {}
        self._seen: dict[str, tuple[Held, str]] = {}

    async def renew(self, memory: Memory, read: Callable[[Object], str]) -> None:
        at, before, seen = memory.applied, self._seen, dict[str, tuple[Held, str]]()
        for number, held in enumerate(memory.view().scan("")):
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)
            if held.readable:
                name = held.name
                known = before.get(name)
                fresh = known is None or known[0] is not held
                seen[name] = (held, read(_loads(held.body))) if fresh or known is None else known
        self._seen, self.at = seen, at
        self.facts = {name: text for name, (_, text) in seen.items()}
