"""Faults: what each does to a store and to our servers, and what it may cost (docs/storage.md)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tests.faults.network import Network
from tests.faults.pair import Replica
from tests.faults.topologies import RESOURCES, Clustered, Node, Sentinels, Topology
from tests.fixtures.clusters import slot_of_resource
from tests.fixtures.sentinels import NAME

LONG = 120.0
"""Seconds for what has to come about, on a busy machine."""


@dataclass
class Window:
    """The time of one fault, from its injection until the store was healthy again."""

    fault: Fault
    begin: float
    end: float = float("inf")
    moved: frozenset[str] = frozenset()
    """The resources that have another primary since."""
    left: float = float("inf")
    """When all servers should have left the old primary."""


@dataclass
class Bed:
    """The store, its network and our servers: faults are injected into these."""

    topology: Topology
    network: Network
    servers: list[Replica]
    confirming: int = 0
    """How many replicas must confirm a write."""
    windows: list[Window] = field(default_factory=list)
    down: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """When each server was stopped or killed by a fault."""
    started: dict[str, list[float]] = field(default_factory=dict)
    """When each server was started again by a fault."""
    acknowledged: list[float] = field(default_factory=list)
    """When each write of this round was acknowledged."""

    async def until(self, condition: Callable[[], object], what: str, *, seconds: float = LONG) -> None:
        """Wait for what blocks while it looks. Errors of connections count as not yet."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, RuntimeError):
                if await asyncio.to_thread(condition):
                    return
            assert time.monotonic() < end, f"{what}: this did not come about within {seconds:.0f} s"
            await asyncio.sleep(0.03)

    async def written(self, more: int = 20) -> None:
        """Wait for so many further writes."""
        goal = len(self.acknowledged) + more
        end = time.monotonic() + LONG
        while len(self.acknowledged) < goal:
            assert time.monotonic() < end, f"{more} writes were not accepted within {LONG:.0f} s"
            await asyncio.sleep(0.02)

    async def written_with(self, replicas: int, more: int) -> None:
        """Wait for so many further writes, unless the primary has fewer replicas than must confirm them."""
        if replicas >= self.confirming:
            await self.written(more)

    async def primary(self, resource: str = RESOURCES[0]) -> Node:
        found: list[Node] = []

        def named() -> bool:
            node = self.topology.primary(resource)
            found[:] = [node] if node is not None else []
            return node is not None

        await self.until(named, "a primary")
        return found[0]

    async def moved(self, old: Node, resource: str = RESOURCES[0]) -> Node:
        """Wait until another node is the primary."""
        await self.until(lambda: self.topology.primary(resource) not in (None, old), f"a primary other than {old.name}")
        return await self.primary(resource)

    async def healthy(self, look: Callable[[], None] = lambda: None) -> None:
        """Wait until the store is healthy. `look` is called each time before."""
        trouble: list[str | None] = [None]

        def fine() -> bool:
            look()
            trouble[0] = self.topology.trouble()
            return trouble[0] is None

        try:
            await self.until(fine, "a healthy store")
        except AssertionError as error:
            raise AssertionError(f"{error}: {trouble[0]}") from None

    async def recovered(self, draw: random.Random) -> None:
        """Wait until the store is healthy. As an operator would, make a node that was left behind a replica, early or late."""
        patience, begin = draw.choice([0.0, 0.5, 2.0, 30.0]), time.monotonic()

        def operate() -> None:
            if time.monotonic() - begin > patience:
                self.topology.mend()

        await self.healthy(operate)

    def launch(self, server: Replica) -> None:
        """Start a server that has ended."""
        self.started.setdefault(server.name, []).append(time.monotonic())
        server.launch()

    @contextlib.asynccontextmanager
    async def away(self, server: Replica) -> AsyncIterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self.down.setdefault(server.name, []).append((begin, time.monotonic()))


Inject = Callable[[Bed, random.Random], Awaitable[None]]


@dataclass(frozen=True)
class Fault:
    """One kind. `loses`: the durabilities under which acknowledged writes may be lost. `splits`: an old primary may live on, so that a
    server of ours may follow it for a while. `blind`: that server cannot know, until the fault is over. `failovers`: how many it brings
    about."""

    name: str
    inject: Inject
    weight: int = 1
    splits: bool = False
    loses: frozenset[str] = frozenset()
    blind: bool = False
    failovers: int = 0


# ------------------------------------------------------------------------------------------------------------- servers


