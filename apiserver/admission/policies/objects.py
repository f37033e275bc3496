"""Convert results of mutating policies' expressions to plain values: objects for ApplyConfiguration, JSON for JSONPatch.

Upstream: kubernetes/apiserver `pkg/cel/mutation/dynamic/objects.go` (ConvertToNative),
`pkg/admission/plugin/policy/mutating/patch/json_patch.go`. Differences: Go cannot read lists and maps that an expression writes inside
a list or map of an object. It panics at an object in a list or map of a JSONPatch. Here they are converted.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec

from apiserver.codecs.json import rawjson
from kubecel.values import messages
from kubecel.values.conversions import CONVERSIONS
from kubecel.values.mutation import ObjectValue, PatchValue
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import Type
from kubecel.values.values import ABSENT, Optional, UInt, Value, find_key, go_type, is_list, is_map, text
from kubetext.quoting import go_quote
from structuredmerge.validation import Foreign

MOST_VALUES = 1 << 17
"""The most values of a result: a list may hold one list many times, and so be much larger than its cost."""
MANY_VALUES = 256
"""Values above which a result is converted in a thread. A kilobyte of text counts as one value."""
_SAFE = 1 << 53
"""From here on JSON has no integers (isJSONSafe)."""
_VALUE = "*structpb.Value"
_LEVELS = 200


class Unfit(Exception):
    """The result is not an object, or not JSON. The text is Go's."""


class _Walk:
    """The limits of walking one value."""

    def __init__(self) -> None:
        self._left = MOST_VALUES
        self._levels = _LEVELS

    def enter(self) -> None:
        self._left -= 1
        self._levels -= 1
        if self._left < 0:
            raise Unfit(f"more than {MOST_VALUES} values")
        if self._levels < 0:
            raise Unfit("exceeded max depth")

    def leave(self) -> None:
        self._levels += 1


def is_large(value: Value) -> bool:
    """Return whether converting it, and changing an object by it, would hold the event loop for too long."""
    todo, seen = [value], 0
    while todo and seen <= MANY_VALUES:
        at = todo.pop()
        seen += 1 + (len(at) >> 10 if isinstance(at, str | bytes) else 0)
        if isinstance(at, ObjectValue):
            todo.extend(at.fields.values())
        elif isinstance(at, PatchValue):
            todo.append(at.value)
        elif is_list(at):
            todo.extend(islice(at, MANY_VALUES))
        elif is_map(at):
            todo.extend(find_key(at, key) for key in islice(at, MANY_VALUES))
    return seen > MANY_VALUES


def configuration(value: ObjectValue) -> dict[str, Any]:
    """Convert an object as ApplyConfiguration merges it. Raises Unfit."""
    try:
        return _configured(value.fields, _Walk())
    except _WrongKey:
        raise Unfit("invalid return type: *dynamic.ObjectVal") from None


class _WrongKey(Exception):
    """A map in an object has a key that is not a string."""


def _configured(fields: Mapping[str, Value], walk: _Walk) -> dict[str, Any]:
    made = {}
    for name, field in fields.items():
        try:
            made[name] = _native(field, walk)
        except _WrongKey as e:
            raise _WrongKey(f"fail to convert field {go_quote(name)}: {e}") from None
    return made


def _native(value: Value, walk: _Walk) -> Any:
    """Convert as Go's Value(). A value of a type that no object may have becomes Foreign."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    walk.enter()
    made: Any
    if isinstance(value, ObjectValue):
        try:
            made = _configured(value.fields, walk)
        except _WrongKey as e:
            # Go's errors are values.
            made = Foreign("*types.Err", str(e))
    elif is_list(value):
        made = [_native(each, walk) for each in value]
    elif is_map(value):
        made = {}
        for key in value:
            if type(key) is not str:
                raise _WrongKey(f"map key {_go_rune(key)} is of type {go_type(key)}, not string")
            made[key] = _native(find_key(value, key), walk)
    elif kind is Optional:
        made = _native(value.value, walk) if value.has_value else None
    else:
        made = _foreign(value)
    walk.leave()
    return made


def _go_rune(key: Value) -> str:
    """Format Go's %q of a key that is not a string."""
    if isinstance(key, int) and not isinstance(key, bool):
        shown = go_quote(chr(key) if 0 <= key <= sys.maxunicode and not 0xD800 <= key < 0xE000 else "\ufffd")[1:-1]
        return "'" + {'\\"': '"', "'": "\\'"}.get(shown, shown) + "'"
    return f"%!q({go_type(key)}={text(key)})"


_PLAIN = frozenset((str, bool, int, float))


