"""Convert merged values to an object of a shape as upstream's converter does, without JSON in between: same verdicts, same texts.

It differs from `decoding`:

* Whole floats are integers, and integers lose the bits that their type does not have.
* Raw JSON is written anew.
* kind and apiVersion are not looked up.
* Unknown members are sorted by their texts.

Upstream: kubernetes/apimachinery `pkg/runtime/converter.go` (FromUnstructuredWithValidation), kubernetes-sigs/structured-merge-diff
`value/reflectcache.go`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec

from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import decoding, times
from apiserver.codecs.objects.decoding import Decoded, DecodeError
from apiserver.schema import shapes, types
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Integer, ListOf, MapOf, Quantity, RawJSON, String, Struct, Time, Type
from kubetext import printing, quantity, strconv

TYPE_META = ("kind", "apiVersion")
_TEXT = String()


def decode(shape: Struct, value: Object, *, anew: bool = True) -> Decoded:
    """Convert an object with its kind and apiVersion into a new one without them. metadata.managedFields stays.

    Raw JSON whose text is known is written anew as well, unless `anew` is False. `unknown` has the sorted paths of all members that the
    shape does not have. The keys of maps are not part of a path. Further members of an open struct stay as they are. Raises DecodeError.
    """
    for name in TYPE_META:
        if (x := value.get(name)) is not None:
            _scalar(_TEXT, x)
    members = {name: x for name, x in value.items() if name not in TYPE_META}
    if shape.open:
        return _open(shape, members, anew=anew)
    found = _regular(shape, members)
    if found is None:
        walk = _Walk()
        made = walk.struct(shape, members, "")
        found = Decoded(decoding.decode(shape, made).object, sorted(walk.unknown))
    remake = _remaker(shape) if anew else None
    if remake is not None:
        remake(found.object)
    return found


def _open(shape: Struct, members: Object, *, anew: bool) -> Decoded:
    declared = {field.name for field in types.members(shape)}
    found = decode(types.closed(shape), {name: x for name, x in members.items() if name in declared}, anew=anew)
    found.object.update((name, x) for name, x in members.items() if name not in declared)
    return found


def _regular(shape: Struct, members: Object) -> Decoded | None:
    """Decode regular members; None if anything is irregular."""
    try:
        found = decoding.decode(shape, members)
    except (DecodeError, msgspec.DecodeError):  # raw JSON: NaN and infinity have no JSON
        return None
    return None if found.unknown else found


class _Walk:
    """The converter: returns values without unknown members and nulls. Each method raises DecodeError."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def value(self, type_: Type, value: Any, path: str) -> Any:
        match type_:
            case Struct():
                return self.struct(type_, value, path)
            case MapOf():
                return self._map(type_, value, path)
            case ListOf():
                return self._list(type_, value, path)
            case Quantity():
                return _quantity(_written(value, "resource.Quantity"))
            case Time():
                return _time(_written(value, "v1.MicroTime" if type_.micro else "v1.Time"), micro=type_.micro)
            case RawJSON():
                return _written(value, type_.go)
        return _scalar(type_, value)

    def struct(self, shape: Struct, value: Any, path: str) -> Object:
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore struct from: {_kind(value)}")
        fields = {field.name: field for field in types.members(shape)}
        self.unknown += [_child(path, name) for name in value if name not in fields]
        return {
            name: self.value(field.type, value[name], _child(path, name))
            for name, field in fields.items()
            if value.get(name) is not None
        }

    def _map(self, type_: MapOf, value: Any, path: str) -> Object:
        if not isinstance(value, dict):
            raise DecodeError(f"cannot restore map from {_kind(value)}")
        return {name: self._element(type_.value, x, path) for name, x in value.items()}

    def _list(self, type_: ListOf, value: Any, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise DecodeError(f"cannot restore slice from {_kind(value)}")
        return [self._element(type_.item, x, f"{path}[{i}]") for i, x in enumerate(value)]

    def _element(self, type_: Type, value: Any, path: str) -> Any:
        return None if value is None else self.value(type_, value, path)


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _scalar(type_: String | Integer | Boolean, value: Any) -> Any:
    match type_:
        case String() if isinstance(value, str):
            return value
        case Boolean() if isinstance(value, bool):
            return value
        case Integer() if isinstance(value, int | float) and not isinstance(value, bool):
            if float(value).is_integer():
                return _truncated(value, type_.bits)
    raise _misfit(type_, value)


def _misfit(type_: String | Integer | Boolean, value: Any) -> DecodeError:
    """Return the converter's error for a scalar of another type. Go would convert between numbers, and whole numbers to text; the converter
    does not."""
    kind = f"int{type_.bits}" if isinstance(type_, Integer) else "string" if isinstance(type_, String) else "bool"
    found = printing.go_type(value)
    if (found, kind) == ("int64", "string") or (found == "float64" and isinstance(type_, Integer)):
        return DecodeError(f"cannot convert {found} to {type_.go if isinstance(type_, String) else kind}")
    return DecodeError(f"unrecognized type: {kind}")


def _truncated(value: float, bits: int) -> int:
    """Return a number as an integer of this many bits, as the processor leaves it. Floats out of range are the least int64."""
    whole = int(value)
    if not strconv.MIN_INT64 <= whole <= strconv.MAX_INT64:
        whole = strconv.MIN_INT64
    half = 1 << (bits - 1)
    return (whole + half) % (2 * half) - half


def _kind(value: Any) -> str:
    """Return the name that Go's reflection gives a value."""
    if isinstance(value, dict):
        return "map"
    return "slice" if isinstance(value, list) else printing.go_type(value)


def _written(value: Any, go: str) -> Any:
    """Return the value. Types that decode themselves from JSON are encoded first, and JSON has no NaN and no infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise DecodeError(f"error encoding {go} to json: json: unsupported value: {shown}")
    return value


def _quantity(value: Any) -> str:
    """Return the quantity that Go reads from the JSON of the value, in the spelling of that JSON."""
    if isinstance(value, bool | dict | list):
        value = "true" if value is True else "false" if value is False else "{}"
    try:
        found = quantity.canonical(value)
        return value if isinstance(value, str) else str(found)
    except quantity.QuantityError as e:
        raise DecodeError(str(e)) from None


_JSON_KINDS = {"bool": "bool", "int64": "number", "float64": "number", "[]interface {}": "array"}


def _time(value: Any, *, micro: bool) -> str:
    if not isinstance(value, str):
        kind = _JSON_KINDS.get(printing.go_type(value), "object")
        raise DecodeError(f"json: cannot unmarshal {kind} into Go value of type string")
    try:
        return times.canonical(value, micro=micro)
    except times.TimeError as e:
        raise DecodeError(str(e)) from None


# Writing raw JSON anew.


@functools.cache
def _remaker(type_: Type) -> Callable[[Any], Any] | None:
    """Return a function that writes raw JSON anew, in place or as its result; None if nothing below is raw JSON. Field sets stay: they are
    read by meaning."""
    match type_:
        case RawJSON() if type_ is not shapes.FIELDS_V1:
            return _remade
        case ListOf():
            item = _remaker(type_.item)
            return item and functools.partial(_remake_list, item)
        case MapOf():
            member = _remaker(type_.value)
            return member and functools.partial(_remake_map, member)
        case Struct():
            steps = {f.name: step for f in types.members(type_) if (step := _remaker(f.type))}
            return functools.partial(_remake_struct, steps) if steps else None
    return None


def _remade(value: Any) -> Any:
    return rawjson.made(rawjson.parsed(value))


def _remake_list(item: Callable[[Any], Any], value: list[Any]) -> list[Any]:
    value[:] = [x if x is None else item(x) for x in value]
    return value


def _remake_map(member: Callable[[Any], Any], value: Object) -> Object:
    for name, x in value.items():
        value[name] = x if x is None else member(x)
    return value


def _remake_struct(steps: dict[str, Callable[[Any], Any]], value: Object) -> Object:
    for name, step in steps.items():
        if value.get(name) is not None:
            value[name] = step(value[name])
    return value
