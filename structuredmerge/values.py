"""Equality and order of JSON values.

Numbers compare by number (2 is 2.0), a boolean is no number, null equals only null.
Upstream: kubernetes-sigs/structured-merge-diff `value/value.go`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from kubetext.sorting import in_order

__all__ = ["ABSENT", "Key", "equal", "key", "of"]

# The form that is ordered and hashed: (rank, number | str | bool | keys of items | (name, key) of members); null is
# (rank,).
Key = tuple[Any, ...]

MAX_DEPTH: Final = 100  # levels of a value in a path element

NUMBER, STRING, BOOLEAN, LIST, MAP, NULL = range(6)
_NULL_KEY: Final = (NULL,)
_encode = msgspec.json.Encoder().encode


class _Absent:
    """There is no value; None would be null."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent()


def equal(a: Any, b: Any) -> bool:
    """Return whether two values are equal. Law: it is an equivalence, and says the same as `key(a) == key(b)`.

    Python's own comparison is quick, but takes True for 1. So its yes counts only when both values also encode alike.
    """
    if a is b:
        return True
    kind, other = a.__class__, b.__class__
    if kind is not other:
        return kind in _NUMBERS and other in _NUMBERS and bool(a == b)
    if kind is not dict and kind is not list:
        return bool(a == b)
    return bool(a == b) and (_encode(a) == _encode(b) or _same(a, b))


_NUMBERS = frozenset({int, float})


def _same(a: Any, b: Any) -> bool:
    """Return `equal` of two values that are equal in Python. Only a boolean in the place of a number tells them apart."""
    if a is b:
        return True
    if a.__class__ is dict:
        return all(_same(value, b[name]) for name, value in a.items())
    if a.__class__ is list:
        return all(map(_same, a, b))
    return (a.__class__ is bool) is (b.__class__ is bool)


def key(value: Any, depth: int = 0) -> Key:
    """Return the form in which a value is ordered and hashed: number < string < boolean < list < map < null.

    Law: a total order. Strings compare by their bytes, false is less than true, lists and maps compare by their parts,
    the shorter first. `depth` is the depth of the value.

    Raises RecursionError below MAX_DEPTH, because comparing and printing keys recurses at each level.
    """
    kind = value.__class__
    if kind is str:
        return (STRING, value)
    if kind is bool:
        return (BOOLEAN, value)
    if value is None:
        return _NULL_KEY
    if kind is not list and kind is not dict:
        return (NUMBER, value)
    if depth == MAX_DEPTH:
        raise RecursionError(f"exceeded max depth of {MAX_DEPTH}")
    if kind is list:
        return (LIST, tuple([key(item, depth + 1) for item in value]))
    return (MAP, tuple([(name, key(value[name], depth + 1)) for name in in_order(value)]))


def of(key_: Key) -> Any:
    """Return the value of a key. Law: `key(of(k)) == k`."""
    rank = key_[0]
    if rank == NULL:
        return None
    if rank == LIST:
        return [of(item) for item in key_[1]]
    if rank == MAP:
        return {name: of(value) for name, value in key_[1]}
    return key_[1]
