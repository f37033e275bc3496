"""What Go makes of bytes and texts that are not quite Unicode.

Upstream: golang/go `src/unicode/utf8/utf8.go`: a byte that starts no character counts as U+FFFD.
"""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")
_PART = 64 << 10


def decoded(data: bytes) -> str:
    """UTF-8, with U+FFFD for every single byte that is none."""
    return whole(data.decode("utf-8", "surrogateescape"))


def whole(text: str) -> str:
    """The text with U+FFFD for every half of a character."""
    if text.isascii():
        return text
    # In parts, because other threads have to wait for each.
    return "".join(_SURROGATE.sub("\ufffd", text[at : at + _PART]) for at in range(0, len(text), _PART))
