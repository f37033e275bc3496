"""Hypothesis strategies: shapes of any form, and values that fit them as decoding leaves them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from apiserver.codecs.json import rawjson
from apiserver.schema import types
from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    MapOf,
    Presence,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
)

TEXT = st.sampled_from(
    ["a", "gpu-0", "<&>", "\u2028\u2029", "ü😀\uffff", '\x00\x07\x7f\b\f\n\t"\\', "0001-01-01T00:00:00Z"]
)
KEYS = st.sampled_from(["", "a", "b", "B", "é", "\uffff", "😀", "example.com/x", "<"])
NONZERO = st.integers(-(2**31), 2**31 - 1).filter(bool)
QUANTITIES = st.sampled_from(["1", "1Gi", "500m", "-3", "0", "2e3", "1023Mi"])
TIMES = st.sampled_from(["2026-06-01T12:00:00Z", "1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
MICRO_TIMES = st.sampled_from(["2026-06-01T12:00:00.000001Z", "1970-01-01T00:00:00.500000Z"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=4,
)
LOOSE = st.builds(
    lambda value, indent: rawjson.of(json.dumps(value, indent=indent).encode()), JSON, st.sampled_from((None, 1))
)
"""As clients send it."""
WRITTEN = JSON.map(rawjson.made)
RAW = WRITTEN | LOOSE
LEAVES: st.SearchStrategy[Type] = st.sampled_from(
    [
        String(),
        String(go="v1.Mode"),
        Integer(),
        Integer(bits=32),
        Boolean(),
        Quantity(),
        Time(),
        Time(micro=True),
        RawJSON(),
    ]
)
PRESENCES = st.sampled_from(list(Presence))


@dataclass
class Sample:
    shape: Struct
    value: dict[str, Any]


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    shape = draw(structs())
    return Sample(shape, draw(struct_values(shape)))


def structs() -> st.SearchStrategy[Struct]:
    return st.builds(itertools.count).flatmap(lambda names: _structs(names, depth=2))


@st.composite
def _structs(draw: st.DrawFn, names: Iterator[int], depth: int) -> Struct:
    fields = []
    for number in range(1, draw(st.integers(1, 4)) + 1):
        name = f"m{next(names)}"
        type_ = draw(_types(names, depth))
        inline = isinstance(type_, Struct) and draw(st.booleans())
        presence = Presence.ALWAYS if inline else draw(PRESENCES)
        fields.append(Field(name=name, number=number, type=type_, presence=presence, inline=inline))
    return Struct(name=f"S{next(names)}", fields=fields)


def _types(names: Iterator[int], depth: int) -> st.SearchStrategy[Type]:
    if not depth:
        return LEAVES
    inner = _types(names, depth - 1)
    return st.one_of(LEAVES, _structs(names, depth - 1), st.builds(ListOf, inner), st.builds(MapOf, inner))


@st.composite
def struct_values(draw: st.DrawFn, struct: Struct) -> dict[str, Any]:
    found = {}
    for field in types.members(struct):
        value = draw(_member_values(field))
        if value is not None:
            found[field.name] = value
    return found


def _member_values(field: Field) -> st.SearchStrategy[Any]:
    """None for an absent member. Where absent and empty are the same, the empty form is the absent one, as after encoding."""
    if types.is_pointer(field):
        return st.none() | values_of(field.type).filter(lambda x: x is not None)
    match field.presence, field.type:
        case _, Struct():
            return values_of(field.type)
        case Presence.ALWAYS, String() | Integer() | Boolean() | Quantity():
            return values_of(field.type)
        case Presence.ALWAYS, _:
            return st.none() | values_of(field.type, least=1)
    return st.none() | values_of(field.type, least=1)


def values_of(type_: Type, *, least: int = 0) -> st.SearchStrategy[Any]:
    """With `least` 1, no empty ones; raw JSON has none."""
    match type_:
        case Struct():
            return struct_values(type_)
        case ListOf():
            return st.lists(values_of(type_.item), min_size=least, max_size=2)
        case MapOf():
            return st.dictionaries(KEYS, values_of(type_.value), min_size=least, max_size=3)
        case String():
            return TEXT if least else TEXT | st.just("")
        case Integer():
            return NONZERO if least else NONZERO | st.just(0)
        case Boolean():
            return st.sampled_from([True] if least else [True, False])
        case Quantity():
            return QUANTITIES
        case Time():
            return MICRO_TIMES if type_.micro else TIMES
    return RAW if type_.verbatim else WRITTEN


def structs_in(type_: Type, value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every struct in a value with its path, outer ones first."""
    match type_:
        case Struct():
            yield path, value
            for field in types.members(type_):
                if value.get(field.name) is not None:
                    yield from structs_in(field.type, value[field.name], f"{path}.{field.name}" if path else field.name)
        case ListOf():
            for i, x in enumerate(value):
                yield from structs_in(type_.item, x, f"{path}[{i}]")
        case MapOf():
            for key, x in value.items():
                yield from structs_in(type_.value, x, f"{path}.{key}")


def shuffled(value: Any, random: Any) -> Any:
    """The same JSON with the members of every object in another order."""
    if isinstance(value, dict):
        names = list(value)
        random.shuffle(names)
        return {name: shuffled(value[name], random) for name in names}
    return [shuffled(x, random) for x in value] if isinstance(value, list) else value
