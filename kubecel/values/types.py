"""The types of CEL, as the checker uses and prints them.

Upstream: google/cel-go `common/types/types.go`, `checker/format.go`.
"""

from __future__ import annotations

from enum import Enum

# Only an expression that doubles its types repeatedly makes longer ones; their text is cut.
PRINTED = 65_536


class Kind(Enum):
    """The general category of a type."""

    DYN = "dyn"
    ANY = "any"
    BOOL = "bool"
    BYTES = "bytes"
    DOUBLE = "double"
    DURATION = "duration"
    ERROR = "error"
    INT = "int"
    LIST = "list"
    MAP = "map"
    NULL = "null"
    OPAQUE = "opaque"
    STRING = "string"
    STRUCT = "struct"
    TIMESTAMP = "timestamp"
    TYPE = "type"
    PARAMETER = "parameter"
    UINT = "uint"


_NONE: frozenset[str] = frozenset()


class Type:
    """An immutable type. `name` is its name at run time.

    Null may be assigned to a `nullable` type as well (protobuf's wrappers). When cel-go compares types for identity it
    ignores this mark (see `bare`). `variables` are the names of all type parameters inside, and `open` says whether there
    are any. `weight` is the number of types of which it consists.
    """

    __slots__ = ("_bare", "_hash", "kind", "name", "nullable", "open", "parameters", "variables", "weight")

    _bare: Type | None
    kind: Kind
    name: str
    parameters: tuple[Type, ...]
    nullable: bool
    variables: frozenset[str]
    open: bool
    weight: int

    def __init__(self, kind: Kind, name: str, parameters: tuple[Type, ...] = (), *, nullable: bool = False) -> None:
        self.kind = kind
        self.name = name
        self.parameters = parameters
        self.nullable = nullable
        self.variables = frozenset((name,)) if kind is Kind.PARAMETER else _NONE
        self.weight = 1
        marked = nullable
        if parameters:
            self.variables = self.variables.union(*(of.variables for of in parameters))
            self.weight += sum(parameter.weight for parameter in parameters)
            marked = nullable or any(parameter._bare is not None for parameter in parameters)
        self.open = bool(self.variables)
        # None for the type itself, which must not refer to itself: a reference cycle is freed by the garbage collector only.
        self._bare = Type(kind, name, tuple(parameter.bare for parameter in parameters)) if marked else None
        self._hash = hash((kind.value, name, parameters, nullable))

    @property
    def bare(self) -> Type:
        """Return the type without the mark, at any depth."""
        return self._bare or self

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Type)
            and self._hash == other._hash
            and self.kind is other.kind
            and self.name == other.name
            and self.nullable == other.nullable
            and self.parameters == other.parameters
        )

    def __str__(self) -> str:
        """Return the type as cel-go prints it in evaluation errors: `list(<A>)`, `google.protobuf.Any`."""
        return _printed(self, _STRING_NAMES, parameter="<%s>")

    def __repr__(self) -> str:
        return f"Type({self})"

    @property
    def declared_name(self) -> str:
        """Return the name, inside `wrapper(…)` when null may be assigned too."""
        return f"wrapper({self.name})" if self.nullable else self.name


_STRING_NAMES: dict[Kind, str] = {}
_FORMAT_NAMES = {
    Kind.ANY: "any",
    Kind.DURATION: "duration",
    Kind.ERROR: "!error!",
    Kind.NULL: "null",
    Kind.TIMESTAMP: "timestamp",
}


def format_type(of: Type, limit: int = PRINTED) -> str:
    """Return a type as the checker's issues print it: `list(A)`, `any`, `null`, `!error!`. Cut at `limit` characters."""
    return (
        _printed(of, _FORMAT_NAMES, parameter="%s", limit=limit)
        if of.parameters
        else _FORMAT_NAMES.get(of.kind) or of.declared_name
    )


def _printed(of: Type, names: dict[Kind, str], *, parameter: str, limit: int = PRINTED) -> str:
    """Return the text of a type, without recursion, up to the limit."""
    parts: list[str] = []
    length = 0
    todo: list[Type | str] = [of]
    while todo and length < limit:
        at = todo.pop()
        if isinstance(at, str):
            text = at
        elif at.kind is Kind.PARAMETER:
            text = parameter % at.name
        elif at.kind in names:
            text = names[at.kind]
        elif at.parameters:
            text = f"{at.name}("
            todo.append(")")
            for index in range(len(at.parameters) - 1, -1, -1):
                todo.append(at.parameters[index])
                if index:
                    todo.append(", ")
        else:
            text = at.declared_name
        parts.append(text)
        length += len(text)
    return "".join(parts)[:limit]


