"""Periodic work on the store: check it, raise its floor, compare it with memory.

Each replica does all of this for itself. The server's functions only ever raise the floor, and seldom, whichever replica asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping

from apiserver import metrics
from apiserver.storage import durability, functions, preflight
from apiserver.storage.errors import Initializing
from apiserver.storage.functions import Foreign, Lost
from apiserver.storage.lineage import Link, Session
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import STALLED_SECONDS, Disconnected, Rejected
from apiserver.storage.preflight import MEMORY_HEADROOM
from apiserver.storage.replica import Replica
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.errors import Compacted, Future

logger = logging.getLogger(__name__)

GUARD_SECONDS = 0.25
CARE_SECONDS = 1.0
EMERGENCY_SECONDS = 30.0
"""When the server's memory is almost full, this much history stays."""
DIGEST_ROWS = 1000
COMPARE_STRIDE = 2000
COMPARE_SECONDS = 60.0


class Upkeep:
    """Outlives sessions, so that a store that is often unreachable is compacted and checked all the same."""

    def __init__(
        self,
        options: StoreOptions,
        link: Link,
        replicas: Mapping[str, Replica],
        *,
        rng: random.Random,
        clock: Callable[[], float],
    ) -> None:
        self._options = options
        self._link = link
        self._replicas = replicas
        self._rng = rng
        self._clock = clock
        now = clock()
        self._monitor_due = now + options.monitor_seconds
        self._compaction_due = {name: self._later(options.compaction_seconds) for name in replicas}
        self._check_due = {name: self._later(options.check_seconds) for name in replicas}
        self._tick = min(
            CARE_SECONDS, options.monitor_seconds, options.compaction_seconds / 4, options.check_seconds / 4
        )

    def add(self, name: str) -> None:
        """Take care of one more replica, which is among the replicas already."""
        self._compaction_due[name] = self._later(self._options.compaction_seconds)
        self._check_due[name] = self._later(self._options.check_seconds)

    def _later(self, seconds: float) -> float:
        return self._clock() + seconds * self._rng.uniform(0.9, 1.1)

    # Checking the connection

    async def guard(self, session: Session) -> None:
        """Give the session up when it does not answer, and keep up to date how many replicas are in step if writes need some."""
        now = awake = self._clock()
        while True:
            before = now
            await asyncio.sleep(GUARD_SECONDS)
            now = self._clock()
            if now - before > STALLED_SECONDS:
                awake = now  # suspended meanwhile, perhaps with the store: what was asked before counts as asked now
            for connection in session.connections:
                since = connection.owes_since()
                longest = (
                    self._options.reply_seconds
                    + (session.waits + session.replicated.asking) * durability.CONFIRM_SECONDS
                )
                if since is not None and now - max(since, awake) > longest:
                    raise Disconnected(f"the store has not answered for {self._options.reply_seconds:g} s")
            if session.need():
                session.reads.submit(durability.REPLICATION, session.heard_info)

    async def look(self, session: Session) -> None:
        """Ask for the present end of all logs. Raises what ends a session."""
        asked = [(replica, replica.applied, replica.hub.ahead()) for replica in self._replicas.values()]
        replies = await asyncio.gather(*(session.reads.call(replica.commands.head) for replica, *_ in asked))
        for (replica, known, ahead), reply in zip(asked, replies, strict=True):
            try:
                head = functions.own_head(reply)
            except Lost as lost:
                replica.lost(str(lost))
                continue
            if head.epoch < replica.highest_epoch and keys.alike(head.epoch, replica.highest_epoch):
                raise Foreign  # an older log, or one that was installed anew: it must be raised above what clients have seen
            session.clock.heard(head.now_ms)
            replica.meet(head, known=known, ahead=ahead)

    async def care(self, session: Session) -> None:
        """Do everything that is due, one after the other, for ever."""
        while True:
            await asyncio.sleep(self._tick)
            now = self._clock()
            if any(replica.fault is not None for replica in self._replicas.values()):
                await self.look(session)
            if now >= self._monitor_due:
                self._monitor_due = now + self._options.monitor_seconds
                await self.monitor(session)
            for name, replica in list(self._replicas.items()):
                if replica.fault is None and replica.filled:
                    await self._care_for(session, name, replica)

    async def _care_for(self, session: Session, name: str, replica: Replica) -> None:
        replica.mark()
        await _stepwise(replica.index.backfill)
        await _stepwise(replica.index.trim)
        now = self._clock()
        if (wanted := replica.index.overflow()) is not None:
            await self._raise_floor(session, replica, wanted, least_ms=0, keep=0)
        if now >= self._compaction_due[name]:
            self._compaction_due[name] = self._later(self._options.compaction_seconds)
            await self.compact(session, replica)
        if now >= self._check_due[name]:
            self._check_due[name] = self._later(self._options.check_seconds)
            await self.check(session, replica)

    # The server

    async def monitor(self, session: Session) -> None:
        """Check the server's present role, eviction policy, append-only file, library and memory."""
        await self.look(session)
        commands = {name: replica.commands for name, replica in self._replicas.items()}
        found = await preflight.survey(session.reads, self._options, commands)
        server = found.server
        if server.loading:
            raise Disconnected(preflight.LOADING)
        if server.run_id != session.run_id or server.role != "master":
            raise Disconnected(f"the store is a {server.role} with run_id {server.run_id} now")
        session.surveyed(server)
        refusal = "; ".join(found.refusals + await durability.refusals(session.writes, self._options))
        if refusal != self._link.refusal:
            logger.warning("the reasons for refusing writes changed", extra={"refused_because": refusal})
            self._link.refusal = refusal
        if server.headroom < MEMORY_HEADROOM:
            logger.warning("the store's memory is almost full", extra={"headroom": round(server.headroom, 3)})
            for replica in list(self._replicas.values()):
                wanted = replica.applied_before(EMERGENCY_SECONDS)
                if wanted is not None and replica.fault is None and replica.filled:
                    await self._raise_floor(session, replica, wanted, least_ms=0, keep=0)

    # The floor

    async def compact(self, session: Session, replica: Replica) -> None:
        """Let the log forget what is older than the retention time of serving."""
        wanted = replica.applied_before(self._options.retention_seconds)
        if wanted is not None:
            least_ms = int(self._options.compaction_least_seconds * 1000)
            await self._raise_floor(session, replica, wanted, least_ms=least_ms, keep=self._options.keep_entries)

    async def _raise_floor(
        self, session: Session, replica: Replica, wanted: Revision, *, least_ms: int, keep: int
    ) -> None:
        more = True
        while more:
            reply = await session.bulk.call(replica.commands.floor(wanted, least_ms=least_ms, keep=keep))
            try:
                answer = functions.floor(reply)
            except Lost as lost:
                replica.lost(str(lost))
                return
            more = answer.more
            replica.raise_floor(answer.floor)
            if answer.raised:
                logger.info("floor raised", extra={"resource": replica.resource, "floor": keys.stream_id(answer.floor)})
        await _stepwise(replica.index.trim)

    # Memory against store

    async def check(self, session: Session, replica: Replica) -> None:
        """Compare memory with the store; on a difference, rebuild memory."""
        outcome = "success"
        try:
            async with asyncio.timeout(COMPARE_SECONDS):
                different = await _differences(session, replica)
        except Lost as lost:
            replica.lost(str(lost))
            outcome = "error"
        except (Initializing, Rejected, TimeoutError):
            outcome = "error"
        else:
            if different:
                outcome = "failure"
                replica.rebuild("digest", f"memory and store differ in {', '.join(different[:10])}")
        metrics.CONSISTENCY_CHECKS.labels(metrics.resource_label(replica.resource), outcome).inc()


