"""What an expression computes with.

| CEL | Python |
|---|---|
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | UInt, a subclass of int |
| list, map | list or tuple, dict: those of the document itself, never copied |
| timestamp, duration | Timestamp, Duration |
| type | types.Type |
| optional | Optional |
| a type of a library (quantity, semver, url, ip, …) | a class of that library with `cel_type` |

Upstream: google/cel-go `common/types`.
"""

from __future__ import annotations

from typing import Any

Value = Any


class UInt(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()