async def _server_killed(bed: Bed, draw: random.Random) -> None:
    server = draw.choice(bed.servers)
    async with bed.away(server):
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        await asyncio.sleep(draw.uniform(0, 0.5))
        bed.launch(server)
        await asyncio.to_thread(server.until_ready)


async def _server_started_without_store(bed: Bed, draw: random.Random) -> None:
    """Clients ask it before its memory was ever filled."""
    server = draw.choice(bed.servers)
    async with bed.away(server):
        await asyncio.to_thread(server.stop, signal.SIGKILL)
        heal = bed.network.part([server.name])
        try:
            bed.launch(server)
            await bed.until(server.answers, f"an answer of {server.name}")
            await asyncio.sleep(draw.uniform(0.5, 2))
        finally:
            heal()
        await asyncio.to_thread(server.until_ready)


async def _server_restarted(bed: Bed, draw: random.Random) -> None:
    server = draw.choice(bed.servers)
    code = await asyncio.to_thread(server.stop)
    assert code == 0, f"{server.name} ended with {code}: {server.log.read_text()[-2000:]}"
    bed.launch(server)
    await asyncio.to_thread(server.until_ready)


async def _server_stopped(bed: Bed, draw: random.Random) -> None:
    server = draw.choice(bed.servers)
    async with bed.away(server):
        server.send(signal.SIGSTOP)
        await asyncio.sleep(draw.choice([0.1, 0.5, 2.5]))
        server.send(signal.SIGCONT)


async def _connections_cut(bed: Bed, draw: random.Random) -> None:
    server = draw.choice(bed.servers)
    for member in bed.network.members:
        bed.network.cut(server.name, member)
    await asyncio.sleep(draw.uniform(0, 0.2))


async def _server_cut_off(bed: Bed, draw: random.Random) -> None:
    """The longest time is enough to give the session up and to fail to connect again."""
    server = draw.choice(bed.servers)
    heal = bed.network.part([server.name])
    await asyncio.sleep(draw.choice([0.1, 0.7, 2.0, 4.5, 7.0]))
    if draw.random() < 0.5:
        await _connections_cut(bed, draw)
    heal()


async def _server_cut_off_from_sentinels(bed: Bed, draw: random.Random) -> None:
    server = draw.choice(bed.servers)
    links = [(server.name, member) for member in bed.network.members if member.startswith("sentinel")]
    for link in links:
        bed.network.hold(*link)
    await asyncio.sleep(draw.uniform(0.2, 2))
    for link in links:
        bed.network.release(*link)


SERVER_FAULTS: Sequence[Fault] = (
    Fault("server killed", _server_killed),
    Fault("server restarted", _server_restarted),
    Fault("server started without the store", _server_started_without_store),
    Fault("server stopped", _server_stopped, 8),
)
CONNECTION_FAULTS: Sequence[Fault] = (
    Fault("server's connections cut", _connections_cut, 16),
    Fault("server cut off from the store", _server_cut_off, 8),
)

# ------------------------------------------------------------------------------------------------------------- any store


async def _stopped(bed: Bed, draw: random.Random) -> None:
    """For a shorter time than anybody takes for dead."""
    node = await bed.primary(draw.choice(RESOURCES))
    node.signal(signal.SIGSTOP)
    await asyncio.sleep(draw.uniform(0.05, (bed.topology.down_ms or 4000) / 2000))
    node.signal(signal.SIGCONT)


async def _killed_and_back(bed: Bed, draw: random.Random) -> None:
    node = await bed.primary(draw.choice(RESOURCES))
    await asyncio.to_thread(node.kill)
    await asyncio.sleep(draw.uniform(0, (bed.topology.down_ms or 2000) / 4000))
    await asyncio.to_thread(node.start)


async def _node_cut_off_from_a_server(bed: Bed, draw: random.Random) -> None:
    node, server = await bed.primary(draw.choice(RESOURCES)), draw.choice(bed.servers)
    bed.network.hold(server.name, node.name)
    await asyncio.sleep(draw.uniform(0.1, 4))
    if draw.random() < 0.5:
        bed.network.cut(server.name, node.name)
    bed.network.release(server.name, node.name)


NODE_FAULTS: Sequence[Fault] = (
    Fault("node stopped for a moment", _stopped, 6),
    Fault("node killed and back", _killed_and_back, 4),
    Fault("node cut off from a server", _node_cut_off_from_a_server, 4),
)