async def _stepwise(step: Callable[[], bool]) -> None:
    """Call `step` until it returns False. Other tasks run between the steps."""
    while step():  # noqa: ASYNC110  (nothing is waited for: this gives way)
        await asyncio.sleep(0)


async def _differences(session: Session, replica: Replica) -> list[str]:
    """Return the keys whose revisions differ between store and memory, each judged at one revision. Moves no values."""
    replica.require()
    before = replica.index.view()
    met: set[str] = set()
    found: list[str] = []
    cursor = b"0"
    while True:
        chunk = functions.scan(await session.bulk.call(replica.commands.digest(cursor, count=DIGEST_ROWS)))
        await replica.caught_up(chunk.last)
        for key, id_ in zip(chunk.rows[::2], chunk.rows[1::2], strict=True):
            name = Key(key.decode())
            met.add(name)
            if not _agrees(replica, name, keys.revision(id_), chunk.last):
                found.append(name)
        cursor = chunk.cursor
        if cursor == b"0":
            break
    for at, entry in enumerate(before.scan()):
        # A scan meets every object that existed from its beginning to its end.
        if entry.key not in met and replica.current(entry.key) is entry:
            found.append(entry.key)
        if at % COMPARE_STRIDE == COMPARE_STRIDE - 1:
            await asyncio.sleep(0)
    return found


def _agrees(replica: Replica, key: Key, revision: Revision, at: Revision) -> bool:
    held = replica.current(key)
    if held is not None and held.revision == revision:
        return True
    try:
        then = replica.index.view_at(at).get(key)
    except (Compacted, Future):
        return True  # rebuilt or compacted meanwhile: no verdict is possible
    return then is not None and then.revision == revision
