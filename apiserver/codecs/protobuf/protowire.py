"""Read and write protobuf's wire format as gogo's generated code does: numbers, lengths, skipped fields, and the texts of its errors.

Knows no shapes.
Upstream: gogo/protobuf's output, for example kubernetes/api `resource/v1/generated.pb.go`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

VARINT, FIXED64, BYTES, START_GROUP, END_GROUP, FIXED32 = range(6)
"""Wire types."""

_MASK = (1 << 64) - 1
_MOST = (1 << 63) - 1
_SHORT = 128

EOF = "unexpected EOF"
OVERFLOW = "proto: integer overflow"
NEGATIVE_LENGTH = "proto: negative length found during unmarshaling"
END_OF_NOTHING = "proto: unexpected end of group"


MOST_VALUES = 40_000
"""Values in one object: messages, elements of lists and maps, skipped fields, and values that later ones replace. In Python each may take
half a kilobyte, in protobuf two bytes."""

Budget = Iterator[None]
"""Yields once for each value that may still come."""


def budget() -> Budget:
    """Return the budget of one message."""
    return itertools.repeat(None, MOST_VALUES)


class DecodeError(Exception):
    """The bytes are not a message of the shape. The text is Go's."""


class TooManyValues(DecodeError):
    """The values of a message need more memory than one request may use, however few its bytes are."""

    def __init__(self) -> None:
        super().__init__(f"the message holds more than {MOST_VALUES} values")


def key(number: int, wire_type: int) -> int:
    """Return the key in front of a value, as a number."""
    return number << 3 | wire_type


def varint(value: int) -> bytes:
    """Encode a number; negative ones as 64 bits."""
    if _SHORT <= value < _SHORT * _SHORT:
        return bytes((value & 127 | _SHORT, value >> 7))
    value &= _MASK
    made = bytearray()
    while value >= _SHORT:
        made.append(value & 127 | _SHORT)
        value >>= 7
    made.append(value)
    return bytes(made)


def sized(tag: bytes, data: bytes) -> bytes:
    """Return a text or message behind its tag and its length."""
    return tag + varint(len(data)) + data


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number of 64 bits and the offset behind it. Raises IndexError where the data ends: an unexpected EOF."""
    value = shift = 0
    while shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < _SHORT:
            return value & _MASK, at
        shift += 7
    raise DecodeError(OVERFLOW)


def signed(value: int, bits: int = 64) -> int:
    """Return the low bits of a number as a signed one."""
    half = 1 << (bits - 1)
    return ((value + half) & ((1 << bits) - 1)) - half


def read_span(data: bytes, at: int) -> tuple[int, int]:
    """Return the start and end of the value whose length stands at `at`."""
    length, start = read_varint(data, at)
    if start + length > _MOST:
        raise DecodeError(NEGATIVE_LENGTH)
    if start + length > len(data):
        raise DecodeError(EOF)
    return start, start + length


def skip(data: bytes, at: int, end: int, turns: Budget) -> int:
    """Return the offset behind the unknown field whose key stands at `at`. A group is skipped as a whole, at any depth. The field must end
    at `end`.

    Each field takes a turn, and so do those inside groups. Raises StopIteration when no turn is left.
    """
    depth, start, size = 0, at, len(data)
    while at < size:
        next(turns)
        wire, at = data[at], at + 1
        if wire >= _SHORT:
            at = _behind_varint(data, at - 1)
        match wire & 7:
            case 0:
                at = _behind_varint(data, at)
            case 1:
                at += 8
            case 2:
                length, at = data[at], at + 1
                if length >= _SHORT:
                    length, at = read_varint(data, at - 1)
                if at - start + length > _MOST:
                    raise DecodeError(NEGATIVE_LENGTH)
                at += length
            case 3:
                depth += 1
            case 4:
                if not depth:
                    raise DecodeError(END_OF_NOTHING)
                depth -= 1
            case 5:
                at += 4
            case other:
                raise DecodeError(f"proto: illegal wireType {other}")
        if not depth:
            if at > _MOST or at > end:
                raise DecodeError(NEGATIVE_LENGTH if at > _MOST else EOF)
            return at
    raise DecodeError(EOF)


def _behind_varint(data: bytes, at: int) -> int:
    for behind in range(at + 1, at + 11):
        if data[behind - 1] < _SHORT:
            return behind
    raise DecodeError(OVERFLOW)


def read_key(data: bytes, at: int, message: str) -> tuple[int, int]:
    """Return the key at `at`, its number narrowed as in Go, and the offset behind it."""
    wire, at = read_varint(data, at)
    number, wire_type = signed(wire >> 3, 32), wire & 7
    if wire_type == END_GROUP:
        raise DecodeError(f"proto: {message}: wiretype end group for non-group")
    if number <= 0:
        raise DecodeError(f"proto: {message}: illegal tag {number} (wire type {wire})")
    return key(number, wire_type), at


def wrong_type(wire_type: int, field: str) -> DecodeError:
    return DecodeError(f"proto: wrong wireType = {wire_type} for field {field}")


def spans(data: bytes, message: str, names: Mapping[int, str]) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a message that has only texts and messages, with their numbers. `names` has their Go names.

    Each field is read when the caller asks for it. Raises DecodeError, or its subclass TooManyValues.
    """
    at, turns = 0, budget()
    while at < len(data):
        try:
            next(turns)
            wire, behind = read_key(data, at, message)
            number, wire_type = wire >> 3, wire & 7
            if number not in names:
                at = skip(data, at, len(data), turns)
                continue
            if wire_type != BYTES:
                raise wrong_type(wire_type, names[number])
            start, at = read_span(data, behind)
        except IndexError:
            raise DecodeError(EOF) from None
        except StopIteration:
            raise TooManyValues from None
        yield number, data[start:at]
