"""Replace bytes and surrogates that are not characters, as Go does.

Upstream: golang/go `src/unicode/utf8/utf8.go`: a byte that starts no character counts as U+FFFD.
"""

from __future__ import annotations

import re

LONE = r"[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB]..\\u....))"
"""Matches the digits of a lone surrogate after `\\u`, in JSON text without escaped backslashes.

Both alternatives begin alike, so that `re` can skip to `\\u`.
"""

_LONE = re.compile(r"\\u" + LONE)
_PART = 64 << 10
_SHORT = 64
"""Replacing surrogates in texts up to this length takes no longer than searching for them."""


def decoded(data: bytes) -> str:
    """Decode UTF-8, with U+FFFD for each invalid byte."""
    return whole(data.decode("utf-8", "surrogateescape"))


def paired(text: str) -> str:
    """Return JSON text with U+FFFD for every escape of a lone surrogate, as Go reads it. Its length does not change."""
    if "\\u" not in text:
        return text
    # JSON contains no NUL, so NUL can stand for an escaped backslash. Text after a NUL is not JSON.
    text, nul, rest = text.partition("\0")
    return _LONE.sub(r"\\ufffd", text.replace("\\\\", "\0")).replace("\0", "\\\\") + nul + rest


def whole(text: str) -> str:
    """Return the text with U+FFFD for every lone surrogate."""
    if text.isascii():
        return text
    if len(text) <= _SHORT:
        return _whole(text)
    if not _has_halves(text):
        return text
    # In chunks, because each blocks all other threads.
    return "".join(_whole(text[at : at + _PART]) for at in range(0, len(text), _PART))


def _has_halves(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _whole(text: str) -> str:
    """Replace the lone surrogates of a short text, without a Python step for each.

    Python's encoder replaces a surrogate with a question mark. Meanwhile NUL stands for the text's own question marks.
    """
    own = "\0"
    if own in text:
        own = "\0q"
        text = text.replace("\0", "\0n")
    text = text.replace("?", own).encode("utf-8", "replace").decode().replace("?", "\ufffd").replace(own, "?")
    return text.replace("\0n", "\0") if own != "\0" else text
