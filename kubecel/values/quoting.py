"""Quote strings as Go's `%q`.

Upstream: Go `strconv.Quote`.
"""

from __future__ import annotations

import re

# A message shows this much of a string, and the number of the remaining characters.
_SHOWN = 1 << 14

_NAMED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
_SUSPECT = re.compile(r"""[^ !#-\[\]-~]""")


def quoted(text: str) -> str:
    """Return a string in double quotes, with everything escaped that is not printable. Long strings are cut, for
    messages.
    """
    more = len(text) - _SHOWN
    return f"{whole(text[:_SHOWN])}… {more} more characters" if more > 0 else whole(text)


def whole(text: str) -> str:
    """Return a string in double quotes, of any length."""
    return f'"{_SUSPECT.sub(_escaped, text)}"'


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    code = ord(character)
    if code in _NAMED:
        return _NAMED[code]
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    if 0xDC80 <= code <= 0xDCFF:
        # A byte that is not UTF-8 (`surrogateescape`).
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
