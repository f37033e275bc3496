"""Sample which functions use CPU time, in all threads of this process, without changing how they run. Linux only.

Every sample gives the CPU time that a thread has used since the last one to the functions that it is in now.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from types import CodeType, FrameType

from apiserver.serving.debugging import pprof

PERIOD_SECONDS = 0.01
DEPTH = 200
"""Innermost functions of a stack that are kept."""

Place = tuple[CodeType, int]
"""A function and a line in it."""
Stack = tuple[Place, ...]
"""Innermost first."""


def cpu_profile(seconds: float, stop: threading.Event) -> bytes:
    """Sample for some seconds, or until `stop` is set. Return the profile, compressed. Runs in a thread of its own."""
    found: Counter[Stack] = Counter()
    used: dict[int, int] = {}
    began, end = time.time_ns(), time.monotonic() + seconds
    while True:
        _sample(found, used)
        left = end - time.monotonic()
        if left <= 0 or stop.wait(min(PERIOD_SECONDS, left)):
            samples = ((_places(stack), (spent,)) for stack, spent in found.items())
            duration, period = time.time_ns() - began, int(PERIOD_SECONDS * 1e9)
            return pprof.compressed(samples, [("cpu", "nanoseconds")], began=began, duration=duration, period=period)


def _places(stack: Stack) -> list[pprof.Place]:
    return [pprof.Place(code.co_qualname, code.co_filename, code.co_firstlineno, line) for code, line in stack]


def _sample(found: Counter[Stack], used: dict[int, int]) -> None:
    """Count the CPU time of each thread since the last sample. `used` is the time of each by then, by native id."""
    frames = sys._current_frames()
    for thread in threading.enumerate():
        frame, native = frames.get(thread.ident or 0), thread.native_id
        if frame is None or native is None or thread is threading.current_thread():
            continue
        now = _thread_time_ns(native)
        spent = now - used.get(native, now)
        used[native] = now
        if spent > 0:
            found[_stack(frame)] += spent


def _thread_time_ns(native: int) -> int:
    """Return the CPU time of a thread; 0 when it has ended. The clock is MAKE_THREAD_CPUCLOCK of Linux `include/linux/posix-timers.h`."""
    try:
        return time.clock_gettime_ns((~native << 3) | 6)
    except OSError:
        return 0


def _stack(frame: FrameType | None) -> Stack:
    found: list[Place] = []
    while frame is not None and len(found) < DEPTH:
        found.append((frame.f_code, frame.f_lineno or 0))
        frame = frame.f_back
    return tuple(found)
