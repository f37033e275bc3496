"""Sample which functions use CPU time, in all threads of this process, without changing how they run. Linux only.

Every sample gives the CPU time that a thread has used since the last one to the functions that it is in now. The result is a profile in
pprof's format, which `go tool pprof` and speedscope read.
Upstream: google/pprof `proto/profile.proto`.
"""

from __future__ import annotations

import gzip
import sys
import threading
import time
from collections import Counter
from types import CodeType, FrameType
from typing import TypeVar

from apiserver.codecs.protobuf import protowire

PERIOD_SECONDS = 0.01
DEPTH = 200
"""Innermost functions of a stack that are kept."""

T = TypeVar("T")
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
            return gzip.compress(_encoded(found, began=began, duration=time.time_ns() - began), 1)


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


class _Numbers(dict[T, int]):
    """Numbers things in the order in which they are first seen."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def of(self, thing: T) -> int:
        return self.setdefault(thing, self._first + len(self))


def _encoded(found: Counter[Stack], *, began: int, duration: int) -> bytes:
    texts: _Numbers[str] = _Numbers(0)
    places: _Numbers[Place] = _Numbers(1)
    functions: _Numbers[CodeType] = _Numbers(1)
    texts.of("")
    kind = _number(1, texts.of("cpu")) + _number(2, texts.of("nanoseconds"))
    made = [_message(1, kind), _message(11, kind)]
    for stack, spent in found.items():
        ids = b"".join(_number(1, places.of(place)) for place in stack)
        made.append(_message(2, ids + _number(2, spent)))
    for (code, line), number in places.items():
        made.append(_message(4, _number(1, number) + _message(4, _number(1, functions.of(code)) + _number(2, line))))
    for code, number in functions.items():
        name, file = texts.of(code.co_qualname), texts.of(code.co_filename)
        parts = (
            _number(1, number),
            _number(2, name),
            _number(3, name),
            _number(4, file),
            _number(5, code.co_firstlineno),
        )
        made.append(_message(5, b"".join(parts)))
    made += [_message(6, text.encode()) for text in texts]
    made += [_number(9, began), _number(10, duration), _number(12, int(PERIOD_SECONDS * 1e9))]
    return b"".join(made)


def _number(field: int, value: int) -> bytes:
    return protowire.varint(protowire.key(field, protowire.VARINT)) + protowire.varint(value)


def _message(field: int, body: bytes) -> bytes:
    return protowire.varint(protowire.key(field, protowire.BYTES)) + protowire.varint(len(body)) + body
