"""Samples of the processes under a soak: what the kernel, /metrics and Valkey say about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from apiserver.storage.redis_keys import RedisKeys
from tests.fixtures.valkey import Server
from tests.soak.judge import Curve

MIB = 1 << 20
MOST_KEPT_SECONDS = 600.0
"""A log keeps the changes of five minutes, and is shortened once in five minutes: storage/options.py, retention and compaction."""

PROCESS = (
    Curve("resident", "MiB", 0.05, 4, fills=MOST_KEPT_SECONDS),
    Curve("descriptors", "", 0.05, 10),
    Curve("threads", "", 0, 4),
)
"""Curves of each process, from /proc. Memory comes from the kernel in pages that an allocator may keep, hence the share."""

SERVER = (
    *PROCESS,
    Curve("tasks", "", 0.05, 20),
    Curve("watches", "", 0.05, 10),
    Curve("calls in thread pools", "", 0, 20),
    Curve("objects", "MiB", 0.05, 1),
    Curve("events in memory", "MiB", 0.15, 4, fills=MOST_KEPT_SECONDS),
    Curve("cached encodings", "MiB", 0.1, 4),
    Curve("series of metrics", "", 0.02, 20),
)
STORE = (
    *PROCESS,
    Curve("used memory", "MiB", 0.15, 4, fills=MOST_KEPT_SECONDS),
    Curve("clients", "", 0.05, 5),
    Curve("entries of the log", "", 0.15, 500, fills=MOST_KEPT_SECONDS),
    Curve("nodes of the log", "", 0.15, 50, fills=MOST_KEPT_SECONDS),
)
"""A log is a sawtooth, so medians of two thirds differ by its phase, hence the share."""

_METRICS = {
    "tasks": ("sluice_event_loop_tasks", 1),
    "watches": ("sluice_watchers", 1),
    "calls in thread pools": ("sluice_thread_pool_calls", 1),
    "objects": ("sluice_object_bytes", MIB),
    "events in memory": ("sluice_history_bytes", MIB),
    "cached encodings": ("sluice_encoding_bytes", MIB),
}

Figures = Mapping[str, float]


def process(pid: int) -> dict[str, float]:
    """Raises OSError when the process has ended."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "resident": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(status["Threads"]),
    }


def server(pid: int, exposition: str) -> dict[str, float]:
    """One process of Sluice, with the text of its /metrics."""
    sums: defaultdict[str, float] = defaultdict(float)
    lines = [line for line in exposition.splitlines() if line and not line.startswith("#")]
    for line in lines:
        series, _, value = line.rpartition(" ")
        sums[series.partition("{")[0]] += float(value)
    figures = {name: sums[metric] / unit for name, (metric, unit) in _METRICS.items()}
    return process(pid) | figures | {"series of metrics": len(lines)}


def store(valkey: Server, resource: str) -> dict[str, float]:
    """The Valkey of the soak."""
    assert valkey.process is not None
    log = RedisKeys.of(resource).log
    stream = valkey("XINFO", "STREAM", log)
    described = dict(zip(stream[::2], stream[1::2], strict=True))
    return process(valkey.process.pid) | {
        "used memory": int(valkey.info("used_memory")) / MIB,
        "clients": int(valkey.info("connected_clients")),
        "entries of the log": described[b"length"],
        "nodes of the log": described[b"radix-tree-nodes"],
    }
