"""What Go makes of bytes and texts that are not quite Unicode.

Upstream: golang/go `src/unicode/utf8/utf8.go`: a byte that starts no character counts as U+FFFD.
"""

from __future__ import annotations

import re

LONE = r"[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB]..\\u....))"
"""A pattern for the digits of a lone surrogate behind `\\u`, in JSON text without escaped backslashes. Both kinds begin alike, so that `re`
skips to `\\u`."""

_LONE = re.compile(r"\\u" + LONE)
_PART = 64 << 10
_SHORT = 64
"""Characters up to which replacing halves takes no longer than looking whether there are any."""


def decoded(data: bytes) -> str:
    """UTF-8, with U+FFFD for every single byte that is none."""
    return whole(data.decode("utf-8", "surrogateescape"))


def paired(text: str) -> str:
    """JSON text with U+FFFD for every escape of a lone surrogate, as Go reads it. The result is as long as the text."""
    if "\\u" not in text:
        return text
    # JSON holds no NUL: it stands for an escaped backslash meanwhile, and nothing behind one is JSON.
    text, nul, rest = text.partition("\0")
    return _LONE.sub(r"\\ufffd", text.replace("\\\\", "\0")).replace("\0", "\\\\") + nul + rest


def whole(text: str) -> str:
    """The text with U+FFFD for every half of a character."""
    if text.isascii():
        return text
    if len(text) <= _SHORT:
        return _whole(text)
    if not _has_halves(text):
        return text
    # In parts, because other threads have to wait for each.
    return "".join(_whole(text[at : at + _PART]) for at in range(0, len(text), _PART))


def _has_halves(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _whole(text: str) -> str:
    """The same of a short text, without a step of Python for each half of a character.

    Python's encoder puts a question mark in the place of a half. NUL stands for the text's own question marks meanwhile.
    """
    own = "\0"
    if own in text:
        own = "\0q"
        text = text.replace("\0", "\0n")
    text = text.replace("?", own).encode("utf-8", "replace").decode().replace("?", "\ufffd").replace(own, "?")
    return text.replace("\0n", "\0") if own != "\0" else text
