"""The forms that a store has: one node, or three nodes with sentinels. Each node and sentinel is a member of the test's network."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from pathlib import Path
from typing import Protocol

from tests.faults.network import Network
from tests.fixtures.processes import free_port
from tests.fixtures.sentinels import NAME, Sentinel
from tests.fixtures.valkey import PASSWORD, Server, follow

_URL_PASSWORD = PASSWORD.replace(" ", "%20")


class Node:
    """A Valkey that others reach through the network. The test itself asks it at its unix socket."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = 0
        self._own = free_port()
        self._folder = folder
        self.server: Server

    async def join(self, network: Network) -> None:
        self.port = await network.listen(self.name, self._own)
        announced = {"replica-announce-ip": "127.0.0.1", "replica-announce-port": str(self.port)}
        settings = {"port": str(self._own), "bind": "127.0.0.1", "masterauth": PASSWORD, "repl-timeout": "10"}
        self.server = Server(self._folder, **settings, **announced)
        network.add(self.name, self.pid)

    def pid(self) -> int | None:
        process = self.server.process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, primary: Node | None = None) -> None:
        """Start, as a replica of that node if one is given."""
        self.server.settings.pop("replicaof", None)
        if primary is not None and primary is not self:
            self.server.settings["replicaof"] = f"127.0.0.1 {primary.port}"
        self.server.start()

    def kill(self) -> None:
        self.server.kill()

    def signal(self, number: signal.Signals) -> None:
        self.server.signal(number)

    @property
    def alive(self) -> bool:
        return self.pid() is not None

    def primary_port(self) -> int | None:
        """The port of the node that it replicates; None for a primary."""
        lines = dict(line.split(":", 1) for line in self.server("INFO", "replication").decode().split() if ":" in line)
        return int(lines["master_port"]) if lines["role"] == "slave" else None

    def in_step(self, primary: Node) -> bool:
        return self.primary_port() == primary.port and self.server.info("master_link_status") == "up"

    def replicate(self, primary: Node) -> None:
        self.server("REPLICAOF", "127.0.0.1", primary.port)


class Topology(Protocol):
    """A store, as campaigns and faults need it. Methods that are not coroutines block."""

    name: str
    nodes: list[Node]
    down_ms: int
    """Time without an answer after which a node counts as down; 0 if nobody looks."""

    async def start(self) -> None: ...

    def url(self) -> str:
        """Return what a server of ours connects to."""
        ...

    def primary(self) -> Node | None:
        """Return the node that should be written to; None while that is open."""
        ...

    def trouble(self) -> str | None:
        """Return why the store is not healthy: all nodes run, and all replicas follow the primary."""
        ...

    def generation(self) -> int:
        """Return a number that rises when another node becomes the primary."""
        ...

    def holder(self, resource: str) -> Node:
        """Return the node that holds a resource now."""
        ...

    async def stop(self) -> None: ...


class One:
    """One node."""

    name = "one"
    down_ms = 0

    def __init__(self, folder: Path, network: Network) -> None:
        self._network = network
        self.nodes = [Node("node-0", folder / "n0")]

    async def start(self) -> None:
        await self.nodes[0].join(self._network)
        await asyncio.to_thread(self.nodes[0].start)

    def url(self) -> str:
        return f"redis://:{_URL_PASSWORD}@127.0.0.1:{self.nodes[0].port}/0"

    def primary(self) -> Node | None:
        return self.nodes[0] if self.nodes[0].alive else None

    def trouble(self) -> str | None:
        node = self.nodes[0]
        return None if node.alive and node.server("PING") == b"PONG" else "the node does not run"

    def generation(self) -> int:
        return 0

    def holder(self, _resource: str) -> Node:
        return self.nodes[0]

    async def stop(self) -> None:
        await asyncio.to_thread(_end, self.nodes)


