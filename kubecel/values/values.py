"""Python's representation of values, and operations on any value: type, size, equality.

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

Python takes True for 1 and 1 for 1.0. So compare values with `equal`, and build maps with `map_of`.
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

# Limit of the bytes of the large results of one evaluation. A cost budget alone would allow more, but some operations
# cost 1 whatever the size of their result.
MAX_PRODUCED = 1 << 25
# Values in error messages are cut at this length.
_PRINTED = 4096


class UInt(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class _Absent:
    """There is no value for a key; null is a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


class Unsupported:
    """Stands in an optional for a value that Go cannot convert back from its native form. Unwrapping it is an error."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Optional:
    """A value or none. `held` is the value or its stand-in."""

    __slots__ = ("held",)

    cel_type = types.opaque("optional_type")

    def __init__(self, value: Value = ABSENT) -> None:
        self.held = value

    @property
    def has_value(self) -> bool:
        """Return whether there is a value."""
        return self.held is not ABSENT

    @property
    def value(self) -> Value:
        """Return the value. Raises EvaluationError if it is Unsupported."""
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
    """A variable that is computed at its first read, once in an evaluation."""

    __slots__ = ("resolve",)

    def __init__(self, resolve: Callable[[], Value]) -> None:
        self.resolve = resolve


class ListView(Sequence[Value]):
    """A list that is not a Python list. It has no slices."""

    __slots__ = ()

    def plus(self, other: Value) -> Value:
        """Return this list followed by the elements of another."""
        return [*self, *other]

    def at(self, key: Value) -> Value:
        """Return the element at an index, which may be a number of any type; ABSENT if it is out of range."""
        index = index_of(key)
        return self[index] if 0 <= index < len(self) else ABSENT

    def equals(self, other: Value) -> bool:
        """Return CEL's equality with another value."""
        return is_list(other) and equal_lists(self, other)

    def contains(self, value: Value) -> bool:
        """Return CEL's `in`."""
        return any(equal(value, element) for element in self)


class MapView:
    """A map that is not a dict with keys of one type."""

    __slots__ = ()

    @abstractmethod
    def find(self, key: Value) -> Value:
        """Return the value of a key, ABSENT without one. Raises EvaluationError for an invalid key."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __iter__(self) -> Iterator[Value]:
        """Yield the keys."""

    def equals(self, other: Value) -> bool:
        """Return CEL's equality with another value."""
        return is_map(other) and equal_maps(self, other)


class MixedMap(MapView):
    """A map with keys that Python cannot distinguish: `{true: 1, 1: 2, 1u: 3}`. It grows by `insert`."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[Value, Value]] = ()) -> None:
        self._entries: dict[tuple[type, Value], tuple[Value, Value]] = {}
        for key, value in entries:
            self.insert(key, value)

    def insert(self, key: Value, value: Value) -> None:
        """Set the value of a key."""
        self._entries[_mixed_key(key)] = key, value

    def remove(self, key: Value) -> None:
        """Remove a key, if it exists."""
        self._entries.pop(_mixed_key(key), None)

    def find(self, key: Value) -> Value:
        for candidate in _same_numbers(key):
            entry = self._entries.get(candidate)
            if entry is not None:
                return entry[1]
        return ABSENT

    def plain(self) -> Value:
        """Return an equal dict, if a dict can represent the map."""
        kinds = {kind for kind, _ in self._entries}
        if not kinds or (len(kinds) == 1 and kinds <= _PLAIN_KEYS):
            return dict(self._entries.values())
        return self

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Value]:
        return (key for key, _ in self._entries.values())


# Key types of which a dict may hold one: equal keys of one of these types are equal in Python too.
_PLAIN_KEYS = frozenset((str, int, UInt, bool))
_IDENTITY_KEYS = (list, tuple, dict, ListView, MapView, Optional)


def _mixed_key(key: Value) -> tuple[type, Value]:
    """Return the key of a MixedMap. Lists, maps and optionals are keys by identity, because Go has pointers there."""
    kind = type(key)
    if kind is bytes:
        raise Panic("runtime error: hash of unhashable type types.Bytes")
    return (kind, id(key)) if isinstance(key, _IDENTITY_KEYS) else (kind, key)


def _same_numbers(key: Value) -> Iterator[tuple[type, Value]]:
    """Yield the keys that match in a MixedMap: the key itself, and the same number of other types."""
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
    """Return a map of entries. The last of equal keys wins."""
    return MixedMap(entries).plain()


def is_list(value: Value) -> bool:
    """Return whether a value is a list."""
    return isinstance(value, (list, tuple, ListView))


def is_map(value: Value) -> bool:
    """Return whether a value is a map."""
    return isinstance(value, (dict, MapView))


# Types of values

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
    """Return the type of a value at run time, without the types of elements."""
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
    """Return the name of the type of a value at run time: `int`, `list`, `google.protobuf.Timestamp`, `net.IP`."""
    return type_of(value).name


def go_type(value: Value) -> str:
    """Return Go's name of the type of a value, for errors of cel-go.

    A class of a library has it as `go_type`. Its `go_native` is the type of the value that it wraps, "" for none.
    """
    known = _GO_TYPES.get(type(value))
    if known is not None:
        return known
    declared = getattr(value, "go_type", None)
    if declared is not None:
        return str(declared)
    return "*types.baseList" if is_list(value) else "*types.baseMap"


def size(value: Value) -> int:
    """Return the size of a value for costs: code points, bytes, elements, entries; 1 for all others."""
    if isinstance(value, (str, bytes, list, dict, tuple, ListView, MapView)):
        return len(value)
    if type(value) is Optional and value.has_value:
        return size(value.held)
    # A class of a library may have its own size.
    counted: int = getattr(value, "cel_size", 1)
    return counted


def require(produced: int) -> None:
    """Raise CostExceeded if a result of this size is larger than any evaluation may produce.

    Call it before making the result.
    """
    if produced > MAX_PRODUCED:
        raise CostExceeded


# Equality and order

_SIMPLE = frozenset((type(None), bool, int, UInt, str, bytes, Timestamp, Duration))
_NUMBERS = frozenset((int, UInt, float))


def equal(one: Value, other: Value) -> bool:
    """Return CEL's `==`. Numbers compare by value, lists and maps by their elements; other types must be the same.

    Raises EvaluationError when a library cannot compare its value with the other one.
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
    """Compare integers exactly with each other, and with doubles in double precision, as in Go."""
    if type(one) is float or type(other) is float:
        return float(one) == float(other)
    return bool(one == other)


