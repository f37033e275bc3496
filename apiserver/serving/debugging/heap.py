"""Find which functions allocate memory that stays: what was allocated while a profile was made, and is still in use at its end.

`tracemalloc` follows each allocation of Python meanwhile, which costs CPU. It is turned off as soon as the profile ends.
"""

from __future__ import annotations

import linecache
import re
import threading
import time
import tracemalloc
from functools import lru_cache

from apiserver.serving.debugging import pprof
from apiserver.serving.debugging.pprof import Place

DEPTH = 16
"""Innermost functions of a stack that are kept."""
MOST_BYTES = 1 << 20
"""Memory of tracemalloc itself, some 19,000 allocations: the profile ends early when it is used up. Python's other threads stand still
while the allocations are read, 15 ms for so many, and no request may wait longer."""
POLL_SECONDS = 0.01
MEASURES = [("inuse_objects", "count"), ("inuse_space", "bytes")]
_BLOCK = re.compile(r"[ ]*(?:async[ ]def|def|class)[ ](\w+)")


def heap_profile(seconds: float, stop: threading.Event) -> bytes:
    """Follow allocations for some seconds, or until `stop` is set. Return the profile, compressed. Runs in a thread of its own."""
    began, end = time.time_ns(), time.monotonic() + seconds
    mine = not tracemalloc.is_tracing()
    if mine:
        tracemalloc.start(DEPTH)
    try:
        while (left := end - time.monotonic()) > 0 and tracemalloc.get_tracemalloc_memory() < MOST_BYTES:
            if stop.wait(min(POLL_SECONDS, left)):
                break
        snapshot = tracemalloc.take_snapshot()
    finally:
        if mine:
            tracemalloc.stop()
    duration = time.time_ns() - began
    found: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for trace in snapshot.traces:
        frames = tuple((frame.filename, frame.lineno) for frame in reversed(trace.traceback))
        sums = found.setdefault(frames, [0, 0])
        sums[0] += 1
        sums[1] += trace.size
    samples = (([_place(*frame) for frame in frames], tuple(sums)) for frames, sums in found.items())
    return pprof.compressed(samples, MEASURES, began=began, duration=duration, period=1)


def _place(file: str, line: int) -> Place:
    name, first = _function(file, line)
    return Place(name, file, first, line)


@lru_cache(4096)
def _function(file: str, line: int) -> tuple[str, int]:
    """Return the function around a line, with the classes and functions around it, and where it begins. tracemalloc knows only lines."""
    lines = linecache.getlines(file)
    names: list[str] = []
    first, depth = 1, len(lines[line - 1]) if 0 < line <= len(lines) else 0
    for number in range(min(line, len(lines)), 0, -1):
        text = lines[number - 1]
        indent = len(text) - len(text.lstrip())
        if not text.strip() or (indent >= depth and number != line):
            continue
        block = _BLOCK.match(text)
        if block is not None:
            if not names:
                first = number
            names.insert(0, block[1])
        depth = indent
        if not depth:
            break
    return ".".join(names) or "<module>", first
