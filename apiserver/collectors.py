"""Metric types: counters, gauges, histograms, summaries, their children, and the text for scrapers. Knows no metric.

Metrics belong to the process, so the registry is module-level state. prometheus_client's own classes take a lock and about 1-2 µs for
each count; these do not. So count on the event loop's thread only (scraping may happen elsewhere).
"""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, exposition
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

REGISTRY = CollectorRegistry(auto_describe=False)
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)

CONTENT_TYPE = exposition.CONTENT_TYPE_PLAIN_0_0_4


class Value:
    """One child of a `Counter` or `Gauge`."""

    __slots__ = ("_function", "_value")

    def __init__(self) -> None:
        self._value = 0.0
        self._function: Callable[[], float] | None = None

    def inc(self, amount: float = 1) -> None:
        self._value += amount

    def dec(self, amount: float = 1) -> None:
        self._value -= amount

    def set(self, amount: float) -> None:
        self._value = amount

    def set_function(self, function: Callable[[], float]) -> None:
        """Call `function` at each scrape, for values that exist elsewhere anyway."""
        self._function = function

    @property
    def value(self) -> float:
        return self._value if self._function is None else self._function()


class Distribution:
    """One child of a `Histogram`."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, amount: float) -> None:
        self.counts[bisect_left(self.bounds, amount)] += 1
        self.sum += amount

    def observe_for(self, amount: float, times: int) -> None:
        """Observe a value several times: one that lasted, once for each nanosecond."""
        self.counts[bisect_left(self.bounds, amount)] += times
        self.sum += amount * times

    @property
    def count(self) -> int:
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative counts by upper bound, as the text format needs them."""
        total, out = 0, []
        for bound, count in zip((*self.bounds, None), self.counts, strict=True):
            total += count
            out.append(("+Inf" if bound is None else _shown(bound), float(total)))
        return out


def _shown(bound: float) -> str:
    """Return a bound as Go prints it: in the shortest form that gives the same number."""
    text = f"{bound:g}"
    return text if float(text) == bound else repr(bound)


class Total(Distribution):
    """The sum of other children with the same bounds; never observed itself."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Distribution], bounds: tuple[float, ...] | None = None) -> None:
        """`bounds`: some of those of the parts, by default all."""
        super().__init__(parts[0].bounds if bounds is None else bounds)
        self._parts = parts

    def buckets(self) -> list[tuple[str, float]]:
        self.counts = [0] * (len(self.bounds) + 1)
        for part in self._parts:
            for bound, count in zip((*part.bounds, math.inf), part.counts, strict=True):
                self.counts[bisect_left(self.bounds, bound)] += count
        self.sum = sum(part.sum for part in self._parts)
        return super().buckets()


class Quantiles:
    """One child of a `Summary`: count, sum, and quantiles of recent values.

    Values are counted in classes, each 2 % wider than the one before, so a quantile is accurate to 1 %. They expire by fifths of `age`
    seconds. Observed values wait in a list until there are enough to be worth counting.
    """

    QUANTILES = (0.5, 0.9, 0.99)
    AGES = 5
    CLASSES = 1 / math.log(1.02)
    LEAST, BELOW = 1e-9, 2000
    """The smallest counted value, and the number of classes below 1, which is at least what that value needs."""
    WAITING = 256
    __slots__ = ("_ages", "_clock", "_count", "_each", "_lock", "_sum", "_until", "_waiting")

    def __init__(self, age: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._sum = 0, 0.0
        self._clock, self._each = clock, age / self.AGES
        self._ages: deque[dict[int, int]] = deque(({} for _ in range(self.AGES)), maxlen=self.AGES)
        self._until = clock() + self._each
        self._waiting: list[float] = []
        self._lock = threading.Lock()

    def observe(self, amount: float) -> None:
        waiting = self._waiting
        waiting.append(amount)
        if len(waiting) >= self.WAITING:
            self._count_waiting()

    @property
    def count(self) -> int:
        self._count_waiting()
        return self._count

    @property
    def sum(self) -> float:
        self._count_waiting()
        return self._sum

    def quantiles(self) -> list[tuple[float, float]]:
        """Return each quantile with its value, NaN without recent values."""
        self._count_waiting()
        counts: dict[int, int] = {}
        for age in list(self._ages):
            for kind, count in age.copy().items():
                counts[kind] = counts.get(kind, 0) + count
        ordered, total = sorted(counts), sum(counts.values())
        found, below, at = [], 0, 0
        for quantile in self.QUANTILES:
            while at < len(ordered) and below + counts[ordered[at]] < quantile * total:
                below += counts[ordered[at]]
                at += 1
            found.append((quantile, math.exp((ordered[at] + 0.5 - self.BELOW) / self.CLASSES) if ordered else math.nan))
        return found

    def _count_waiting(self) -> None:
        """Count the waiting values."""
        with self._lock:  # a scrape runs in another thread
            self._grow_older()
            waiting, self._waiting = self._waiting, []
            newest = self._ages[-1]
            for amount in waiting:
                kind = int(math.log(max(amount, self.LEAST)) * self.CLASSES + self.BELOW)
                newest[kind] = newest.get(kind, 0) + 1
            self._count += len(waiting)
            self._sum += sum(waiting)

    def _grow_older(self) -> None:
        now = self._clock()
        passed = min(self.AGES, max(0, math.ceil((now - self._until) / self._each)))
        self._ages.extend({} for _ in range(passed))
        if passed:
            self._until = now + self._each if passed == self.AGES else self._until + passed * self._each


_Child = TypeVar("_Child")


class _Family(Collector, Generic[_Child]):
    """All children of one metric."""

    def __init__(self, name: str, text: str, *, labels: tuple[str, ...], child: Callable[[], _Child]) -> None:
        self.name, self.text, self.label_names = name, text, labels
        self._make = child
        self._children: dict[tuple[str, ...], _Child] = {} if labels else {(): child()}
        REGISTRY.register(self)

    def adopt(self, child: _Child, *values: str) -> None:
        """Show another metric's child here too: counted once, exported under both names."""
        self._children[values] = child

    def labels(self, *values: str) -> _Child:
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}, not {values}")
            child = self._children[values] = self._make()
        return child

    def remove(self, *values: str) -> None:
        """Forget one child."""
        self._children.pop(values, None)

    @property
    def only(self) -> _Child:
        """The one child of a metric without labels."""
        return self._children[()]

    def children(self) -> list[tuple[tuple[str, ...], _Child]]:
        return list(self._children.items())


