r"""Read and format JSON text that has escapes of lone surrogates, such as `\\ud800`, as Go does.

msgspec and orjson refuse such text. Go reads the escape as U+FFFD, and keeps it as it was sent in raw JSON. This module asks the decoder
first, so text without such escapes costs nothing. It reads other text once more, as a copy.

    text      "a": "\\ud800", "b": "\\u0000"
    copy      "a": "\\u0000d800", "b": "\\u00000"

In the copy, NUL hides the escapes. JSON has one spelling of NUL, so the original is easy to restore.
Upstream: golang/go `src/encoding/json/{decode,indent}.go`, kubernetes/apimachinery `pkg/runtime/extension.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from kubetext import utf8

T = TypeVar("T")
Decode = Callable[[bytes | memoryview | str], T]


def kept(decode: Decode[T]) -> Decode[T]:
    """Make a msgspec decoder read lone surrogates: as they were sent in `msgspec.Raw`, as U+FFFD in strings and names."""

    def read(text: bytes | memoryview | str) -> T:
        try:
            return decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            copy = _hidden(_encoded(text))
            if copy is None:
                raise
        found: T = _shown(decode(copy))
        return found

    return read


def replaced(decode: Decode[T]) -> Decode[T]:
    """Make a msgspec or orjson decoder read lone surrogates as U+FFFD, in `msgspec.Raw` too."""

    def read(text: bytes | memoryview | str) -> T:
        try:
            return decode(text)
        except msgspec.ValidationError:
            raise
        except ValueError:
            sent = text if isinstance(text, str) else utf8.decoded(bytes(text))
            copy = utf8.paired(sent)
            if copy == sent:
                raise
        return decode(copy)

    return read


def skipped(decode: Decode[T]) -> Decode[T]:
    """Make a decoder read stored text for a caller that does not use its raw JSON. Stored text has such escapes in raw JSON only."""

    def read(text: bytes | memoryview | str) -> T:
        try:
            return decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            sent = _encoded(text)
            if b"\0" in sent:
                raise
            marked = sent.replace(_ESCAPED_BACKSLASH, b"\0")
            # Any other character would do. This runs on the event loop, in a tenth of the time that a search for lone surrogates takes.
            copy = marked.replace(b"\\ud", b"\\uf").replace(b"\\uD", b"\\uF")
            if copy == marked:
                raise
        return decode(copy.replace(b"\0", _ESCAPED_BACKSLASH))

    return read


def formatted(text: bytes, *, indent: int = -1) -> bytes:
    """Format JSON as `msgspec.json.format` does; -1 is compact. Lone surrogates stay as they were sent."""
    try:
        return msgspec.json.format(text, indent=indent)
    except msgspec.DecodeError:
        copy = _hidden(text)
        if copy is None:
            raise
    return _text(msgspec.json.format(copy, indent=indent))


_LONE = re.compile(rb"\\u(?=%b)" % utf8.LONE.encode())
_HIDDEN = re.compile("\0[dD][0-9a-fA-F]{3}")
_ESCAPED_BACKSLASH = b"\\\\"
_NUL = rb"\\u0000"
"""An escaped NUL, as the replacement of a match."""
_BETWEEN = re.compile(rb"(?<!\\u[dD][89abAB]..)\\|\\(?!u[dD][c-fC-F])")
"""An escape that does not follow a high surrogate or is no low surrogate."""
_PART = 64 << 10


def _encoded(text: bytes | memoryview | str) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)


def _hidden(text: bytes) -> bytes | None:
    """Return the copy that decoders read; None for text without lone surrogates, and for text that is certainly not JSON."""
    if b"\\u" not in text or b"\0" in text:
        return None
    # JSON has no NUL byte, so NUL can mark an escaped backslash meanwhile.
    marked = text.replace(_ESCAPED_BACKSLASH, b"\0").replace(b"\\u0000", b"\\u00000")
    # `sub` keeps the text between two escapes as an object of its own until it has read everything, so it gets short pieces.
    copy = b"".join(_LONE.sub(_NUL, part) for part in _parts(marked))
    return copy.replace(b"\0", _ESCAPED_BACKSLASH) if len(copy) > len(marked) else None


def _parts(marked: bytes) -> Iterator[bytes]:
    """Cut a text without escaped backslashes in front of escapes, but never between two surrogates that are one character."""
    at = 0
    while at < len(marked):
        found = _BETWEEN.search(marked, at + _PART)
        end = found.start() if found else len(marked)
        yield marked[at:end]
        at = end


def _text(copy: bytes) -> bytes:
    """Return the text of a part of a copy."""
    if b"\\u0000" not in copy:
        return copy
    marked = copy.replace(_ESCAPED_BACKSLASH, b"\0").replace(b"\\u0000d", b"\\ud").replace(b"\\u0000D", b"\\uD")
    return marked.replace(b"\\u00000", b"\\u0000").replace(b"\0", _ESCAPED_BACKSLASH)


def _string(copy: str) -> str:
    """Return Go's reading of a string of a copy."""
    return _HIDDEN.sub("\ufffd", copy).replace("\x000", "\0") if "\0" in copy else copy


def _shown(value: Any) -> Any:
    """Return the decoded value of a text, from the value of its copy."""
    if isinstance(value, dict):
        return {_string(name): _shown(x) for name, x in value.items()}
    if isinstance(value, list):
        return [_shown(x) for x in value]
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, msgspec.Raw):
        copy = bytes(value)
        text = _text(copy)
        return value if text is copy else msgspec.Raw(text)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **{name: _shown(x) for name, x in msgspec.structs.asdict(value).items()})
    return value
