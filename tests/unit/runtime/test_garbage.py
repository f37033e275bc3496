"""Full garbage collections do not burden the serving thread."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable

import pytest

from apiserver.runtime import garbage

_SERVING = """
import gc, threading, time, weakref
from apiserver.runtime import garbage

class Cycle:
    pass

looks = set()
gc.callbacks.append(lambda phase, info: looks.add((info["generation"], threading.current_thread().name)))
garbage.collect_elsewhere(int, busy=bool)
cycle = Cycle()
cycle.itself = cycle
gone = weakref.ref(cycle)
kept = more = None
while gc.get_count()[2] < garbage.EVERY:
    kept = None
    kept = [[] for _ in range(10_000)]
    time.sleep(garbage.LOOK_SECONDS / 5)
del cycle
deadline = time.monotonic() + 120
while gone() is not None and time.monotonic() < deadline:
    more = None
    more = [[] for _ in range(10_000)]
    time.sleep(garbage.LOOK_SECONDS / 5)
print(gone() is None, sorted(looks))
"""


def test_cycles_of_old_objects_are_collected_in_another_thread() -> None:
    ran = subprocess.run([sys.executable, "-c", _SERVING], capture_output=True, text=True, timeout=240, check=True)
    assert ran.stdout.split(maxsplit=1) == ["True", "[(0, 'garbage'), (1, 'garbage'), (2, 'garbage')]\n"]


_WAITING = """
import gc, time
from apiserver.runtime import garbage

garbage.collect_elsewhere(int, busy=bool)
gc.collect()
before, until = gc.get_stats(), time.monotonic() + 5 * garbage.LOOK_SECONDS
while time.monotonic() < until:
    requests = [[{} for _ in range(140)] for _ in range(16)]
print(gc.get_stats() == before)
"""


def test_objects_of_requests_in_progress_are_not_collected() -> None:
    ran = subprocess.run([sys.executable, "-c", _WAITING], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "True\n"


_FILLING = """
import gc, time
from apiserver.runtime import garbage

garbage.collect_elsewhere(int, busy=bool)
gc.collect()
gc.disable()
before, kept = gc.get_stats(), [[] for _ in range(100_000)]
until = time.monotonic() + 5 * garbage.LOOK_SECONDS
while time.monotonic() < until:
    time.sleep(garbage.LOOK_SECONDS)
print(gc.get_stats() == before)
gc.enable()
deadline = time.monotonic() + 60
while gc.get_stats() == before and time.monotonic() < deadline:
    time.sleep(garbage.LOOK_SECONDS)
print(gc.get_stats() == before)
"""


def test_disabled_collections_never_look() -> None:
    ran = subprocess.run([sys.executable, "-c", _FILLING], capture_output=True, text=True, timeout=120, check=True)
    assert ran.stdout.split() == ["True", "False"]


class Stopped(BaseException):
    """The virtual time is over."""


class Slow:
    """A heap that is always worth a full collection, which takes two seconds; and a clock on which nothing else takes any time."""

    def __init__(self, until: float) -> None:
        self.now, self._until = 0.0, until
        self.collected: list[int] = []
        self.began: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self._until:
            raise Stopped

    def isenabled(self) -> bool:
        return True

    def get_count(self) -> tuple[int, int, int]:
        return garbage.YOUNG, garbage.MIDDLE, garbage.EVERY

    def collect(self, generation: int) -> None:
        self.began.append(self.now)
        self.now += 2.0 if generation == 2 else 0.5
        self.collected.append(generation)


def test_large_heaps_are_rarely_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, trimmed = Slow(until=2_020.0), []
    monkeypatch.setattr(garbage, "gc", slow)
    monkeypatch.setattr(garbage, "time", slow)
    with pytest.raises(Stopped):
        garbage._collect(lambda: trimmed.append(slow.now), bool)
    assert slow.collected.count(2) == 10
    assert 300 < slow.collected.count(1) < 400
    assert 100 < len(trimmed) < 300


def _looked_at(monkeypatch: pytest.MonkeyPatch, busy: Callable[[Slow], bool]) -> list[float]:
    slow = Slow(until=100.0)
    monkeypatch.setattr(garbage, "gc", slow)
    monkeypatch.setattr(garbage, "time", slow)
    with pytest.raises(Stopped):
        garbage._collect(lambda: None, lambda: busy(slow))
    return slow.began


def test_collections_wait_while_large_requests_are_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _looked_at(monkeypatch, lambda slow: slow.now < 1)[0]
    assert 1 <= first < 1 + 2 * garbage.LOOK_SECONDS


def test_a_process_that_always_works_on_large_requests_looks_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    times = _looked_at(monkeypatch, lambda _: True)
    assert garbage.PATIENCE_SECONDS <= times[0] < garbage.PATIENCE_SECONDS + 2 * garbage.LOOK_SECONDS
    assert len(times) > 5
    assert all(later - earlier > garbage.PATIENCE_SECONDS for earlier, later in itertools.pairwise(times))
