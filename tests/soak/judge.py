"""Judge whether curves are flat: the rule of README.md, for any series of samples."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEAST_SAMPLES = 3
"""In a third: a median of fewer is a chance."""

Points = Sequence[tuple[float, float]]
"""Seconds since the beginning, and a value."""


@dataclass(frozen=True)
class Curve:
    """Something that has to stay flat: the median of the last third may lie above that of the middle third by `share` and `slack`."""

    name: str
    unit: str
    share: float
    slack: float
    fills: float = 0.0
    """Seconds for which the curve has to rise, because a cache or a log fills up. They must lie in the first third."""

    def most(self, middle: float) -> float:
        return middle * (1 + self.share) + self.slack


@dataclass(frozen=True)
class Verdict:
    """The judgement of one curve."""

    curve: Curve
    middle: float
    last: float
    fills: bool
    """Whether the run is too short to judge this curve."""

    @property
    def rises(self) -> bool:
        return not self.fills and self.last > self.curve.most(self.middle)

    @property
    def word(self) -> str:
        return "RISES" if self.rises else "still fills" if self.fills else "flat"


class Unmeasured(Exception):
    """A curve without enough samples: nothing can be said about it."""


def judge(curve: Curve, points: Points, seconds: float) -> Verdict:
    """Compare the last third of a run with its middle third."""
    middle = [value for at, value in points if seconds / 3 <= at < 2 * seconds / 3]
    last = [value for at, value in points if at >= 2 * seconds / 3]
    if min(len(middle), len(last)) < LEAST_SAMPLES:
        raise Unmeasured(f"{curve.name}: {len(middle)} and {len(last)} samples in the last two thirds")
    return Verdict(curve, statistics.median(middle), statistics.median(last), fills=3 * curve.fills > seconds)
