"""Costs of processes: CPU seconds, of all together and of each, and resident memory."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Processes = Mapping[str, Sequence[int]]
"""Ids of the processes that are measured together, by the name under which their CPU is reported."""
ROUNDS = 7
_CPUCLOCK_SCHED = 2
"""The kernel's number for user and system time together, to the nanosecond (include/linux/posix-timers.h)."""


def children(pid: int) -> list[int]:
    """`pid` and everything below it."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += children(int(child))
    return found


@contextlib.contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """Meanwhile these processes do nothing: no collection of what was measured before, no work in the background."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system time of the processes so far: what /proc/PID/stat tells in hundredths, from the processes' own clocks."""
    return sum(time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED) for pid in pids)


def resident_mb(pids: list[int]) -> float:
    """Proportional resident memory in MB (10^6 bytes)."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total / 1e6


def reset_peak(pids: list[int]) -> float:
    """Forgets the peaks of before; MB that are resident now."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status_mb(pids, "VmRSS:")


def peak_mb(pids: list[int]) -> float:
    """The most that was resident since `reset_peak`, in MB (10^6 bytes): of each process by itself, added up."""
    return _status_mb(pids, "VmHWM:")


def _status_mb(pids: list[int], name: str) -> float:
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(name):
                total += int(line.split()[1]) * 1024
    return total / 1e6


@dataclass
class Meter:
    """Wall and CPU time between `start` and `stop`."""

    processes: Processes
    wall: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)
    """CPU of each, by its name."""

    @property
    def cpu(self) -> float:
        return sum(self.shares.values())

    def start(self) -> None:
        self.shares = self._clocks()
        self.wall = time.perf_counter()

    def stop(self) -> None:
        self.wall = time.perf_counter() - self.wall
        self.shares = {name: clock - self.shares[name] for name, clock in self._clocks().items()}

    def _clocks(self) -> dict[str, float]:
        return {name: cpu_seconds(pids) for name, pids in self.processes.items()}


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the samples lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def operation_line(name: str, operation: Callable[[], object]) -> str:
    """CPU of this process per operation, of several rounds the best: the others shared the processor with somebody."""
    count = 1
    while (taken := _seconds(operation, count)) < 0.02:
        count *= 2
    best = min(taken, *(_seconds(operation, count) for _ in range(ROUNDS)))
    return f"{name:40} {best / count * 1e6:8.2f} µs"


def _seconds(operation: Callable[[], object], count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        operation()
    return time.process_time() - start
