"""Objects that have about everything, and what becomes of a value with something odd in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.unit.resources.samples import CLAIM, NOW, SLICE, with_device, with_spec

ODD: tuple[Any, ...] = (None, "", [], {}, 0, False, "0001-01-01T00:00:00Z")
GRADE: dict[str, Any] = {"string": "a"}
SLOTS: dict[str, Any] = {
    "value": "4",
    "requestPolicy": {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}},
}
TAINT: dict[str, Any] = {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": NOW}
CONFIG: dict[str, Any] = {"opaque": {"driver": "d.io", "parameters": {"a": [1]}}}
EXACTLY: dict[str, Any] = {
    "deviceClassName": "c",
    "selectors": [{"cel": {"expression": "true"}}],
    "tolerations": [{"key": "k"}],
}
WHOLE: list[tuple[str, dict[str, Any]]] = [
    (
        "ResourceSlice",
        with_device(
            attributes={"grade": GRADE, "n": {"int": 1}, "b": {"bool": True}, "v": {"version": "1.0.0"}},
            capacity={"slots": SLOTS},
            taints=[TAINT],
            allowMultipleAllocations=True,
        ),
    ),
    ("ResourceSlice", with_spec(SLICE, devices=[], sharedCounters=[{"name": "c", "counters": {"a": {"value": "1"}}}])),
    (
        "ResourceClaim",
        with_spec(CLAIM, devices={"requests": [{"name": "main", "exactly": EXACTLY}], "config": [CONFIG]}),
    ),
    ("DeviceClass", {"metadata": {"name": "c"}, "spec": {"config": [CONFIG], "selectors": EXACTLY["selectors"]}}),
]


def odd(value: Any) -> Iterator[Any]:
    """Variants of a value with something odd, or nothing, in one of its places."""
    yield from ODD
    if isinstance(value, dict):
        for name, x in value.items():
            yield {other: y for other, y in value.items() if other != name}
            yield from ({**value, name: y} for y in odd(x))
    elif isinstance(value, list):
        for i, x in enumerate(value):
            yield from ([*value[:i], y, *value[i + 1 :]] for y in odd(x))
