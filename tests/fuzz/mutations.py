"""One change of an object, at any place where its declared shape has a member, an element or an entry. Any JSON value is possible.

Every declared field is as likely to be changed as any other, however often it stands in the object. One source of randomness, one
sequence.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apiserver.schema.types import (
    Boolean,
    Field,
    Integer,
    ListOf,
    MapOf,
    Quantity,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
    members,
)
from tests.fuzz.expressions import DEVICE, Expressions

Object = dict[str, Any]

MOST_BYTES = 12_000
LENGTHS = (1, 15, 16, 17, 31, 32, 33, 57, 58, 59, 63, 64, 65, 96, 97, 128, 129, 253, 254, 256, 257, 317, 1024, 1025)
"""Limits of Kubernetes and their neighbours."""

# fmt: off
TEXTS = (
    "", " ", "a", "A", "-", "a-", "-a", "a.b", "a..b", ".a", "a.", "a/b", "a/b/c", "/", "a/", "/b", "a_b", "_a", "é", "e\u0301", "世界",
    "\U0001f389", "a b", "a\tb", "a\nb", "\x00", "\x7f", "\u2028", "<&>", '"', "\\", "'", "`", "%s", "null", "true", "0", "9a", "1.2.3",
    "v1.2.3", "1.2", "01.2.3", "1.2.3-rc.01", "1.2.3+b_1", "1.2.3-", "gpu.example.com", "GPU.example.com", "gpu.Example.com/model",
    "example.com/a/b", "dra.example.com/numa", "dra.example.com/", "/numa", "9/9", "kubernetes.io/a", "a.kubernetes.io/b", "requests.a/b",
    "node-1", "a,b", "a:b", "a:", "A_b", "In", "NotIn", "Exists", "Equal", "All", "ExactCount", "exactCount", "NoSchedule", "NoExecute",
    "None", "none", "FromClass", "FromClaim", "metadata.name", "spec.nodeName", "True", "Unknown", "Ready",
    "0f8fad5b-d9cb-469f-a165-70867728950e", "0F8FAD5B-D9CB-469F-A165-70867728950E", "{0f8fad5b-d9cb-469f-a165-70867728950e}",
    "urn:uuid:0f8fad5b-d9cb-469f-a165-70867728950e", "0f8fad5bd9cb469fa16570867728950e", "0f8fad5b-d9cb-469f-a165-7086772895zz",
    "10.0.0.1", "10.0.0.1/24", "10.0.0.01/24", "10.0.0.1/33", "10.0.0.1/024", "::1/128", "::ffff:10.0.0.1/120", "2001:DB8::1/64",
    "2001:db8:0:0::1/64", "fe80::1%eth0/64", "1::2::3/8", "10.0.0.256/8", "memory", "orphan", "foregroundDeletion", "kubernetes", "..",
    ".", "a%b", "resource.kubernetes.io/admin-access", "example.com/One", "EXAMPLE.com/one", "-example.com/one", "v1", "apps/v1", "a/b/v1",
    "\u0130.example.com", "\u212a.example.com/a", "é" * 19, "10.0.0.00000000000000000000001/24", "10.0.0.1/99999999999999999999",
)
QUANTITIES = (
    "0", "1", "-1", "+1", "1.", ".5", "1.50", "0.0000000001", "1n", "1u", "1m", "1k", "1K", "1Ki", "1Kib", "1M", "1Mi", "1G", "1Gi", "1T",
    "1P", "1Pi", "1E", "1Ei", "1e3", "1E3", "1e+3", "1e-3", "1E-9", "1e", "1E+", "9223372036854775807", "9223372036854775808", "8Ei",
    "-9223372036854775809", "1e30", "1e-30", "", " ", " 1", "1 ", "1 Gi", "Gi", ".", "-", "--1", "1.2.3", "1,5", "0x1", "1_000", "１",
    "NaN", "Inf", "1024", "1024Ki", "1000m", "0.001Ki", "1.1Ki", "0Gi", "00012", "0.10", "10Gi", "9Gi", "2Gi", "1500m", "3000000u", "12E",
    "1e19", "123456789012345678901234567890", "0.000000000000000000001", "1e309", "1e-400", "1eK", "1mm", "1Mm", "∞",
)
TIMES = (
    "2024-02-29T12:00:00Z", "2023-02-29T12:00:00Z", "2024-02-29T12:00:00+02:00", "2024-02-29T12:00:00",
    "2024-02-29 12:00:00Z", "2024-02-29t12:00:00z", "2024-02-29T24:00:00Z", "2024-02-29T23:59:60Z", "0001-01-01T00:00:00Z", "",
    "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "2024-2-9T1:2:3Z", "2024-02-29T12:00:00+24:00", "now", "null",
    "2024-02-29T12:00:00.Z", "2024-02-29T12:00:00-00:00", "0001-01-01T00:00:00+01:00", "2024-13-01T00:00:00Z",
    "9999-12-31T23:59:59-23:59",
)
NUMBERS = (
    "0", "1", "-1", "-0", "2", "32", "33", "127", "2147483647", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551616", "1.0", "1.5", "1e3", "1E2", "1e19", "1e-1",
    "123456789012345678901234567890", "-1.0", "0.0", "1000e-3",
)
ANYTHING: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 10**30, "", "a", "1", [], [1], [None], ["a"], [[]], [{}], {}, {"a": 1}, {"a": {}}, {"": ""},
    {"a": None}, {"nested": {"deep": [1, {"x": "y"}]}},
)
# fmt: on

_SPELLED = re.compile('"\ue000(.*?)\ue001"')


class Again(str):
    """A member's name that may stand beside itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__


