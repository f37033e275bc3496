"""Threads by purpose, each pool with its own bound, so that no sort of work can keep another one waiting.

    BODIES       request bodies, patches, and objects made of them
    SELECTORS    label and field selectors of many terms
    EXPRESSIONS  objects whose expressions take long to compile, and long shard selectors
    POLICIES     expressions about a change that take long to evaluate
    RENDERING    answers that take longer than a step of the loop may
    DOCUMENTS    OpenAPI
    METRICS      the exposition
    LOOKUPS      names asked of DNS, and what is read to ask for credentials
    AUDIT        events that take long to write down
    OWNERS       owners of large objects, for the garbage collector of a stand-alone server

Nothing uses the event loop's own pool: it has one queue for everybody, and that queue has no end.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import sys
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, ParamSpec, TypeVar

from apiserver import metrics

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 2
"""Python runs one at a time: a second one lets a small piece pass a large one."""
SWITCH_SECONDS = 0.001
"""How long a thread may compute before the event loop gets its turn. Python's own 5 ms are too long for a loop that asks many times
for one answer."""


_running = threading.local()


class Busy(Exception):
    """As much work waits for this pool as may."""


class Abandoned(Exception):
    """Nobody waits for the work of this thread any more."""


def checkpoint() -> None:
    """For long work between two of its steps. Raises Abandoned."""
    work: _Work[Any] | None = getattr(_running, "work", None)
    if work is not None and work.abandoned:
        raise Abandoned


class Workers:
    """At most `threads` calls at a time; `waiting` more may wait. Work that has begun is finished even when nobody waits for it any
    more, unless it asks (`checkpoint`); it must not touch what belongs to the loop."""

    def __init__(self, name: str, *, threads: int = THREADS, waiting: int) -> None:
        self.name = name
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._most = threads + waiting
        self._calls = 0
        self._running: dict[Hashable, asyncio.Future[Any]] = {}
        self._refused = metrics.THREAD_POOL_REFUSALS.labels(name)
        metrics.THREAD_POOL_CALLS.labels(name).set_function(lambda: self._calls)

    @property
    def full(self) -> bool:
        """A call would be refused."""
        return self._calls >= self._most

    @property
    def working(self) -> bool:
        """A call runs or waits."""
        return self._calls > 0

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `call` returns or raises. Raises Busy at once when the pool is full."""
        if self.full:
            self._refused.inc()
            raise Busy
        return await self.run_patiently(call, *args, **kwargs)

    async def run_patiently(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for work that has to be done, however long it waits: for callers that something else keeps few."""
        context = contextvars.copy_context()
        work = _Work(functools.partial(context.run, call, *args, **kwargs))
        done = asyncio.get_running_loop().run_in_executor(self._executor, work)
        self._calls += 1
        done.add_done_callback(self._ended)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            work.abandon()
            raise

    async def once(self, key: Hashable, function: Callable[[], T]) -> T:
        """As `run_patiently`, for all who ask for `key` while it is being made: the first one's function runs, and the others share its
        result."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self.run_patiently(function))
            running.add_done_callback(functools.partial(self._made, key))
        result: T = await asyncio.shield(running)
        return result

    def _made(self, key: Hashable, running: asyncio.Future[Any]) -> None:
        del self._running[key]
        if not running.cancelled():
            running.exception()  # whoever still waits gets it; with nobody there is nothing to say

    def submit(self, call: Callable[[], object]) -> None:
        """Call in a thread, without a limit, for a call that cannot fail and whose end nobody waits for."""
        self._executor.submit(call)

    def close(self) -> None:
        """Lets the threads end. A pool of a process that serves stays open."""
        self._executor.shutdown()

    def _ended(self, done: asyncio.Future[Any]) -> None:
        self._calls -= 1
        if not done.cancelled():
            done.exception()  # it may be that nobody waits for it any more


class _Work(Generic[T]):
    """A call that waits for its thread. It counts until the thread has seen it, also when nobody wants its result any more."""

    __slots__ = ("_call", "abandoned")

    def __init__(self, call: Callable[[], T]) -> None:
        self._call: Callable[[], T] | None = call
        self.abandoned = False

    def __call__(self) -> T:
        call = self._call
        if call is None:
            raise concurrent.futures.CancelledError
        _running.work = self
        try:
            return call()
        finally:
            _running.work = None

    def abandon(self) -> None:
        """Lets go of what the call would have worked on, if it has not begun."""
        self.abandoned = True
        self._call = None


def share_fairly() -> None:
    """For a process that serves: a thread that computes gives way to the event loop often."""
    sys.setswitchinterval(SWITCH_SECONDS)


BODIES = Workers("bodies", waiting=62)
SELECTORS = Workers("selectors", waiting=62)
EXPRESSIONS = Workers("expressions", waiting=62)
POLICIES = Workers("policies", waiting=62)
RENDERING = Workers("rendering", waiting=4094)
DOCUMENTS = Workers("documents", threads=1, waiting=63)
METRICS = Workers("metrics", threads=1, waiting=15)
LOOKUPS = Workers("lookups", threads=8, waiting=4094)
AUDIT = Workers("audit", waiting=4094)
OWNERS = Workers("owners", threads=1, waiting=0)


def large_requests() -> bool:
    """Whether some are worked on. In any thread."""
    return BODIES.working or SELECTORS.working or EXPRESSIONS.working