DYN = Type(Kind.DYN, "dyn")
ANY = Type(Kind.ANY, "google.protobuf.Any")
BOOL = Type(Kind.BOOL, "bool")
BYTES = Type(Kind.BYTES, "bytes")
DOUBLE = Type(Kind.DOUBLE, "double")
DURATION = Type(Kind.DURATION, "google.protobuf.Duration")
ERROR = Type(Kind.ERROR, "error")
INT = Type(Kind.INT, "int")
NULL = Type(Kind.NULL, "null_type")
STRING = Type(Kind.STRING, "string")
TIMESTAMP = Type(Kind.TIMESTAMP, "google.protobuf.Timestamp")
TYPE = Type(Kind.TYPE, "type")
UINT = Type(Kind.UINT, "uint")


def list_of(element: Type) -> Type:
    """Return `list(element)`."""
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """Return `map(key, value)`."""
    return Type(Kind.MAP, "map", (key, value))


def type_of(of: Type) -> Type:
    """Return `type(of)`: the type of a type."""
    return Type(Kind.TYPE, "type", (of,))


def parameter(name: str) -> Type:
    """Return a type that each call determines: the A in `list(A)`."""
    return Type(Kind.PARAMETER, name)


def opaque(name: str, *parameters: Type) -> Type:
    """Return an abstract type: its values have functions but no fields."""
    return Type(Kind.OPAQUE, name, parameters)


def optional_of(of: Type) -> Type:
    """Return `optional_type(of)`."""
    return opaque("optional_type", of)


def nullable(of: Type) -> Type:
    """Return `wrapper(of)`: a primitive type that accepts null too, such as protobuf's Int64Value."""
    return Type(of.kind, of.name, of.parameters, nullable=True)


# The checker's types of protobuf's own messages.
WELL_KNOWN: dict[str, Type] = {
    "google.protobuf.BoolValue": nullable(BOOL),
    "google.protobuf.BytesValue": nullable(BYTES),
    "google.protobuf.DoubleValue": nullable(DOUBLE),
    "google.protobuf.FloatValue": nullable(DOUBLE),
    "google.protobuf.Int64Value": nullable(INT),
    "google.protobuf.Int32Value": nullable(INT),
    "google.protobuf.UInt64Value": nullable(UINT),
    "google.protobuf.UInt32Value": nullable(UINT),
    "google.protobuf.StringValue": nullable(STRING),
    "google.protobuf.Any": ANY,
    "google.protobuf.Duration": DURATION,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.ListValue": list_of(DYN),
    "google.protobuf.NullValue": NULL,
    "google.protobuf.Struct": map_of(STRING, DYN),
    "google.protobuf.Value": DYN,
}


def struct(name: str) -> Type:
    """Return a type with named fields, declared by its shape. For a protobuf message return CEL's type of it."""
    return WELL_KNOWN.get(name) or Type(Kind.STRUCT, name)


def assignable(to: Type, source: Type) -> bool:
    """Return whether a value of `source` can be declared as `to`; parameters count as dyn (Type.IsAssignableType).

    It recurses, so it is for declared types, which are small. The checker compares the types of expressions.
    """
    if to.nullable and source.kind is Kind.NULL:
        return True
    if to is source or to.kind in _DYNAMIC:
        return True
    if to.kind is not source.kind or to.name != source.name or len(to.parameters) != len(source.parameters):
        return False
    return all(assignable(one, other) for one, other in zip(to.parameters, source.parameters, strict=True))


def equivalent(one: Type, other: Type) -> bool:
    """Return whether two types are the same except for the names of their parameters (Type.IsEquivalentType)."""
    if one is other:
        return True
    if one.kind is not other.kind or len(one.parameters) != len(other.parameters):
        return False
    if one.kind is not Kind.PARAMETER and one.name != other.name:
        return False
    return all(equivalent(left, right) for left, right in zip(one.parameters, other.parameters, strict=True))


_DYNAMIC = frozenset((Kind.DYN, Kind.ANY, Kind.PARAMETER))
