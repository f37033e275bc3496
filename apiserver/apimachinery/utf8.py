"""What Go makes of bytes and texts that are not quite Unicode.

Upstream: golang/go `src/unicode/utf8/utf8.go`: a byte that starts no character counts as U+FFFD.
"""

from __future__ import annotations

_PART = 64 << 10


def decoded(data: bytes) -> str:
    """UTF-8, with U+FFFD for every single byte that is none."""
    return whole(data.decode("utf-8", "surrogateescape"))


def whole(text: str) -> str:
    """The text with U+FFFD for every half of a character."""
    if text.isascii() or not _has_halves(text):
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
