"""Values as the tables of CEL write them."""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable
from typing import Any

from kubecel.values import types
from kubecel.values.times import Duration, Timestamp, parse_duration, parse_timestamp
from kubecel.values.values import NONE, Optional, UInt, Value, find_key, is_list, is_map, map_of


def given(value: Any) -> Value:
    """A value out of the table."""
    if isinstance(value, list):
        return [given(element) for element in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1 or not (name := next(iter(value))).startswith("$"):
        return {key: given(element) for key, element in value.items()}
    inner = value[name]
    if name == "$optional":
        return NONE if inner is None else Optional(given(inner))
    if name == "$map":
        return map_of((given(key), given(element)) for key, element in inner)
    read: dict[str, Callable[[Any], Value]] = {
        "$uint": lambda digits: UInt(int(digits)),
        "$double": float,
        "$bytes": base64.b64decode,
        "$timestamp": parse_timestamp,
        "$duration": parse_duration,
    }
    return read[name](inner)


def text(value: Value) -> str:
    """A value as the table writes it."""
    if is_list(value):
        return f"[{', '.join(map(text, value))}]"
    if is_map(value):
        entries = [(key, find_key(value, key)) for key in value]
        return f"{{{', '.join(sorted(f'{text(key)}: {text(element)}' for key, element in entries))}}}"
    if isinstance(value, Optional):
        return f"optional.of({text(value.value)})" if value.has_value else "optional.none()"
    if hasattr(value, "go_type"):
        return f"{value.cel_type.name}({value})"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return f"double({value!r})"
    written: dict[type, Callable[[Any], str]] = {
        type(None): lambda _: "null",
        bool: lambda truth: "true" if truth else "false",
        int: str,
        UInt: lambda number: f"{number}u",
        float: repr,
        str: functools.partial(json.dumps, ensure_ascii=False),
        bytes: repr,
        Timestamp: lambda moment: f"timestamp({Timestamp(moment.seconds, moment.nanos)})",
        Duration: lambda span: f"duration({span.nanoseconds})",
        types.Type: lambda of: f"type({of.name})",
    }
    return written[type(value)](value)
