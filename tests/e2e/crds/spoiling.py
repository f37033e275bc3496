"""Put one error into an object. It follows from the seed."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.e2e.crds.drawing import Object, Schema
from tests.e2e.crds.repairing import Path, at, below, node

OTHERS: tuple[Any, ...] = (
    None,
    7,
    -1,
    1.5,
    1e20,
    "text",
    "",
    True,
    [],
    [1],
    [None],
    {},
    {"x": 1},
    'é\n\u2028"',
    1 << 40,
)


def spoiled(obj: Object, schema: Schema, draw: random.Random) -> Object:
    """Return the object with one error in it: another type, an unknown or missing member, a value out of bounds, a repeated item."""
    obj = copy.deepcopy(obj)
    places = [path for path in paths(obj, schema) if path[:1] not in (("metadata",), ("apiVersion",), ("kind",))]
    if not places:
        obj["unknownField"] = draw.choice(OTHERS)
        return obj
    path = draw.choice(places)
    within, last, value, about = at(obj, path[:-1]), path[-1], at(obj, path), node(schema, path)
    choices: list[Any] = [draw.choice(OTHERS), draw.choice(OTHERS)]
    if isinstance(value, dict):
        choices.append({**value, "unknownField": draw.choice(OTHERS)})
        if required := about.get("required"):
            without = draw.choice(required)
            choices.append({name: member for name, member in value.items() if name != without})
    if isinstance(value, list) and value:
        choices += [[*value, value[0]], value * max(2, about.get("maxItems", 1) // len(value) + 1)][
            : 1 + ("maxItems" in about)
        ]
    if isinstance(value, str):
        choices.append("x" * min(about.get("maxLength", 300) + 1, 70_000))
        choices.append(value + " ")
    if isinstance(value, int | float) and not isinstance(value, bool):
        choices += [about.get("maximum", 10**9) + 1, about.get("minimum", 0) - 1, str(value), value + 0.5]
    within[last] = draw.choice(choices)
    return obj


def paths(value: Any, schema: Schema, path: Path = ()) -> Iterator[Path]:
    """Yield the path of each member and item."""
    steps: Any = sorted(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield (*path, step)
        yield from paths(value[step], below(schema, step), (*path, step))
