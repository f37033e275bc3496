"""What an expression computes with, and what holds of every value: its type, its size, its equality.

| CEL | Python |
|---|---|
| null, bool, int, double, string, bytes | None, bool, int, float, str, bytes |
| uint | UInt, a subclass of int |
| list | list or tuple, those of the document itself, never copied; or a ListView |
| map | dict whose keys are all strings, all int, all UInt or all bool; or a MapView |
| timestamp, duration | Timestamp, Duration |
| type | types.Type |
| optional | Optional |
| a type of a library (quantity, semver, url, ip, …) | a class of that library with `cel_type` |

Python takes True for 1 and 1 for 1.0: whoever compares values of an expression uses `equal`, whoever keys by them `map_of_entries`.
Upstream: google/cel-go `common/types`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any

from kubecel.values import types
from kubecel.values.errors import CostExceeded, EvaluationError, Panic
from kubecel.values.times import Duration, Timestamp

Value = Any

# The bytes that the large results of one evaluation may occupy: more than a budget of cost lets through, but some operations cost 1
# whatever the size of their result.
MAX_PRODUCED = 1 << 25
# A value that is part of the text of an error is printed up to here.
_PRINTED = 4096


class UInt(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class _Absent:
    """What a map gives that does not have a key; null is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class Unsupported:
    """What an optional holds in place of a value that Go cannot take back from its native form. It is an error once it is taken out."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Optional:
    """A value or none. `held` is the value, or what stands for it."""

    __slots__ = ("held",)

    cel_type = types.opaque("optional_type")

    def __init__(self, value: Value = ABSENT) -> None:
        self.held = value

    @property
    def has_value(self) -> bool:
        """Whether there is a value."""
        return self.held is not ABSENT

    @property
    def value(self) -> Value:
        """The value. Raises EvaluationError for what is Unsupported."""
        held = self.held
        if type(held) is Unsupported:
            raise EvaluationError(held.reason)
        return held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Optional) or self.has_value != other.has_value:
            return False
        return not self.has_value or equal(self.value, other.value)

    def __hash__(self) -> int:
        raise TypeError("an optional is no key")


NONE = Optional()


class Lazy:
    """A variable that is computed when an expression first asks for it, once in an evaluation."""

    __slots__ = ("resolve",)

    def __init__(self, resolve: Callable[[], Value]) -> None:
        self.resolve = resolve


class ListView(Sequence[Value]):
    """A list that is not a Python list. Slices are not asked for."""

    __slots__ = ()

    def plus(self, other: Value) -> Value:
        """This list and the elements of another."""
        return [*self, *other]

    def at(self, key: Value) -> Value:
        """The element at an index, which may be a number of any type; ABSENT for none."""
        index = index_of(key)
        return self[index] if 0 <= index < len(self) else ABSENT

    def equals(self, other: Value) -> bool:
        """CEL's equality with another value."""
        return is_list(other) and equal_lists(self, other)

    def contains(self, value: Value) -> bool:
        """CEL's `in`."""
        return any(equal(value, element) for element in self)


class MapView:
    """A map that is not a dict of equal keys."""

    __slots__ = ()

    @abstractmethod
    def find(self, key: Value) -> Value:
        """The value of a key, ABSENT for none. EvaluationError for a key that cannot be one."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Value]:
        """The keys."""

    def equals(self, other: Value) -> bool:
        """CEL's equality with another value."""
        return is_map(other) and equal_maps(self, other)


