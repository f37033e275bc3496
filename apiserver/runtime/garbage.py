"""When Python's collector of reference cycles looks for them: in a thread of its own, never in a step of the event loop.

A collection takes time for each reference. A client can cause many with one request: trees of long expressions, and lists of a million
elements, each of which is one object and a million references. Python by itself collects in the thread that allocates the next object,
mostly that of the event loop. Here a thread checks some times a second whether a collection is worth its time.

Young objects are new since the last collection, such as the decoded object of a request until its answer. Requests in flight have fewer
than `YOUNG`, and their objects are freed before a collection. A large request has many more, and a collection lets no other thread run.
Its objects form no cycles and are freed after the answer, so a collection waits some seconds for large requests.
CPython: `Modules/gcmodule.c` (gc_collect_generations).
"""

from __future__ import annotations

import gc
import math
import threading
import time
from collections.abc import Callable, Sequence

YOUNG = 5_000
"""New objects since the last collection that are worth the next one."""
MIDDLE = 2
"""Collections of young objects between two that look at the survivors too."""
EVERY = 10
"""Collections of the middle generation between two full ones, as Python has it by itself."""
LOOK_SECONDS = 0.05
PAUSES = (10, 10, 100)
"""Pause after a collection of each generation, in multiples of the time that it took."""
PATIENCE_SECONDS = 5.0
"""How long a collection is put off while large requests are worked on."""
TIDY_SECONDS = 5.0
"""After a collection: what is put away once may be for all that came meanwhile."""


def collect_elsewhere(afterwards: Callable[[], None], *, busy: Callable[[], bool]) -> None:
    """For a process that serves, once. `busy`: whether large requests are worked on. `afterwards` is called some seconds after a
    collection. Both are called in the collector's thread.

    `gc.disable()` stops collections, as ever.
    """
    gc.set_threshold(0)
    threading.Thread(target=_collect, args=(afterwards, busy), name="garbage", daemon=True).start()


def _collect(afterwards: Callable[[], None], busy: Callable[[], bool]) -> None:
    not_before, due_since, tidy = [0.0, 0.0, 0.0], math.inf, math.inf
    while True:
        time.sleep(LOOK_SECONDS)
        began = time.monotonic()
        generation = _oldest_due(began, not_before) if gc.isenabled() else None
        due_since = math.inf if generation is None else min(due_since, began)
        if generation is not None and (began >= due_since + PATIENCE_SECONDS or not busy()):
            gc.collect(generation)
            ended, due_since = time.monotonic(), math.inf
            for looked_at in range(generation + 1):
                not_before[looked_at] = ended + PAUSES[looked_at] * (ended - began)
            tidy = min(tidy, ended + TIDY_SECONDS)
        if began >= tidy:
            tidy = math.inf
            afterwards()


def _oldest_due(now: float, not_before: Sequence[float]) -> int | None:
    """The generation that is worth a collection, with all that are younger."""
    young, middle, old = gc.get_count()
    if young < YOUNG:
        return None
    due = 0 if middle < MIDDLE else 1 if old < EVERY else 2
    return next((generation for generation in range(due, -1, -1) if now >= not_before[generation]), None)