# ------------------------------------------------------------------------------------------------------------- sentinels


def _sentinels(bed: Bed) -> Sentinels:
    assert isinstance(bed.topology, Sentinels)
    return bed.topology


def _replicas(bed: Bed, primary: Node, draw: random.Random) -> list[Node]:
    others = [node for node in bed.topology.nodes if node is not primary]
    draw.shuffle(others)
    return others


async def _back_as_replica(bed: Bed, node: Node) -> None:
    await asyncio.to_thread(node.start, await bed.primary())


async def _killed(bed: Bed, draw: random.Random) -> None:
    old = await bed.primary()
    await asyncio.to_thread(old.kill)
    await bed.moved(old)
    await bed.written_with(1, draw.choice([0, 1, 20]))
    await _back_as_replica(bed, old)


async def _replica_killed(bed: Bed, draw: random.Random) -> None:
    replica = _replicas(bed, await bed.primary(), draw)[0]
    await asyncio.to_thread(replica.kill)
    await asyncio.sleep(draw.uniform(0, 1))
    await _back_as_replica(bed, replica)


async def _replica_stopped(bed: Bed, draw: random.Random) -> None:
    replica = _replicas(bed, await bed.primary(), draw)[0]
    replica.signal(signal.SIGSTOP)
    await asyncio.sleep(draw.uniform(0.1, 2))
    replica.signal(signal.SIGCONT)


async def _stopped_and_woken(bed: Bed, draw: random.Random) -> None:
    old = await bed.primary()
    old.signal(signal.SIGSTOP)
    if draw.random() < 0.5:  # it wakes while the others fail over
        await asyncio.sleep(bed.topology.down_ms / 1000 * draw.uniform(1, 1.5))
    else:
        await bed.moved(old)
        await asyncio.sleep(draw.uniform(0, 1))
    old.signal(signal.SIGCONT)


async def _parted(bed: Bed, draw: random.Random, old: Node, side: list[str]) -> None:
    left = sum(node.name not in side for node in bed.topology.nodes) - 1
    heal = bed.network.part(side)
    try:
        await bed.moved(old)
        await bed.written_with(left, draw.choice([0, 1, 20]))
        await asyncio.sleep(draw.uniform(0, 1.5))
    finally:
        heal()


def _pod(node: Node) -> list[str]:
    """Return the members that share the node's pod."""
    return [node.name, node.name.replace("node", "sentinel")]


async def _primary_alone(bed: Bed, draw: random.Random) -> None:
    old = await bed.primary()
    await _parted(bed, draw, old, _pod(old))


async def _primary_with_server(bed: Bed, draw: random.Random) -> None:
    old = await bed.primary()
    await _parted(bed, draw, old, [*_pod(old), draw.choice(bed.servers).name])


async def _primary_with_replica(bed: Bed, draw: random.Random) -> None:
    """Without any sentinel, which cannot be when each pod has one."""
    old = await bed.primary()
    server = [draw.choice(bed.servers).name] if draw.random() < 0.5 else []
    await _parted(bed, draw, old, [old.name, _replicas(bed, old, draw)[0].name, *server])


async def _lagging(bed: Bed, draw: random.Random) -> None:
    """The replicas are behind when the primary dies."""
    old = await bed.primary()
    links = [(old.name, node.name) for node in _replicas(bed, old, draw)]
    for link in links:
        bed.network.hold(*link)
    await asyncio.sleep(draw.uniform(0.2, 1.5))
    await asyncio.to_thread(old.kill)
    for link in links:
        bed.network.cut(*link)
        bed.network.release(*link)
    await bed.moved(old)
    await bed.written_with(1, draw.choice([0, 1, 20]))
    await _back_as_replica(bed, old)


async def _twice(bed: Bed, draw: random.Random) -> None:
    """The second primary dies as soon as a replica has its state."""
    old = await bed.primary()
    await asyncio.to_thread(old.kill)
    second = await bed.moved(old)
    [third] = [node for node in bed.topology.nodes if node not in (old, second)]
    await bed.until(lambda: third.in_step(second), "a second replica in step")
    await bed.written_with(1, draw.choice([0, 1, 20]))
    second.signal(signal.SIGSTOP)
    if draw.random() < 0.5:
        await asyncio.to_thread(second.kill)
    await bed.until(lambda: bed.topology.primary() is third, "the third node as the primary")
    for node in (old, second):
        if node.alive:
            node.signal(signal.SIGCONT)
        else:
            await asyncio.to_thread(node.start, third)


