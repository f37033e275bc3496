"""When Python's collector of reference cycles looks at everything there is: in a thread of its own, never in a step of the event loop.

Young objects are looked at where they are made, some thousands at a time: less than a millisecond. A full collection looks at all others
too, and what a client can have made of its request, the trees of long expressions for instance, is many. Whoever makes the one object too
many would pay for it, as a rule the loop.

Young are those that are there now and were not at the last look: of a request what it was decoded into, until it is answered. Python looks
when there are 700, so sixteen writes that wait for the store are looked at over and over. Those that are served at a time have fewer than
`YOUNG`, and are gone before anybody looks.
CPython: `Modules/gcmodule.c` (gc_collect_generations).
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

YOUNG = 5_000
"""So many more objects than at the last collection are worth one."""
MIDDLE = 1
"""Every third collection looks at the survivors of the two before too: at 15,000 objects in all, with Python's 700 and 10 at 8,400."""
EVERY = 10
"""Collections of the middle generation between two full ones, as Python has it by itself."""
_NEVER = (1 << 31) - 1
_LOOK_SECONDS = 1.0
_PAUSE = 100
"""How many times as long as a collection took there is none."""


def collect_elsewhere(afterwards: Callable[[], None]) -> None:
    """For a process that serves, once. `afterwards` is called after each full collection, in its thread."""
    gc.set_threshold(YOUNG, MIDDLE, _NEVER)
    threading.Thread(target=_collect, args=(afterwards,), name="garbage", daemon=True).start()


def _collect(afterwards: Callable[[], None]) -> None:
    pause = _LOOK_SECONDS
    while True:
        time.sleep(pause)
        pause = _LOOK_SECONDS
        if gc.isenabled() and gc.get_count()[2] >= EVERY:
            began = time.perf_counter()
            gc.collect()
            afterwards()
            pause += _PAUSE * (time.perf_counter() - began)
