"""Writes under way: gathered into batches, sent once, answered when this replica's own log has brought them.

    queued ──► sent ──► acknowledged ──► seen in the log: the caller gets the entry that the log made
                │  │             └─► too few replicas confirm it (`durability.py`): its outcome is unknown
                │  └─► refused (exists, moved, out of memory, …): the caller gets the reason
                └─► in doubt: the connection broke before the answer. Never sent blindly again:
                    1. nothing of it can execute any more (client killed, or its deadline passed, or its epoch fenced)
                    2. the log is read up to its present end
                    3. its token was in it: done. It was not: it never happened, and is sent again with the same token.

With `--store-durability=replica` or `all` a write is done once its log brought it and replicas confirmed it, both in one session. WAIT
follows each group of batches. It knows only what its own connection wrote, so for writes that were found in the log this module
first writes something itself (`touch`). The next primary may lack an entry that the log brought before a failover, so it is looked up.
A refusal for what the store holds waits until replicas have that, too (`durability.Replicated`).

A caller may leave at any point; the write goes on. This module knows one log per resource, not what is in it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

from apiserver import metrics
from apiserver.storage import durability, functions, lineage
from apiserver.storage.errors import KeyExists, Moved, OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands, Foreign, Lost, Mutation
from apiserver.storage.lineage import Session
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Disconnected, Failed, Rejected
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry, Key, Revision
from apiserver.watchcache.errors import StorageError

FLIGHTS = 2
"""Batches under way per resource: the server executes and syncs one while the next waits in its socket. More flights would only
make batches smaller, and a batch of one write costs twice as much.
"""
BATCH_BYTES = 256 << 10
"""A batch occupies the server for at most about two milliseconds."""
ATTEMPTS = 4
MOST_WAITING = 10_000
SWEEP_SECONDS = 0.25
_NOT_FOLLOWED = "the resource is not served any more"


class Write(NamedTuple):
    """One change. `value` None deletes; `expected` 0 demands that the key is absent."""

    key: Key
    value: bytes | None
    expected: Revision
    uid: str = ""


class Log(Protocol):
    """One resource, as its writes see it (`replica.Replica`)."""

    commands: Commands
    resource: str
    epoch: bytes
    """The epoch that writes must name."""

    @property
    def applied(self) -> Revision: ...

    @property
    def seen_from(self) -> Revision:
        """Every entry above this revision, up to `applied`, was searched for tokens."""

    def entry(self, key: Key, revision: Revision, value: bytes) -> Entry:
        """Turn a stored value into an entry."""

    def current(self, key: Key) -> Entry | None: ...

    def holds(self, revision: Revision) -> bool | None:
        """Return whether the log has this entry; None if it no longer tells."""

    async def caught_up(self, revision: Revision) -> None:
        """Wait until the log is applied up to this revision, however long that takes."""

    def acknowledged(self, revision: Revision, key: Key) -> None: ...

    def lost(self, reason: str) -> None: ...


class Pending:
    """One write under way."""

    __slots__ = (
        "acked",
        "acked_at",
        "alone",
        "attempts",
        "born",
        "change",
        "confirmed",
        "deadline",
        "deleted",
        "doubtful",
        "entry",
        "future",
        "since",
        "write",
        "writes",
    )  # fmt: skip

    def __init__(
        self, writes: ResourceWrites, write: Write, *, change: Mutation, future: asyncio.Future[Entry], born: float
    ) -> None:
        self.writes = writes
        self.write = write
        self.change = change
        self.future = future
        self.born = born
        self.attempts = 0
        self.alone = False
        """Must not go into a batch."""
        self.since = Revision(0)
        """The revision that was applied when the write was first sent: its entry, if any, lies above."""
        self.deadline = 0
        self.acked: Revision | None = None
        self.acked_at = 0.0
        self.entry: Entry | None = None
        """The entry that the log brought. It counts once the write is confirmed."""
        self.confirmed = False
        """Enough replicas have it, if any must."""
        self.doubtful = False
        self.deleted: Entry | None = None
        """For a deletion: the entry that it expects to delete, from memory or from the store."""


class ResourceWrites:
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


class _Asked(NamedTuple):
    """A question to the replicas: the writes it is about, how many replicas must have them, and when it was asked (loop time)."""

    sent: Sequence[Pending]
    need: int
    at: float


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
        self._confirms = durability.of(options) != durability.PRIMARY
        self._sequence = 0
        self._session: Session | None = None
        self._writes: dict[str, ResourceWrites] = {}
        self._waiting: dict[bytes, Pending] = {}
        """Every write without a known outcome, by its token."""
        self._doubtful: list[Pending] = []
        self._doubt = asyncio.Event()
        self._suspects: set[tuple[str, int]] = set()
        """run_id and client id of connections that may still have unexecuted writes in their buffers."""
        self._scheduled = False

    def writes_of(self, log: Log) -> ResourceWrites:
        return self._writes.setdefault(log.resource, ResourceWrites(log))

    def forget(self, resource: str) -> None:
        """Answer the writes of a resource that is not followed any more, with what is known of them. No further ones are accepted."""
        writes = self._writes.pop(resource, None)
        for pending in [pending for pending in self._waiting.values() if pending.writes is writes]:
            if pending.confirmed and pending.acked is not None and (entry := self._own_entry(pending)) is not None:
                self._succeed(pending, entry)
            elif pending.attempts:
                self._give_up([pending], _NOT_FOLLOWED)
            else:
                self._fail(pending, Unavailable(_NOT_FOLLOWED))

    # Sending

    def submit(self, writes: ResourceWrites, write: Write) -> asyncio.Future[Entry]:
        """Start a write. The caller waits on the future for as long as it likes. Raises Unavailable."""
        if self._session is None:
            raise Unavailable("the store is not connected")
        if self._writes.get(writes.log.resource) is not writes:
            raise Unavailable(_NOT_FOLLOWED)
        if len(self._waiting) >= MOST_WAITING:
            raise Unavailable("too many writes are under way")
        self._sequence += 1
        token = b"%b.%d" % (self._boot_id, self._sequence)
        expected = keys.stream_id(write.expected).encode() if write.expected else b"-"
        uid, held = write.uid.encode() or b"-", None
        if write.value is None:
            held = writes.log.current(write.key)
            if held is None or held.revision != write.expected:
                uid, held = b"old", None  # this memory is behind: ask for the deleted value
        change = Mutation(write.key.encode(), expected, token, uid, write.value)
        future: asyncio.Future[Entry] = self._loop.create_future()
        pending = Pending(writes, write, change=change, future=future, born=self._loop.time())
        pending.deleted, pending.confirmed = held, not self._confirms
        self._waiting[token] = pending
        self._enqueue(pending)
        return pending.future

    def _enqueue(self, pending: Pending) -> None:
        pending.writes.queue.append(pending)
        if not self._scheduled:
            # All writes of this turn of the loop go into the same batch.
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        session = self._session
        if session is None or session.waits >= FLIGHTS:
            return
        if session.unconfirmed:
            self._refuse_queued(session.shortage())
        sent: list[Pending] = []
        for writes in self._writes.values():
            while writes.queue and writes.flights < FLIGHTS:
                if batch := self._take(writes):
                    self._send(session, writes, batch)
                    sent += batch
        if sent and self._confirms:
            self._ask_replicas(session, sent)

    def _take(self, writes: ResourceWrites) -> list[Pending]:
        batch: list[Pending] = []
        left, queue = BATCH_BYTES, writes.queue
        while queue and len(batch) < functions.BATCH_CHANGES:
            pending = queue[0]
            if batch and (pending.alone or batch[0].alone or left < len(pending.change.value or b"")):
                break
            queue.popleft()
            if pending.future.cancelled() and not pending.attempts:
                del self._waiting[pending.change.token]  # the caller has left and nothing was sent
                continue
            left -= len(pending.change.value or b"")
            batch.append(pending)
        return batch

    def _send(self, session: Session, writes: ResourceWrites, batch: Sequence[Pending]) -> None:
        deadline = session.clock.now_ms() + int(self._options.deadline_seconds * 1000)
        applied, epoch, commands = writes.log.applied, writes.log.epoch, writes.log.commands
        for pending in batch:
            pending.deadline = deadline
            if not pending.attempts:
                pending.since = applied
            pending.attempts += 1
        writes.flights += 1
        stamp, need = b"%d" % deadline, b"%d" % session.need() if self._confirms else b""
        if len(batch) == 1:
            command = commands.change(epoch, stamp, batch[0].change, need=need)
        else:
            command = commands.batch(epoch, stamp, [pending.change for pending in batch], need=need)
        session.writes.submit(command, partial(self._landed, session, writes, batch))

    # Answers

    def _landed(self, session: Session, writes: ResourceWrites, batch: Sequence[Pending], reply: Any) -> None:
        writes.flights -= 1
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
        if writes.queue:
            self._pump()

    def _not_answered(self, session: Session, batch: Sequence[Pending], error: StorageError) -> None:
        if isinstance(error, Disconnected):
            self._suspects.add((session.run_id, session.writes.client_id))
        for pending in batch:
            if isinstance(error, (Disconnected, Failed)):
                self._in_doubt(pending)
            elif len(batch) > 1 and pending.change.value is None and str(error).startswith("OOM"):
                # A full server refuses a batch, although it would accept its deletions one by one.
                pending.alone = True
                self._enqueue(pending)
            else:
                self._fail(pending, error)
        if self._doubtful:
            self._doubt.set()

    def _answered(self, session: Session, pending: Pending, answer: Sequence[bytes]) -> None:
        word = answer[0]
        writes, write = pending.writes, pending.write
        if word in (b"OK", b"DUP"):
            if len(answer) > 2:
                pending.deleted = writes.log.entry(write.key, write.expected, answer[2])
            self._acknowledged(session, pending, keys.revision(answer[1]))
        elif word == b"EXISTS":
            self._refused(session, pending, KeyExists(writes.log.entry(write.key, keys.revision(answer[1]), answer[2])))
        elif word == b"CONFLICT":
            held = writes.log.entry(write.key, keys.revision(answer[1]), answer[2])
            self._refused(session, pending, Moved(write.key, held))
        elif word == b"NOTFOUND":
            self._refused(session, pending, Moved(write.key, None))
        elif word == b"LATE":
            session.clock.heard(int(answer[1]))
            self._again(pending, "the store's clock moved")
        elif word == b"FEW":
            session.heard(int(answer[1]))
            self._fail(pending, Unavailable(session.shortage() or "too few replicas were in step"))
        elif word == b"EPOCH":
            self._stalled(session, pending)
        elif word == b"FOREIGN":
            foreign = Foreign()
            session.give_up(str(foreign))
            self._fail(pending, foreign)
        elif word == b"LOST":
            writes.log.lost(answer[1].decode())
            self._fail(pending, Lost(f"the store lost its data: {answer[1].decode()}"))
        else:
            self._fail(pending, Rejected(answer[1].decode()))

    def _refused(self, session: Session, pending: Pending, why: KeyExists | Moved) -> None:
        """Refuse a write for what the store holds, once replicas have that."""
        if not self._confirms:
            self._fail(pending, why)
            return

        def told(error: StorageError | None) -> None:
            self._fail(pending, why if error is None else Unavailable(str(error)))

        # Only all of the log shows that a key is absent.
        revision = why.entry.revision if why.entry is not None else None
        session.replicated.ask(pending.writes.log.commands, revision, told)

    def _acknowledged(self, session: Session, pending: Pending, revision: Revision) -> None:
        """Note the commit. The caller gets its entry from the log, which may have brought it already."""
        pending.writes.log.acknowledged(revision, pending.write.key)
        if session is not self._session:
            self._in_doubt(pending)
            self._doubt.set()
            return
        pending.acked = revision
        pending.acked_at = self._loop.time()

    def _in_doubt(self, pending: Pending) -> None:
        pending.acked, pending.confirmed, pending.doubtful = None, not self._confirms, True
        self._doubtful.append(pending)

    def seen(self, token: bytes, entry: Entry) -> None:
        """Resolve a write, or note that its confirmation resolves it: the log brought an entry with its token."""
        pending = self._waiting.get(token)
        if pending is not None:
            pending.entry = entry
            if pending.confirmed:
                self._succeed(pending, entry)

    def _succeed(self, pending: Pending, entry: Entry) -> None:
        del self._waiting[pending.change.token]
        writes = pending.writes
        writes.outcomes[_operation(pending.write), "committed"].inc()
        writes.seconds.observe(self._loop.time() - pending.born)
        if not pending.future.done():
            pending.future.set_result(entry)

    def _fail(self, pending: Pending, error: StorageError) -> None:
        if self._waiting.pop(pending.change.token, None) is None:
            return
        pending.writes.outcomes[_operation(pending.write), _outcome(error)].inc()
        if not pending.future.done():
            pending.future.set_exception(error)

    def _again(self, pending: Pending, reason: str) -> None:
        """Send the write again with the same token: it was certainly not executed."""
        if pending.change.token not in self._waiting:
            return
        pending.doubtful = False
        if self._session is None or pending.attempts >= ATTEMPTS:
            self._fail(pending, Unavailable(reason))
        else:
            self._enqueue(pending)

    # Replicas

    def _ask_replicas(self, session: Session, sent: Sequence[Pending]) -> None:
        """Ask how many replicas have all that this session's connection wrote. `sent`: what it wrote since the last question."""
        session.waits += 1
        asked = _Asked(sent, session.need(), self._loop.time())
        session.writes.submit(durability.wait(asked.need), partial(self._replicas_answered, session, asked))

    def _replicas_answered(self, session: Session, asked: _Asked, reply: Any) -> None:
        session.waits -= 1
        if session is not self._session:
            return  # its writes are in doubt already
        if isinstance(reply, StorageError):
            session.give_up(f"the replicas could not be asked: {reply}")
            return
        metrics.STORE_CONFIRM_SECONDS.only.observe(self._loop.time() - asked.at)
        session.unconfirmed = reply < asked.need
        for pending in asked.sent:
            if pending.acked is not None and not session.unconfirmed:
                session.replicated.has(pending.writes.log.commands.log, pending.acked)
            if pending.acked is None or pending.change.token not in self._waiting:
                continue
            if session.unconfirmed:
                metrics.STORE_UNCONFIRMED_WRITES.only.inc()
                self._fail(pending, OutcomeUnknown(session.shortage()))
            else:
                pending.confirmed = True
                if pending.entry is not None:
                    self._succeed(pending, pending.entry)
        if session.unconfirmed:
            self._refuse_queued(session.shortage())
            if not session.waits:
                self._ask_replicas(session, ())
        else:
            self._pump()

    async def _confirm(self, session: Session, writes: ResourceWrites, found: Sequence[Pending]) -> None:
        """Succeed with writes that the log has, once enough replicas have them. Else they stay in doubt. Raises Foreign, Disconnected."""
        need = session.need()
        try:
            functions.touched(await session.writes.call(writes.log.commands.touch))
            confirmed = await session.writes.call(durability.wait(need)) >= need
        except Lost as error:
            writes.log.lost(str(error))
            self._give_up(found, str(error))
            return
        except (Rejected, Failed) as error:
            if isinstance(error, Foreign):
                raise
            self._give_up(found, str(error))
            return
        for pending in found:
            if pending.change.token not in self._waiting:
                continue
            if confirmed and pending.entry is not None:
                self._succeed(pending, pending.entry)
            else:
                self._in_doubt(pending)
                self._doubt.set()

    # The epoch

    def _stalled(self, session: Session, pending: Pending) -> None:
        """Handle a raised epoch. While the log is the server process's own, Sluice may write in the new epoch too."""
        writes = pending.writes
        writes.stalled.append(pending)
        if len(writes.stalled) == 1:
            session.reads.submit(writes.log.commands.head, partial(self._resync, session, writes))

    def _resync(self, session: Session, writes: ResourceWrites, reply: Any) -> None:
        stalled, writes.stalled = writes.stalled, []
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
        writes.log.epoch = b"%d" % head.epoch
        for pending in stalled:
            self._again(pending, "the epoch changes too often")

    # Sessions

    def attach(self, session: Session) -> None:
        self._session = session
        if self._doubtful:
            self._doubt.set()

    def detach(self, reason: str) -> None:
        """Drop the connection. Unsent writes were not executed; the connection itself reports Disconnected for sent ones.

        Acknowledged writes that the log has not brought are in doubt, because the next primary may not have them.
        """
        self._session = None
        for pending in self._waiting.values():
            if pending.acked is not None:
                self._in_doubt(pending)
        self._refuse_queued(reason)

    def _refuse_queued(self, reason: str) -> None:
        """Fail what waits to be sent: it was not executed."""
        for writes in self._writes.values():
            queue, writes.queue = writes.queue, deque()
            for pending in queue:
                self._fail(pending, Unavailable(reason))

    async def run(self, session: Session) -> None:
        """Find out the outcomes of writes in doubt. Raises what a session raises."""
        while True:
            await self._doubt.wait()
            self._doubt.clear()
            doubtful = [pending for pending in self._doubtful if pending.change.token in self._waiting]
            self._doubtful = []
            try:
                if doubtful:
                    await self._resolve(session, doubtful)
            except BaseException:
                self._doubtful += doubtful  # the next session goes on, or this task when it restarts
                self._doubt.set()
                raise

    async def _resolve(self, session: Session, doubtful: Sequence[Pending]) -> None:
        await lineage.rule_out(session, self._suspects, max(pending.deadline for pending in doubtful))
        for writes in {pending.writes for pending in doubtful}:
            mine = [pending for pending in doubtful if pending.writes is writes]
            try:
                head = functions.own_head(await session.reads.call(writes.log.commands.head))
            except Lost as error:
                writes.log.lost(str(error))
                self._give_up(mine, str(error))
                continue
            try:
                async with asyncio.timeout(self._options.outcome_seconds):
                    await writes.log.caught_up(head.last)
            except TimeoutError:
                continue  # `sweep` has answered them meanwhile
            found = []
            for pending in mine:
                if pending.change.token not in self._waiting:
                    continue
                held = pending.entry is not None and writes.log.holds(pending.entry.revision)
                if held:
                    found.append(pending)
                elif held is None or pending.since < writes.log.seen_from:
                    self._give_up([pending], "the log does not reach back to this write")
                else:
                    pending.entry = None
                    self._again(pending, "the write did not reach the store")
            if found:
                await self._confirm(session, writes, found)

    # Time

    async def keep_sweeping(self) -> None:
        """Sweep regularly, also without a session: it is needed most then."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep(self._loop.time())

    def sweep(self, now: float) -> None:
        """Answer writes that have waited long enough."""
        late = [
            p
            for p in self._waiting.values()
            if p.acked is not None and p.confirmed and now - p.acked_at > self._options.lag_seconds
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
        """Return the entry that the log will bring for an acknowledged write."""
        revision, write = pending.acked, pending.write
        assert revision is not None
        if write.value is not None:
            return pending.writes.log.entry(write.key, revision, write.value)
        return pending.deleted.at(revision) if pending.deleted is not None else None

    def _give_up(self, doubtful: Iterable[Pending], reason: str) -> None:
        for pending in doubtful:
            self._fail(pending, OutcomeUnknown(reason))

    def close(self) -> None:
        """Fail all writes with an unknown outcome."""
        self.detach("the server is stopping")
        self._give_up(list(self._waiting.values()), "the server is stopping")
