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
garbage.collect_elsewhere(int)
cycle = Cycle()
cycle.itself = cycle
gone = weakref.ref(cycle)
while gc.get_count()[2] < garbage.EVERY:
    kept = [[] for _ in range(10_000)]
del cycle
deadline = time.monotonic() + 120
while gone() is not None and time.monotonic() < deadline:
    more = [[] for _ in range(10_000)]
print(gone() is None, sorted(set(full)))
"""


def test_cycles_of_old_objects_are_collected_and_never_in_the_thread_that_makes_objects() -> None:
    ran = subprocess.run([sys.executable, "-c", _SERVING], capture_output=True, text=True, timeout=240, check=True)
    assert ran.stdout.split(maxsplit=1) == ["True", "['garbage']\n"]


_WAITING = """
import gc
from apiserver import garbage

garbage.collect_elsewhere(int)
gc.collect()
before = gc.get_stats()
for _ in range(50):
    requests = [[{} for _ in range(140)] for _ in range(16)]
print(gc.get_stats() == before)
"""


def test_what_the_requests_hold_that_are_served_at_a_time_is_not_looked_at() -> None:
    ran = subprocess.run([sys.executable, "-c", _WAITING], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "True\n"


_LARGE = """
import gc
from apiserver import garbage

garbage.collect_elsewhere(int)
gc.collect()
gc.freeze()
most = 0

def look(phase, info):
    global most
    if phase == "start" and info["generation"] < 2:
        most = max(most, sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1)))

gc.callbacks.append(look)
kept = [[] for _ in range(100_000)]
print(most)
"""


def test_one_look_at_young_objects_is_at_so_many_that_it_takes_less_than_a_millisecond() -> None:
    ran = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, text=True, timeout=60, check=True)
    assert 0 < int(ran.stdout) <= 16_000
