"""Compute, parse and print timestamps and durations with nanoseconds, as Go does.

Upstream: google/cel-go `common/types/{timestamp,duration,overflow}.go`, `common/stdlib/standard.go` inTimeZone; Go `time`.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from zoneinfo import ZoneInfo

from kubecel.values.errors import EvaluationError

NANOS = 1_000_000_000
MIN_INT, MAX_INT = -(2**63), 2**63 - 1
# Seconds from the epoch to 0001-01-01T00:00:00Z and to 9999-12-31T23:59:59Z, the range of timestamps.
MIN_SECONDS, MAX_SECONDS = -62135596800, 253402300799

_DAY = 86400
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))",
    re.ASCII,
)
_DURATION_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": NANOS,
    "m": 60 * NANOS,
    "h": 3600 * NANOS,
}
# Zones are looked up at moments at least this far inside the range of `datetime`. No rule changes in between.
_MARGIN = 2 * _DAY
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - reckoned in UTC without saying so, as ZoneInfo.fromutc wants it
# Limit of the text of a duration, of the name of a zone, and of either in an error message.
_LONGEST = 4096
_ATOI = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Duration:
    """A span of time in nanoseconds, within 64 bits."""

    __slots__ = ("nanoseconds",)

    def __init__(self, nanoseconds: int) -> None:
        self.nanoseconds = nanoseconds

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.nanoseconds == other.nanoseconds

    def __lt__(self, other: Duration) -> bool:
        return self.nanoseconds < other.nanoseconds

    def __hash__(self) -> int:
        return hash((Duration, self.nanoseconds))

    def __repr__(self) -> str:
        return f"Duration({self})"

    def __str__(self) -> str:
        """Return seconds, as `string()` does: `5400s`, `1.5s`."""
        return f"{Decimal(repr(_seconds(self.nanoseconds))).normalize():f}s" if self.nanoseconds else "0s"

    def go_text(self) -> str:
        """Return the duration as Go prints it: `1h30m0s`, `1.5s`, `250ms`."""
        rest = abs(self.nanoseconds)
        if rest < NANOS:
            unit, name = (1_000_000, "ms") if rest >= 1_000_000 else (1_000, "µs") if rest >= 1_000 else (1, "ns")
            amount = f"{Decimal(rest) / unit:f}{name}" if rest else "0s"
        else:
            minutes, rest = divmod(rest, 60 * NANOS)
            hours, minutes = divmod(minutes, 60)
            amount = f"{hours}h" * bool(hours) + f"{minutes}m" * bool(hours or minutes) + f"{Decimal(rest) / NANOS:f}s"
        return f"{'-' * (self.nanoseconds < 0)}{amount}"

    def hours(self) -> int:
        """Return whole hours, rounded towards zero."""
        return _whole(self.nanoseconds, 3600 * NANOS)

    def minutes(self) -> int:
        """Return whole minutes, rounded towards zero."""
        return _whole(self.nanoseconds, 60 * NANOS)

    def seconds(self) -> int:
        """Return whole seconds, rounded towards zero."""
        return _whole(self.nanoseconds, NANOS)

    def milliseconds(self) -> int:
        """Return whole milliseconds, rounded towards zero."""
        return quotient(self.nanoseconds, 1_000_000)


class Timestamp:
    """A moment: seconds since 1970 and nanoseconds, and the UTC offset in seconds of its text.

    The offset is used only to print: moments are equal whatever their offsets.
    """

    __slots__ = ("nanos", "offset", "seconds")

    def __init__(self, seconds: int, nanos: int = 0, offset: int = 0) -> None:
        self.seconds = seconds
        self.nanos = nanos
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.seconds == other.seconds and self.nanos == other.nanos

    def __lt__(self, other: Timestamp) -> bool:
        return (self.seconds, self.nanos) < (other.seconds, other.nanos)

    def __hash__(self) -> int:
        return hash((Timestamp, self.seconds, self.nanos))

    def __repr__(self) -> str:
        return f"Timestamp({self})"

    def __str__(self) -> str:
        """Return RFC 3339, with as many digits of a second as needed."""
        year, month, day, seconds = _civil(self.seconds + self.offset)
        minutes, second = divmod(seconds, 60)
        hour, minute = divmod(minutes, 60)
        fraction = f".{self.nanos:09d}".rstrip("0") if self.nanos else ""
        return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}{fraction}{_offset_text(self.offset)}"

    def go_text(self) -> str:
        """Return the time as Go prints it: `2024-05-01 10:00:00 +0000 UTC`."""
        date, _, clock = str(self).partition("T")
        minutes = abs(self.offset) // 60
        offset = f"{'-' if self.offset < 0 else '+'}{minutes // 60:02d}{minutes % 60:02d}"
        clock = clock[: -1 if clock.endswith("Z") else -6]
        return f"{date} {clock} {offset} {'UTC' if not self.offset else offset}"


def parse_timestamp(text: str) -> Timestamp | None:
    """Parse RFC 3339 as Go's time.Parse does; None for an invalid text. The result may be out of range: see `in_range`."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = map(int, match.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = match.groups()[6:]
    if not 1 <= month <= 12 or not 1 <= day <= _days_in(year, month) or hour > 23 or minute > 59 or second > 59:
        return None
    offset = 0
    if sign is not None:
        # Go accepts offsets of 24 hours and of 60 minutes.
        if int(offset_hours) > 24 or int(offset_minutes) > 60:
            return None
        offset = (int(offset_hours) * 60 + int(offset_minutes)) * (-60 if sign == "-" else 60)
    seconds = _days(year, month, day) * _DAY + hour * 3600 + minute * 60 + second - offset
    return Timestamp(seconds, int((fraction or "")[:9].ljust(9, "0")), offset)


