"""Find the primaries of a cluster, and follow each resource to the primary that owns its slot.

The five keys of a resource lie in one slot, so one primary holds all of it. Each resource has a connector of its own, because slots move
one by one. A move, a failover or a redirection ends the session of that resource alone, and its next session begins at the new owner. That
process has no memory of the log, so the log is fenced as usual (`lineage`): one new epoch for each change of the owner.

The owner of a slot is the node that most nodes name, of those that answer. The cluster's own rules keep a former owner from accepting
writes: it loses its slots to a higher configuration epoch, and refuses everything when it does not see a majority of the primaries.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeGuard

from apiserver import metrics
from apiserver.config import store_address
from apiserver.config.store_address import Node
from apiserver.storage import durability
from apiserver.storage.functions import Commands, Head
from apiserver.storage.lineage import Session
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Disconnected, Redirected, Rejected, pack
from apiserver.storage.preflight import LIBRARY_LIST, NO_CLUSTER, library_refusals
from apiserver.storage.primaries.connector import Opening
from apiserver.storage.primaries.sentinel import Line
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

SLOTS = 1 << 14
FOLLOW_SECONDS = 1.0
"""Time between two questions for the owners while a session is used. Most changes show earlier, as redirections."""
SEARCH_SECONDS = 0.25
"""The longest pause between two attempts without a session. All resources share the questions to the nodes."""
FRESH_SECONDS = 0.05
"""Answers of this age are used again: many resources ask at the same moment."""
LIBRARY_SECONDS = 10.0
"""Time between two looks at the function libraries of all primaries."""
_SLOTS = pack("CLUSTER", "SLOTS")
_SHARDS = pack("CLUSTER", "SHARDS")


def slot_of(resource: str) -> int:
    """Return the slot of a resource's keys: CRC16 of their hash tag (`redis_keys`)."""
    return binascii.crc_hqx(f"sl:{resource}".encode(), 0) % SLOTS


