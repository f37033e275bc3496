"""Decode the JSON of a CustomResourceDefinition as Go does: unknown members are dropped, a wrong type is an error.

Upstream: kubernetes-sigs/json `internal/golang/encoding/json/decode.go`, kubernetes/apiextensions-apiserver
`pkg/apis/apiextensions/v1/marshal.go`.
"""

from __future__ import annotations

import operator
import re
from typing import Any, NamedTuple

from apiserver.apiextensions import types
from apiserver.apiextensions.sharing import Schema, Sharing
from apiserver.apiextensions.types import (
    DEFINITION,
    SCHEMA,
    VERSION,
    ListOf,
    MapOf,
    NamedText,
    Scalar,
    Struct,
    Type,
    Variant,
)
from apiserver.codecs.objects import decoding, times
from apiserver.codecs.objects.decoding import MAX_STRICT_ERRORS, DecodeError, json_kind
from apiserver.schema import shapes
from apiserver.schema.types import Field
from apiserver.schema.types import Struct as Shape
from kubetext.strconv import json_float

__all__ = ["MOST_LEVELS", "DecodeError", "Decoded", "compact", "compact_version", "decode"]

MOST_LEVELS = 100
"""Levels of schemas in a schema. Real ones have 20; what is made of a schema is made by recursion."""
MOST_JSON_LEVELS = 100
"""Levels of nesting of a default, an example or a value of an enum."""


class Decoded(NamedTuple):
    """A definition without unknown members, and the paths of these.

    Members without a value are absent, and so are zero values where Go does not tell them from absent ones. Empty lists and maps are kept,
    because checks tell them from absent ones; `empties`: there are some.
    """

    object: dict[str, Any]
    unknown: list[str]
    empties: bool


_METADATA = Shape(name="CustomResourceDefinition", fields=[Field(name="metadata", number=1, type=shapes.OBJECT_META)])


def decode(value: dict[str, Any], shared: Sharing | None = None) -> Decoded:
    """Decode a definition. Raises DecodeError with Go's text.

    Numbers are as they come back from storage: `1.0` is 1. Schemas that are one value stay one value.
    """
    walk = _Walk(shared or Sharing())
    metadata = decoding.decode(_METADATA, {"metadata": value.get("metadata")})
    walk.unknown += metadata.unknown
    found = {name: value[name] for name in ("apiVersion", "kind") if name in value} | metadata.object
    body = {name: member for name, member in value.items() if name not in ("apiVersion", "kind", "metadata")}
    found |= walk.struct(DEFINITION, body, "")
    if walk.error:
        raise DecodeError(walk.error)
    return Decoded(found, walk.unknown, walk.empties)


