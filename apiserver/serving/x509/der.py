"""Read DER like Go's `cryptobyte`: definite and minimal lengths, tags of one byte; bytes after the last value read are ignored.

Upstream: golang.org/x/crypto `cryptobyte/asn1.go`.
"""

from __future__ import annotations

import datetime as dt
import re

BOOLEAN, INTEGER, BIT_STRING, OCTET_STRING, OBJECT_IDENTIFIER = 0x01, 0x02, 0x03, 0x04, 0x06
UTF8_STRING, NUMERIC_STRING, PRINTABLE_STRING, T61_STRING, IA5_STRING, BMP_STRING = 0x0C, 0x12, 0x13, 0x14, 0x16, 0x1E
UTC_TIME, GENERALIZED_TIME = 0x17, 0x18
SEQUENCE, SET = 0x30, 0x31
CONTEXT, CONSTRUCTED = 0x80, 0x20
NULL = b"\x05\x00"

_HIGH_TAG = 0x1F
_MOST_LENGTH_BYTES = 4
# Components below 2^31, each in as few bytes as possible.
_OBJECT_IDENTIFIER = re.compile(rb"(?:(?:[\x81-\x87][\x80-\xff]{3}|[\x81-\xff][\x80-\xff]{0,2})?[\x00-\x7f])+")
_TIME = re.compile(
    rb"(\d\d|\d{4})(0[1-9]|1[0-2])(\d\d)([01]\d|2[0-3])([0-5]\d)([0-5]\d)?(?:Z|([+-])([01]\d|2[0-4])([0-5]\d))"
)
_CENTURY_ENDS = 50
"""UTCTime: years from here on are those of the last century."""


class Malformed(ValueError):
    """The bytes are not valid DER."""

    def __init__(self, text: str = "malformed DER") -> None:
        super().__init__(text)


class Budget:
    """The number of values that may still be read from untrusted bytes. Reading one takes a microsecond and a half."""

    __slots__ = ("left",)

    def __init__(self, values: int) -> None:
        self.left = values

    def spend(self, values: int) -> None:
        self.left -= values
        if self.left < 0:
            raise Malformed("too many values")


def is_object_identifier(content: bytes) -> bool:
    return _OBJECT_IDENTIFIER.fullmatch(content) is not None


class Reader:
    """A position in some DER. Each method reads one value and moves on; all raise Malformed."""

    __slots__ = ("_at", "_data", "_end", "budget")

    def __init__(self, data: bytes, budget: Budget, at: int = 0, end: int | None = None) -> None:
        self._data = data
        self.budget = budget
        self._at = at
        self._end = len(data) if end is None else end

    def __bool__(self) -> bool:
        """Return whether bytes are left."""
        return self._at < self._end

    @property
    def rest(self) -> bytes:
        """All remaining bytes."""
        return self._data[self._at : self._end]

    def peek(self, tag: int) -> bool:
        """Return whether the next value has this tag."""
        return self._at < self._end and self._data[self._at] == tag

    def any(self) -> tuple[int, Reader]:
        """Read the next value of any type: its tag and its content."""
        tag, start = self._header()
        return tag, Reader(self._data, self.budget, start, self._at)

    def content(self, tag: int) -> Reader:
        if not self.peek(tag):
            raise Malformed
        return self.any()[1]

    def optional(self, tag: int) -> Reader | None:
        return self.content(tag) if self.peek(tag) else None

    def element(self, tag: int) -> bytes:
        """Read a whole value, with its tag and its length."""
        start = self._at
        self.content(tag)
        return self._data[start : self._at]

    def any_element(self) -> bytes:
        start = self._at
        self._header()
        return self._data[start : self._at]

    def _header(self) -> tuple[int, int]:
        """Read tag and length, move past the content, and return where the content starts."""
        self.budget.spend(1)
        data, at, end = self._data, self._at, self._end
        if end - at < 2 or data[at] & _HIGH_TAG == _HIGH_TAG:
            raise Malformed
        start, length = at + 2, data[at + 1]
        if length & 0x80:
            count = length & 0x7F
            if not 0 < count <= _MOST_LENGTH_BYTES or end - start < count:
                raise Malformed
            length = int.from_bytes(data[start : start + count], "big")
            if length < 0x80 or length >> 8 * (count - 1) == 0:
                raise Malformed
            start += count
        if length > end - start:
            raise Malformed
        self._at = start + length
        return data[at], start

    def integer(self, tag: int = INTEGER) -> int:
        content = self.content(tag).rest
        if not content or (len(content) > 1 and (content[0], content[1] >> 7) in ((0, 0), (0xFF, 1))):
            raise Malformed
        return int.from_bytes(content, "big", signed=True)

    def small_integer(self, tag: int = INTEGER) -> int:
        """Read an integer of at most 64 bits."""
        value = self.integer(tag)
        if not -(1 << 63) <= value < 1 << 63:
            raise Malformed
        return value

    def boolean(self) -> bool:
        content = self.content(BOOLEAN).rest
        if content not in (b"\x00", b"\xff"):
            raise Malformed
        return content == b"\xff"

    def object_identifier(self) -> bytes:
        """Read an object identifier in its encoded form."""
        content = self.content(OBJECT_IDENTIFIER).rest
        if not is_object_identifier(content):
            raise Malformed
        return content

    def bits(self) -> bytes:
        """Read a BIT STRING; its unused bits are shifted out at the end."""
        unused, data = self._bit_string()
        return (int.from_bytes(data, "big") >> unused).to_bytes(len(data), "big") if unused else data

    def flags(self) -> frozenset[int]:
        """Return which of the first 16 bits of a BIT STRING are set."""
        _, data = self._bit_string()
        return frozenset(8 * at + bit for at, byte in enumerate(data[:2]) for bit in range(8) if byte & (0x80 >> bit))

    def _bit_string(self) -> tuple[int, bytes]:
        content = self.content(BIT_STRING).rest
        if not content or content[0] > 7 or (content[0] and len(content) == 1):
            raise Malformed
        unused, data = content[0], content[1:]
        if data and data[-1] & ((1 << unused) - 1):
            raise Malformed
        return unused, data

    def time(self) -> float:
        """Read a time, in seconds since the epoch."""
        tag, content = self.any()
        match = _TIME.fullmatch(content.rest)
        if match is None or tag not in (UTC_TIME, GENERALIZED_TIME):
            raise Malformed
        year, month, day, hour, minute, second, sign, hours, minutes = match.groups()
        long = len(year) == 4
        if long is not (tag == GENERALIZED_TIME) or (long and second is None) or (sign and hours + minutes == b"0000"):
            raise Malformed
        number = int(year)
        if not long:
            number += 1900 if number >= _CENTURY_ENDS else 2000
        offset = (int(hours) * 3600 + int(minutes) * 60) * (1 if sign == b"+" else -1) if sign else 0
        try:
            moment = dt.datetime(number, int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=dt.UTC)
        except ValueError:
            raise Malformed from None
        return moment.timestamp() - offset
