"""The forms that a store has: one node, three nodes with sentinels, or a cluster of three primaries with a replica each.

Each node and sentinel is a member of the test's network.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from tests.faults.network import Network
from tests.faults.records import kinds
from tests.fixtures.clusters import Cluster, Member, slot_of_resource
from tests.fixtures.processes import free_port
from tests.fixtures.sentinels import NAME, Sentinel
from tests.fixtures.valkey import PASSWORD, Server, follow

_URL_PASSWORD = PASSWORD.replace(" ", "%20")
NOTICED = {"INFO-PERIOD": 1000, "MIN-LINK-RECONNECT-PERIOD": 1000}
"""Milliseconds after which sentinels look at servers, and connect again, instead of 10 and 15 s. Only the wait after a fault is shorter."""
PUBLISH_MS = (500, 2000)
"""Periods of the sentinels' messages to each other. The second one is Valkey's: an old primary then lives on for up to 8 s."""
RESOURCES = tuple(kind.resource for kind in kinds(0))
"""The kinds that clients write and read."""


class Node:
    """A Valkey that others reach through the network. The test itself asks it at its unix socket."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.port = 0
        self.stopped = False
        """A signal keeps it from running."""
        self._own = free_port()
        self._folder = folder
        self.server: Server

    async def join(self, network: Network) -> None:
        self.port = await network.listen(self.name, self._own)
        settings = {"port": str(self._own), "bind": "127.0.0.1", "masterauth": PASSWORD, "repl-timeout": "10"}
        self.server = await self._made(network, settings)
        network.add(self.name, self.pid)

    async def _made(self, _network: Network, settings: dict[str, str]) -> Server:
        announced = {"replica-announce-ip": "127.0.0.1", "replica-announce-port": str(self.port)}
        return Server(self._folder, **settings, **announced)

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
        self.stopped = False

    def signal(self, number: signal.Signals) -> None:
        if number == signal.SIGSTOP:
            self.stopped = True
        self.server.signal(number)
        if number == signal.SIGCONT:
            self.stopped = False

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


class ClusterNode(Node):
    """One of a cluster. Its bus passes the network, too."""

    server: Member

    async def _made(self, network: Network, settings: dict[str, str]) -> Member:
        own = free_port()
        bus = await network.listen(self.name, own)
        announced = {"cluster-announce-ip": "127.0.0.1", "cluster-announce-port": str(self.port)}
        announced |= {"cluster-announce-bus-port": str(bus), "cluster-port": str(own)}
        return Member(self._folder, **settings, **announced)


class Topology(Protocol):
    """A store, as campaigns and faults need it. Methods that are not coroutines block."""

    name: str
    nodes: list[Node]
    replicas: int
    """Those of each primary."""
    down_ms: int
    """Time without an answer after which a node counts as down; 0 if nobody looks."""

    async def start(self) -> None: ...

    def url(self) -> str:
        """Return what a server of ours connects to."""
        ...

    def primary(self, resource: str = RESOURCES[0]) -> Node | None:
        """Return the node where a resource should be written; None while that is open."""
        ...

    def trouble(self) -> str | None:
        """Return why the store is not healthy: all nodes run, and all replicas follow their primary."""
        ...

    def mend(self) -> None:
        """Do what an operator does for nodes that the store itself leaves behind."""
        ...

    def generations(self) -> Mapping[str, object]:
        """Return for each resource what changes when another node becomes its primary."""
        ...

    async def stop(self) -> None: ...


class One:
    """One node."""

    name = "one"
    replicas = 0
    down_ms = 0

    def __init__(self, folder: Path, network: Network) -> None:
        self._network = network
        self.nodes = [Node("node-0", folder / "n0")]

    async def start(self) -> None:
        await self.nodes[0].join(self._network)
        await asyncio.to_thread(self.nodes[0].start)

    def url(self) -> str:
        return f"redis://:{_URL_PASSWORD}@127.0.0.1:{self.nodes[0].port}/0"

    def primary(self, _resource: str = "") -> Node | None:
        return self.nodes[0] if self.nodes[0].alive else None

    def trouble(self) -> str | None:
        node = self.nodes[0]
        return None if node.alive and node.server("PING") == b"PONG" else "the node does not run"

    def mend(self) -> None:
        pass

    def generations(self) -> Mapping[str, object]:
        return dict.fromkeys(RESOURCES)

    async def stop(self) -> None:
        await asyncio.to_thread(_end, self.nodes)


class Sentinels:
    """Three nodes and three sentinels. `sentinel-0` shares the fate of `node-0`, as in one pod, in faults that say so."""

    name = "sentinel"
    replicas = 2

    def __init__(self, folder: Path, network: Network, *, down_ms: int, publish_ms: int) -> None:
        """`publish_ms`: sentinels make an old primary a replica after four times this time."""
        self._network, self._folder, self.down_ms = network, folder, down_ms
        self._periods = {**NOTICED, "PUBLISH-PERIOD": publish_ms}
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
            self._folder / f"s{number}",
            primary=primary,
            down_ms=self.down_ms,
            announced=port,
            port=own,
            periods=self._periods,
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

    def primary(self, _resource: str = "") -> Node | None:
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

    def mend(self) -> None:
        """Make a node a replica that was left behind as a primary."""
        primary = self.primary()
        # While another node takes over, the one that is named may not be a primary any more.
        if primary is not None and primary.primary_port() is None:
            for node in self.nodes:
                if node is not primary and node.alive and node.primary_port() is None:
                    node.replicate(primary)

    def generations(self) -> Mapping[str, object]:
        epoch = max(int(self._told(sentinel)[b"config-epoch"]) for sentinel in self.sentinels)
        return dict.fromkeys(RESOURCES, epoch)

    def _told(self, sentinel: Sentinel) -> dict[bytes, bytes]:
        [told] = sentinel("SENTINEL", "MASTERS")
        return dict(zip(told[::2], told[1::2], strict=True))

    async def stop(self) -> None:
        for sentinel in self.sentinels:
            await asyncio.to_thread(sentinel.stop)
        await asyncio.to_thread(_end, self.nodes)