class _Walk:
    """Decodes values. `error` is the first mismatch; decoding goes on behind it, as in Go."""

    def __init__(self, shared: Sharing) -> None:
        self.error = ""
        self.unknown: list[str] = []
        self.empties = False
        self._schemas = shared.schemas
        self._flaws = 0
        self._deepest = 0
        self._strict = True
        self._struct = ""
        self._fields: tuple[str, ...] = ()
        self._levels = 0

    def struct(self, struct: Struct, value: dict[str, Any], path: str) -> dict[str, Any]:
        return self._schema(value, path) if struct is SCHEMA else self._members(struct, value, path)

    def _schema(self, value: dict[str, Any], path: str) -> dict[str, Any]:
        known = self._schemas.get(id(value))
        if known is not None and self._levels + known.levels <= MOST_LEVELS:
            self.empties = self.empties or known.empties
            self._deepest = max(self._deepest, self._levels + known.levels)
            return known.decoded
        self._descend()
        flaws, empties, deepest = self._flaws, self.empties, self._deepest
        self.empties, self._deepest = False, self._levels
        found = self._members(SCHEMA, value, path)
        self._levels -= 1
        if self._flaws == flaws:
            self._schemas[id(value)] = Schema(value, found, self.empties, self._deepest - self._levels)
        self.empties, self._deepest = self.empties or empties, max(self._deepest, deepest)
        return found

    def _members(self, struct: Struct, value: dict[str, Any], path: str) -> dict[str, Any]:
        outer, found, members = (self._struct, self._fields), {}, struct.members
        for name, inner in value.items():
            member = members.get(name)
            if member is None:
                self._note_unknown(f"{path}.{name}" if path else name)
                continue
            if inner is None:
                continue
            if type(inner) is str and member.type is Scalar.TEXT:
                decoded: Any = inner
            else:
                self._struct, self._fields = struct.name, (*outer[1], name)
                decoded = self._value(member.type, inner, f"{path}.{name}" if path else name)
            if member.pointer or decoded not in ("", 0):
                found[name] = decoded
        self._struct, self._fields = outer
        return found

    def _descend(self) -> None:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise DecodeError(f"a schema nests more than {MOST_LEVELS} levels deep")

    def _value(self, type_: Type, value: Any, path: str) -> Any:
        """Decode a value that is not null."""
        match type_:
            case Struct() if isinstance(value, dict):
                return self.struct(type_, value, path)
            case ListOf() if isinstance(value, list):
                self.empties = self.empties or not value
                return [self._element(type_.item, item, f"{path}[{i}]") for i, item in enumerate(value)]
            case MapOf() if isinstance(value, dict):
                self.empties = self.empties or not value
                return {key: self._element(type_.value, item, f"{path}.{key}") for key, item in value.items()}
            case Variant():
                return self._variant(type_, value)
            case Scalar():
                return self._scalar(type_, value)
            case NamedText() if isinstance(value, str):
                return value
        return self._mismatch(type_, value)

    def _element(self, type_: Type, value: Any, path: str) -> Any:
        return _ZEROS.get(type(type_), lambda _: None)(type_) if value is None else self._value(type_, value, path)

    def _variant(self, type_: Variant, value: Any) -> Any:
        strict, error = self._strict, self.error
        self._strict, self.error = False, ""
        decoded = self._alternative(type_, value)
        if self.error:
            # An error of a type's own decoder ends Go's decoding at once, and hides former ones.
            raise DecodeError(self.error)
        self._strict, self.error = strict, error
        return decoded

    def _alternative(self, type_: Variant, value: Any) -> Any:
        if isinstance(value, dict):
            return self.struct(SCHEMA, value, "")
        if type_ is Variant.SCHEMA_OR_BOOLEAN:
            if isinstance(value, bool):
                return value
            raise DecodeError("boolean or JSON schema expected")
        if not isinstance(value, list):
            return []
        return self._value(ListOf(SCHEMA if type_ is Variant.SCHEMA_OR_LIST else Scalar.TEXT), value, "")

    def _scalar(self, type_: Scalar, value: Any) -> Any:
        match type_:
            case Scalar.ANY:
                return _json(value)
            case Scalar.TEXT if isinstance(value, str):
                return value
            case Scalar.BOOLEAN if isinstance(value, bool):
                return value
            case Scalar.FLOAT if isinstance(value, int | float) and not isinstance(value, bool):
                return _number(float(value))
            case Scalar.INT32 | Scalar.INT64 if type(value) is int:
                bits = 31 if type_ is Scalar.INT32 else 63
                if -(1 << bits) <= value < 1 << bits:
                    return value
            case Scalar.BYTES if isinstance(value, str):
                return self._bytes(value)
            case Scalar.TIME if isinstance(value, str):
                return self._time(value)
        return self._mismatch(type_, value)

    def _bytes(self, text: str) -> str:
        """Check base64 as Go's decoder does, which ignores line ends."""
        at = _first_illegal(text.encode())
        if at is not None:
            self.error = self.error or f"illegal base64 data at input byte {at}"
        return text

    def _time(self, text: str) -> str:
        try:
            return times.canonical(text, micro=False)
        except times.TimeError as e:
            raise DecodeError(str(e)) from None

    def _mismatch(self, type_: Type, value: Any) -> Any:
        kind = json_kind(value)
        if kind == "number" and type_ in (Scalar.INT32, Scalar.INT64):
            kind = f"number {json_float(value) if isinstance(value, float) else value}"
        place = f"{self._struct}.{'.'.join(self._fields)}"
        text = f"json: cannot unmarshal {kind} into Go struct field {place} of type {types.go_name(type_)}"
        self.error = self.error or text
        self._flaws += 1
        return _ZEROS.get(type(type_), lambda _: None)(type_)

    def _note_unknown(self, path: str) -> None:
        self._flaws += 1
        if self._strict and len(self.unknown) < MAX_STRICT_ERRORS:
            self.unknown.append(path)