class MixedMap(MapView):
    """A map whose keys Python would take for one another: `{true: 1, 1: 2, 1u: 3}`. Grown by `insert`."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[Value, Value]] = ()) -> None:
        self._entries: dict[tuple[type, Value], tuple[Value, Value]] = {}
        for key, value in entries:
            self.insert(key, value)

    def insert(self, key: Value, value: Value) -> None:
        """Set the value of a key."""
        self._entries[_mixed_key(key)] = key, value

    def remove(self, key: Value) -> None:
        """Forget a key, which need not be there."""
        self._entries.pop(_mixed_key(key), None)

    def find(self, key: Value) -> Value:
        for candidate in _same_numbers(key):
            entry = self._entries.get(candidate)
            if entry is not None:
                return entry[1]
        return ABSENT

    def plain(self) -> Value:
        """The same as a dict when one can hold it."""
        kinds = {kind for kind, _ in self._entries}
        if not kinds or (len(kinds) == 1 and kinds <= _PLAIN_KEYS):
            return dict(self._entries.values())
        return self

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return (key for key, _ in self._entries.values())


# The types of keys of which a dict may hold one: no two keys of one of these types are equal in Python alone.
_PLAIN_KEYS = frozenset((str, int, UInt, bool))
_IDENTITY_KEYS = (list, tuple, dict, ListView, MapView, Optional)


def _mixed_key(key: Value) -> tuple[type, Value]:
    """What stands for a key in a MixedMap. Lists, maps and optionals are keys by identity, as the pointers are that they are in Go."""
    kind = type(key)
    if kind is bytes:
        raise Panic("runtime error: hash of unhashable type types.Bytes")
    return (kind, id(key)) if isinstance(key, _IDENTITY_KEYS) else (kind, key)


def _same_numbers(key: Value) -> Iterator[tuple[type, Value]]:
    """What a key finds in a MixedMap: itself, and the same number of another type."""
    kind = type(key)
    if isinstance(key, _IDENTITY_KEYS) or kind is bytes or (kind is float and math.isnan(key)):
        return
    yield kind, key
    if kind is float and key.is_integer():
        if -(2**63) < key < 2**63:
            yield int, int(key)
        if 0 <= key < 2**64:
            yield UInt, int(key)
    elif kind is int and key >= 0:
        yield UInt, key
    elif kind is UInt and key < 2**63:
        yield int, key


def map_of(entries: Iterable[tuple[Value, Value]]) -> Value:
    """A map of entries; of those with one key the last counts."""
    return MixedMap(entries).plain()


def is_list(value: Value) -> bool:
    """Whether a value is a list."""
    return isinstance(value, (list, tuple, ListView))


def is_map(value: Value) -> bool:
    """Whether a value is a map."""
    return isinstance(value, (dict, MapView))


# What a value is.

_TYPES: dict[type, types.Type] = {
    type(None): types.NULL,
    bool: types.BOOL,
    int: types.INT,
    UInt: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    list: types.list_of(types.DYN),
    tuple: types.list_of(types.DYN),
    dict: types.map_of(types.DYN, types.DYN),
    Timestamp: types.TIMESTAMP,
    Duration: types.DURATION,
    types.Type: types.TYPE,
}
_GO_TYPES = {
    type(None): "types.Null",
    bool: "types.Bool",
    int: "types.Int",
    UInt: "types.Uint",
    float: "types.Double",
    str: "types.String",
    bytes: "types.Bytes",
    list: "*types.baseList",
    tuple: "*types.baseList",
    dict: "*types.baseMap",
    Timestamp: "types.Timestamp",
    Duration: "types.Duration",
    types.Type: "*types.Type",
    Optional: "*types.Optional",
}


def type_of(value: Value) -> types.Type:
    """The type of a value at run time: what is in a list or map does not count."""
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    if isinstance(value, (list, ListView)):
        return _TYPES[list]
    if isinstance(value, (dict, MapView)):
        return _TYPES[dict]
    declared: types.Type = value.cel_type
    return declared


def type_name(value: Value) -> str:
    """The name of the type of a value at run time: `int`, `list`, `google.protobuf.Timestamp`, `net.IP`."""
    return type_of(value).name


def go_type(value: Value) -> str:
    """The name that Go has for the type of a value, which some errors of cel-go say. A class of a library has it as `go_type`, and as
    `go_native` the type of what it wraps, "" for nothing."""
    known = _GO_TYPES.get(type(value))
    if known is not None:
        return known
    declared = getattr(value, "go_type", None)
    if declared is not None:
        return str(declared)
    return "*types.baseList" if is_list(value) else "*types.baseMap"


def size(value: Value) -> int:
    """What a value counts for in the cost of an operation: code points, bytes, elements, entries; 1 for all others."""
    if isinstance(value, (str, bytes, list, dict, tuple, ListView, MapView)):
        return len(value)
    if type(value) is Optional and value.has_value:
        return size(value.held)
    # A class of a library may say what its values count for.
    counted: int = getattr(value, "cel_size", 1)
    return counted


def require(produced: int) -> None:
    """CostExceeded when a result would be larger than any evaluation may produce. To be asked before the result is made."""
    if produced > MAX_PRODUCED:
        raise CostExceeded


# Equality and order.

_SIMPLE = frozenset((type(None), bool, int, UInt, str, bytes, Timestamp, Duration))
_NUMBERS = frozenset((int, UInt, float))


def equal(one: Value, other: Value) -> bool:
    """CEL's `==`: numbers of any type by value, lists and maps by what is in them, values of different types are not equal.

    EvaluationError when a library cannot compare its value with the other one.
    """
    left, right = type(one), type(other)
    if left is right and left in _SIMPLE:
        return bool(one == other)
    if left in _NUMBERS:
        return right in _NUMBERS and _equal_numbers(one, other)
    if left in _SIMPLE or other is None:
        return False
    if left is types.Type:
        return right is types.Type and one.name == other.name
    if is_list(one):
        if isinstance(one, ListView):
            return one.equals(other)
        return is_list(other) and equal_lists(one, other)
    if is_map(one):
        if isinstance(one, MapView):
            return one.equals(other)
        return is_map(other) and equal_maps(one, other)
    return bool(one == other)


def _equal_numbers(one: Value, other: Value) -> bool:
    """Integers are compared exactly with integers, and with doubles in double precision, as in Go."""
    if type(one) is float or type(other) is float:
        return float(one) == float(other)
    return bool(one == other)


def equal_lists(one: Value, other: Value) -> bool:
    """Whether two lists have equal elements."""
    return _equal_containers(one, other)


def equal_maps(one: Value, other: Value) -> bool:
    """Whether two maps have the same keys with equal values."""
    return _equal_containers(one, other)


def _equal_containers(one: Value, other: Value) -> bool:
    """Equality of what may be nested deeply, or hold the same part many times: it neither recurses nor looks at a pair twice.

    What cannot be compared counts as equal in here: cel-go looks for what is not equal.
    """
    seen: set[tuple[int, int]] = set()
    todo = [(one, other)]
    while todo:
        left, right = todo.pop()
        if len(left) != len(right):
            return False
        if (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        for this, that in _pairs(left, right):
            if that is ABSENT:
                return False
            plain_lists = isinstance(this, (list, tuple)) and is_list(that)
            if plain_lists or (isinstance(this, dict) and is_map(that)):
                todo.append((this, that))
            elif not _maybe_equal(this, that):
                return False
    return True


def _pairs(left: Value, right: Value) -> Iterable[tuple[Value, Value]]:
    if is_list(left):
        return zip(left, right, strict=True)
    if type(left) is dict:
        return ((value, find_key(right, key)) for key, value in left.items())
    return ((find_key(left, key), find_key(right, key)) for key in left)


def _maybe_equal(one: Value, other: Value) -> bool:
    try:
        return equal(one, other)
    except EvaluationError:
        return True


def compare(one: Value, other: Value) -> int:
    """CEL's order of two values: -1, 0 or 1. EvaluationError for those that have none, NaN among them."""
    left, right = type(one), type(other)
    if left is right and left in _ORDERED:
        return -1 if one < other else int(other < one)
    if left in _NUMBERS and right in _NUMBERS:
        if left is float or right is float:
            one, other = float(one), float(other)
            if math.isnan(one) or math.isnan(other):
                raise EvaluationError("NaN values cannot be ordered")
        return -1 if one < other else int(other < one)
    if left is float and math.isnan(one):
        raise EvaluationError("NaN values cannot be ordered")
    raise EvaluationError("no such overload")


