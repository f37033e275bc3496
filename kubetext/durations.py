"""Parse durations as Go does, with Go's error messages.

Upstream: golang/go `src/time/format.go` (ParseDuration).
"""

from __future__ import annotations

import re

_NANOSECONDS = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
}  # fmt: skip
_TERM = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")
_MOST = (1 << 63) - 1
_MOST_DIGITS = 19
READ = 1024
"""A longer text is refused unread. Go reads it, but that would take a second of CPU here."""


def parse(text: str) -> float:
    """Return the seconds of a duration as Go writes it (`1m30s`, `300ms`, `0`).

    Raises ValueError with the text of Go's `time.ParseDuration`.
    """
    negative = text.startswith("-")
    at = 1 if text[:1] in ("-", "+") else 0
    if text[at:] == "0":
        return 0.0
    if at == len(text) or len(text) > READ:
        raise _invalid(text)
    total = 0
    while at < len(text):
        match = _TERM.match(text, at)
        whole, fraction, unit = match.groups() if match else ("", None, "")
        at = match.end() if match else at
        if not whole and len(fraction or "") < 2:
            raise _invalid(text)
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quoted(text)}")
        if unit not in _NANOSECONDS:
            raise ValueError(f"time: unknown unit {_quoted(unit)} in duration {_quoted(text)}")
        total += _nanoseconds(whole.lstrip("0"), (fraction or ".")[1:], _NANOSECONDS[unit])
        if total > _MOST + negative:
            raise _invalid(text)
    return (-total if negative else total) / 10**9


def _nanoseconds(whole: str, digits: str, unit: int) -> int:
    """Return the nanoseconds of one term; more than `_MOST` when they exceed it."""
    if len(whole) > _MOST_DIGITS:
        return _MOST + 2
    digits = digits[:_MOST_DIGITS]
    fraction: int = int(digits or 0) * unit // 10 ** len(digits)
    return int(whole or 0) * unit + fraction


def _invalid(text: str) -> ValueError:
    return ValueError(f"time: invalid duration {_quoted(text)}")


def _quoted(text: str) -> str:
    """Quote as Go's package `time` does: escape everything but printable ASCII."""
    out = []
    for c in text[:READ]:
        if c in '"\\':
            out.append("\\" + c)
        elif " " <= c < "\x7f":
            out.append(c)
        else:
            out += [f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape")]
    more = f"… {len(text) - READ} more characters" if len(text) > READ else ""
    return f'"{"".join(out)}"{more}'
