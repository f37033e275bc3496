"""The log of the store, followed as another client of Valkey does: the truth that watchers are compared with."""

from __future__ import annotations

import asyncio
from array import array
from collections import defaultdict

from apiserver.storage.redis_keys import RedisKeys
from apiserver.watchcache import keys
from tests.fixtures.valkey import Server

CHUNK = 500
PAUSE_SECONDS = 0.5
FENCE = b"9"


class Torn(Exception):
    """The log was trimmed before its end was read, so there is no truth any more."""


class Log:
    """The versions of all changes, and those of each node. A slice's name begins with its node and a dot."""

    def __init__(self, server: Server, resource: str) -> None:
        self.all = array("Q")
        self.nodes: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
        self._server = server
        self._names = RedisKeys.of(resource)
        self._last = server("HGET", self._names.meta, "last")

    def of(self, node: str) -> array[int]:
        """The changes that a watcher of this node gets; of all nodes without a name."""
        return self.nodes[node] if node else self.all

    async def follow(self) -> None:
        """For ever."""
        while True:
            if not await self.read():
                await asyncio.sleep(PAUSE_SECONDS)

    async def read(self) -> int:
        """Read on, at most a chunk; return how many entries there were."""
        after = f"({self._last.decode()}"
        entries = await asyncio.to_thread(self._server, "XRANGE", self._names.log, after, "+", "COUNT", CHUNK)
        for identity, words in entries:
            fields = dict(zip(words[::2], words[1::2], strict=True))
            if fields[b"p"] != self._last:
                raise Torn(f"{identity!r} follows {fields[b'p']!r}, and {self._last!r} was read before")
            self._last = identity
            if fields[b"t"] != FENCE:
                version = keys.revision(identity)
                self.all.append(version)
                self.nodes[fields[b"k"].partition(b".")[0].decode()].append(version)
        return len(entries)