class Clustered:
    """Three primaries with a replica each. `down_ms` is the node timeout: a replica takes over two to three times as late."""

    name = "cluster"
    replicas = 1

    def __init__(self, folder: Path, network: Network, *, down_ms: int) -> None:
        self._network, self._folder, self.down_ms = network, folder, down_ms
        self._made = [ClusterNode(f"node-{number}", folder / f"n{number}") for number in range(6)]
        self.nodes = list[Node](self._made)
        self.cluster: Cluster

    async def start(self) -> None:
        for node in self.nodes:
            await node.join(self._network)
        self.cluster = Cluster(self._folder, members=[node.server for node in self._made])
        for member in self.cluster.members:
            member.settings["cluster-node-timeout"] = str(self.down_ms)
        await asyncio.to_thread(self.cluster.start)

    def url(self) -> str:
        return self.cluster.url

    @property
    def _answering(self) -> list[Node]:
        return [node for node in self.nodes if node.alive and not node.stopped]

    def primary(self, resource: str = RESOURCES[0]) -> Node | None:
        """Return the node that most nodes name, whether it answers or not."""
        return self._owners()[resource]

    def _owners(self) -> dict[str, Node | None]:
        votes: dict[str, Counter[int]] = {resource: Counter() for resource in RESOURCES}
        for node in self._answering:
            with contextlib.suppress(OSError, RuntimeError):
                rows = node.server("CLUSTER", "SLOTS")
                for resource, counts in votes.items():
                    slot = slot_of_resource(resource)
                    counts.update(row[2][1] for row in rows if row[0] <= slot <= row[1])
        ports = {node.port: node for node in self.nodes}
        majority = len(self.nodes) // 2
        return {
            resource: next((ports[port] for port, count in counts.items() if count > majority), None)
            for resource, counts in votes.items()
        }

    def leads(self, node: Node) -> bool:
        """Whether most nodes name it as a primary with slots."""
        named = 0
        for other in self._answering:
            with contextlib.suppress(OSError, RuntimeError):
                named += any(row[2][1] == node.port for row in other.server("CLUSTER", "SLOTS"))
        return named > len(self.nodes) // 2

    def trouble(self) -> str | None:
        if len(self._answering) < len(self.nodes):
            return "not all nodes run"
        views = {node.name: _view(node) for node in self.nodes}
        ids = {node.server.id: node for node in self._made}
        for name, view in views.items():
            if view.keys() != ids.keys():
                return f"{name} knows {len(view)} nodes"
            for flags, _, state, slots in view.values():
                if state != "connected" or flags & {"fail", "fail?", "handshake", "noaddr"} or "[" in slots:
                    return f"{name} finds a node {sorted(flags)}, {state}, with the slots {slots}"
        owned = {name: sorted((id_, row[3]) for id_, row in view.items() if row[3]) for name, view in views.items()}
        if any(slots != owned["node-0"] for slots in owned.values()):
            return f"the nodes name different owners: {owned}"
        if any(b"cluster_state:ok" not in node.server("CLUSTER", "INFO") for node in self.nodes):
            return "a node finds the cluster down"
        primaries = {ids[id_] for id_, _ in owned["node-0"]}
        for node in self._made:
            following = node.primary_port()
            if (node in primaries) != (following is None):
                return f"{node.name} replicates {following}, and owns slots: {node in primaries}"
        followed = sorted(str(primary.port) for primary in primaries)
        replicas = [node for node in self._made if node not in primaries]
        if sorted(str(node.primary_port()) for node in replicas) != followed:
            return "a primary has no replica"
        behind = [node.name for node in replicas if node.server.info("master_link_status") != "up"]
        return f"{', '.join(behind)} do not follow" if behind else None

    def mend(self) -> None:
        pass

    def generations(self) -> Mapping[str, object]:
        found = self._owners()
        if None in found.values():
            raise RuntimeError("most nodes name no owner")
        return {resource: node.name for resource, node in found.items() if node is not None}

    async def stop(self) -> None:
        await asyncio.to_thread(_end, self.nodes)


def _view(node: Node) -> dict[str, tuple[set[str], str, str, str]]:
    """Return the nodes that a node knows, by their ID: flags, the ID of the primary, the state of the link, slots."""
    found = {}
    for line in node.server("CLUSTER", "NODES").decode().splitlines():
        id_, _, flags, primary, _, _, _, state, *slots = line.split()
        found[id_] = set(flags.split(",")), primary, state, " ".join(slots)
    return found


def _end(nodes: list[Node]) -> None:
    for node in nodes:
        if node.alive:
            node.signal(signal.SIGCONT)
            node.kill()


def make(name: str, folder: Path, network: Network, *, down_ms: int, draw: random.Random) -> Topology:
    """Return the topology of this name, not started."""
    if name == "one":
        return One(folder, network)
    if name == "cluster":
        return Clustered(folder, network, down_ms=down_ms)
    return Sentinels(folder, network, down_ms=down_ms, publish_ms=draw.choice(PUBLISH_MS))


NAMES = ("one", "sentinel", "cluster")
