"""Objects of any shape as clients send them, made of a seed: quick to make, and many of them."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import strategies as st

from apiserver.schema import types
from apiserver.schema.types import Boolean, Integer, ListOf, ListType, MapOf, Quantity, String, Struct, Time, Type

SEEDS = st.integers(0, 2**32 - 1)
RAW: tuple[Any, ...] = ({}, {"b": 1, "a": [1.5, None]}, [], "text", 1, True, {"a": {}})
LEAVES: dict[type, tuple[Any, ...]] = {
    String: ("", "a", "b", "n1", "x.io/y"),
    Boolean: (True, False),
    Integer: (0, 1, 7),
    Quantity: ("0", "1", "1Gi", "1024Mi", 3),
    Time: ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00"),
}


def sent(rng: random.Random, type_: Type) -> Any:
    """A value of the type; any member may be missing, null or empty."""
    match type_:
        case Struct():
            fields = [field for field in types.members(type_) if field.name != "managedFields"]
            return {f.name: None if rng.random() < 0.05 else sent(rng, f.type) for f in fields if rng.random() < 0.6}
        case ListOf():
            items = [sent(rng, type_.item) for _ in range(rng.randrange(3))]
            return items if type_.list_type is ListType.ATOMIC else unique(items, type_.keys)
        case MapOf():
            return {rng.choice(("a", "b", "x.io/y")): sent(rng, type_.value) for _ in range(rng.randrange(3))}
    return rng.choice(LEAVES.get(type(type_), RAW))


def unique(items: list[Any], keys: tuple[str, ...]) -> list[Any]:
    """Each item once, by its keys or by itself."""
    found: dict[Any, Any] = {}
    for item in items:
        found.setdefault(tuple((name, item.get(name) or "") for name in keys) if keys else item, item)
    return list(found.values())
