"""When Python's collector of reference cycles looks for them: in a thread of its own, never in a step of the event loop.

A look takes as long as there are references to follow. A client can have made many of its request: trees of long expressions, and lists
of a million elements, each of which is one object and a million references. Whoever makes the one object too many would pay for all of
them, as a rule the loop. So nobody does: the thread looks some times a second whether there is enough to look at.

Young are those that are there now and were not at the last look: of a request what it was decoded into, until it is answered. Those that
are served at a time have fewer than `YOUNG`, and are gone before anybody looks.
CPython: `Modules/gcmodule.c` (gc_collect_generations).
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

YOUNG = 5_000
"""So many more objects than at the last collection are worth one."""
MIDDLE = 2
"""Collections of young objects between two that look at the survivors too."""
EVERY = 10
"""Collections of the middle generation between two full ones, as Python has it by itself."""
LOOK_SECONDS = 0.05
PAUSES = (10, 10, 100)
"""How many times as long as a collection took there is none of its generation."""


def collect_elsewhere(afterwards: Callable[[], None]) -> None:
    """For a process that serves, once. `afterwards` is called after each full collection, in its thread.

    Who wants none for a while says so as ever: `gc.disable()`.
    """
    gc.set_threshold(0)
    threading.Thread(target=_collect, args=(afterwards,), name="garbage", daemon=True).start()


def _collect(afterwards: Callable[[], None]) -> None:
    not_before = [0.0, 0.0, 0.0]
    while True:
        time.sleep(LOOK_SECONDS)
        generation, began = _oldest_due(), time.monotonic()
        while generation >= 0 and began < not_before[generation]:
            generation -= 1
        if generation < 0 or not gc.isenabled():
            continue
        gc.collect(generation)
        ended = time.monotonic()
        for looked_at in range(generation + 1):
            not_before[looked_at] = ended + PAUSES[looked_at] * (ended - began)
        if generation == 2:
            afterwards()


def _oldest_due() -> int:
    """The generation that is worth a collection, with all that are younger; -1: none is."""
    young, middle, old = gc.get_count()
    if young < YOUNG:
        return -1
    if middle < MIDDLE:
        return 0
    return 1 if old < EVERY else 2
