"""Construct the results of mutating policies: `Object{spec: Object.spec{…}}` and `JSONPatch{op: "add", …}`.

The name of an object's type is its place in the object. The checker knows neither names nor fields, and every field is
dyn. `misplaced` checks the names of a value.
Upstream: kubernetes/apiserver `pkg/cel/mutation/{typeresolver,jsonpatch}.go`, `pkg/cel/mutation/dynamic/objects.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from kubecel.values.errors import EvaluationError
from kubecel.values.types import DYN, STRING, Type, struct
from kubecel.values.values import ABSENT, Value, equal, find_key, go_type, is_list, is_map, text
from kubetext.quoting import go_quote

OBJECT = struct("Object")
PATCH = struct("JSONPatch")
_NAMELESS = struct("")
"""The type that upstream's checker gives to a field that an operation does not have."""
ROOTS = frozenset((OBJECT.name, PATCH.name))
"""The first parts of the type names."""


class Constructor(Protocol):
    """A type whose values an expression constructs from fields."""

    @property
    def type(self) -> Type: ...

    def field(self, name: str) -> Type | None:
        """Return the type of a field, None for an unknown one."""

    def make(self, fields: Mapping[str, Value]) -> Value:
        """Return the value. Raises EvaluationError."""


class ObjectValue:
    """An object, or the part of one that its type names. A missing field is null, and `has` finds it missing."""

    __slots__ = ("cel_type", "fields")

    go_type = "*dynamic.ObjectVal"

    def __init__(self, of: Type, fields: Mapping[str, Value]) -> None:
        self.cel_type = of
        self.fields = fields

    @property
    def cel_is_zero(self) -> bool:
        return not self.fields

    def cel_select(self, key: Value) -> Value:
        """Return the value of a field. An object that is a field of another one is a map."""
        found = self.fields.get(key, ABSENT) if type(key) is str else ABSENT
        return dict(found.fields) if isinstance(found, ObjectValue) else found

    def cel_missing(self, key: Value) -> Value:
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ObjectValue) or self.cel_type != other.cel_type:
            return False
        if self.fields.keys() != other.fields.keys():
            return False
        return all(_same(value, other.fields[name]) for name, value in self.fields.items())

    def __hash__(self) -> int:
        raise TypeError("an object is no key")


def _same(one: Value, other: Value) -> bool:
    """Return Go's DeepEqual of two values: types must be the same, and a list equals only itself."""
    if one is other:
        return True
    return type(one) is type(other) and not is_list(one) and equal(one, other)


class PatchValue:
    """One operation of a JSON patch. `value` is ABSENT by default, and texts are empty."""

    __slots__ = ("op", "origin", "path", "value")

    cel_type = PATCH
    go_type = "*mutation.JSONPatchVal"

    def __init__(self, op: str = "", path: str = "", origin: str = "", value: Value = ABSENT) -> None:
        """Construct an operation; `origin` is the field `from`."""
        self.op, self.path, self.origin, self.value = op, path, origin, value

    def cel_select(self, key: Value) -> Value:
        texts = {"op": self.op, "path": self.path, "from": self.origin}
        if key == "value":
            return self.value
        if type(key) is not str or key not in texts:
            raise EvaluationError(f"unsupported indexer: {text(key)}")
        return texts[key] or ABSENT

    def cel_missing(self, key: Value) -> Value:
        return None if key == "value" else ""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PatchValue):
            return False
        if (self.op, self.path, self.origin) != (other.op, other.path, other.origin):
            return False
        if self.value is ABSENT or other.value is ABSENT:
            return self.value is other.value
        return equal(self.value, other.value)

    def __hash__(self) -> int:
        raise TypeError("an operation is no key")


class _ObjectType:
    """A type of which any field may be set."""

    __slots__ = ("type",)

    def __init__(self, name: str) -> None:
        self.type = struct(name)

    def field(self, name: str) -> Type | None:
        return DYN

    def make(self, fields: Mapping[str, Value]) -> Value:
        return ObjectValue(self.type, fields)


class _PatchType:
    """The type of an operation, with its fields."""

    type = PATCH
    _fields: Mapping[str, Type] = {"op": STRING, "from": STRING, "path": STRING, "value": DYN}

    def field(self, name: str) -> Type | None:
        return self._fields.get(name, _NAMELESS)

    def make(self, fields: Mapping[str, Value]) -> Value:
        for name, value in fields.items():
            if name not in self._fields:
                raise EvaluationError(f"unexpected JSONPatchType field: {name}")
            if name != "value" and type(value) is not str:
                raise EvaluationError(
                    f"unexpected type {_NATIVE.get(go_type(value), go_type(value))} for JSONPatchType '{name}' field"
                )
        op, path, origin = (fields.get(name, "") for name in ("op", "path", "from"))
        return PatchValue(op, path, origin, fields.get("value", ABSENT))


_NATIVE = {
    "types.Int": "int64",
    "types.Uint": "uint64",
    "types.Double": "float64",
    "types.Bool": "bool",
    "types.Bytes": "[]uint8",
}
"""Go's types of the fields of these types."""
_PATCH_TYPE = _PatchType()


def constructor(name: str) -> Constructor | None:
    """Return the type of this name, if policies can construct it."""
    if name == PATCH.name:
        return _PATCH_TYPE
    if name == OBJECT.name or name.startswith(f"{OBJECT.name}."):
        return _ObjectType(name)
    return None


def misplaced(value: Value) -> Iterator[str]:
    """Yield the errors in the type names of an object: each must be the path of its place.

    Lists and maps have no type name.
    """
    if not isinstance(value, ObjectValue):
        return
    todo: list[tuple[Value, tuple[str, ...]]] = [(value, (value.cel_type.name,))]
    seen: set[tuple[int, tuple[str, ...]]] = set()
    while todo:
        at, way = todo.pop()
        if (id(at), way) in seen:
            continue
        seen.add((id(at), way))
        if isinstance(at, ObjectValue):
            expected = ".".join(way)
            if at.cel_type.name != expected:
                yield (
                    f"unexpected type name {go_quote(at.cel_type.name)}, expected {go_quote(expected)}, "
                    "which matches field name path from root Object type"
                )
            todo.extend((field, (*way, name)) for name, field in reversed(list(at.fields.items())))
        elif is_list(at) or is_map(at):
            todo.extend((part, way) for part in reversed(list(_parts(at))))


def _parts(of: Value) -> Sequence[Value]:
    return list(of) if is_list(of) else [find_key(of, key) for key in of]