def equal_lists(one: Value, other: Value) -> bool:
    """Return whether two lists have equal elements."""
    return _equal_containers(one, other)


def equal_maps(one: Value, other: Value) -> bool:
    """Return whether two maps have the same keys with equal values."""
    return _equal_containers(one, other)


def _equal_containers(one: Value, other: Value) -> bool:
    """Compare values that may be deep, or contain one part many times, without recursion or repeated comparisons.

    Values inside that cannot be compared count as equal: cel-go searches for unequal ones.
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
    """Return CEL's order of two values: -1, 0 or 1. Raises EvaluationError for values without order, NaN included."""
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


# Elements of lists and maps


def find_key(of: Value, key: Value) -> Value:
    """Return the value of a key in a map, ABSENT without one."""
    if isinstance(of, MapView):
        return of.find(key)
    kind = type(key)
    if kind is str:
        return of.get(key, ABSENT)
    if kind not in _KEYS:
        return ABSENT
    # All keys of a dict have one type, which decides: to Python 1, 1.0 and True are the same key.
    held: type = type(next(iter(of), None))
    if held is bool or kind is bool:
        return of.get(key, ABSENT) if held is kind else ABSENT
    if held is str or (kind is float and not key.is_integer()):
        return ABSENT
    return of.get(key, ABSENT)


_KEYS = frozenset((bool, int, UInt, float))


def find(of: Value, key: Value) -> Value:
    """Return an element of a list or a value of a map.

    It is ABSENT if there is no such element, or if the value has no elements. Raises EvaluationError for an invalid
    index of a list.
    """
    if isinstance(of, (dict, MapView)):
        return find_key(of, key)
    if isinstance(of, ListView):
        return of.at(key)
    if isinstance(of, (list, tuple)):
        index = index_of(key)
        return of[index] if 0 <= index < len(of) else ABSENT
    # A class of a library may have fields of its own.
    select = getattr(of, "cel_select", None)
    return ABSENT if select is None else select(key)


def lookup(of: Value, key: Value) -> Value:
    """Return an element of a list or a value of a map. Raises EvaluationError without one."""
    found = find(of, key)
    if found is ABSENT:
        missing = getattr(of, "cel_missing", None)
        if missing is not None:
            return missing(key)
        raise EvaluationError(f"{'index out of bounds' if is_list(of) else 'no such key'}: {text(key)}")
    return found


def index_of(key: Value) -> int:
    """Return the index that a number denotes, which may be out of range. Raises EvaluationError for other values."""
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


# Printing


def double_text(value: float, *, exponents: bool = True) -> str:
    """Return a double as Go prints it, with the fewest digits.

    The form is %g (`1e+06`), or %f without `exponents` (`1000000`).
    """
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
    """Return a value as Go's %v prints it in an error message. Long values are cut."""
    parts: list[str] = []
    todo = [value]
    length = 0
    while todo and length < _PRINTED:
        part = _printed(todo.pop(), todo)
        parts.append(part)
        length += len(part)
    return "".join(parts)[:_PRINTED]


class _Verbatim(str):
    """Text between values that are not printed yet."""

    __slots__ = ()


def _printed(value: Value, todo: list[Value]) -> str:
    """Return the beginning of a value. Put the rest on `todo`, the next part last."""
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
