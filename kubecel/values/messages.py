"""Construct protobuf's own messages: `google.protobuf.Int64Value{value: 3}`. Most of them are values of the language.

Upstream: google/cel-go `common/types/provider.go` NewValue, and ConvertToNative of each type.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping

from kubecel.values import stackless, types
from kubecel.values.conversions import CONVERSIONS
from kubecel.values.errors import EvaluationError
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import Type
from kubecel.values.values import NONE, Optional, UInt, Value, find_key, is_list, is_map, type_of

# Integers up to here are numbers in JSON, larger ones are strings.
_JSON_SAFE = 2**53
_NANOSECONDS = 10**9
_MIN_INT, _MAX_INT = -(2**63), 2**63 - 1


class Message:
    """A message that is not a value of the language: `google.protobuf.Empty{}`."""

    def __init__(self, of: Type) -> None:
        self.cel_type = of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self.cel_type == other.cel_type

    def __hash__(self) -> int:
        return hash(self.cel_type)


class _Unfit(Exception):
    """A value cannot be converted to the type of the field."""


# How cel-go's message begins when a value of a type cannot be converted; `{}` is Go's name of the target.
_REFUSALS: dict[str, str] = {
    "int": "unsupported type conversion from 'int' to {}",
    "uint": "unsupported type conversion from 'uint' to {}",
    "double": "type conversion error from Double to '{}'",
    "bool": "type conversion error from bool to '{}'",
    "string": "unsupported native conversion from string to '{}'",
    "bytes": "type conversion error from Bytes to '{}'",
    "null_type": "type conversion error from 'null_type' to '{}'",
    "list": "type conversion error from list to '{}'",
    "map": "type conversion error from map to '{}'",
    "google.protobuf.Duration": "type conversion error from 'Duration' to '{}'",
    "google.protobuf.Timestamp": "type conversion error from 'Timestamp' to '{}'",
    "type": "type conversion not supported for 'type'",
}


def _unfit(value: Value, native: str) -> _Unfit:
    name = type_of(value).name
    return _Unfit(
        _REFUSALS.get(name, f"type conversion error from '{name.rpartition('.')[2]}' to '{{}}'").format(native)
    )


def refusal(value: Value, native: str) -> str:
    """Return cel-go's message for a value that cannot be converted to Go's `native` type."""
    return str(_unfit(value, native))


def _scalar(kind: type, native: str, *, low: int = 0, high: int = 0, overflow: str = "") -> Callable[[Value], Value]:
    """Return the conversion to a scalar field: a value of the type and within the limits, if there are any, is
    unchanged.
    """

    def convert(value: Value) -> Value:
        if type(value) is not kind:
            raise _unfit(value, native)
        if isinstance(value, int) and overflow and not low <= value <= high:
            raise _Unfit(overflow)
        return value

    return convert


def _float32(value: Value) -> float:
    if type(value) is not float:
        raise _unfit(value, "float32")
    try:
        rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        rounded = float("inf") if value > 0 else float("-inf")
    return rounded


def _json(value: Value) -> stackless.Task:
    """Convert a value to JSON: numbers become doubles, values without a JSON type become text."""
    if type(value) is Optional:
        return (yield _json(_held(value)))
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int):
        return float(value) if abs(value) < _JSON_SAFE else str(int(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Duration | Timestamp):
        return CONVERSIONS["string"](value)
    if is_list(value):
        elements = []
        for element in value:
            made = yield _json(element)
            elements.append(made)
        return elements
    if is_map(value):
        entries = {}
        for key in value:
            entries[_text(key)] = yield _json(find_key(value, key))
        return entries
    raise _unfit(value, "*structpb.Value")


_text = _scalar(str, "string")


def _json_list(value: Value) -> Value:
    if not is_list(value):
        raise _unfit(value, "*structpb.ListValue")
    return stackless.run(_json(value))


def _json_map(value: Value) -> Value:
    if not is_map(value):
        raise _unfit(value, "*structpb.Struct")
    return stackless.run(_json(value))


def _null(value: Value) -> None:
    _scalar(int, "protoreflect.EnumNumber", low=-(2**31), high=2**31 - 1, overflow="integer overflow")(value)


_INT64, _UINT64 = _scalar(int, "int64"), _scalar(UInt, "uint64")
_INT32 = _scalar(int, "int32", low=-(2**31), high=2**31 - 1, overflow="integer overflow")
_UINT32 = _scalar(UInt, "uint32", low=0, high=2**32 - 1, overflow="unsigned integer overflow")
_BYTES = _scalar(bytes, "[]uint8")
_TIME = {"seconds": _INT64, "nanos": _INT32}

# Conversions of the fields, and the value of a wrapper without a field.
_FIELDS: dict[str, dict[str, Callable[[Value], Value]]] = {
    "google.protobuf.Any": {"type_url": _text, "value": _BYTES},
    "google.protobuf.BoolValue": {"value": _scalar(bool, "bool")},
    "google.protobuf.BytesValue": {"value": _BYTES},
    "google.protobuf.DoubleValue": {"value": _scalar(float, "float64")},
    "google.protobuf.Duration": _TIME,
    "google.protobuf.Empty": {},
    "google.protobuf.FloatValue": {"value": _float32},
    "google.protobuf.Int32Value": {"value": _INT32},
    "google.protobuf.Int64Value": {"value": _INT64},
    "google.protobuf.ListValue": {"values": _json_list},
    "google.protobuf.StringValue": {"value": _text},
    "google.protobuf.Struct": {"fields": _json_map},
    "google.protobuf.Timestamp": _TIME,
    "google.protobuf.UInt32Value": {"value": _UINT32},
    "google.protobuf.UInt64Value": {"value": _UINT64},
    "google.protobuf.Value": {
        "null_value": _null,
        "number_value": _scalar(float, "float64"),
        "string_value": _text,
        "bool_value": _scalar(bool, "bool"),
        "struct_value": _json_map,
        "list_value": _json_list,
    },
}
_EMPTY = {"bool": False, "bytes": b"", "double": 0.0, "int": 0, "string": "", "uint": UInt(0)}
# Fields with many values: a value of a wrong type is refused before anything is converted.
_REPEATED = {"google.protobuf.ListValue": is_list, "google.protobuf.Struct": is_map}


def message(name: str, fields: Mapping[str, Value]) -> Value:
    """Return the value of a message with these fields. Raises EvaluationError with cel-go's message for an invalid
    field.
    """
    conversions = _FIELDS.get(name)
    if conversions is None:
        raise EvaluationError(f"unknown type '{name}'")
    made = {field: _converted(name, field, value, conversions[field]) for field, value in fields.items()}
    if name in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        return _moment(name, made.get("seconds", 0), made.get("nanos", 0))
    if name == "google.protobuf.Value":
        # The fields exclude each other: the last one wins.
        return list(made.values())[-1] if made else None
    if name == "google.protobuf.Any":
        raise EvaluationError("unsupported conversion to ref.Val: (*dynamicpb.Message)")
    if name == "google.protobuf.Empty":
        return Message(types.struct(name))
    for value in made.values():
        return value
    return {"google.protobuf.ListValue": [], "google.protobuf.Struct": {}}.get(
        name, _EMPTY.get(types.struct(name).name)
    )


def _converted(name: str, field: str, value: Value, convert: Callable[[Value], Value]) -> Value:
    if name in _REPEATED and not _REPEATED[name](value):
        of = type_of(value)
        raise EvaluationError(f"unsupported field type for {name}.{field}: {of}")
    try:
        return convert(_held(value) if type(value) is Optional else value)
    except _Unfit as error:
        raise EvaluationError(f"field type conversion error for {name}.{field} value type: {error}") from None


def _held(value: Optional) -> Value:
    if value == NONE:
        raise _Unfit("optional.none() dereference")
    return value.value


def _moment(name: str, seconds: int, nanos: int) -> Value:
    if name == "google.protobuf.Duration":
        return Duration(max(_MIN_INT, min(_MAX_INT, seconds * _NANOSECONDS + nanos)))
    carried, nanos = divmod(nanos, _NANOSECONDS)
    return Timestamp(seconds + carried, nanos)
