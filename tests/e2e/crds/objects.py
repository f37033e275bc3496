"""Random objects of a CustomResourceDefinition's schema, and random errors in them. All of them follow from the seed."""

from __future__ import annotations

import copy
import random
from typing import Any

Object = dict[str, Any]
DEPTH = 8
TEXTS = ("a", "abc", "", "a-b", "10Gi", "https://example.com", "2001-01-01T00:00:00Z", "1h", "10.0.0.1", "Zz")


def value(schema: Object, draw: random.Random, depth: int = 0) -> Any:
    """A value that fits the types of a schema. It may break other validations."""
    if enum := schema.get("enum"):
        return draw.choice(enum)
    if schema.get("x-kubernetes-int-or-string"):
        return draw.choice([draw.randint(0, 9), "50%"])
    match schema.get("type"):
        case "object":
            return _object(schema, draw, depth)
        case "array":
            least = schema.get("minItems", 0)
            count = min(draw.randint(least, least + 2), 5) if depth < DEPTH else least
            return [value(schema.get("items", {}), draw, depth + 1) for _ in range(count)]
        case "integer":
            return draw.randint(int(schema.get("minimum", 0)), int(schema.get("maximum", 100)))
        case "number":
            return draw.choice([0.5, 1, 2.25])
        case "boolean":
            return draw.random() < 0.5
        case "string":
            return draw.choice(TEXTS)
    return {"kept": draw.randint(0, 9)}


def _object(schema: Object, draw: random.Random, depth: int) -> Object:
    required = set(schema.get("required", ()))
    likely = 0.5 if depth < 3 else 0.15
    made = {
        name: value(member, draw, depth + 1)
        for name, member in sorted(schema.get("properties", {}).items())
        if name in required or (depth < DEPTH and draw.random() < likely)
    }
    if isinstance(more := schema.get("additionalProperties"), dict) and depth < DEPTH:
        made |= {f"k{number}": value(more, draw, depth + 1) for number in range(draw.randint(0, 2))}
    if schema.get("x-kubernetes-embedded-resource"):
        made |= {"apiVersion": "v1", "kind": "Pod"}
    return made


def spoiled(obj: Object, draw: random.Random) -> Object:
    """The object with one error: another type, null, or an unknown member."""
    obj = copy.deepcopy(obj)
    at = obj.setdefault("spec", {})
    while isinstance(at, dict) and (below := sorted(name for name in at if isinstance(at[name], dict))):
        if draw.random() < 0.3:
            break
        at = at[draw.choice(below)]
    if not isinstance(at, dict):
        return obj
    name = draw.choice([*sorted(at), "unknownField"])
    at[name] = draw.choice([None, 7, "text", [1], {"x": 1}, True, -1.5])
    return obj