_ORDERED = frozenset((bool, int, UInt, str, bytes, Timestamp, Duration))


# Looking into lists and maps.


def find_key(of: Value, key: Value) -> Value:
    """The value of a key in a map, ABSENT for none."""
    if isinstance(of, MapView):
        return of.find(key)
    kind = type(key)
    if kind is str:
        return of.get(key, ABSENT)
    if kind not in _KEYS:
        return ABSENT
    # All keys of a dict have one type, and it decides: to Python 1, 1.0 and True are the same key.
    held: type = type(next(iter(of), None))
    if held is bool or kind is bool:
        return of.get(key, ABSENT) if held is kind else ABSENT
    if held is str or (kind is float and not key.is_integer()):
        return ABSENT
    return of.get(key, ABSENT)


_KEYS = frozenset((bool, int, UInt, float))


def find(of: Value, key: Value) -> Value:
    """An element of a list or a value of a map; ABSENT when there is none, or when the value has no parts.

    EvaluationError for what cannot be an index of a list.
    """
    if isinstance(of, (dict, MapView)):
        return find_key(of, key)
    if isinstance(of, ListView):
        return of.at(key)
    if isinstance(of, (list, tuple)):
        index = index_of(key)
        return of[index] if 0 <= index < len(of) else ABSENT
    # A class of a library may say what its fields are.
    select = getattr(of, "cel_select", None)
    return ABSENT if select is None else select(key)


