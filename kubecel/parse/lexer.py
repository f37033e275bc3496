"""Expressions cut into tokens, each as long as can be.

Upstream: google/cel-go `parser/gen/CEL.g4`, its lexer rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

INT, UINT, FLOAT = "NUM_INT", "NUM_UINT", "NUM_FLOAT"
STRING, BYTES, IDENTIFIER, ESCAPED = "STRING", "BYTES", "IDENTIFIER", "ESC_IDENTIFIER"
END = "<EOF>"
# Words that are tokens of their own.
KEYWORDS = frozenset(("in", "true", "false", "null"))
# All kinds, in the order in which messages name them.
KINDS = (
    *(END, "==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!"),
    *("?", ":", "+", "*", "/", "%", "true", "false", "null", FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED),
)

# Every pattern here has one way to match a text. None is left to try when a token turns out to be none, so that no text takes long.

# Whatever stands between tokens. A comment ends with its line.
_HIDDEN = r"[\t \r\n\f]*(?://[^\n]*(?:\n[\t \r\n\f]*|\Z))*"
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
# The three quotes of a long string win over the two of an empty one only when the long string ends.
_STRING = "|".join(
    (
        *(rf"{q}{q}{q}[^\\{q}]*(?:(?:{_ESCAPE}|{q}(?!{q}{q}))[^\\{q}]*)*{q}{q}{q}" for q in "\"'"),
        *(rf"{q}[^\\{q}\n\r]*(?:{_ESCAPE}[^\\{q}\n\r]*)*{q}" for q in "\"'"),
        *(rf"[rR]{q}{q}{q}[^{q}]*(?:{q}(?!{q}{q})[^{q}]*)*{q}{q}{q}" for q in "\"'"),
        *(rf"[rR]{q}[^{q}\n\r]*{q}" for q in "\"'"),
    )
)
_TOKEN = re.compile(
    rf"""{_HIDDEN}(?:
    (?P<BYTES>[bB](?:{_STRING}))
    |(?P<STRING>{_STRING})
    |(?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<NUM_FLOAT>[0-9]+(?:\.[0-9]+(?:[eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<NUM_UINT>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<PUNCTUATION>==|!=|<=|>=|&&|\|\||/(?!/)|[][<>{{}}().,!?:+*%-])
    |(?P<ESC_IDENTIFIER>`[A-Za-z0-9_./\ -]+`)
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


class Word(NamedTuple):
    """One token as `scan` finds it; `before` is what is hidden between it and the token before."""

    kind: str
    text: str
    offset: int
    before: str = ""


class Unrecognized(NamedTuple):
    """Characters that begin no token, up to the one that shows it."""

    text: str
    offset: int


# The most that can be read of something that turns out to be no token. The character behind it is read too.
_BROKEN = re.compile(
    "|".join(
        (
            *(
                rf"{q}[^\\{q}\n\r]*(?:{_ESCAPE}[^\\{q}\n\r]*)*"
                r"(?:\\(?:[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-3][0-7]?)?)?"
                for q in "\"'"
            ),
            r"`[A-Za-z0-9_./\ -]*|[&|=]|",
        )
    )
)
_SKIPPED = re.compile(_HIDDEN)


def scan(text: str) -> Iterator[Word | Unrecognized]:
    """The tokens of `text` one after the other, with what is no token; the last one is `END`."""
    at = 0
    before = ""
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            hidden = _skipped(text, at)
            start = at + len(hidden)
            end = _end(_BROKEN.match(text, start), start)
            yield Unrecognized(text[start : end + 1], start)
            at, before = min(end + 1, len(text)), before + hidden
            continue
        group = found.lastindex or 0
        start, end = found.span(group) if group else (len(text), len(text))
        word = text[start:end]
        before += text[at:start]
        kind = found.lastgroup or END
        yield Word(word if kind == "PUNCTUATION" or word in KEYWORDS else kind, word, start, before)
        if kind == END:
            return
        at, before = end, ""


def _skipped(text: str, at: int) -> str:
    found = _SKIPPED.match(text, at)
    return found.group() if found else ""


def _end(found: re.Match[str] | None, otherwise: int) -> int:
    return found.end() if found else otherwise