def in_range(moment: Timestamp) -> Timestamp:
    """Return the timestamp itself. Raises EvaluationError outside the years 1 to 9999."""
    if not MIN_SECONDS <= moment.seconds <= MAX_SECONDS:
        raise EvaluationError("timestamp overflow")
    return moment


def parse_duration(text: str) -> Duration | None:
    """Parse a duration as Go's time.ParseDuration: `1h30m`, `-1.5s`, `0`.

    Return None for an invalid or absurdly long text.
    """
    if len(text) > _LONGEST:
        return None
    rest = text[1:] if text[:1] in ("+", "-") else text
    negative = text[:1] == "-"
    if rest == "0":
        return Duration(0)
    if not rest:
        return None
    total = position = 0
    while position < len(rest):
        match = _DURATION_PART.match(rest, position)
        if match is None or not (match[1] or match[3]):
            return None
        part = _duration_part(match[1], match[3] or "", _UNITS[match[4]])
        if part is None:
            return None
        total += part
        if total > 2**63:
            return None
        position = match.end()
    if negative:
        return Duration(-total)
    return Duration(total) if total <= MAX_INT else None


def _duration_part(whole: str, fraction: str, unit: int) -> int | None:
    """Return `whole.fraction` of a unit in nanoseconds; None on overflow. Digits of the fraction beyond 64 bits are
    ignored.
    """
    whole = whole.lstrip("0")
    if len(whole) > 19 or (units := int(whole or "0")) > 2**63 // unit:
        return None
    nanoseconds = units * unit
    if fraction:
        value, scale = 0, 1.0
        for digit in fraction:
            if value > MAX_INT // 10 or (following := value * 10 + int(digit)) > 2**63:
                break
            value, scale = following, scale * 10
        nanoseconds += int(float(value) * (float(unit) / scale))
    return nanoseconds if nanoseconds <= 2**63 else None


def add_durations(one: int, other: int) -> Duration:
    """Return the sum of two durations in nanoseconds."""
    return Duration(checked(one + other))


def add_time(moment: Timestamp, nanoseconds: int) -> Timestamp:
    """Return the moment plus a duration, with the same offset."""
    seconds, nanos = divmod(moment.seconds * NANOS + moment.nanos + nanoseconds, NANOS)
    return in_range(Timestamp(seconds, nanos, moment.offset))