def _foreign(value: Value) -> Any:
    if value is None:
        return Foreign("structpb.NullValue", "NULL_VALUE", "0")
    if isinstance(value, UInt):
        return Foreign("uint64", str(int(value)), f"{int(value):#x}")
    if isinstance(value, bytes):
        spelled = "[]uint8{" + ", ".join(f"{byte:#x}" for byte in value[:1024]) + "}"
        return Foreign("[]uint8", text(value), spelled)
    if isinstance(value, Duration):
        return Foreign("time.Duration", text(value), str(value.nanoseconds))
    if isinstance(value, Timestamp):
        return Foreign("time.Time", text(value), _go_date(value))
    if isinstance(value, Type):
        return value.name
    wrapped = getattr(value, "go_native", None)
    if wrapped == "":
        return Foreign("*types.Err", "no such overload", f"(*types.Err)({_ADDRESS})")
    if isinstance(value, PatchValue):
        return Foreign(go_type(value), _ADDRESS, f"({go_type(value)})({_ADDRESS})")
    return Foreign(wrapped or go_type(value), text(value))


_ADDRESS = "0xc000000000"
"""Go shows the address of such a value, which differs each time."""


def _go_date(moment: Timestamp) -> str:
    """Format Go's %#v of a time in UTC."""
    at = _EPOCH + timedelta(seconds=moment.seconds)
    month = _MONTHS[at.month - 1]
    return (
        f"time.Date({at.year}, time.{month}, {at.day}, {at.hour}, {at.minute}, {at.second}, {moment.nanos}, time.UTC)"
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip


def json_value(value: Value) -> Any:
    """Convert a value for a JSON patch. Raises Unfit."""
    return _json(value, _Walk(), inside=isinstance(value, ObjectValue))


def _json(value: Value, walk: _Walk, *, inside: bool) -> Any:
    """Convert to JSON. `inside` an object all numbers are doubles, and values that are not JSON are refused; elsewhere they become
    text.
    """
    kind = type(value)
    if kind is str or kind is bool:
        return value
    walk.enter()
    try:
        if isinstance(value, ObjectValue):
            return {name: _json(field, walk, inside=True) for name, field in value.fields.items()}
        if is_list(value):
            return [_json(each, walk, inside=inside) for each in value]
        if is_map(value):
            return _json_map(value, walk, inside=inside)
        if kind is Optional and value.has_value:
            return _json(value.value, walk, inside=inside)
        return _json_leaf(value, inside=inside)
    finally:
        walk.leave()


def _json_map(value: Value, walk: _Walk, *, inside: bool) -> dict[str, Any]:
    made = {}
    for key in value:
        if type(key) is not str:
            raise Unfit(messages.refusal(key, "string"))
        made[key] = _json(find_key(value, key), walk, inside=inside)
    return made


def _json_leaf(value: Value, *, inside: bool) -> Any:
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, int):
        if inside:
            return _number(float(value))
        return int(value) if abs(value) < _SAFE else str(int(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if inside:
        shown = "structpb.NullValue" if value is None else _INSIDE.get(type(value)) or go_type(value)
        raise Unfit(f"proto: invalid type: {shown}")
    if value is None:
        return None
    if isinstance(value, Duration | Timestamp):
        return CONVERSIONS["string"](value)
    if type(value) is Optional:
        raise Unfit("optional.none() dereference")
    if isinstance(value, PatchValue):
        raise Unfit(f"cannot convert to native type: {_VALUE}")
    raise Unfit(messages.refusal(value, _VALUE))


_INSIDE: dict[type, str] = {Duration: "time.Duration", Timestamp: "time.Time", PatchValue: "*mutation.JSONPatchVal"}


def _number(value: float) -> int | float:
    """JSON has one number type: a whole number becomes an integer."""
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        message = f"google.protobuf.Value.number_value: invalid {shown} value"
        raise Unfit(f"json: error calling MarshalJSON for type *structpb.Value: proto: {message}")
    return int(value) if value.is_integer() and abs(value) < 1e21 else value


def operation(patch: PatchValue) -> dict[str, Any]:
    """Convert one operation of a JSON patch to JSON values. Raises Unfit."""
    made: dict[str, Any] = {"op": patch.op, "path": patch.path}
    if patch.origin:
        made["from"] = patch.origin
    if patch.value is not ABSENT:
        # Members are sorted by name, as protobuf writes them; numbers have Go's form.
        value = json_value(patch.value)
        made["value"] = None if value is None else msgspec.Raw(rawjson.text(rawjson.made(value)))
    return made
