"""A network between the programs of a test on one machine: every connection passes a TCP proxy, and links between two of them can be held.

A held link is a partition as TCP sees it. Nothing passes, nothing is refused, and what was sent arrives when the link is open again.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from tests.fixtures.proxy import stop_listening

Pid = Callable[[], int | None]
_PIECE = 1 << 16
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _HEADER = 4, 20, 1, 16
"""linux/netlink.h, linux/sock_diag.h: a protocol, a type of messages, a flag, and the length of a header."""


class Network:
    """Its members are known by names. Proxies find out which member connects by the process that owns the socket (Linux)."""

    def __init__(self) -> None:
        self._members: dict[str, Pid] = {}
        self._open: dict[frozenset[str], asyncio.Event] = defaultdict(_opened)
        self._held: Counter[frozenset[str]] = Counter()
        self._listeners: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._passages: dict[frozenset[str], set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]]] = defaultdict(set)

    def add(self, name: str, pid: Pid) -> None:
        """Make a program a member. Others do not get through."""
        self._members[name] = pid

    async def listen(self, name: str, port: int) -> int:
        """Lead a new port to a member's own one, and return it."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._carry(name, port, reader, writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            # A task that is cancelled before it begins closes nothing.
            task.add_done_callback(lambda _: writer.transport.abort())

        listener = await asyncio.start_server(connected, "127.0.0.1", 0)
        self._listeners.append(listener)
        found: int = listener.sockets[0].getsockname()[1]
        return found

    async def close(self) -> None:
        for listener in self._listeners:
            await stop_listening(listener)
        while self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await asyncio.sleep(0)

    # Faults

    def hold(self, one: str, other: str) -> None:
        """Let nothing pass until each hold of this link is released."""
        link = frozenset((one, other))
        self._held[link] += 1
        self._open[link].clear()

    def release(self, one: str, other: str) -> None:
        link = frozenset((one, other))
        self._held[link] -= 1
        if not self._held[link]:
            self._open[link].set()

    def part(self, side: Iterable[str]) -> Callable[[], None]:
        """Hold all links between these members and all others. Return the function that heals it."""
        inside = set(side)
        links = [(one, other) for one in inside for other in self._members.keys() - inside]
        for link in links:
            self.hold(*link)

        def heal() -> None:
            for link in links:
                self.release(*link)

        return heal

    def cut(self, one: str, other: str) -> None:
        """Abort the connections between two members."""
        for ends in list(self._passages[frozenset((one, other))]):
            for end in ends:
                end.transport.abort()

    @property
    def members(self) -> list[str]:
        return list(self._members)

    # Connections

    async def _carry(self, to: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        if source is None:
            writer.transport.abort()
            return
        link = frozenset((source, to))
        opened, ends = self._open[link], (writer, writer)
        try:
            await opened.wait()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
            ends = (writer, to_server)
            self._passages[link].add(ends)
            pumps = [
                asyncio.ensure_future(_pump(reader, to_server, opened)),
                asyncio.ensure_future(_pump(from_server, writer, opened)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except OSError:
            pass
        finally:
            self._passages[link].discard(ends)
            for end in ends:
                end.transport.abort()

    def _owner(self, port: int, to: int) -> str | None:
        """Return the member that has a connection from one port to another."""
        if inode := _inode(port, to):
            return next((name for name, pid in self._members.items() if _has(pid(), f"socket:[{inode}]")), None)
        return None


def _inode(port: int, to: int) -> int:
    """Return the number of the socket that connects one port of 127.0.0.1 to another; 0 if it is closed (Linux, sock_diag(7)).

    /proc/net/tcp says so too. It takes 10 ms where thousands of connections were closed lately, as the nodes of a cluster do.
    """
    host, any_state, no_cookie = socket.inet_aton("127.0.0.1").ljust(16, b"\0"), 0xFFFFFFFF, 0xFFFFFFFF
    wanted = struct.pack("!HH", port, to) + host + host + struct.pack("=III", 0, no_cookie, no_cookie)
    request = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, any_state) + wanted
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
        asking.send(struct.pack("=IHHII", _HEADER + len(request), _BY_FAMILY, _REQUEST, 0, 0) + request)
        answer = asking.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] == _BY_FAMILY:
        found: int = struct.unpack_from("=I", answer, _HEADER + 68)[0]
        return found
    if (code := -struct.unpack_from("=i", answer, _HEADER)[0]) != errno.ENOENT:
        raise OSError(code, os.strerror(code))
    return 0


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _has(pid: int | None, link: str) -> bool:
    if pid is None:
        return False
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as files:
        for file in files:
            with contextlib.suppress(OSError):
                if os.readlink(file.path) == link:  # noqa: PTH115 - a hundred of them for each connection
                    return True
    return False


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, opened: asyncio.Event) -> None:
    """Carry bytes one way; also their end, which does not pass a held link either."""
    with contextlib.suppress(OSError):
        while piece := await reader.read(_PIECE):
            await opened.wait()
            writer.write(piece)
            await writer.drain()
    await opened.wait()