def _zero_scalar(type_: Any) -> Any:
    return {Scalar.TEXT: "", Scalar.BYTES: "", Scalar.BOOLEAN: False, Scalar.ANY: None, Scalar.TIME: ""}.get(type_, 0)


_ZEROS: dict[type, Any] = {
    Scalar: _zero_scalar,
    Struct: lambda _: {},
    MapOf: lambda _: {},
    ListOf: lambda _: [],
    Variant: lambda _: [],
    NamedText: lambda _: "",
}
"""Go's value for a null element of a list or map, and for a value of the wrong type."""

_BASE64 = re.compile(rb"(?P<data>[A-Za-z0-9+/\r\n]*)(?P<padding>=[\r\n]*)?(?P<second>=[\r\n]*)?")
_LINE_ENDS = b"\r\n"


def _first_illegal(text: bytes) -> int | None:
    """Return where Go's decoder finds the first error in base64; None without one. Line ends do not count."""
    found = _BASE64.match(text)
    assert found is not None
    left = len(found["data"].translate(None, _LINE_ENDS)) % 4
    end = found.end("data")
    if found["padding"] is None:
        at_end = end == len(text)
        return (None if not left else end - left) if at_end else end
    if left < 2:
        return end
    if left == 3:
        after = found.end("padding")
        return None if after == len(text) else after
    if found["second"] is None:
        after = found.end("padding")
        return after if after == len(text) else after - 1
    return None if found.end() == len(text) else found.end()


def _number(value: float) -> int | float:
    """Return a float as Go writes and reads it again: a whole number within 64 bits is an int."""
    return int(value) if value.is_integer() and abs(value) < 1 << 63 else value


def _json(value: Any, levels: int = MOST_JSON_LEVELS) -> Any:
    """Return any JSON value as Go stores and reads it: members sorted, whole floats as integers."""
    match value:
        case dict() | list() if not levels:
            raise DecodeError(f"a value in a schema nests more than {MOST_JSON_LEVELS} levels deep")
        case dict():
            return {name: _json(value[name], levels - 1) for name in sorted(value)}
        case list():
            return [_json(inner, levels - 1) for inner in value]
        case float():
            return _number(value)
        case int() if not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 63:
            return float(value)
    return value


def compact(value: Any, shared: Sharing | None = None) -> Any:
    """Return a decoded definition as Go writes it: without empty lists and maps where these are left out.

    Schemas that are one value stay one value, and those without such members stay the same value.
    """
    return _compact(DEFINITION, value, (shared or Sharing()).compacted)


def compact_version(value: Any, shared: Sharing | None = None) -> Any:
    """Return a version of a decoded definition as Go writes it."""
    return _compact(VERSION, value, (shared or Sharing()).compacted)


def _compact(type_: Type, value: Any, known: dict[int, tuple[Any, Any]]) -> Any:
    match type_:
        case Struct() if isinstance(value, dict):
            seen = known.get(id(value))
            if seen is not None:
                return seen[1]
            members = type_.members
            found, same = {}, True
            for name, inner in value.items():
                member = members.get(name)
                if member is None or type(member.type) is Scalar:
                    found[name] = inner
                elif member.pointer or inner not in ([], {}):
                    found[name] = made = _compact(member.type, inner, known)
                    same = same and made is inner
                else:
                    same = False
            result = value if same else found
            known[id(value)] = value, result
            return result
        case ListOf():
            items = [_compact(type_.item, item, known) for item in value]
            return value if all(map(operator.is_, items, value)) else items
        case MapOf():
            members = {key: _compact(type_.value, item, known) for key, item in value.items()}
            return value if all(map(operator.is_, members.values(), value.values())) else members
        case Variant():
            return _compact(SCHEMA, value, known) if isinstance(value, dict) else value
    return value