async def _first_primary_back(bed: Bed, draw: random.Random) -> None:
    """It has slept through a failover, and wakes when the second primary and the last replica are dead. Its own log did not change."""
    old = await bed.primary()
    old.signal(signal.SIGSTOP)
    second = await bed.moved(old)
    await bed.written_with(1, draw.choice([1, 20]))
    [third] = [node for node in bed.topology.nodes if node not in (old, second)]
    for node in (third, second):
        await asyncio.to_thread(node.kill)
    old.signal(signal.SIGCONT)
    await bed.until(lambda: bed.topology.primary() is old, f"{old.name} as the primary again")
    for node in (second, third):
        await asyncio.to_thread(node.start, old)


async def _by_hand(bed: Bed, draw: random.Random, *words: str) -> bool:
    """SENTINEL FAILOVER. Whether another node is the primary now."""
    old, sentinel = await bed.primary(), draw.choice(_sentinels(bed).sentinels)
    with contextlib.suppress(RuntimeError):  # no replica is good enough
        await asyncio.to_thread(sentinel, "SENTINEL", "FAILOVER", NAME, *words)
        with contextlib.suppress(AssertionError):  # it gave up
            await bed.until(lambda: bed.topology.primary() not in (None, old), "a failover", seconds=15)
    return await bed.primary() is not old


async def _failover(bed: Bed, draw: random.Random) -> None:
    await _by_hand(bed, draw)


async def _coordinated(bed: Bed, draw: random.Random) -> None:
    await _by_hand(bed, draw, "COORDINATED")


async def _rolling(bed: Bed, draw: random.Random) -> None:
    """Restart every node: replicas first, and the primary when it has handed over."""
    primary = await bed.primary()
    for node in _replicas(bed, primary, draw):
        await asyncio.to_thread(node.server.stop)
        await asyncio.to_thread(node.start, primary)
        await bed.until(lambda node=node: node.in_step(primary), "the replica in step")  # type: ignore[misc]
    if await _by_hand(bed, draw, "COORDINATED"):
        now = await bed.primary()
        await bed.until(lambda: primary.in_step(now), "the former primary in step")
        await asyncio.to_thread(primary.server.stop)
        await asyncio.to_thread(primary.start, now)


async def _sentinel_killed(bed: Bed, draw: random.Random) -> None:
    sentinel = draw.choice(_sentinels(bed).sentinels)
    await asyncio.to_thread(sentinel.stop)
    await asyncio.sleep(draw.uniform(0, 1))
    await asyncio.to_thread(sentinel.start)


async def _sentinels_killed(bed: Bed, draw: random.Random) -> None:
    """All of them. The store goes on."""
    for sentinel in _sentinels(bed).sentinels:
        await asyncio.to_thread(sentinel.stop)
    await bed.written(10)
    for sentinel in _sentinels(bed).sentinels:
        await asyncio.to_thread(sentinel.start)


_ONE, _TWO = frozenset({"primary"}), frozenset({"primary", "replica"})
SENTINEL_FAULTS: Sequence[Fault] = (
    Fault("primary killed", _killed, 4, loses=_ONE, failovers=1),
    Fault("replica killed", _replica_killed, 3),
    Fault("replica stopped", _replica_stopped, 3),
    Fault("primary stopped and woken", _stopped_and_woken, 3, splits=True, loses=_TWO, failovers=1),
    Fault("primary alone cut off", _primary_alone, 2, splits=True, loses=_ONE, failovers=1),
    Fault("primary cut off with a server", _primary_with_server, 3, splits=True, loses=_ONE, blind=True, failovers=1),
    Fault("primary cut off with a replica", _primary_with_replica, 2, splits=True, loses=_TWO, blind=True, failovers=1),
    Fault("lagging replica promoted", _lagging, 3, loses=_ONE, failovers=1),
    Fault("failed over twice", _twice, 2, splits=True, loses=_ONE, failovers=2),
    # Blind: no server can know that what two nodes have confirmed will be lost.
    Fault("first primary back", _first_primary_back, 1, splits=True, loses=_TWO, blind=True, failovers=2),
    Fault("failed over by hand", _failover, 2, splits=True, loses=_TWO, failovers=1),
    Fault("coordinated failover", _coordinated, 3, failovers=1),
    Fault("rolling restart", _rolling, 1, failovers=1),
    Fault("sentinel killed", _sentinel_killed, 3),
    Fault("all sentinels killed", _sentinels_killed, 2),
)

