"""Find the primary through sentinels, notice when it is another one, and depose primaries that were left behind.

Sentinels are no quorum over data: while they fail over, two servers may believe to be the primary. So three rules hold:

1. The primary is the server that a majority of the configured sentinels names. All are asked at once. A sentinel that was cut off with the
   old primary still names that, and is outvoted.
2. A session ends when a majority names another server, or when another server is a primary whose log has a later epoch: somebody has taken
   it over. Sentinels that do not answer end nothing, because the store works without them.
3. A server that is connected to the primary of the majority deposes every other server that believes to be a primary
   (`sl1_depose`). That server refuses writes and consistent reads from then on, for all of Sluice's servers that still reach it.

redis-py's Sentinel client asks one sentinel after the other and believes the first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from apiserver import metrics
from apiserver.config import store_address
from apiserver.config.store_address import Node
from apiserver.storage import durability, functions
from apiserver.storage.functions import Commands, Head, Lost
from apiserver.storage.lineage import Session
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Disconnected, Rejected, pack
from apiserver.storage.preflight import Server
from apiserver.watchcache import keys
from apiserver.watchcache.errors import StorageError

ASK_SECONDS = 0.5
"""The longest time that one sentinel or server may take to answer."""
OPEN_SECONDS = 3.0
"""The longest time that it may take to open a light connection. Questions do not wait for it."""
LEARN_SECONDS = 1.0
"""Time between two questions for the servers of the store."""
FOLLOW_SECONDS = 0.25
"""Time between two questions while a session is used. A published message (`+switch-master`) would come no earlier at a majority."""
SEARCH_SECONDS = 0.1
"""The longest pause between two attempts without a session."""
AGAIN_SECONDS = 0.5
"""A server that did not answer is left alone for this long."""
_INFO = pack("INFO", "server", "replication")


class Line:
    """A light connection to a server or a sentinel, opened when it is needed."""

    def __init__(self, options: StoreOptions) -> None:
        self._options = replace(options, connect_seconds=min(options.connect_seconds, OPEN_SECONDS))
        self._connection: Connection | None = None
        self._opening: asyncio.Task[Connection] | None = None
        self._failed: StorageError | None = None
        self._again = 0.0
        self._lock = asyncio.Lock()

    async def call(self, *commands: bytes) -> list[Any]:
        """Return the replies. Raises StorageError, at the latest after ASK_SECONDS."""
        clock = asyncio.get_running_loop().time
        if self._failed is not None and clock() < self._again:
            raise Rejected(str(self._failed))
        try:
            async with asyncio.timeout(ASK_SECONDS), self._lock:
                connection = await self._opened()
                replies = await asyncio.gather(*map(connection.call, commands), return_exceptions=True)
            for reply in replies:
                if isinstance(reply, BaseException):
                    raise reply
        except TimeoutError:
            error = Rejected(f"no answer within {ASK_SECONDS:g} s")
            await self._fail(error, until=clock() + AGAIN_SECONDS)
            raise error from None
        except StorageError as error:
            await self._fail(error, until=clock() + AGAIN_SECONDS)
            raise
        except asyncio.CancelledError:
            await self.close()
            raise
        self._failed = None
        return replies

    @property
    def reachable(self) -> bool:
        """Whether the last call was answered."""
        return self._connection is not None and self._failed is None

    async def _opened(self) -> Connection:
        """Return the connection. A caller that does not wait until it is open leaves that to the next one: TLS may take a while."""
        if self._connection is not None and self._connection.broken.done():
            await self._drop()
        if self._connection is None:
            if self._opening is None:
                opening = Connection.open(self._options, "sluice-nodes")
                self._opening = asyncio.get_running_loop().create_task(opening, name="sluice-nodes")
            under_way = self._opening
            await asyncio.wait((under_way,))
            if under_way.cancelled():  # a caller that was cancelled has closed the line
                raise Rejected("the connection was closed while it was opened")
            self._opening = None
            self._connection = under_way.result()
        return self._connection

    async def _fail(self, error: StorageError, *, until: float) -> None:
        self._failed, self._again = error, until
        await self._drop()

    async def _drop(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def close(self) -> None:
        await self._drop()
        if self._opening is not None:
            opening, self._opening = self._opening, None
            opening.cancel()
            [opened] = await asyncio.gather(opening, return_exceptions=True)
            if isinstance(opened, Connection):
                await opened.close()


class Place(NamedTuple):
    """A server to connect to. `confirmed`: a majority of the sentinels named it just now."""

    node: Node
    options: StoreOptions
    confirmed: bool


@dataclass(slots=True)
class State:
    """A server of the store, as it describes itself. `heads` are the logs that it has, by resource."""

    node: Node
    run_id: str
    primary: bool
    heads: dict[str, Head] = field(default_factory=dict)

    def later(self, own: Mapping[str, Head]) -> bool:
        """Whether one of its logs was taken over after ours, in the same store."""
        return any(mine.epoch < head.epoch for mine, head in self._shared(own))

    def earlier(self, own: Mapping[str, Head]) -> bool:
        """Whether one of our logs was taken over after its, in the same store."""
        return any(head.epoch < mine.epoch for mine, head in self._shared(own))

    def _shared(self, own: Mapping[str, Head]) -> Iterable[tuple[Head, Head]]:
        pairs = ((own[name], head) for name, head in self.heads.items() if name in own)
        return [(mine, head) for mine, head in pairs if mine.marker == head.marker]


class Sentinels:
    """The sentinels of one store, its servers as the sentinels know them, and a light connection to each."""

    longest_pause = SEARCH_SECONDS

    def __init__(self, options: StoreOptions) -> None:
        self._options = replace(options, durability=durability.of(options), replicas=lambda: self._replicas)
        self._address = address = store_address.parse(options.url)
        asked = replace(
            options,
            username=options.sentinel_username,
            password=None,
            password_file=options.sentinel_password_file,
        )
        self._sentinels = {node: Line(replace(asked, url=address.of_sentinel(node))) for node in address.sentinels}
        self._majority = len(self._sentinels) // 2 + 1
        self._asking: dict[Node, asyncio.Task[Node | StorageError | None]] = {}
        self._servers: dict[Node, Line] = {}
        self._known: set[Node] = set()
        self._replicas = 0
        self._left = ""
        """Why the last session ended, if it ended for another primary."""
        self._followed = ""
        """The run_id of the last session's server."""

    @property
    def where(self) -> str:
        """The name of the primary, as the sentinels know it."""
        return self._address.name

    async def close(self) -> None:
        for asking in self._asking.values():
            asking.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        for line in (*self._sentinels.values(), *self._servers.values()):
            await line.close()

    # Where it is

    async def primary(self) -> Node:
        """Return the server that a majority of the sentinels names. Raises Rejected, with what they say."""
        answers: dict[Node, Node | StorageError | None] = {}
        # A slow answer is not cancelled when others decide: the next question takes it.
        for node, line in self._sentinels.items():
            if node not in self._asking or self._asking[node].done():
                self._asking[node] = asyncio.get_running_loop().create_task(
                    self._named_by(line), name=f"sentinel {node}"
                )
        tasks = {task: node for node, task in self._asking.items()}
        left = set(tasks)
        while left:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            answers |= {tasks[task]: task.result() for task in done}
            named = Counter(answer for answer in answers.values() if isinstance(answer, Node))
            for node, votes in named.items():
                if votes >= self._majority:
                    self._known.add(node)
                    self._show_sentinels()
                    return node
        self._show_sentinels()
        raise Rejected(self._undecided(answers))

    def _show_sentinels(self) -> None:
        reachable = sum(line.reachable for line in self._sentinels.values())
        metrics.STORE_SENTINELS.labels("reachable").set(reachable)
        metrics.STORE_SENTINELS.labels("unreachable").set(len(self._sentinels) - reachable)

    async def _named_by(self, line: Line) -> Node | StorageError | None:
        try:
            [reply] = await line.call(pack("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._address.name))
        except StorageError as error:
            return error
        return None if reply is None else Node(reply[0].decode(), int(reply[1]))

    async def dissent(self) -> list[str]:
        """Return a line for each sentinel that does not name the primary which a majority names. Raises Rejected."""
        primary = await self.primary()
        lines = self._sentinels.items()
        answers = await asyncio.gather(*(self._named_by(line) for _, line in lines))
        return [
            f"the sentinel {node} does not name {primary} as the primary: {_said(answer)}"
            for (node, _), answer in zip(lines, answers, strict=True)
            if answer != primary
        ]

    def _undecided(self, answers: Mapping[Node, Node | StorageError | None]) -> str:
        name = self._address.name
        if sum(answer is None for answer in answers.values()) >= self._majority:
            return f"the sentinels know no primary named {name!r}"
        said = [f"{node}: {_said(answers[node])}" for node in self._sentinels]
        return f"no majority of the {len(answers)} sentinels names the primary {name!r} ({'; '.join(said)})"

    async def locate(self, commands: Mapping[str, Commands]) -> Place:
        """Return the server to connect to. Raises Rejected.

        Without a majority it is the known server that is a primary, and of several the one whose log has the latest epoch: a store
        that works is used although no sentinel answers.
        """
        try:
            node = await self.primary()
        except Rejected:
            primaries = [state for state in await self.states(commands) if state.primary]
            if not primaries:
                raise
            newest = max(primaries, key=lambda state: max((head.epoch for head in state.heads.values()), default=0))
            return Place(newest.node, self.options_of(newest.node), confirmed=False)
        return Place(node, self.options_of(node), confirmed=True)

    def options_of(self, node: Node) -> StoreOptions:
        return replace(self._options, url=self._address.of_store(node))

    # The servers

    async def learn(self) -> None:
        """Ask the sentinels which servers there are."""
        asked = (line.call(pack("SENTINEL", "REPLICAS", self._address.name)) for line in self._sentinels.values())
        counts: list[int] = []
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, StorageError):
                continue
            if isinstance(answer, BaseException):
                raise answer
            counts.append(len(answer[0] or ()))
            for replica in answer[0] or ():
                told = dict(zip(replica[::2], replica[1::2], strict=True))
                self._known.add(Node(told[b"ip"].decode(), int(told[b"port"])))
        # A sentinel that was started just now knows fewer than there are, so a minority never lowers the number.
        least = 0 if len(counts) >= self._majority else self._replicas
        self._replicas = max((least, *counts))

    async def states(
        self, commands: Mapping[str, Commands], *, besides: Node | None = None, of_replicas: bool = True
    ) -> list[State]:
        """Return the state of each known server that answers. Without `of_replicas`, replicas are not asked for their logs."""
        asked = (
            self._state(node, commands, of_replicas=of_replicas)
            for node in sorted(self._known, key=str)
            if node != besides
        )
        return [state for state in await asyncio.gather(*asked) if state is not None]

    async def _state(self, node: Node, commands: Mapping[str, Commands], *, of_replicas: bool) -> State | None:
        try:
            [info] = await self._line(node).call(_INFO)
            server = Server.parse(info)
            state = State(node, server.run_id, server.role == "master")
            if not (state.primary or of_replicas):
                return state
            replies = await self._line(node).call(*(command.head for command in commands.values()))
        except StorageError:
            return None
        for name, reply in zip(commands, replies, strict=True):
            try:
                state.heads[name] = functions.head(reply)
            except Lost:
                continue
        return state

    def _line(self, node: Node) -> Line:
        if node not in self._servers:
            self._servers[node] = Line(self.options_of(node))
        return self._servers[node]

    async def open(
        self,
        commands: Mapping[str, Commands],
        *,
        epochs: dict[str, int],
        opening: Callable[[StoreOptions, bool], Awaitable[Session]],
    ) -> tuple[Node, Session]:
        """Open a session with the primary. Give the attempt up when the sentinels name another server meanwhile.

        `opening` opens a session with one server; its second argument says whether a majority named that server. `epochs` is raised
        to what the other servers' logs have. Raises what `opening` raises, Rejected, Disconnected.
        """
        place = await self.locate(commands)
        await self.learn()
        for state in await self.states(commands, besides=place.node):
            for name, head in state.heads.items():
                if keys.alike(head.epoch, epochs.get(name, 0)) or not epochs.get(name, 0):
                    epochs[name] = max(epochs.get(name, 0), head.epoch)
        attempt = asyncio.ensure_future(opening(place.options, place.confirmed))
        moved = asyncio.ensure_future(self._moved(place.node))
        try:
            await asyncio.wait((attempt, moved), return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                session = attempt.result()
                self._count_failover(session.run_id)
                return place.node, session
            raise Disconnected(moved.result())
        finally:
            moved.cancel()
            if not attempt.done():
                attempt.cancel()
                [left] = await asyncio.gather(attempt, return_exceptions=True)
                if isinstance(left, Session):
                    await left.close("not used")

    def _count_failover(self, run_id: str) -> None:
        if self._followed not in ("", run_id):
            metrics.STORE_FAILOVERS.labels(self._left or "disconnected").inc()
        self._followed, self._left = run_id, ""

    async def _moved(self, node: Node) -> str:
        """Wait until a majority names another server. Return the reason to leave this one."""
        while True:
            await asyncio.sleep(FOLLOW_SECONDS)
            try:
                other = await self.primary()
            except Rejected:
                continue
            if other != node:
                return f"the sentinels name {other} as the primary, not {node}"

    async def follow(self, run_id: str, node: Node, heads: Callable[[], Mapping[str, tuple[Commands, Head]]]) -> None:
        """End the session with a server when that is not the primary any more, and depose other primaries meanwhile.

        `heads`: the logs as the session has them now. Raises Disconnected.
        """
        clock, learnt = asyncio.get_running_loop().time, 0.0
        while True:
            try:
                other = await self.primary()
                confirmed = True
            except Rejected:
                other, confirmed = node, False
            if other != node:
                self._left = "sentinels"
                raise Disconnected(f"the sentinels name {other} as the primary, not {node}")
            if confirmed and clock() - learnt >= LEARN_SECONDS:
                learnt = clock()
                await self.learn()
            await self._look_around(run_id, node, heads(), confirmed=confirmed)
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _look_around(
        self, run_id: str, node: Node, mine: Mapping[str, tuple[Commands, Head]], *, confirmed: bool
    ) -> None:
        commands = {name: command for name, (command, _) in mine.items()}
        own = {name: head for name, (_, head) in mine.items()}
        for state in await self.states(commands, besides=node, of_replicas=False):
            if not state.primary or state.run_id == run_id:
                continue  # a server can have several addresses
            if state.later(own):
                self._left = "epoch"
                raise Disconnected(f"{state.node} is a primary with a later epoch than {node}")
            if confirmed and state.earlier(own):
                await self._depose(state.node, mine)

    async def _depose(self, node: Node, mine: Mapping[str, tuple[Commands, Head]]) -> None:
        orders = [command.depose(head.marker, head.epoch) for command, head in mine.values()]
        try:
            replies = await self._line(node).call(*orders)
        except StorageError:
            return  # the next look tries again
        metrics.STORE_DEPOSED.only.inc(sum(reply == [b"OK", b"1"] for reply in replies))


async def warnings(options: StoreOptions) -> list[str]:
    """Return what an administrator should know of the sentinels: those that do not name the primary of the majority."""
    sentinels = of(options)
    if sentinels is None:
        return []
    try:
        return await sentinels.dissent()
    finally:
        await sentinels.close()


def _said(answer: Node | StorageError | None) -> str:
    if isinstance(answer, Node):
        return f"names {answer}"
    return "does not know the name" if answer is None else str(answer)


def of(options: StoreOptions) -> Sentinels | None:
    """Return the sentinels that the store's URL names; None for a URL of one server. Raises ValueError for a URL that cannot be read."""
    try:
        return Sentinels(options) if store_address.parse(options.url).sentinels else None
    except ValueError as error:
        raise ValueError(f"the store's URL {error}") from None


async def located(options: StoreOptions) -> StoreOptions:
    """Return the options of the present primary, for one command of an administrator. Raises Rejected."""
    sentinels = of(options)
    if sentinels is None:
        return options
    try:
        return sentinels.options_of(await sentinels.primary())
    finally:
        await sentinels.close()
