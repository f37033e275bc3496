"""The bounds of figures of Sluice, and whether a run keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from bench.results import OURS, THROUGH, Results

UNITS = {
    "cpu_ms": "ms of CPU",
    "cpu_us": "µs of CPU",
    "p50_ms": "ms (p50)",
    "first_byte_ms": "ms to the first byte of the body",
    "longest_step_ms": "ms, the longest step of the event loop",
    "peak_mb": "MB above what was resident before",
    "memory_mb": "MB",
    "start_s": "s",
    "of_bare": "times the bare write",
    "times": "times as cheap as kube-apiserver's own group",
    "of_direct": "times Sluice's own CPU of a direct request",
}
"""Figures that have bounds, and the text that names each."""


@dataclass(frozen=True)
class Bound:
    workload: str
    figure: str
    most: float = inf
    least: float = 0.0
    server: str = OURS

    @property
    def limit(self) -> float:
        """The one of the two that is set."""
        return self.least or self.most


@dataclass(frozen=True)
class Verdict:
    bound: Bound
    measured: float | None

    @property
    def missed(self) -> bool:
        return self.measured is not None and not self.bound.least <= self.measured <= self.bound.most

    def line(self) -> str:
        word = "not measured" if self.measured is None else "MISSED" if self.missed else "met"
        value = "" if self.measured is None else f"{self.measured:.4g}, "
        return f"{word:12} {self.bound.workload}: {value}bound {self.bound.limit:g} {UNITS[self.bound.figure]}"


def _bounds() -> tuple[Bound, ...]:
    cpu = {
        "CREATE c16": 0.9,
        "GET c16": 0.2,
        "PUT c16": 1.3,
        "MERGE PATCH c16": 1.3,
        "APPLY c16": 1.8,
        "CREATE 128 devices c16": 12,
        "APPLY 128 devices c16": 20,
        "LIST identity c1": 50,
        "LIST gzip c1": 12,
        "LIST gzip cold": 45,
        "LIST Table c1": 15,
        "LIST Table gzip c1": 15,
        "LIST protobuf c1": 12,
        "LIST protobuf gzip c1": 12,
        "LIST protobuf cold": 60,
        "LIST protobuf gzip cold": 60,
        "LIST metadata c1": 12,
        "LIST metadata gzip c1": 12,
        "LIST metadata protobuf c1": 12,
        "LIST metadata protobuf gzip c1": 12,
        "LIST gzip under 50 writes/s": 16,
        "walk by 500": 45,
        "walk by 500 gzip": 25,
        "watch-list": 45,
        "watch-list Table": 60,
        "watch-list metadata": 60,
        "watch-list metadata protobuf": 60,
        "watch-list protobuf": 60,
    }
    lists = [name for name in cpu if name.startswith("LIST ") and name.endswith(" c1")]
    bare = ("fan-out to 1000", "fan-out Table to 1000", "fan-out protobuf to 1000", "watch propagation")
    return (
        *(Bound(name, "cpu_ms", most) for name, most in cpu.items()),
        *(Bound(name, "longest_step_ms", 5) for name in cpu if name.startswith(("LIST ", "walk", "watch-list"))),
        *(Bound(name.removesuffix("c1") + "cold", "first_byte_ms", 10) for name in lists),
        *(Bound(name.removesuffix("c1") + "c8", "peak_mb", 40) for name in lists),
        *(Bound(name.removesuffix("c1") + "c8 cold", "peak_mb", 40) for name in lists),
        Bound("all forms of a list", "memory_mb", 60),
        Bound("fan-out to 1000", "cpu_us", 20),
        *(Bound(name, "of_bare", 1.6 if name == "watch propagation" else 1.3) for name in bare),
        Bound("watch propagation", "p50_ms", 2),
        Bound("memory with 10000 slices", "memory_mb", 200),
        Bound("memory with 30000 slices", "memory_mb", 450),
        Bound("start with 100000 slices", "start_s", 8),
    )


def _aggregated() -> tuple[Bound, ...]:
    cheaper = {
        "GET c16": 1.2,
        "GET c16 RV=0": 0.75,
        "LIST identity c1": 10,
        "LIST gzip c1": 80,
        "LIST Table c1": 10,
        "CREATE c16": 2,
        "PUT c16": 2,
        "MERGE PATCH c16": 2,
        "APPLY c16": 2.2,
    }
    return (
        *(Bound(name, "times", least=least, server=THROUGH) for name, least in cheaper.items()),
        *(Bound(name, "of_direct", most=1.3, server=THROUGH) for name in cheaper),
    )


BOUNDS = _bounds()
AGGREGATED = _aggregated()
"""Those of requests through kube-apiserver."""


def judge(results: Results, bounds: Sequence[Bound] = BOUNDS) -> list[Verdict]:
    """Every bound, in its order."""
    return [Verdict(bound, results.figure(bound.workload, bound.server, bound.figure)) for bound in bounds]


def limit(workload: str, figure: str) -> float | None:
    return next((b.most for b in BOUNDS if (b.workload, b.figure) == (workload, figure)), None)
