"""Read and write points in time as the API does: RFC 3339 as Go's time package reads it, including its errors. Knows no clock.

Upstream: golang/go `src/time/format.go` (parse, ParseError), kubernetes/apimachinery `pkg/apis/meta/v1/{time,micro_time}.go`.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date

RFC3339 = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"
"""Layouts as Go spells them; errors quote them."""

ZERO = "0001-01-01T00:00:00Z"
ZERO_MICRO = "0001-01-01T00:00:00.000000Z"
"""Go's zero time. It counts as absent where a time is not a pointer, and is written as null where it is one."""

_PLAIN = re.compile("[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z")
_DAY, _YEARS_OF_CYCLE, _DAYS_OF_CYCLE = 86400, 400, 146097
_NANO_DIGITS = 9


class TimeError(ValueError):
    """The text is not a time. The message is Go's."""


class _Bad(Exception):
    """The text does not have the layout's next element."""


def canonical(text: str, *, micro: bool = False) -> str:
    """Return the time in UTC with whole seconds (or microseconds); smaller fractions are cut off. Raises TimeError."""
    if not micro and _PLAIN.fullmatch(text):
        return text
    # Go looks at bytes. Latin-1 gives each byte of the UTF-8 form one character.
    source = text.encode(errors="replace").decode("latin-1")
    return _Reading(source, micro=micro).canonical()


def order(text: str) -> tuple[bool, str]:
    """Return a key that sorts canonical times. Offsets can lead to the years -1 and 10000; the latter has one digit more than all
    others."""
    return text[4] != "-" and text[0] != "-", text


class _Reading:
    """Reads one text along the layout. `rest` is the unread part."""

    def __init__(self, text: str, *, micro: bool) -> None:
        self.text = self.rest = text
        self.micro = micro
        self.nanos = 0

    def canonical(self) -> str:
        year = self._element("2006", self._year)
        self._literal("-")
        month = self._element("01", self._two_digits, low=1, high=12, what="month")
        self._literal("-")
        day = self._element("02", self._two_digits)
        self._literal("T")
        hour = self._element("15", self._one_or_two_digits, high=23, what="hour")
        self._literal(":")
        minute = self._element("04", self._two_digits, high=59, what="minute")
        self._literal(":")
        second = self._element("05", self._two_digits, high=59, what="second")
        if self.micro:
            self._element(".000000", self._six_digits)
        else:
            self._fraction()
        offset = self._element("Z07:00", self._offset)
        if self.rest:
            raise self._error(f": extra text: {_quote(self.rest)}")
        if not 1 <= day <= calendar.monthrange(year + _YEARS_OF_CYCLE, month)[1]:
            raise self._error(": day out of range")
        return self._format(_days(year, month, day) * _DAY + hour * 3600 + minute * 60 + second - offset)

    def _error(self, message: str) -> TimeError:
        return TimeError(f"parsing time {_quote(self.text)}{message}")

    def _cannot(self, at: str, element: str) -> TimeError:
        layout = RFC3339_MICRO if self.micro else RFC3339
        return self._error(f" as {_quote(layout)}: cannot parse {_quote(at)} as {_quote(element)}")

    def _literal(self, text: str) -> None:
        if not self.rest.startswith(text):
            raise self._cannot(self.rest, text)
        self.rest = self.rest[len(text) :]

    def _element(self, element: str, read: Callable[[], int], *, low: int = 0, high: int = -1, what: str = "") -> int:
        before = self.rest
        try:
            value = read()
        except _Bad:
            raise self._cannot(before, element) from None
        if what and not low <= value <= high:
            raise self._error(f": {what} out of range")
        return value

    def _take(self, count: int) -> str:
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def _digits(self, count: int) -> int:
        if len(self.rest) < count or not _is_digits(self.rest[:count]):
            raise _Bad
        return int(self._take(count))

    def _year(self) -> int:
        return self._digits(4)

    def _two_digits(self) -> int:
        return self._digits(2)

    def _one_or_two_digits(self) -> int:
        return self._digits(2 if _is_digits(self.rest[1:2]) else 1)

    def _six_digits(self) -> int:
        if self.rest[:1] not in (".", ","):
            raise _Bad
        self._take(1)
        self.nanos = self._digits(6) * 1000
        return 0

    def _fraction(self) -> None:
        """Read a fraction, which Go accepts although the layout has none."""
        match = re.match("[.,]([0-9]+)", self.rest)
        if match:
            self.nanos = int(match[1][:_NANO_DIGITS].ljust(_NANO_DIGITS, "0"))
            self._take(match.end())

    def _offset(self) -> int:
        """Return the seconds east of Greenwich. Go allows offsets up to 24 hours and 60 minutes."""
        if self.rest.startswith("Z"):
            self._take(1)
            return 0
        if len(self.rest) < 6 or self.rest[3] != ":":
            raise _Bad
        sign, hour, minute = self.rest[0], self.rest[1:3], self.rest[4:6]
        self._take(6)
        hours = int(hour) if _is_digits(hour) else 0
        minutes = int(minute) if _is_digits(hour) and _is_digits(minute) else 0
        if minutes > 60:
            raise self._error(": time zone offset minute out of range")
        if hours > 24:
            raise self._error(": time zone offset hour out of range")
        if not _is_digits(hour) or not _is_digits(minute) or sign not in "+-":
            raise _Bad
        seconds = hours * 3600 + minutes * 60
        return -seconds if sign == "-" else seconds

    def _format(self, seconds: int) -> str:
        return _format(seconds, self.nanos, micro=self.micro)