def lookup(of: Value, key: Value) -> Value:
    """An element of a list or a value of a map; EvaluationError when there is none."""
    found = find(of, key)
    if found is ABSENT:
        missing = getattr(of, "cel_missing", None)
        if missing is not None:
            return missing(key)
        raise EvaluationError(f"{'index out of bounds' if is_list(of) else 'no such key'}: {text(key)}")
    return found


def index_of(key: Value) -> int:
    """The index that a number is, which may lie outside of any list. EvaluationError for what is none."""
    kind = type(key)
    if kind is int:
        return int(key)
    if kind is UInt and key < 2**63:
        return int(key)
    if kind is float and key.is_integer() and -(2**63) < key < 2**63:
        return int(key)
    if kind in _NUMBERS:
        raise EvaluationError(f"unsupported index value {text(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_of(key)}' in list")


# Printing.


def double_text(value: float, *, exponents: bool = True) -> str:
    """A double as Go prints it, with no more digits than it needs: as %g (`1e+06`), or without `exponents` as %f (`1000000`)."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    shortest = Decimal(repr(value)).normalize()
    exponent = shortest.adjusted() if value else 0
    if not exponents or -4 <= exponent < 6:
        return f"{shortest:f}" if value else repr(value).partition(".")[0]
    sign, digits, _ = shortest.as_tuple()
    fraction = "".join(map(str, digits[1:]))
    return f"{'-' * sign}{digits[0]}{'.' * bool(fraction)}{fraction}e{exponent:+03d}"


def text(value: Value) -> str:
    """A value inside the text of an error, as Go's %v prints it; of a long one the beginning."""
    parts: list[str] = []
    todo = [value]
    length = 0
    while todo and length < _PRINTED:
        part = _printed(todo.pop(), todo)
        parts.append(part)
        length += len(part)
    return "".join(parts)[:_PRINTED]


class _Verbatim(str):
    """A piece of text between values that are yet to be printed."""

    __slots__ = ()


def _printed(value: Value, todo: list[Value]) -> str:
    """The beginning of a value; the rest of it is put on `todo`, the nearest last."""
    kind = type(value)
    if kind is str or kind is _Verbatim:
        return str(value)
    if is_list(value):
        pieces: list[Value] = [piece for element in islice(value, _PRINTED) for piece in (_Verbatim(", "), element)]
        todo += reversed([*pieces[1:], _Verbatim("]")])
        return "["
    if is_map(value):
        pieces = [
            piece
            for key in islice(value, _PRINTED)
            for piece in (_Verbatim(", "), key, _Verbatim(": "), find_key(value, key))
        ]
        todo += reversed([*pieces[1:], _Verbatim("}")])
        return "{"
    if kind is Optional:
        if not value.has_value:
            return "optional.none()"
        todo += (_Verbatim(")"), value.held)
        return "optional("
    if kind is Unsupported:
        return str(value.reason)
    return _PRINTERS.get(kind, str)(value)


_PRINTERS: dict[type, Callable[[Any], str]] = {
    type(None): lambda _: "0",
    bool: lambda value: "true" if value else "false",
    float: double_text,
    bytes: lambda value: "[" + " ".join(map(str, value[:_PRINTED])) + "]",
    Timestamp: lambda value: value.go_text(),
    Duration: lambda value: value.go_text(),
}