class Sentinels:
    """Three nodes and three sentinels. `sentinel-0` shares the fate of `node-0`, as in one pod, in faults that say so."""

    name = "sentinel"

    def __init__(self, folder: Path, network: Network, *, down_ms: int) -> None:
        self._network, self._folder, self.down_ms = network, folder, down_ms
        self.nodes = [Node(f"node-{number}", folder / f"n{number}") for number in range(3)]
        self.sentinels: list[Sentinel] = []
        self._ports: list[int] = []

    async def start(self) -> None:
        for node in self.nodes:
            await node.join(self._network)
            await asyncio.to_thread(node.start)
        for node in self.nodes[1:]:
            await asyncio.to_thread(self._follow, node)
        for number in range(3):
            await self._add_sentinel(number)
        async with asyncio.timeout(120):
            while await asyncio.to_thread(self.trouble) is not None:  # noqa: ASYNC110 - state of other programs
                await asyncio.sleep(0.05)

    def _follow(self, node: Node) -> None:
        follow(node.server, self.nodes[0].server)
        node.replicate(self.nodes[0])

    async def _add_sentinel(self, number: int) -> None:
        name, primary = f"sentinel-{number}", self.nodes[0].port
        own = free_port()
        port = await self._network.listen(name, own)
        sentinel = Sentinel(
            self._folder / f"s{number}", primary=primary, down_ms=self.down_ms, announced=port, port=own
        )
        self._network.add(name, lambda: self._sentinel_pid(sentinel))
        self.sentinels.append(sentinel)
        self._ports.append(port)
        await asyncio.to_thread(sentinel.start)

    def _sentinel_pid(self, sentinel: Sentinel) -> int | None:
        process = sentinel.process
        return process.pid if process is not None and process.poll() is None else None

    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"redis+sentinel://:{_URL_PASSWORD}@{hosts}/{NAME}"

    def primary(self) -> Node | None:
        """Return the node that two sentinels name."""
        ports = []
        for sentinel in self.sentinels:
            with contextlib.suppress(OSError, RuntimeError):
                ports.append(sentinel.primary())
        return next((node for node in self.nodes if ports.count(node.port) >= 2), None)

    def trouble(self) -> str | None:
        primary = self.primary()
        if primary is None or primary.primary_port() is not None:
            return f"{primary.name if primary else 'no node'} is named, and is no primary"
        behind = [node.name for node in self.nodes if node is not primary and not node.in_step(primary)]
        if behind:
            return f"{', '.join(behind)} do not follow {primary.name}"
        return next(filter(None, map(self._complaint, self.sentinels)), None)

    def _complaint(self, sentinel: Sentinel) -> str | None:
        """Return what a sentinel finds wrong; a failover under way, too."""
        found = self._told(sentinel)
        if found[b"flags"] != b"master" or int(found[b"num-other-sentinels"]) < 2:
            return (
                f"a sentinel knows {found[b'num-other-sentinels']!r} others, and finds the primary {found[b'flags']!r}"
            )
        replicas = [dict(zip(told[::2], told[1::2], strict=True)) for told in sentinel("SENTINEL", "REPLICAS", NAME)]
        flags = sorted(replica[b"flags"] for replica in replicas)
        return None if flags == [b"slave"] * 2 else f"a sentinel finds the replicas {flags}"

    def generation(self) -> int:
        return max(int(self._told(sentinel)[b"config-epoch"]) for sentinel in self.sentinels)

    def _told(self, sentinel: Sentinel) -> dict[bytes, bytes]:
        [told] = sentinel("SENTINEL", "MASTERS")
        return dict(zip(told[::2], told[1::2], strict=True))

    def holder(self, _resource: str) -> Node:
        found = self.primary()
        assert found is not None
        return found

    async def stop(self) -> None:
        for sentinel in self.sentinels:
            await asyncio.to_thread(sentinel.stop)
        await asyncio.to_thread(_end, self.nodes)


def _end(nodes: list[Node]) -> None:
    for node in nodes:
        if node.alive:
            node.signal(signal.SIGCONT)
            node.kill()


def make(name: str, folder: Path, network: Network, *, down_ms: int) -> Topology:
    """Return the topology of this name, not started."""
    if name == "one":
        return One(folder, network)
    return Sentinels(folder, network, down_ms=down_ms)


NAMES = ("one", "sentinel")