class Counter(_Family[Value]):
    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, text, labels=labels, child=Value)

    def collect(self) -> Iterable[Metric]:
        # Some of upstream's counters lack `_total`, which the text format would add to every counter.
        total = self.name.endswith("_total")
        family = Metric(self.name.removesuffix("_total"), self.text, "counter" if total else "unknown")
        for values, child in self.children():
            family.add_sample(self.name, dict(zip(self.label_names, values, strict=True)), child.value)
        yield family


class Gauge(_Family[Value]):
    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, text, labels=labels, child=Value)

    def collect(self) -> Iterable[Metric]:
        family = Metric(self.name, self.text, "gauge")
        for values, child in self.children():
            family.add_sample(self.name, dict(zip(self.label_names, values, strict=True)), child.value)
        yield family


class Histogram(_Family[Distribution]):
    def __init__(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> None:
        super().__init__(name, text, labels=labels, child=lambda: Distribution(buckets))

    def divide(self, buckets: tuple[float, ...]) -> None:
        """Set the upper bounds of the buckets. Counts in others are forgotten."""
        self._make = lambda: Distribution(buckets)
        for values, child in self.children():
            if child.bounds != buckets:
                self._children[values] = self._make()

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self.name, self.text, labels=self.label_names)
        for values, child in self.children():
            buckets = child.buckets()
            family.add_metric(values, buckets, child.sum)
        yield family


class Summary(_Family[Quantiles]):
    """Its quantiles cover the last `age` seconds."""

    def __init__(self, name: str, text: str, age: float, *labels: str) -> None:
        super().__init__(name, text, labels=labels, child=lambda: Quantiles(age))

    def collect(self) -> Iterable[Metric]:
        family = Metric(self.name, self.text, "summary")
        for values, child in self.children():
            labels = dict(zip(self.label_names, values, strict=True))
            for quantile, value in child.quantiles():
                family.add_sample(self.name, {**labels, "quantile": f"{quantile:g}"}, value)
            family.add_sample(f"{self.name}_sum", labels, child.sum)
            family.add_sample(f"{self.name}_count", labels, child.count)
        yield family


def exposition_text() -> bytes:
    """Return all metrics in the Prometheus text format."""
    return exposition.generate_latest(REGISTRY)


def text_of(*families: Counter | Gauge) -> bytes:
    """Return these families in the Prometheus text format."""
    return exposition.generate_latest(_Chosen(families))


class _Chosen(Collector):
    def __init__(self, families: Iterable[Collector]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        for family in self._families:
            yield from family.collect()
