"""Writes on their way: gathered into batches, sent once, answered when this replica's own log has brought them.

    queued ──► sent ──► acknowledged ──► seen in the log: the caller gets the entry that the log made
                 │  └─► refused (exists, moved, out of memory, …): the caller gets the reason
                 └─► in doubt: the connection broke before the answer. Never sent blindly again:
                       1. nothing of it can execute any more (client killed, or its deadline passed, or its epoch fenced)
                       2. the log is read up to its present end
                       3. its token was in it: done. It was not: it never happened, and is sent again with the same token.

Who asked may go away at any point; the write goes on. Knows one log per lane, not what is in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from apiserver import metrics
from apiserver.storage import functions, lineage
from apiserver.storage.errors import KeyExists, Moved, OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands, Foreign, Lost, Mutation
from apiserver.storage.lineage import Session
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Disconnected, Failed, Rejected
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry, Key, Revision
from apiserver.watchcache.errors import StorageError

FLIGHTS = 2
"""Batches under way per resource: one is executed and synced while the next waits in the server's socket. More would only make
batches smaller, and a batch of one costs twice."""
BATCH_BYTES = 256 << 10
"""A batch occupies the server for at most about two milliseconds."""
ATTEMPTS = 4
MOST_WAITING = 10_000
SWEEP_SECONDS = 0.25


class Write(NamedTuple):
    """One change. `value` None deletes; `expected` 0 demands that the key is absent."""

    key: Key
    value: bytes | None
    expected: Revision
    uid: str = ""


class Log(Protocol):
    """What a write needs to know of its resource (`store.Store`)."""

    commands: Commands
    resource: str
    epoch: bytes
    """That writes must name."""

    @property
    def applied(self) -> Revision: ...

    @property
    def seen_from(self) -> Revision:
        """Every entry above it, up to `applied`, was looked at for tokens."""

    def entry(self, key: Key, revision: Revision, value: bytes) -> Entry:
        """A stored value as an entry."""

    def current(self, key: Key) -> Entry | None: ...

    async def caught_up(self, revision: Revision) -> None:
        """Returns when the log was applied up to there, however long that takes."""

    def acknowledged(self, revision: Revision, key: Key) -> None: ...

    def lost(self, reason: str) -> None: ...


class Pending:
    """One write on its way."""

    __slots__ = (
        "acked", "acked_at", "alone", "attempts", "born", "change", "deadline", "deleted", "doubtful", "future", "lane", "since", "write",
    )  # fmt: skip

    def __init__(
        self, lane: Lane, write: Write, *, change: Mutation, future: asyncio.Future[Entry], born: float
    ) -> None:
        self.lane = lane
        self.write = write
        self.change = change
        self.future = future
        self.born = born
        self.attempts = 0
        self.alone = False
        """Must not go into a batch."""
        self.since = Revision(0)
        """What was applied when it was first sent: its entry, if there is one, lies above."""
        self.deadline = 0
        self.acked: Revision | None = None
        self.acked_at = 0.0
        self.doubtful = False
        self.deleted: Entry | None = None
        """Of a deletion: what it expects to delete, from memory or as the store tells it."""


class Lane:
    """The writes of one resource."""

    __slots__ = ("flights", "log", "outcomes", "queue", "seconds", "stalled")

    def __init__(self, log: Log) -> None:
        self.log = log
        self.queue: deque[Pending] = deque()
        self.stalled: list[Pending] = []
        """Refused for their epoch, waiting for the present one."""
        self.flights = 0
        name = metrics.resource_label(log.resource)
        self.seconds = metrics.COMMIT_SECONDS.labels(name)
        self.outcomes = {
            (operation, outcome): metrics.COMMITS.labels(name, operation, outcome)
            for operation in ("create", "update", "delete")
            for outcome in ("committed", "exists", "moved", "refused", "unavailable", "unknown")
        }


def _operation(write: Write) -> str:
    if write.value is None:
        return "delete"
    return "update" if write.expected else "create"


def _outcome(error: StorageError) -> str:
    if isinstance(error, KeyExists):
        return "exists"
    if isinstance(error, Moved):
        return "moved"
    if isinstance(error, OutcomeUnknown):
        return "unknown"
    return "refused" if isinstance(error, Rejected) else "unavailable"


class Writer:
    """The writes of all resources, over the one `writes` connection of the present session."""

    def __init__(self, options: StoreOptions, *, boot_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self._options = options
        self._loop = loop
        self._boot_id = boot_id.encode()
        self._sequence = 0
        self._session: Session | None = None
        self._lanes: dict[str, Lane] = {}
        self._waiting: dict[bytes, Pending] = {}
        """Every write whose fate is not known yet, by its token."""
        self._doubtful: list[Pending] = []
        self._doubt = asyncio.Event()
        self._suspects: set[tuple[str, int]] = set()
        """run_id and client id of connections that may still have unexecuted writes in their buffers."""
        self._scheduled = False

    def lane(self, log: Log) -> Lane:
        return self._lanes.setdefault(log.resource, Lane(log))

    # Sending

    def submit(self, lane: Lane, write: Write) -> asyncio.Future[Entry]:
        """The caller waits on the future for as long as it likes."""
        if self._session is None:
            raise Unavailable("the store is not connected")
        if len(self._waiting) >= MOST_WAITING:
            raise Unavailable("too many writes are under way")
        self._sequence += 1
        token = b"%b.%d" % (self._boot_id, self._sequence)
        expected = keys.stream_id(write.expected).encode() if write.expected else b"-"
        uid, held = write.uid.encode() or b"-", None
        if write.value is None:
            held = lane.log.current(write.key)
            if held is None or held.revision != write.expected:
                uid, held = b"old", None  # this memory is behind: what is deleted is asked for
        change = Mutation(write.key.encode(), expected, token, uid, write.value)
        future: asyncio.Future[Entry] = self._loop.create_future()
        pending = Pending(lane, write, change=change, future=future, born=self._loop.time())
        pending.deleted = held
        self._waiting[token] = pending
        self._enqueue(pending)
        return pending.future

    def _enqueue(self, pending: Pending) -> None:
        pending.lane.queue.append(pending)
        if not self._scheduled:
            # Whoever else writes in this turn of the loop comes into the same batch.
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        session = self._session
        if session is None:
            return
        for lane in self._lanes.values():
            while lane.queue and lane.flights < FLIGHTS:
                if batch := self._take(lane):
                    self._send(session, lane, batch)

    def _take(self, lane: Lane) -> list[Pending]:
        batch: list[Pending] = []
        room, queue = BATCH_BYTES, lane.queue
        while queue and len(batch) < functions.BATCH_CHANGES:
            pending = queue[0]
            if batch and (pending.alone or batch[0].alone or room < len(pending.change.value or b"")):
                break
            queue.popleft()
            if pending.future.cancelled() and not pending.attempts:
                del self._waiting[pending.change.token]  # nobody waits any more and nothing was sent
                continue
            room -= len(pending.change.value or b"")
            batch.append(pending)
        return batch

    def _send(self, session: Session, lane: Lane, batch: Sequence[Pending]) -> None:
        deadline = session.clock.now_ms() + int(self._options.deadline_seconds * 1000)
        applied, epoch, commands = lane.log.applied, lane.log.epoch, lane.log.commands
        for pending in batch:
            pending.deadline = deadline
            if not pending.attempts:
                pending.since = applied
            pending.attempts += 1
        lane.flights += 1
        stamp = b"%d" % deadline
        if len(batch) == 1:
            command = commands.change(epoch, stamp, batch[0].change)
        else:
            command = commands.batch(epoch, stamp, [pending.change for pending in batch])
        session.writes.submit(command, partial(self._landed, session, lane, batch))

    # Answers

    def _landed(self, session: Session, lane: Lane, batch: Sequence[Pending], reply: Any) -> None:
        lane.flights -= 1
        if isinstance(reply, StorageError):
            self._not_answered(session, batch, reply)
        elif len(batch) == 1:
            self._answered(session, batch[0], reply)
        elif reply[0] == b"OK":
            for pending, answer in zip(batch, reply[1:], strict=True):
                self._answered(session, pending, answer)
        else:  # refused as a whole
            for pending in batch:
                self._answered(session, pending, reply)
        if lane.queue:
            self._pump()

    def _not_answered(self, session: Session, batch: Sequence[Pending], error: StorageError) -> None:
        if isinstance(error, Disconnected):
            self._suspects.add((session.run_id, session.writes.client_id))
        for pending in batch:
            if isinstance(error, (Disconnected, Failed)):
                pending.doubtful = True
                self._doubtful.append(pending)
            elif len(batch) > 1 and pending.change.value is None and str(error).startswith("OOM"):
                # A full server refuses a batch, although it would take its deletions by themselves.
                pending.alone = True
                self._enqueue(pending)
            else:
                self._fail(pending, error)
        if self._doubtful:
            self._doubt.set()

    def _answered(self, session: Session, pending: Pending, answer: Sequence[bytes]) -> None:
        word = answer[0]
        lane, write = pending.lane, pending.write
        if word in (b"OK", b"DUP"):
            if len(answer) > 2:
                pending.deleted = lane.log.entry(write.key, write.expected, answer[2])
            self._acknowledged(pending, keys.revision(answer[1]))
        elif word == b"EXISTS":
            self._fail(pending, KeyExists(lane.log.entry(write.key, keys.revision(answer[1]), answer[2])))
        elif word == b"CONFLICT":
            self._fail(pending, Moved(write.key, lane.log.entry(write.key, keys.revision(answer[1]), answer[2])))
        elif word == b"NOTFOUND":
            self._fail(pending, Moved(write.key, None))
        elif word == b"LATE":
            session.clock.heard(int(answer[1]))
            self._again(pending, "the store's clock moved")
        elif word == b"EPOCH":
            self._stalled(session, pending)
        elif word == b"FOREIGN":
            foreign = Foreign()
            session.give_up(str(foreign))
            self._fail(pending, foreign)
        elif word == b"LOST":
            lane.log.lost(answer[1].decode())
            self._fail(pending, Lost(f"the store lost its data: {answer[1].decode()}"))
        else:
            self._fail(pending, Rejected(answer[1].decode()))

    def _acknowledged(self, pending: Pending, revision: Revision) -> None:
        """Committed. The caller gets its entry from the log, which may have brought it already."""
        pending.lane.log.acknowledged(revision, pending.write.key)
        pending.acked = revision
        pending.acked_at = self._loop.time()

    def seen(self, token: bytes, entry: Entry) -> None:
        """The log brought an entry with this token."""
        pending = self._waiting.pop(token, None)
        if pending is not None:
            self._succeed(pending, entry)

    def _succeed(self, pending: Pending, entry: Entry) -> None:
        lane = pending.lane
        lane.outcomes[_operation(pending.write), "committed"].inc()
        lane.seconds.observe(self._loop.time() - pending.born)
        if not pending.future.done():
            pending.future.set_result(entry)

    def _fail(self, pending: Pending, error: StorageError) -> None:
        if self._waiting.pop(pending.change.token, None) is None:
            return
        pending.lane.outcomes[_operation(pending.write), _outcome(error)].inc()
        if not pending.future.done():
            pending.future.set_exception(error)

    def _again(self, pending: Pending, reason: str) -> None:
        """It was certainly not executed: the same token goes out again."""
        if pending.change.token not in self._waiting:
            return
        pending.doubtful = False
        if self._session is None or pending.attempts >= ATTEMPTS:
            self._fail(pending, Unavailable(reason))
        else:
            self._enqueue(pending)

    # The epoch

    def _stalled(self, session: Session, pending: Pending) -> None:
        """Somebody raised the epoch. While the log is the server process's own, the new one is ours too."""
        lane = pending.lane
        lane.stalled.append(pending)
        if len(lane.stalled) == 1:
            session.reads.submit(lane.log.commands.head, partial(self._resync, session, lane))

    def _resync(self, session: Session, lane: Lane, reply: Any) -> None:
        stalled, lane.stalled = lane.stalled, []
        try:
            if isinstance(reply, StorageError):
                raise reply
            head = functions.own_head(reply)
        except StorageError as error:
            for pending in stalled:
                self._fail(pending, Unavailable(str(error)))
            if not isinstance(error, Lost):
                session.give_up(str(error))
            return
        session.clock.heard(head.now_ms)
        lane.log.epoch = b"%d" % head.epoch
        for pending in stalled:
            self._again(pending, "the epoch changes too often")

    # Sessions

    def attach(self, session: Session) -> None:
        self._session = session
        if self._doubtful:
            self._doubt.set()

    def detach(self, reason: str) -> None:
        """No connection any more. What was not sent was not executed; what was sent is about to be Disconnected by its connection."""
        self._session = None
        for lane in self._lanes.values():
            queue, lane.queue = lane.queue, deque()
            for pending in queue:
                self._fail(pending, Unavailable(reason))

    async def run(self, session: Session) -> None:
        """Finds out what became of writes in doubt. Raises what a session raises."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            doubtful = [pending for pending in self._doubtful if pending.change.token in self._waiting]
            self._doubtful = []
            try:
                if doubtful:
                    await self._settle(session, doubtful)
            except BaseException:
                self._doubtful += doubtful  # the next session goes on, or this task when it is begun again
                self._doubt.set()
                raise

    async def _settle(self, session: Session, doubtful: Sequence[Pending]) -> None:
        await lineage.rule_out(session, self._suspects, max(pending.deadline for pending in doubtful))
        for lane in {pending.lane for pending in doubtful}:
            mine = [pending for pending in doubtful if pending.lane is lane]
            try:
                head = functions.own_head(await session.reads.call(lane.log.commands.head))
            except Lost as error:
                lane.log.lost(str(error))
                self._give_up(mine, str(error))
                continue
            try:
                async with asyncio.timeout(self._options.outcome_seconds):
                    await lane.log.caught_up(head.last)
            except TimeoutError:
                continue  # `sweep` has answered them meanwhile
            for pending in mine:
                if pending.since < lane.log.seen_from:
                    self._give_up([pending], "the log does not reach back to this write")
                else:
                    self._again(pending, "the write did not reach the store")

    # Time

    async def keep_sweeping(self) -> None:
        """Also while there is no session: that is when it is needed most."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep(self._loop.time())

    def sweep(self, now: float) -> None:
        """Answers what has waited long enough."""
        late = [
            p for p in self._waiting.values() if p.acked is not None and now - p.acked_at > self._options.lag_seconds
        ]
        for pending in late:
            if (entry := self._own_entry(pending)) is not None:
                self.seen(pending.change.token, entry)
        limit = self._options.outcome_seconds
        self._give_up(
            [p for p in self._waiting.values() if p.doubtful and now - p.born > limit],
            "the store could not be asked in time",
        )

    def _own_entry(self, pending: Pending) -> Entry | None:
        """What the log is going to say about an acknowledged write."""
        revision, write = pending.acked, pending.write
        assert revision is not None
        if write.value is not None:
            return pending.lane.log.entry(write.key, revision, write.value)
        return pending.deleted.at(revision) if pending.deleted is not None else None

    def _give_up(self, doubtful: Iterable[Pending], reason: str) -> None:
        for pending in doubtful:
            self._fail(pending, OutcomeUnknown(reason))

    def close(self) -> None:
        """Nobody will find out any more."""
        self.detach("the server is stopping")
        self._give_up(list(self._waiting.values()), "the server is stopping")
