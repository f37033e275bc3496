"""When Python's collector of reference cycles looks at everything there is: in a thread of its own, never in a step of the event loop.

Young objects are looked at where they are made, some thousands at a time: a millisecond. A full collection looks at all others too, and
what a client can have made of its request, the trees of long expressions for instance, is many. Whoever makes the one object too many
would pay for it, as a rule the loop.
CPython: `Modules/gcmodule.c` (gc_collect_generations).
"""

from __future__ import annotations

import gc
import threading
import time

EVERY = 10
"""Collections of the middle generation between two full ones, as Python has it by itself."""
_NEVER = (1 << 31) - 1
_LOOK_SECONDS = 1.0
_PAUSE = 100
"""How many times as long as a collection took there is none."""


def collect_elsewhere() -> None:
    """For a process that serves, once."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    threading.Thread(target=_collect, name="garbage", daemon=True).start()


def _collect() -> None:
    pause = _LOOK_SECONDS
    while True:
        time.sleep(pause)
        pause = _LOOK_SECONDS
        if gc.isenabled() and gc.get_count()[2] >= EVERY:
            began = time.perf_counter()
            gc.collect()
            pause += _PAUSE * (time.perf_counter() - began)
