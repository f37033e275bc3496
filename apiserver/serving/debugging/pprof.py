"""Write profiles in pprof's format, which `go tool pprof` and speedscope read.

Upstream: google/pprof `proto/profile.proto`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from apiserver.codecs.protobuf import protowire

T = TypeVar("T")


class Place(NamedTuple):
    """A line of a function, which begins at `first`."""

    name: str
    file: str
    first: int
    line: int


Sample = tuple[Sequence[Place], Sequence[int]]
"""A stack, innermost first, and its values."""
Measure = tuple[str, str]
"""A kind of value, and its unit."""


class _Numbers(dict[T, int]):
    """Numbers things in the order in which they are first seen."""

    def __init__(self, first: int) -> None:
        super().__init__()
        self._first = first

    def of(self, thing: T) -> int:
        return self.setdefault(thing, self._first + len(self))


def compressed(
    samples: Iterable[Sample], measures: Sequence[Measure], *, began: int, duration: int, period: int = 0
) -> bytes:
    """Return a profile. Each sample has a value for each measure; the last measure is shown first. Times are nanoseconds. `period` is the
    distance of samples in that measure."""
    texts: _Numbers[str] = _Numbers(0)
    places: _Numbers[Place] = _Numbers(1)
    functions: _Numbers[tuple[str, str, int]] = _Numbers(1)
    texts.of("")
    kinds = [_number(1, texts.of(name)) + _number(2, texts.of(unit)) for name, unit in measures]
    made = [*(_message(1, kind) for kind in kinds), _message(11, kinds[-1]), _number(14, texts.of(measures[-1][0]))]
    for stack, values in samples:
        ids = b"".join(_number(1, places.of(place)) for place in stack)
        made.append(_message(2, ids + b"".join(_number(2, value) for value in values)))
    for place, number in places.items():
        line = _number(1, functions.of(place[:3])) + _number(2, place.line)
        made.append(_message(4, _number(1, number) + _message(4, line)))
    for (name, file, first), number in functions.items():
        called = texts.of(name)
        parts = (
            _number(1, number),
            _number(2, called),
            _number(3, called),
            _number(4, texts.of(file)),
            _number(5, first),
        )
        made.append(_message(5, b"".join(parts)))
    made += [_message(6, text.encode()) for text in texts]
    made += [_number(9, began), _number(10, duration), _number(12, period)]
    return gzip.compress(b"".join(made), 1)


def _number(field: int, value: int) -> bytes:
    return protowire.varint(protowire.key(field, protowire.VARINT)) + protowire.varint(value)


def _message(field: int, body: bytes) -> bytes:
    return protowire.varint(protowire.key(field, protowire.BYTES)) + protowire.varint(len(body)) + body