def spelled(number: str) -> str:
    """A number that is sent in this spelling."""
    return f"\ue000{number}\ue001"


def text(obj: Any, *, loose: bool = False) -> str:
    """The JSON of an object that was mutated, with or without blanks."""
    separators = (", ", " : ") if loose else (",", ":")
    return _SPELLED.sub(r"\1", json.dumps(obj, ensure_ascii=False, separators=separators))


def repeats(obj: Any) -> bool:
    """Whether a member stands beside itself somewhere."""
    if isinstance(obj, dict):
        return any(isinstance(name, Again) for name in obj) or any(map(repeats, obj.values()))
    return isinstance(obj, list) and any(map(repeats, obj))


def is_plain(obj: Any) -> bool:
    """Whether there is nothing about an object that only its JSON can show."""
    return not repeats(obj) and "\ue000" not in json.dumps(obj, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Place:
    """A value of declared type in an object, or where one could stand: a member of a struct, an entry of a map, an element of a list."""

    where: str
    holder: Any
    key: Any
    type: Type
    field: Field | None = None

    @property
    def given(self) -> bool:
        return isinstance(self.holder, list) or self.key in self.holder

    @property
    def value(self) -> Any:
        return self.holder[self.key]

    def put(self, value: Any) -> None:
        self.holder[self.key] = value

    def remove(self) -> None:
        del self.holder[self.key]


def places(shape: Struct, obj: Any, where: str = "") -> Iterator[tuple[str, Place]]:
    """Each with the name of what is declared: `Struct.member`, with `[]` for elements and entries."""
    if not isinstance(obj, dict):
        return
    for field in members(shape):
        name = f"{shape.name}.{field.name}"
        place = Place(f"{where}.{field.name}", obj, field.name, field.type, field)
        yield name, place
        if place.given:
            yield from _within(name, place)


def _within(name: str, place: Place) -> Iterator[tuple[str, Place]]:
    kind, value = place.type, place.value
    if isinstance(kind, Struct):
        yield from places(kind, value, place.where)
        return
    found: list[Place] = []
    if isinstance(kind, ListOf) and isinstance(value, list):
        found = [Place(f"{place.where}[{i}]", value, i, kind.item) for i in range(len(value))]
    elif isinstance(kind, MapOf) and isinstance(value, dict):
        found = [Place(f"{place.where}[{key}]", value, key, kind.value) for key in list(value)]
    for inner in found:
        yield f"{name}[]", inner
        yield from _within(f"{name}[]", inner)


class Mutations:
    """Draws from one source of randomness."""

    def __init__(self, source: random.Random) -> None:
        self._random = source
        self._expressions = Expressions(source.getrandbits(32), DEVICE)
        self._changes: Mapping[type, Callable[[Place], Any]] = {
            String: self._text,
            Integer: lambda place: spelled(self._random.choice(NUMBERS)),
            Boolean: lambda place: self._random.choice((True, False)),
            Quantity: self._quantity,
            Time: lambda place: self._random.choice(TIMES),
            RawJSON: self._raw,
            ListOf: self._list,
            MapOf: self._map,
            Struct: self._struct,
        }

    def mutate(self, shape: Struct, obj: Object) -> str:
        """Changes the object, and says where."""
        declared: dict[str, list[Place]] = defaultdict(list)
        for name, place in places(shape, obj):
            declared[name].append(place)
        place = self._random.choice(declared[self._random.choice(list(declared))])
        choose = self._random.random()
        if not place.given:
            place.put(self._made(place))
        elif choose < 0.12 and place.field is not None:
            place.remove()
        elif choose < 0.2:
            place.put(None)
        elif choose < 0.28:
            place.put(_empty(place.type))
        elif choose < 0.36:
            place.put(copy.deepcopy(self._random.choice(ANYTHING)))
        else:
            place.put(self._changes[type(place.type)](place))
        return place.where

    def _made(self, place: Place) -> Any:
        """Something for a place where nothing stands."""
        return _empty(place.type) if self._random.random() < 0.2 else self._new(place.type, place.where, depth=4)

    def _new(self, kind: Type, where: str, *, depth: int) -> Any:
        if isinstance(kind, Struct):
            wanted = [field for field in members(kind) if self._random.random() < 0.4]
            return {field.name: self._new(field.type, where, depth=depth - 1) for field in wanted} if depth else {}
        if isinstance(kind, ListOf):
            return [self._new(kind.item, where, depth=depth - 1) for _ in range(self._random.randint(0, 2))]
        if isinstance(kind, MapOf):
            count = self._random.randint(0, 2)
            return {self._random.choice(TEXTS): self._new(kind.value, where, depth=depth - 1) for _ in range(count)}
        holder = {where: _empty(kind)}
        return self._changes[type(kind)](Place(where, holder, where, kind))

    def _text(self, place: Place) -> str:
        choose, declared = self._random.random(), place.type
        value = place.value if isinstance(place.value, str) else "a"
        if place.where.endswith(".expression") and choose < 0.7:
            return self._expressions.draw()
        if isinstance(declared, String) and declared.enum and choose < 0.3:
            return self._random.choice(declared.enum)
        if choose < 0.55:
            return self._random.choice(TEXTS)
        if choose < 0.75:
            return self._long(declared)
        at = self._random.randint(0, len(value))
        return self._random.choice(
            (
                value[:at] + self._random.choice(TEXTS) + value[at:],
                value[:at] + value[at + 1 :],
                value.upper(),
                value.title(),
                f"{value}.{value}",
                f"{value}/{value}",
                f" {value}",
            )
        )

    def _long(self, declared: Type) -> str:
        limit = declared.max_bytes if isinstance(declared, String) else 0
        near = (limit - 1, limit, limit + 1) if limit else LENGTHS
        length = self._random.choice(near if self._random.random() < 0.5 else LENGTHS)
        part = self._random.choice(("a", "a", "é", "🎉", "a.", "a/", "A", "0", "a" * 63 + ".", "-"))
        return (part * (length // len(part.encode()) + 1)).encode()[:length].decode(errors="ignore")

    def _quantity(self, place: Place) -> Any:
        if self._random.random() < 0.3:
            return spelled(self._random.choice(NUMBERS))
        return self._random.choice(QUANTITIES)

    def _raw(self, place: Place) -> Any:
        choose = self._random.random()
        if choose < 0.5:
            return copy.deepcopy(self._random.choice(ANYTHING))
        if choose < 0.7:
            return {"a": self._random.choice((0, -7, 2**64, 1.5, True))}
        if choose < 0.85:
            return {self._random.choice(TEXTS): self._random.choice(TEXTS)}
        return {"a": self._random.choice(("a", "é")) * (self._random.choice((10230, 10232, 10233, 5116, 5117)))}

    def _list(self, place: Place) -> Any:
        value = list(place.value) if isinstance(place.value, list) else []
        kind = place.type
        assert isinstance(kind, ListOf)
        item = copy.deepcopy(self._random.choice(value)) if value else self._new(kind.item, place.where, depth=3)
        choose = self._random.random()
        if choose < 0.3:
            value.insert(self._random.randint(0, len(value)), item)
        elif choose < 0.4:
            value.insert(self._random.randint(0, len(value)), None)
        elif choose < 0.5:
            value.append(copy.deepcopy(self._random.choice(ANYTHING)))
        elif choose < 0.6:
            self._random.shuffle(value)
        elif choose < 0.7:
            value.append(self._new(kind.item, place.where, depth=3))
        elif choose < 0.8 and value:
            value.pop(self._random.randrange(len(value)))
        else:
            count = self._random.choice((kind.max_items, kind.max_items + 1) if kind.max_items else (2, 5, 9, 17))
            value += [self._renamed(item, i) for i in range(count - len(value))]
        return value

    def _renamed(self, item: Any, number: int) -> Any:
        """A copy with another identity."""
        if isinstance(item, str):
            return f"{item}{number}"
        if isinstance(item, dict):
            wanted = ("name", "uid", "type", "device", "counterSet", "key")
            return {
                key: f"{value}{number}" if key in wanted and isinstance(value, str) else copy.deepcopy(value)
                for key, value in item.items()
            }
        return item

    def _map(self, place: Place) -> Any:
        value = dict(place.value) if isinstance(place.value, dict) else {}
        kind = place.type
        assert isinstance(kind, MapOf)
        item = copy.deepcopy(self._random.choice(list(value.values()))) if value else None
        if item is None:
            item = self._new(kind.value, place.where, depth=3)
        choose = self._random.random()
        if choose < 0.25:
            value[self._random.choice(TEXTS)] = item
        elif choose < 0.5 and value:
            value[self._key(self._random.choice(list(value)))] = item
        elif choose < 0.6 and value:
            value.pop(self._random.choice(list(value)))
        elif choose < 0.7 and value:
            value[Again(self._random.choice(list(value)))] = item
        elif choose < 0.8:
            value[self._random.choice(TEXTS)] = copy.deepcopy(self._random.choice(ANYTHING))
        elif choose < 0.9:
            value[self._long(String())] = item
        else:
            count = self._random.choice((kind.max_items, kind.max_items + 1, 32, 33, 49))
            value |= {f"a{i}": copy.deepcopy(item) for i in range(count - len(value))}
        return value

    def _key(self, key: str) -> str:
        return self._random.choice((key.upper(), f"{key}/{key}", f"{key}-", f"a.b/{key}", f"{key}.{key}", f"/{key}"))

    def _struct(self, place: Place) -> Any:
        value = dict(place.value) if isinstance(place.value, dict) else {}
        names = list(value) or ["name"]
        chosen = self._random.choice(names)
        choose = self._random.random()
        if choose < 0.35:
            value[self._random.choice(("unknown", "é", "", chosen.upper(), chosen.title(), f"{chosen}s"))] = "a"
        elif choose < 0.6 and value:
            value[Again(chosen)] = copy.deepcopy(value[chosen])
        elif choose < 0.75 and value:
            value[chosen] = copy.deepcopy(self._random.choice(ANYTHING))
        elif choose < 0.9:
            return self._new(place.type, place.where, depth=3)
        else:
            value = dict(self._random.sample(list(value.items()), len(value)))
        return value


def _empty(kind: Type) -> Any:
    """The value that an absent one means."""
    if isinstance(kind, Struct | MapOf):
        return {}
    if isinstance(kind, ListOf):
        return []
    return {Integer: 0, Boolean: False, Quantity: "0", RawJSON: {}}.get(type(kind), "")
