"""Divide seats among priority levels by demand, within bounds. Pure.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/conc_alloc.go`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEAST_TARGET = 0.001
"""A smaller target counts as this one: shares are in proportion to targets."""
EPSILON = 1e-7


class Claim(NamedTuple):
    """The bounds of one level: `lower` ≤ its seats ≤ `upper`, in proportion to `target` between them. `target` ≥ `lower` ≥ 0."""

    target: float
    lower: float
    upper: float


class Impossible(ValueError):
    """No division keeps all bounds."""


def divide(seats: int, claims: Sequence[Claim]) -> tuple[Sequence[float], float]:
    """Return the seats of each claim, and the fair share: each gets that times its target, unless a bound says otherwise.

    The sum of the results is `seats`. Raises Impossible.
    """
    for claim in claims:
        if claim.lower < 0 or claim.target < claim.lower or claim.upper < claim.lower:
            raise Impossible(f"bounds contradict each other: {claim}")
    targets = [max(claim.target, LEAST_TARGET) for claim in claims]
    low, high = sum(claim.lower for claim in claims), sum(claim.upper for claim in claims)
    if seats < 0 or low - seats > EPSILON:
        raise Impossible(f"lower bounds sum to {low:g}, which is higher than the required sum of {seats}")
    if seats - high > EPSILON:
        raise Impossible(f"upper bounds sum to {high:g}, which is lower than the required sum of {seats}")
    if seats == 0:
        return [0.0] * len(claims), 0.0
    if low - seats > -EPSILON:
        return [claim.lower for claim in claims], min(c.lower / t for c, t in zip(claims, targets, strict=True))
    if seats - high > -EPSILON:
        return [claim.upper for claim in claims], max(c.upper / t for c, t in zip(claims, targets, strict=True))
    share = _share(seats, low, claims, targets)
    return [max(c.lower, min(c.upper, share * t)) for c, t in zip(claims, targets, strict=True)], share


def _share(seats: float, low: float, claims: Sequence[Claim], targets: Sequence[float]) -> float:
    """Return the fair share: raise it from bound to bound, until the sum of all seats is reached.

    A claim takes part between its lower and its upper bound.
    """
    bounds = sorted(
        (bound / target, sign * target)
        for claim, target in zip(claims, targets, strict=True)
        for bound, sign in ((claim.lower, 1), (claim.upper, -1))
    )
    total, share, growing = low, 0.0, 0.0
    for bound, change in bounds:
        reached = total + (bound - share) * growing
        if growing > 0 and reached >= seats:
            break
        total, share = reached, bound
        growing += change
    return share + (seats - total) / growing if growing > 0 else share