# --------------------------------------------------------------------------------------------------------------- cluster


def _clustered(bed: Bed) -> Clustered:
    assert isinstance(bed.topology, Clustered)
    return bed.topology


async def _shard(bed: Bed, draw: random.Random) -> tuple[str, Node, Node]:
    """Draw a resource. Return its primary and the replica of that, too."""
    resource = draw.choice(RESOURCES)
    primary, found = await bed.primary(resource), list[Node]()

    def follows() -> bool:
        found[:] = [node for node in bed.topology.nodes if node.primary_port() == primary.port]
        return bool(found)

    await bed.until(follows, f"a replica of {primary.name}")
    return resource, primary, found[0]


async def _shard_primary_killed(bed: Bed, draw: random.Random) -> None:
    """Nothing confirms writes until it is back."""
    resource, old, _ = await _shard(bed, draw)
    await asyncio.to_thread(old.kill)
    await bed.moved(old, resource)
    await asyncio.sleep(draw.choice([0, 0.2, 1.5]))
    await asyncio.to_thread(old.start)


async def _shard_replica_killed(bed: Bed, draw: random.Random) -> None:
    _, _, replica = await _shard(bed, draw)
    await asyncio.to_thread(replica.kill)
    await asyncio.sleep(draw.uniform(0, 3))
    await asyncio.to_thread(replica.start)


async def _shard_replica_stopped(bed: Bed, draw: random.Random) -> None:
    _, _, replica = await _shard(bed, draw)
    replica.signal(signal.SIGSTOP)
    await asyncio.sleep(draw.uniform(0.1, 3))
    replica.signal(signal.SIGCONT)


async def _shard_stopped_and_woken(bed: Bed, draw: random.Random) -> None:
    resource, old, _ = await _shard(bed, draw)
    old.signal(signal.SIGSTOP)
    if draw.random() < 0.5:  # it wakes while the others vote
        await asyncio.sleep(bed.topology.down_ms / 1000 * draw.uniform(1.5, 3))
    else:
        await bed.moved(old, resource)
        await asyncio.sleep(draw.uniform(0, 1))
    old.signal(signal.SIGCONT)


async def _shard_parted(bed: Bed, draw: random.Random, resource: str, old: Node, *others: str) -> None:
    heal = bed.network.part([old.name, *others])
    try:
        await bed.moved(old, resource)
        await asyncio.sleep(draw.uniform(0, 1.5))
    finally:
        heal()


async def _shard_primary_alone(bed: Bed, draw: random.Random) -> None:
    resource, old, _ = await _shard(bed, draw)
    await _shard_parted(bed, draw, resource, old)


async def _shard_primary_with_server(bed: Bed, draw: random.Random) -> None:
    resource, old, _ = await _shard(bed, draw)
    await _shard_parted(bed, draw, resource, old, draw.choice(bed.servers).name)


async def _shard_cut_off(bed: Bed, draw: random.Random) -> None:
    """Both nodes of it, perhaps with a server. Nobody may take over, and the primary stops when it misses most other ones."""
    _, old, replica = await _shard(bed, draw)
    server = [draw.choice(bed.servers).name] if draw.random() < 0.5 else []
    heal = bed.network.part([old.name, replica.name, *server])
    await asyncio.sleep(bed.topology.down_ms / 1000 * draw.uniform(0.5, 4))
    heal()


async def _replica_takes_over(bed: Bed, draw: random.Random, *words: str) -> None:
    resource, _, replica = await _shard(bed, draw)
    with contextlib.suppress(RuntimeError, AssertionError):  # the others did not vote for it
        await asyncio.to_thread(replica.server, "CLUSTER", "FAILOVER", *words)
        await bed.until(lambda: bed.topology.primary(resource) is replica, "a failover", seconds=15)


async def _shard_failover(bed: Bed, draw: random.Random) -> None:
    await _replica_takes_over(bed, draw)


async def _shard_takeover(bed: Bed, draw: random.Random) -> None:
    await _replica_takes_over(bed, draw, "TAKEOVER")


async def _shard_twice(bed: Bed, draw: random.Random) -> None:
    """The second primary dies as soon as the first one has its state."""
    resource, old, _ = await _shard(bed, draw)
    await asyncio.to_thread(old.kill)
    second = await bed.moved(old, resource)
    await asyncio.to_thread(old.start)
    await bed.until(lambda: old.in_step(second), "the former primary in step")
    await asyncio.to_thread(second.kill)
    await bed.moved(second, resource)
    await asyncio.to_thread(second.start)


