"""Expressions cut into tokens, each as long as can be.

Upstream: google/cel-go `parser/gen/CEL.g4`, its lexer rules.
"""

from __future__ import annotations

import re
from typing import NamedTuple

INT, UINT, FLOAT = "NUM_INT", "NUM_UINT", "NUM_FLOAT"
STRING, BYTES, IDENTIFIER, ESCAPED = "STRING", "BYTES", "IDENTIFIER", "ESC_IDENTIFIER"
END = "<EOF>"
# Words that are tokens of their own.
KEYWORDS = frozenset(("in", "true", "false", "null"))

# Whatever stands between tokens.
_HIDDEN = r"(?:[\t \r\n\f]++|//[^\n]*+)*+"
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
# The three quotes of a long string win over the two of an empty one only when the long string ends.
_STRING = "|".join(
    (
        *(rf"{q}{q}{q}(?:[^\\{q}]|{_ESCAPE}|{q}(?!{q}{q}))*+{q}{q}{q}" for q in "\"'"),
        *(rf"{q}(?:[^\\{q}\n\r]|{_ESCAPE})*+{q}" for q in "\"'"),
        *(rf"[rR]{q}{q}{q}(?:[^{q}]|{q}(?!{q}{q}))*+{q}{q}{q}" for q in "\"'"),
        *(rf"[rR]{q}[^{q}\n\r]*+{q}" for q in "\"'"),
    )
)
_TOKEN = re.compile(
    rf"""{_HIDDEN}(?:
    (?P<BYTES>[bB](?:{_STRING}))
    |(?P<STRING>{_STRING})
    |(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*+)
    |(?P<NUM_FLOAT>[0-9]++(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)|\.[0-9]++(?:[eE][+-]?[0-9]++)?)
    |(?P<NUM_UINT>(?:0x[0-9a-fA-F]++|[0-9]++)[uU])
    |(?P<NUM_INT>0x[0-9a-fA-F]++|[0-9]++)
    |(?P<PUNCTUATION>==|!=|<=|>=|&&|\|\||[][<>{{}}().,!?:+*/%-])
    |(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./\ -]++`)
    |\Z
    )""".replace("\n    ", "")
)


class Tokens(NamedTuple):
    """The tokens of a text, side by side. The last one is `END`.

    The kind of an operator, a bracket or a keyword is its text.
    """

    kinds: list[str]
    texts: list[str]
    offsets: list[int]


def tokenize(text: str) -> Tokens | None:
    """All tokens of `text`; None when something in it is no token."""
    kinds: list[str] = []
    texts: list[str] = []
    offsets: list[int] = []
    match = _TOKEN.match
    at = 0
    while found := match(text, at):
        kind = found.lastgroup or END
        start, at = found.span(found.lastindex or 0)
        word = text[start:at]
        if kind == "PUNCTUATION" or word in KEYWORDS:
            kind = word
        kinds.append(kind)
        texts.append(word)
        offsets.append(start)
        if kind == END:
            return Tokens(kinds, texts, offsets)
    return None