def subtract_times(one: Timestamp, other: Timestamp) -> Duration:
    """Return the duration from the other moment to the one."""
    return Duration(checked(checked((one.seconds - other.seconds) * NANOS) + one.nanos - other.nanos))


def checked(value: int) -> int:
    """Return the integer. Raises EvaluationError if it does not fit into 64 bits with sign."""
    if not MIN_INT <= value <= MAX_INT:
        raise EvaluationError("integer overflow")
    return value


def quotient(one: int, other: int) -> int:
    """Return the quotient of integers, rounded towards zero."""
    return -(-one // other) if (one < 0) != (other < 0) else one // other


class Clock:
    """Calendar and clock of one zone at one moment. Months, days of the year and days of the week begin at 0."""

    __slots__ = ("_seconds", "day", "month", "nanos", "seconds", "year")

    def __init__(self, moment: Timestamp, zone: str) -> None:
        self._seconds = moment.seconds + _zone_offset(zone, moment.seconds)
        self.nanos = moment.nanos
        self.year, month, self.day, self.seconds = _civil(self._seconds)
        self.month = month - 1

    @property
    def day_of_year(self) -> int:
        """Return the day of the year; 0 on the first of January."""
        return _days(self.year, self.month + 1, self.day) - _days(self.year, 1, 1)

    @property
    def day_of_week(self) -> int:
        """Return the day of the week; 0 on Sundays."""
        return (self._seconds // _DAY + 4) % 7


def _zone_offset(zone: str, seconds: int) -> int:
    """Return seconds east of UTC at a moment, for `+05:30` and for names of the IANA database."""
    if zone in ("", "UTC"):
        return 0
    hours, colon, minutes = zone.partition(":")
    if colon:
        east = _atoi(hours) * 60
        east = east - _atoi(minutes) if zone[0] == "-" else east + _atoi(minutes)
        return int(float(_wrapped(east * 60 * NANOS)) / NANOS)
    if zone[0] in "/\\" or ".." in zone:
        raise EvaluationError("time: invalid location name")
    known = _zone(zone) if len(zone) <= _LONGEST else None
    if known is None:
        raise EvaluationError(f"unknown time zone {zone[:_LONGEST]}")
    asked = min(max(seconds, MIN_SECONDS + _MARGIN), MAX_SECONDS - _MARGIN)
    offset = known.fromutc((_EPOCH + timedelta(seconds=asked)).replace(tzinfo=known)).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo | None:
    if name == "Local" or not name.isascii() or "\0" in name:
        return ZoneInfo("UTC") if name == "Local" else None
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        return None


def _atoi(text: str) -> int:
    """Return Go's strconv.Atoi."""
    if _ATOI.fullmatch(text) is None:
        raise EvaluationError(f'strconv.Atoi: parsing "{text[:_LONGEST]}": invalid syntax')
    if len(text.lstrip("+-0")) > 19 or not MIN_INT <= (value := int(text)) <= MAX_INT:
        raise EvaluationError(f'strconv.Atoi: parsing "{text[:_LONGEST]}": value out of range')
    return value


def _wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def _seconds(nanoseconds: int) -> float:
    """Return time.Duration.Seconds."""
    whole = quotient(nanoseconds, NANOS)
    return float(whole) + float(nanoseconds - whole * NANOS) / 1e9


def _whole(nanoseconds: int, unit: int) -> int:
    """Return whole units, rounded in double precision as time.Duration.Hours and its siblings do."""
    whole = quotient(nanoseconds, unit)
    return int(float(whole) + float(nanoseconds - whole * unit) / float(unit))


def _offset_text(offset: int) -> str:
    if not offset:
        return "Z"
    minutes = quotient(abs(offset), 60)
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def _days(year: int, month: int, day: int) -> int:
    """Return days since 1970-01-01 in the proleptic Gregorian calendar."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _civil(seconds: int) -> tuple[int, int, int, int]:
    """Return year, month, day and the seconds of the day: the inverse of `_days`."""
    days, of_day = divmod(seconds, _DAY)
    era, of_era = divmod(days + 719468, 146097)
    year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month += 3 if month < 10 else -9
    return year + era * 400 + (month <= 2), month, day, of_day


def _days_in(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31
