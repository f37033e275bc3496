"""Compare decoded JSON as Go's `reflect.DeepEqual` does.

Upstream: golang/go `src/reflect/deepequal.go`.
"""

from __future__ import annotations

from typing import Any


def deep_equal(one: Any, other: Any) -> bool:
    """Return whether two JSON values are deeply equal. 1, 1.0 and true differ, as int64, float64 and bool do. Nesting has no limit."""
    left = [(one, other)]
    while left:
        one, other = left.pop()
        if type(one) is not type(other):
            return False
        if type(one) is dict:
            if one.keys() != other.keys():
                return False
            left += ((value, other[name]) for name, value in one.items())
        elif type(one) is list:
            if len(one) != len(other):
                return False
            left += zip(one, other, strict=True)
        elif one != other:
            return False
    return True
