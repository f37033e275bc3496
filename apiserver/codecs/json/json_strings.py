"""Find the ends of strings in JSON text, in memory that does not grow with their escapes.

A pattern that steps over escapes repeats a group. `re` keeps some 130 bytes for each repetition: 190 MB for a string of 3 MB. Possessive
groups need less, but Python before 3.11.5 matches them wrongly (python/cpython issue 106052). This module has three ways to avoid both:
remove the escapes first, step over a limited number of them, or match with RE2.
"""

from __future__ import annotations

import re
from typing import Any

import re2

STRING = rb'"[^"]*"'
"""A string in `without_escaped_quotes`."""

_AT_ONCE = 64 << 10
"""Bytes that one call of `bytes.replace` reads. A longer call would hold the interpreter's lock for 20 ms."""


def without_escaped_quotes(source: bytes) -> bytes:
    """Replace every escaped quotation mark and backslash by blanks, so that each string ends at the next quotation mark.

    The result is as long as `source`. Other escapes stay.
    """
    if b"\\" not in source:
        return source
    pieces = []
    continued = False
    for at in range(0, len(source), _AT_ONCE):
        piece = source[at : at + _AT_ONCE]
        if continued:
            piece = b" " + piece[1:]
        piece = piece.replace(b"\\\\", b"  ").replace(b'\\"', b"  ")
        # The second half of the last escape may stand in the next piece.
        continued = piece.endswith(b"\\")
        if continued:
            piece = piece[:-1] + b" "
        pieces.append(piece)
    return b"".join(pieces)


def linear(pattern: bytes) -> Any:
    """Compile a pattern for RE2, which takes linear time and the same memory for every text. Other threads run while it matches.

    A match has no groups. Starting a match takes some microseconds, ten times as long as with `re`.
    """
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.never_capture = True
    return re2.compile(pattern, options)


_OPENING = re.compile(r'"[^"\\]*')
_SOME_ESCAPES = re.compile(r'(?:\\.[^"\\]*){1,1000}', re.DOTALL)
"""At most 1,000 escapes: `re` keeps some 130 kB for them."""


def end(text: str, at: int) -> int:
    """Return the offset behind the string that begins at `at`, or the length of the text if the string does not end."""
    found = _OPENING.match(text, at)
    while found:
        last = found.end()
        if text.startswith('"', last):
            return last + 1
        found = _SOME_ESCAPES.match(text, last)
    return len(text)
