"""Amounts of several resources by name, as a ResourceQuota has them in `hard` and `used`.

Nothing here changes its arguments. Upstream: kubernetes/apiserver `pkg/quota/v1/resources.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubetext import quantity
from kubetext.quantity import Quantity

Amounts = Mapping[str, Quantity]

ZERO, ONE = Quantity(0), Quantity(1)


def read(found: Mapping[str, Any] | None) -> dict[str, Quantity]:
    """Parse the JSON member of a quota. Raises QuantityError."""
    return {name: quantity.parse(value) for name, value in (found or {}).items()}


def written(amounts: Amounts) -> dict[str, str]:
    return {name: amount.canonical() for name, amount in amounts.items()}


def added(a: Amounts, b: Amounts) -> Amounts:
    return {**b, **{name: amount + b[name] if name in b else amount for name, amount in a.items()}}


def growth(new: Amounts, old: Amounts) -> Amounts:
    """Return how much more `new` is, for each name of both; 0 for what is less."""
    return {name: max(new.get(name, ZERO) - old.get(name, ZERO), ZERO) for name in (*new, *(old.keys() - new.keys()))}


def only(amounts: Amounts, names: Iterable[str]) -> Amounts:
    wanted = frozenset(names)
    return {name: amount for name, amount in amounts.items() if name in wanted}


def without_zeros(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount}


def negative(amounts: Amounts) -> list[str]:
    return [name for name, amount in amounts.items() if amount.sign() < 0]


def exceeding(amounts: Amounts, limits: Amounts) -> list[str]:
    """Return the names whose amounts exceed their limits; names without a limit are left out."""
    return [name for name, limit in limits.items() if name in amounts and amounts[name] > limit]


def format_amounts(amounts: Amounts) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(amounts))


def format_names(names: Iterable[str]) -> str:
    return ",".join(sorted(names))