class Range(NamedTuple):
    """Slots `first` to `last`, and their primary."""

    first: int
    last: int
    primary: Node


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one node describes it."""

    ranges: Sequence[Range]
    nodes: frozenset[Node]
    """All nodes that have slots, and their replicas."""

    @classmethod
    def parse(cls, reply: Iterable[Sequence[Any]], asked: Node) -> View:
        """Parse an answer to CLUSTER SLOTS."""
        ranges, nodes = [], set[Node]()
        for first, last, *members in reply:
            found = [_node(member[0], member[1], asked) for member in members]
            ranges.append(Range(int(first), int(last), found[0]))
            nodes.update(found)
        return cls(ranges, frozenset(nodes))

    def owner(self, slot: int) -> Node | None:
        return next((range_.primary for range_ in self.ranges if range_.first <= slot <= range_.last), None)


def _node(host: bytes | None, port: int, asked: Node) -> Node:
    """Return a node. A host that the cluster does not know is that of the node that was asked (documentation of CLUSTER SLOTS)."""
    return Node(host.decode() if _known(host) else asked.host, int(port))


def _known(host: bytes | None) -> TypeGuard[bytes]:
    return host not in (None, b"", b"?")


class Cluster:
    """The nodes of one cluster as they describe themselves, and a light connection to each."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = replace(options, durability=durability.of(options), cluster=True)
        self._address = address = store_address.parse(options.url)
        self._seeds = address.cluster
        self._lines: dict[Node, Line] = {}
        self._views: dict[Node, View] = {}
        self._learnt = 0.0
        self._learning: asyncio.Task[Rejected | None] | None = None
        self._lacking: dict[Node, str] = {}
        self._replicas: dict[Node, int] = {}
        """How many other nodes each node's shard has, working or not, if the durability needs that."""

    def options_of(self, node: Node) -> StoreOptions:
        return replace(self._options, url=self._address.of_store(node), replicas=lambda: self._replicas.get(node, 0))

    async def close(self) -> None:
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        await asyncio.gather(*(line.close() for line in self._lines.values()))
        self._lines.clear()

    def _line(self, node: Node) -> Line:
        if node not in self._lines:
            self._lines[node] = Line(self.options_of(node))
        return self._lines[node]

    async def call(self, node: Node, *commands: bytes) -> list[Any]:
        """Ask one node. Raises StorageError, soon."""
        return await self._line(node).call(*commands)

    # The owners

    async def learn(self, *, fresh: float = FRESH_SECONDS) -> None:
        """Ask all nodes who owns which slots, unless they have answered within `fresh` seconds. Raises Rejected if none answers."""
        if self._views and asyncio.get_running_loop().time() - self._learnt < fresh:
            return
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._learn(), name="cluster")
        if (refused := await asyncio.shield(self._learning)) is not None:
            raise Rejected(str(refused))

    async def _learn(self) -> Rejected | None:
        known = frozenset().union(*(view.nodes for view in self._views.values()))
        views, errors = await self._ask(known)
        if not views:
            # The nodes have other addresses now, or this is the first question.
            views, errors = await self._ask(self._seeds)
        if not views:
            return Rejected(_nobody(errors))
        self._views, self._learnt = views, asyncio.get_running_loop().time()
        if self._options.durability == durability.ALL:
            await self._count_replicas(views)
        needed = frozenset(self._seeds).union(*(view.nodes for view in views.values()))
        for node in self._lines.keys() - needed:
            await self._lines.pop(node).close()
        return None

    async def _count_replicas(self, nodes: Iterable[Node]) -> None:
        """Ask the first node that answers for all members of the shards: CLUSTER SLOTS leaves out replicas that have failed."""
        for node in sorted(nodes, key=str):
            try:
                [reply] = await self.call(node, _SHARDS)
            except StorageError:
                continue
            for shard in _shards(reply, node, tls=self._address.tls):
                self._replicas |= dict.fromkeys((member.node for member in shard.members), len(shard.members) - 1)
            return

    async def _ask(self, nodes: Iterable[Node]) -> tuple[dict[Node, View], dict[Node, StorageError]]:
        asked = sorted(nodes, key=str)
        answers = await asyncio.gather(*(self.call(node, _SLOTS) for node in asked), return_exceptions=True)
        views, errors = {}, {}
        for node, answer in zip(asked, answers, strict=True):
            if isinstance(answer, StorageError):
                errors[node] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                views[node] = View.parse(answer[0], node)
        return views, errors

    async def owner(self, slot: int) -> Node:
        """Return the node that most nodes name as the owner of a slot. Raises Rejected."""
        await self.learn()
        votes = self._votes(slot)
        if not votes:
            raise Rejected(f"slot {slot} of the cluster has no primary")
        # A node that names itself has learnt more than one that does not.
        return max(votes, key=lambda node: (votes[node], self._claims(node, slot), str(node)))

    def left(self, slot: int, owner: Node) -> Node | None:
        """Return another node that a majority of the nodes names as the owner of a slot, as they answered last."""
        votes = self._votes(slot)
        nodes = frozenset().union(*(view.nodes for view in self._views.values()))
        return next((node for node, count in votes.items() if node != owner and count > len(nodes) // 2), None)

    def _votes(self, slot: int) -> Counter[Node]:
        named = (view.owner(slot) for view in self._views.values())
        return Counter(node for node in named if node is not None)

    def _claims(self, node: Node, slot: int) -> bool:
        return node in self._views and self._views[node].owner(slot) == node

    async def primaries(self) -> list[Node]:
        """Return all primaries, also those without slots if the nodes may be asked for them. Raises Rejected."""
        await self.learn()
        found = {range_.primary for view in self._views.values() for range_ in view.ranges}
        for node in sorted(self._views, key=str):
            try:
                [reply] = await self.call(node, _SHARDS)
            except StorageError:
                continue
            for shard in _shards(reply, node, tls=self._address.tls):
                found |= {member.node for member in shard.members if member.primary and not shard.slots}
            break
        return sorted(found, key=str)

    # The function library

    async def watch_libraries(self) -> None:
        """Log each primary that lacks the function library, for ever: slots that are moved there cannot be served."""
        while True:
            await asyncio.sleep(LIBRARY_SECONDS)
            try:
                lacking = await self.lacking_library()
            except StorageError:
                continue
            for node in lacking.keys() - self._lacking.keys():
                logger.warning(
                    "a primary of the cluster cannot serve", extra={"node": str(node), "reason": lacking[node]}
                )
            self._lacking = lacking

    async def lacking_library(self) -> dict[Node, str]:
        """Return the primaries that answer and lack this version's function library, with the remedy. Raises Rejected."""
        nodes = await self.primaries()
        answers = await asyncio.gather(*(self.call(node, LIBRARY_LIST) for node in nodes), return_exceptions=True)
        found = {}
        for node, answer in zip(nodes, answers, strict=True):
            if not isinstance(answer, BaseException) and (wrong := library_refusals(answer[0])):
                found[node] = wrong[0]
        return found


class Member(NamedTuple):
    node: Node
    primary: bool
    """It is a primary, and the others reach it."""


class Shard(NamedTuple):
    slots: bool
    members: list[Member]


def _shards(reply: Iterable[Sequence[Any]], asked: Node, *, tls: bool) -> list[Shard]:
    """Parse an answer to CLUSTER SHARDS."""
    found = []
    for row in reply:
        shard, members = dict(zip(row[::2], row[1::2], strict=True)), []
        for told in (dict(zip(member[::2], member[1::2], strict=True)) for member in shard[b"nodes"]):
            if port := told.get(b"tls-port" if tls else b"port"):
                host = told.get(b"endpoint")
                node = _node(host if _known(host) else told.get(b"ip"), port, asked)
                members.append(Member(node, told[b"role"] == b"master" and told[b"health"] == b"online"))
        found.append(Shard(bool(shard[b"slots"]), members))
    return found


def _nobody(errors: Mapping[Node, StorageError]) -> str:
    said = [
        f"{node}: {NO_CLUSTER if 'cluster support disabled' in str(error) else error}" for node, error in errors.items()
    ]
    return f"no node of the cluster answers ({'; '.join(said)})"


class SlotOwner:
    """The locator of one resource: where its slot is."""

    longest_pause = SEARCH_SECONDS

    def __init__(self, cluster: Cluster, resource: str) -> None:
        self._cluster = cluster
        self.slot = slot_of(resource)
        self._probe = Commands(resource).head
        self._last: Node | None = None
        self._followed = ""
        """The run_id of the process that the last session was opened with."""

    @property
    def where(self) -> str:
        """The node that was reached or tried last."""
        return str(self._last) if self._last is not None else "the cluster"

    def options_of(self, node: Node) -> StoreOptions:
        return self._cluster.options_of(node)

    async def open(
        self,
        commands: Mapping[str, Commands],
        *,
        epochs: dict[str, int],
        opening: Opening,
    ) -> tuple[Node, Session]:
        """Open a session with the owner. Raises what `opening` raises, Rejected."""
        node = self._last = await self._cluster.owner(self.slot)
        # A slot that is being moved key by key refuses for a while; the probe spares the connections of a session.
        try:
            await self._cluster.call(node, self._probe)
        except Redirected:
            raise
        except StorageError:
            pass  # the session has more patience, and says more
        session = await opening(self._cluster.options_of(node), False)  # noqa: FBT003
        if self._followed not in ("", session.run_id):
            metrics.STORE_FAILOVERS.labels("cluster").inc()
        self._followed = session.run_id
        return node, session

    async def follow(
        self,
        run_id: str,
        node: Node,
        heads: Callable[[], Mapping[str, tuple[Commands, Head]]],
    ) -> None:
        """End the session when a majority of the nodes names another owner. Raises Disconnected."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                await self._cluster.learn(fresh=FOLLOW_SECONDS)
            except Rejected:
                continue  # the session itself shows whether its server works
            if (other := self._cluster.left(self.slot, node)) is not None:
                raise Disconnected(f"the cluster names {other} as the owner of slot {self.slot}, not {node}")


def of(options: StoreOptions) -> Cluster | None:
    """Return the cluster that the store's URL names; None for other URLs. Raises ValueError for a URL that cannot be read."""
    try:
        return Cluster(options) if store_address.parse(options.url).cluster else None
    except ValueError as error:
        raise ValueError(f"the store's URL {error}") from None
