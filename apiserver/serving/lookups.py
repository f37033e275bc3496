"""Share host name lookups among all connections that are opened meanwhile.

A lookup takes until the resolver gives up, a minute if no configured server answers, and it cannot be stopped. uvloop leaves one behind
for each cancelled attempt to connect. These fill its few threads, and each unread error is logged. Here a lookup goes on for the next
attempt, and its error is always read.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

_Key = tuple[str, Any, int, int, int]


class Lookups(asyncio.AbstractEventLoop):
    """Mixed into an event loop class."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._lookups: dict[_Key, asyncio.Task[list[Any]]] = {}

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str | None = None, port: Any = None, **settings: Any
    ) -> tuple[Any, Any]:
        if not host or settings.get("sock") is not None:
            return await super().create_connection(protocol_factory, host, port, **settings)
        family, proto, flags = (settings.pop(name, 0) for name in ("family", "proto", "flags"))
        found = await self._addresses((host, port, family, proto, flags))
        failures = []
        for *_, address in found:
            try:
                return await super().create_connection(protocol_factory, _numeric(address), address[1], **settings)
            except OSError as error:
                failures.append(error)
        if len({str(error) for error in failures}) == 1:
            raise failures[0]
        raise OSError(f"Multiple exceptions: {', '.join(map(str, failures))}")

    async def _addresses(self, key: _Key) -> list[Any]:
        lookup = self._lookups.get(key)
        if lookup is None:
            host, port, family, proto, flags = key
            asked = self.getaddrinfo(host, port, family=family, type=socket.SOCK_STREAM, proto=proto, flags=flags)
            lookup = self._lookups[key] = self.create_task(asked)
            lookup.add_done_callback(lambda done: self._over(key, done))
        # Not awaited directly: a cancelled caller must not cancel it for the others.
        await asyncio.wait([lookup])
        return lookup.result()

    def _over(self, key: _Key, lookup: asyncio.Task[list[Any]]) -> None:
        del self._lookups[key]
        if not lookup.cancelled():
            # Read the error, or Python logs that nobody has.
            lookup.exception()


def _numeric(address: tuple[Any, ...]) -> str:
    """Return the host of a socket's address. Link-local addresses need their interface."""
    host: str = address[0]
    return f"{host}%{address[3]}" if len(address) == 4 and address[3] and "%" not in host else host
