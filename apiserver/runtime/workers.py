"""Thread pools by purpose, each with its own limit, so that one kind of work cannot delay another.

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

Nothing uses the event loop's own pool: it has one queue for all work, and that queue has no limit.
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
"""Time that a thread may compute before the event loop has its turn. Python's default of 5 ms is too long for a loop that asks many times
for one answer."""


_running = threading.local()


class Busy(Exception):
    """The queue of this pool is full."""


class Abandoned(Exception):
    """The caller no longer waits for the work of this thread."""


def checkpoint() -> None:
    """Raise Abandoned if the caller no longer waits. Long work calls this between two of its steps."""
    work: _Work[Any] | None = getattr(_running, "work", None)
    if work is not None and work.abandoned:
        raise Abandoned


class Workers:
    """Run at most `threads` calls at a time, while `waiting` more may wait.

    A call that has begun is finished even when its caller is cancelled, unless it calls `checkpoint`. It must not touch objects of the
    event loop.
    """

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
        """Whether a call would be refused."""
        return self._calls >= self._most

    @property
    def working(self) -> bool:
        """Whether a call runs or waits."""
        return self._calls > 0

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what `call` returns, or raise what it raises. Raises Busy at once if the pool is full."""
        if self.full:
            self._refused.inc()
            raise Busy
        return await self.run_patiently(call, *args, **kwargs)

    async def run_patiently(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the same, but wait for a place in a full pool. The caller must be one of few: another limit bounds them."""
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
        finally:
            # The traceback of an error holds this frame: with its future, only the garbage collector would free both, and the work's input.
            del done

    async def once(self, key: Hashable, function: Callable[[], T]) -> T:
        """Do as `run_patiently` for the first caller of `key`. Callers that come while its function runs share the result."""
        running = self._running.get(key)
        if running is None:
            running = self._running[key] = asyncio.ensure_future(self.run_patiently(function))
            running.add_done_callback(functools.partial(self._made, key))
        try:
            return await asyncio.shield(running)
        finally:
            del running

    def _made(self, key: Hashable, running: asyncio.Future[Any]) -> None:
        del self._running[key]
        if not running.cancelled():
            running.exception()  # marks it as seen: callers that still wait get it

    def submit(self, call: Callable[[], object]) -> None:
        """Call in a thread, without a limit, for a call that cannot fail and whose end nobody waits for."""
        self._executor.submit(call)

    def close(self) -> None:
        """Let the threads end. A pool of a process that serves stays open."""
        self._executor.shutdown()

    def _ended(self, done: asyncio.Future[Any]) -> None:
        self._calls -= 1
        if not done.cancelled():
            done.exception()  # marks it as seen: the caller may be cancelled


class _Work(Generic[T]):
    """A call that waits for its thread. It counts until the thread has seen it, even if its caller is cancelled."""

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
        """Release the arguments of the call if it has not begun."""
        self.abandoned = True
        self._call = None


def share_fairly() -> None:
    """Let threads that compute give way to the event loop often. A process that serves calls this once."""
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
PROFILES = Workers("profiles", threads=1, waiting=0)


def large_requests() -> bool:
    """Return whether a large request is worked on. May be called in any thread."""
    return BODIES.working or SELECTORS.working or EXPRESSIONS.working