async def _other_primary(bed: Bed, draw: random.Random, primary: Node) -> Node:
    """Draw another primary, which may have no resource."""
    found = [node for node in bed.topology.nodes if node is not primary and node.primary_port() is None]
    return draw.choice(found)


async def _slot_moved(bed: Bed, draw: random.Random) -> None:
    cluster, (resource, primary, _) = _clustered(bed).cluster, await _shard(bed, draw)
    target = await _other_primary(bed, draw, primary)
    slots = [slot_of_resource(resource)]
    await asyncio.to_thread(cluster.move, slots, cluster.members[bed.topology.nodes.index(target)])


async def _slot_moved_key_by_key(bed: Bed, draw: random.Random) -> None:
    cluster, (resource, primary, _) = _clustered(bed).cluster, await _shard(bed, draw)
    target, pause = await _other_primary(bed, draw, primary), draw.choice([0, 0.02, 0.2])
    member = cluster.members[bed.topology.nodes.index(target)]
    await asyncio.to_thread(cluster.move_key_by_key, slot_of_resource(resource), member, pause=pause)


async def _killed_while_slot_moves(bed: Bed, draw: random.Random) -> None:
    """The slot's new or former primary, during the move or soon afterwards."""
    topology, (resource, primary, _) = _clustered(bed), await _shard(bed, draw)
    target, slot = await _other_primary(bed, draw, primary), slot_of_resource(resource)
    id_ = (await asyncio.to_thread(target.server, "CLUSTER", "MYID")).decode()
    await asyncio.to_thread(primary.server, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id_)
    await asyncio.sleep(draw.uniform(0, 0.1))
    dying = draw.choice([primary, target])
    await asyncio.to_thread(dying.kill)
    await bed.until(lambda: not topology.leads(dying), f"another primary instead of {dying.name}")
    await asyncio.to_thread(dying.start)


CLUSTER_FAULTS: Sequence[Fault] = (
    Fault("primary killed", _shard_primary_killed, 4, loses=_ONE, failovers=1),
    Fault("replica killed", _shard_replica_killed, 2),
    Fault("replica stopped", _shard_replica_stopped, 2),
    Fault("primary stopped and woken", _shard_stopped_and_woken, 3, splits=True, loses=_ONE, failovers=1),
    Fault("primary alone cut off", _shard_primary_alone, 2, splits=True, loses=_ONE, failovers=1),
    Fault("primary cut off with a server", _shard_primary_with_server, 3, splits=True, loses=_ONE, blind=True, failovers=1),
    Fault("primary cut off with its replica", _shard_cut_off, 2),
    Fault("failed over twice", _shard_twice, 2, loses=_ONE, failovers=2),
    Fault("failed over by hand", _shard_failover, 5, failovers=1),
    Fault("taken over by hand", _shard_takeover, 2, splits=True, loses=_ONE, failovers=1),
    Fault("slot moved", _slot_moved, 6, failovers=1),
    Fault("slot moved key by key", _slot_moved_key_by_key, 4, failovers=1),
    Fault("primary killed while a slot moves", _killed_while_slot_moves, 2, loses=_ONE, failovers=2),
)  # fmt: skip

# ------------------------------------------------------------------------------------------------------------------ which


def unwanted(topology: Topology) -> Fault:
    """Return a failover of which no fault is the cause: a busy machine stops programs, too."""
    loses = _ONE if isinstance(topology, Clustered) else _TWO
    return Fault("failover that no fault wanted", _failover, splits=True, loses=loses, blind=True)


def of_connections(topology: Topology) -> list[Fault]:
    faults = list(CONNECTION_FAULTS)
    if isinstance(topology, Sentinels):
        faults.append(Fault("server cut off from the sentinels", _server_cut_off_from_sentinels, 6))
    return faults


def of_store(topology: Topology) -> list[Fault]:
    if isinstance(topology, Sentinels):
        return [*NODE_FAULTS, *SENTINEL_FAULTS]
    return [*NODE_FAULTS, *CLUSTER_FAULTS] if isinstance(topology, Clustered) else list(NODE_FAULTS)


def draw_from(faults: Sequence[Fault], draw: random.Random) -> Fault:
    return draw.choices(faults, [fault.weight for fault in faults])[0]
