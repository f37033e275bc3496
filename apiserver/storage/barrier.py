"""The shared barrier of one resource: it makes a read see every write that was acknowledged before the read began.

With `--store-durability=replica` or `all` the answer also says how many replicas are in step. With too few, reads fail. Otherwise they
wait until replicas have what memory shows (`durability.Replicated`).

The question to the store must leave after the read's call. So reads join the round that leaves next, never a round that has left.
While one round is under way, the next one collects reads, and a single question serves all of them.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from apiserver import metrics
from apiserver.storage import functions
from apiserver.storage.errors import Unavailable
from apiserver.storage.functions import Foreign, Lost
from apiserver.storage.lineage import Link, Session
from apiserver.storage.pipeline import STALLED_SECONDS
from apiserver.storage.replica import Replica
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision
from apiserver.watchcache.errors import StorageError


class _Round:
    """Reads that share one question. The round is over when `waiters` is empty again."""

    __slots__ = ("born", "number", "timer", "waiters")

    def __init__(self, born: float) -> None:
        self.born = born
        self.timer: asyncio.TimerHandle | None = None
        self.number: int | None = None
        """The registration in the replica's progress, while the answer is known but not yet applied."""
        self.waiters: list[asyncio.Future[Revision]] = []


class Barrier:
    def __init__(self, replica: Replica, link: Link, *, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._replica = replica
        self._link = link
        self._seconds = seconds
        self._loop = loop
        self._next: _Round | None = None
        self._asking = False
        """True while a question is under way, or leaves in this turn of the loop."""
        name = metrics.resource_label(replica.resource)
        self._latency = metrics.BARRIER_SECONDS.labels(name)
        self._passed, self._failed = (metrics.BARRIERS.labels(name, outcome) for outcome in ("passed", "failed"))

    def join(self) -> asyncio.Future[Revision]:
        """Return a future for one read: the applied revision once the barrier has passed, or Unavailable after `seconds`."""
        round_ = self._next
        if round_ is None:
            round_ = self._next = _Round(self._loop.time())
            self._arm(round_, halves=2)
            if not self._asking:
                self._asking = True
                self._loop.call_soon(self._ask)  # every read of this turn of the loop shares the question
        waiter: asyncio.Future[Revision] = self._loop.create_future()
        round_.waiters.append(waiter)
        return waiter

    def _arm(self, round_: _Round, *, halves: int) -> None:
        """Let the round fail after so many halves of its time."""
        due = self._loop.time() + self._seconds / 2
        round_.timer = self._loop.call_at(due, self._late, round_, due, halves)

    def _late(self, round_: _Round, due: float, halves: int) -> None:
        if self._loop.time() - due > STALLED_SECONDS:
            self._arm(round_, halves=2)  # this process was suspended, and perhaps the store as well
        elif halves > 1:
            self._arm(round_, halves=halves - 1)
        else:
            self._fail(round_, Unavailable(f"the store did not answer within {self._seconds:g} s"))

    def _ask(self) -> None:
        round_, self._next = self._next, None
        session = self._link.session
        if round_ is None:
            self._asking = False
        elif session is None:
            self._asking = False
            self._fail(round_, self._link.missing())
        else:
            commands = self._replica.commands
            question = commands.head_in_step if session.need() else commands.head
            session.reads.submit(question, partial(self._answered, session, round_))

    def _answered(self, session: Session, round_: _Round, reply: Any) -> None:
        self._asking = self._next is not None
        if self._asking:
            self._loop.call_soon(self._ask)
        try:
            if isinstance(reply, StorageError):
                raise reply
            head = functions.found(reply)
            if head[4] != b"1":
                raise Foreign
            if need := session.need():
                session.heard(functions.in_step(head))
                # A primary that was cut off with its clients may have been replaced, and memory may hold what no replica has.
                if session.in_step < need or session.unconfirmed:
                    raise Unavailable(session.shortage())
        except StorageError as error:
            self._refuse(session, round_, error)
            return
        last = keys.revision(head[2])
        if need:
            session.replicated.ask(self._replica.commands, last, partial(self._replicated, session, round_, last))
        else:
            self._reach(round_, last)

    def _replicated(self, session: Session, round_: _Round, last: Revision, error: StorageError | None) -> None:
        if error is None:
            self._reach(round_, last)
        else:
            self._refuse(session, round_, error)

    def _refuse(self, session: Session, round_: _Round, error: StorageError) -> None:
        if isinstance(error, Lost):
            self._replica.lost(str(error))
        elif isinstance(error, Foreign):
            session.give_up(str(error))
        self._fail(round_, Unavailable(str(error)))

    def _reach(self, round_: _Round, last: Revision) -> None:
        """Pass once memory has this version."""
        if self._replica.filled and self._replica.applied >= last:
            self._pass(round_)
        elif round_.waiters:
            round_.number = self._replica.progress.wait(last, partial(self._pass, round_))

    def _pass(self, round_: _Round) -> None:
        if round_.waiters:
            self._passed.inc()
            self._latency.observe(self._loop.time() - round_.born)
        applied = self._replica.applied
        for waiter in self._over(round_):
            waiter.set_result(applied)

    def _fail(self, round_: _Round, error: StorageError) -> None:
        if round_.waiters:
            self._failed.inc()
        for waiter in self._over(round_):
            waiter.set_exception(Unavailable(str(error)))

    def _over(self, round_: _Round) -> list[asyncio.Future[Revision]]:
        """Close the round and return the waiters that are not done. Called once per round."""
        if round_.timer is not None:
            round_.timer.cancel()
        if round_.number is not None:
            self._replica.progress.forget(round_.number)
        if self._next is round_:
            self._next = None
        waiters, round_.waiters = round_.waiters, []
        return [waiter for waiter in waiters if not waiter.done()]
