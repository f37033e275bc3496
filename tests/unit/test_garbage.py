"""Who pays for looking at everything: not the thread that serves."""

from __future__ import annotations

import subprocess
import sys

_SERVING = """
import gc, threading, time, weakref
from apiserver import garbage

class Cycle:
    pass

full = []
gc.callbacks.append(lambda phase, info: full.append(threading.current_thread().name) if info["generation"] == 2 else None)
garbage.collect_elsewhere()
cycle = Cycle()
cycle.itself = cycle
gone = weakref.ref(cycle)
while gc.get_count()[2] < garbage.EVERY:
    kept = [[] for _ in range(1000)]
del cycle
deadline = time.monotonic() + 120
while gone() is not None and time.monotonic() < deadline:
    more = [[] for _ in range(1000)]
print(gone() is None, sorted(set(full)))
"""


def test_cycles_of_old_objects_are_collected_and_never_in_the_thread_that_makes_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", _SERVING], capture_output=True, text=True, timeout=240, check=True)
    assert ran.stdout.split(maxsplit=1) == ["True", "['garbage']\n"]
