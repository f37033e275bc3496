"""The types of CEL, as the checker sees them and as they are printed.

Upstream: google/cel-go `common/types/types.go`, `checker/format.go`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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


@dataclass(frozen=True, slots=True)
class Type:
    """A type; two are equal when they are the same type exactly. `name` is the name that programs see at run time."""

    kind: Kind
    name: str
    parameters: tuple[Type, ...] = ()


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
    """`list(element)`."""
    return Type(Kind.LIST, "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """`map(key, value)`."""
    return Type(Kind.MAP, "map", (key, value))


def type_of(of: Type) -> Type:
    """`type(of)`: the type of a type."""
    return Type(Kind.TYPE, "type", (of,))


def parameter(name: str) -> Type:
    """A type that a call determines: the A in `list(A)`."""
    return Type(Kind.PARAMETER, name)


def opaque(name: str, *parameters: Type) -> Type:
    """An abstract type: its values have functions and no fields."""
    return Type(Kind.OPAQUE, name, parameters)


def optional_of(of: Type) -> Type:
    """`optional_type(of)`."""
    return opaque("optional_type", of)


def struct(name: str) -> Type:
    """A type with named fields, declared by its shape in the environment."""
    return Type(Kind.STRUCT, name)
