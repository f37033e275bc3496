"""One reading of /metrics: values by name and labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reading:
    """The samples of one moment. `at` is in seconds of a monotonic clock."""

    at: float
    samples: Mapping[str, Mapping[frozenset[tuple[str, str]], float]]

    @classmethod
    def of(cls, text: str, at: float) -> Reading:
        """Parse Prometheus' text format. Raises ValueError."""
        samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return cls(at, samples)

    def each(self, name: str) -> Iterator[tuple[Labels, float]]:
        for labels, value in self.samples.get(name, {}).items():
            yield dict(labels), value

    def total(self, name: str, **labels: str) -> float:
        """Return the sum of the samples that have these labels, 0 without any."""
        wanted = labels.items()
        return sum(value for have, value in self.each(name) if wanted <= have.items())


def increases(before: Reading, after: Reading, name: str) -> Iterator[tuple[Labels, float]]:
    """Yield by how much each counter rose between two readings. One that fell belongs to a restarted process, and began at 0."""
    old = before.samples.get(name, {})
    for labels, value in after.samples.get(name, {}).items():
        was = old.get(labels, 0.0)
        rise = value - was if value >= was else value
        if rise:
            yield dict(labels), rise


def quantile(before: Reading, after: Reading, name: str, share: float, **labels: str) -> float:
    """Return the upper bound of the bucket in which a share of the new observations lie; nan without observations."""
    counts: dict[float, float] = {}
    for have, rise in increases(before, after, f"{name}_bucket"):
        if labels.items() <= have.items():
            bound = float(have["le"])
            counts[bound] = counts.get(bound, 0.0) + rise
    return bucket(counts, share)


def bucket(counts: Mapping[float, float], share: float) -> float:
    """Return the bound of the first of cumulative buckets that holds the share; nan for empty ones."""
    if not counts or not (everything := counts.get(math.inf, max(counts.values()))):
        return math.nan
    return next((bound for bound in sorted(counts) if counts[bound] >= share * everything), math.inf)
