"""Print strings as Go does: `%q`, and JSON with its escapes.

Upstream: golang/go `src/strconv/quote.go`, `src/encoding/json/encode.go`.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

QUOTED_CHARACTERS = 128 << 10
"""Limit of quoted characters for texts that need few escapes."""
SHOWN_CHARACTERS = 8 << 10
"""Limit of the characters of a bad value in a message."""


def go_json(value: Any) -> str:
    """Return compact JSON with Go's escapes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    # translate() takes a second per megabyte and blocks all other threads meanwhile.
    for character, escaped in _JSON_ESCAPED:
        text = text.replace(character, escaped)
    return text


JSON_ESCAPES = MappingProxyType({ord(c): f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"})
_JSON_ESCAPED = tuple((chr(code), escaped) for code, escaped in JSON_ESCAPES.items())
_ESCAPES = MappingProxyType(
    {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}
)


def go_quote(text: str) -> str:
    """Return Go's `%q`: double quotes, printable characters unchanged, all others escaped. Long texts are cut."""
    beginning = text[:QUOTED_CHARACTERS]
    if beginning.isprintable():
        escaped = beginning.replace("\\", "\\\\").replace('"', '\\"')
        more = len(text) - QUOTED_CHARACTERS
        return f'"{escaped}… {more} more characters' if more > 0 else f'"{escaped}"'
    more = len(text) - SHOWN_CHARACTERS - 1
    escaped = text[: SHOWN_CHARACTERS + 1].translate(_QUOTED)
    return f'"{escaped}… {more} more characters' if more > 0 else f'"{escaped}"'


class _Quoted(dict[int, str | int]):
    """A table for `str.translate`: what `%q` prints for a character. Holds ASCII and computes the rest."""

    def __missing__(self, code: int) -> str | int:
        if chr(code).isprintable():
            return code
        if code < 0x80 or 0xDC80 <= code <= 0xDCFF:
            return f"\\x{code & 0xFF:02x}"
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_QUOTED = _Quoted(_ESCAPES)
_QUOTED.update({code: _QUOTED[code] for code in range(128)})