def _format(seconds: int, nanos: int, *, micro: bool) -> str:
    """Format a time. `seconds` are counted from the day before January 1 of year 1."""
    days, second = divmod(seconds, _DAY)
    cycles, day = divmod(days, _DAYS_OF_CYCLE)
    # One cycle later, because Python has no year 0.
    at = date.fromordinal(day + _DAYS_OF_CYCLE)
    year = at.year + (cycles - 1) * _YEARS_OF_CYCLE
    shown = f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    fraction = f".{nanos // 1000:06d}" if micro else ""
    return f"{shown}-{at.month:02d}-{at.day:02d}T{clock}{fraction}Z"


def _days(year: int, month: int, day: int) -> int:
    """Return the ordinal of a date of any year."""
    cycles, of_cycle = divmod(year, _YEARS_OF_CYCLE)
    return date(of_cycle + _YEARS_OF_CYCLE, month, day).toordinal() + (cycles - 1) * _DAYS_OF_CYCLE


_CANONICAL = re.compile(
    r"(-?[0-9]{4,})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{6}))?Z", re.ASCII
)
_EPOCH = date(1970, 1, 1).toordinal() * _DAY


def unix(text: str) -> tuple[int, int]:
    """Return seconds since 1970 and nanoseconds of a canonical text. Raises TimeError for any other text."""
    match = _CANONICAL.fullmatch(text)
    if match is None:
        raise TimeError(f"{_quote(text)} is not canonical")
    year, month, day, hour, minute, second, micros = map(int, match.groups("0"))
    return _days(year, month, day) * _DAY + hour * 3600 + minute * 60 + second - _EPOCH, micros * 1000


def from_unix(seconds: int, nanos: int = 0, *, micro: bool = False) -> str:
    """Return the canonical text of seconds since 1970, in any year."""
    return _format(seconds + _EPOCH, nanos, micro=micro)


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


_SHOWN = 8 << 10
"""Bytes of a text that an error shows."""
_QUOTED = {byte: chr(byte) if 0x20 <= byte <= 0x7F else f"\\x{byte:02x}" for byte in range(256)} | {
    ord(c): f"\\{c}" for c in '"\\'
}


def _quote(text: str) -> str:
    r"""Quote a text as Go's time package does: every byte that is not printable ASCII as \\xNN. Long texts are cut."""
    more = len(text) - _SHOWN
    return f'"{text[:_SHOWN].translate(_QUOTED)}"' + (f"… {more} more bytes" if more > 0 else "")
