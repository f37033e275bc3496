"""The event loop of the process, and how long each of its steps holds it.

A step is one call that the loop makes: a task until its next await, a callback, a timer, the data of a connection. While it runs, no
other client is served. So the budget is 20 ms of CPU, whatever a client sends. Every step counts from the moment at which the port is
open. Before that nobody waits: a store is started, certificates are made. A step includes its garbage collections; those of other
threads are logged separately. TLS (`tls`) is part of the steps. uvloop's own work between two steps is not seen. It serves connections
without TLS to the store and to other servers, and the size of its buffers bounds it.

Reading the CPU clock is a system call, and only steps that last a millisecond are worth two of them. The first read happens at the
beginning of a step if the last read was more than a millisecond before. So a step's CPU time may be up to a millisecond too high, never
too low. In the metric's sum, shorter steps count as zero. A request takes several steps, so the cost of each is kept to one function in
Python, which C code calls.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import threading
from collections.abc import Callable
from contextvars import Context
from functools import partial
from pathlib import PurePath
from time import perf_counter, thread_time_ns
from typing import Any, Protocol, TypeVar, TypeVarTuple, cast

from apiserver import collectors, metrics
from apiserver.serving.lookups import Lookups
from apiserver.serving.secured import Secured

try:
    from uvloop import Loop as _Base  # twice as fast as asyncio's
except ImportError:
    from asyncio import SelectorEventLoop as _Base  # type: ignore[assignment]

logger = logging.getLogger(__name__)

BUDGET_SECONDS = 0.02
MESSAGE = "a step of the event loop took long"
"""The log message about a step above the budget; tests look for it."""
COLLECTION_MESSAGE = "the garbage collector took long"
"""The log message about a collection in another thread, for which all steps waited."""
NOTICED_SECONDS = 0.001
SHOWN = 256
"""Characters of a name that are logged."""

_Arguments = TypeVarTuple("_Arguments")
_Result = TypeVar("_Result")


class Run(Protocol):
    def __call__(self, callback: Callable[[*_Arguments], _Result], *args: *_Arguments) -> _Result: ...


class Meter:
    """Measures the steps of one thread's event loop, one at a time. `run(callback, *args)` makes a call as one step."""

    __slots__ = ("_collected", "_collecting", "_collections", "_cpu", "_seconds", "_thread", "run", "serving")

    def __init__(self, seconds: collectors.Distribution) -> None:
        self._seconds = seconds
        self._collections = [metrics.COLLECTION_SECONDS.labels(str(number)) for number in range(len(gc.get_count()))]
        self._cpu = self._collected = self._collecting = self._thread = 0
        self.run = self._runner()
        self.serving = False
        """Whether clients may be waiting, so that a long step is logged."""

    def start(self) -> None:
        """Measure this thread's loop from now on."""
        self._thread = threading.get_ident()
        if self.collection not in gc.callbacks:
            gc.callbacks.append(self.collection)

    def _runner(self) -> Run:
        """Return `run` as a closure, because it is entered several times for each request."""
        asked, counts, noticed, clock = 0.0, self._seconds.counts, NOTICED_SECONDS, perf_counter

        def run(callback: Callable[[*_Arguments], _Result], *args: *_Arguments) -> _Result:
            nonlocal asked
            started = clock()
            if started - asked > noticed:
                asked = started
                self._cpu, self._collected = thread_time_ns(), 0
            try:
                return callback(*args)
            finally:
                if (wall := clock() - started) < noticed:
                    counts[0] += 1
                else:
                    asked = 0.0
                    self._judge(callback, wall)

        return run

    def _judge(self, callback: Callable[..., object], wall: float) -> None:
        seconds = min(wall, (thread_time_ns() - self._cpu) * 1e-9)
        self._seconds.observe(seconds)
        if self.serving and seconds > BUDGET_SECONDS:
            figures = {"cpu_seconds": seconds, "wall_seconds": wall, "collector_seconds": self._collected * 1e-9}
            logger.warning(MESSAGE, extra={k: round(v, 4) for k, v in figures.items()} | {"step": described(callback)})

    def collection(self, phase: str, info: dict[str, int]) -> None:
        """Handle the garbage collector's callback, in any thread: only one collection runs at a time."""
        if phase == "start":
            self._collecting = thread_time_ns()
            return
        spent = thread_time_ns() - self._collecting
        seconds, generation = spent * 1e-9, info["generation"]
        self._collections[generation].observe(seconds)
        if threading.get_ident() == self._thread:
            self._collected += spent
        elif self.serving and seconds > BUDGET_SECONDS:
            figures = {"cpu_seconds": round(seconds, 4), "generation": generation, "collected": info["collected"]}
            logger.info(COLLECTION_MESSAGE, extra=figures)


METER = Meter(metrics.LOOP_STEP_SECONDS.only)
"""The meter of this process, which has one event loop."""


class Measured(asyncio.AbstractEventLoop):
    """Measures each step of the loop that it is mixed into. A protocol must measure what its transport calls.

    The signatures do not repeat that arguments fit the callback.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        soon: Callable[..., asyncio.Handle] = super().call_soon
        threadsafe: Callable[..., asyncio.Handle] = super().call_soon_threadsafe
        self.call_soon = partial(soon, _RUN)  # type: ignore[method-assign,assignment]
        self.call_soon_threadsafe = partial(threadsafe, _RUN)  # type: ignore[method-assign,assignment]

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if callback is _RUN:  # uvloop's call_at comes here, asyncio's call_later goes there
            return super().call_later(delay, callback, *args, context=context)
        return super().call_later(delay, _RUN, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if callback is _RUN:
            return super().call_at(when, callback, *args, context=context)
        return super().call_at(when, _RUN, callback, *args, context=context)

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        super().add_reader(fd, _RUN, callback, *args)

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        super().add_writer(fd, _RUN, callback, *args)


_RUN = METER.run


class Loop(Measured, Secured, Lookups, _Base):  # type: ignore[misc]  # uvloop's types differ in what is not touched here
    """The loop that this program runs on."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    METER.start()
    return Loop()


# ---------------------------------------------------------------------------------------------------------------- names


def described(callback: Callable[..., object]) -> str:
    """Describe a step: a task by its name and where it waits now, anything else by its function."""
    while isinstance(callback, partial):
        callback = callback.func
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return f"{owner.get_name()[:SHOWN]} {_waiting(owner)}"
    if isinstance(owner, asyncio.Future):
        return repr(owner)[:SHOWN]
    return str(getattr(callback, "__qualname__", type(callback).__name__))[:SHOWN]


def _waiting(task: asyncio.Task[Any]) -> str:
    """Describe where a task waits, from its outermost coroutine down."""
    places, at = [], cast("object", task.get_coro())
    while inspect.iscoroutine(at):
        code = at.cr_code
        line = at.cr_frame.f_lineno if at.cr_frame is not None else code.co_firstlineno
        places.append(f"{PurePath(code.co_filename).stem}.{code.co_name}:{line}")
        at = at.cr_await
    return "ended" if task.done() else " > ".join(places[-8:])
