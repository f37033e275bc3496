"""Split an expression into tokens, each as long as possible.

Upstream: google/cel-go `parser/gen/CEL.g4`, its lexer rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

INT, UINT, FLOAT = "NUM_INT", "NUM_UINT", "NUM_FLOAT"
STRING, BYTES, IDENTIFIER, ESCAPED = "STRING", "BYTES", "IDENTIFIER", "ESC_IDENTIFIER"
END = "<EOF>"
# Keywords: each is a token kind of its own.
KEYWORDS = frozenset(("in", "true", "false", "null"))
# All kinds, in the order in which messages name them.
KINDS = (
    *(END, "==", "!=", "in", "<", "<=", ">=", ">", "&&", "||", "[", "]", "{", "}", "(", ")", ".", ",", "-", "!"),
    *("?", ":", "+", "*", "/", "%", "true", "false", "null", FLOAT, INT, UINT, STRING, BYTES, IDENTIFIER, ESCAPED),
)

# Every pattern matches a text in one way only. So a failed match needs no backtracking, and no text takes long.

# Whitespace and comments between tokens. A comment ends with its line.
_HIDDEN = r"[\t \r\n\f]*(?://[^\n]*(?:\n[\t \r\n\f]*|\Z))*"
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
# An opening `"""` starts a long string only if that string ends; otherwise the first two quotes are an empty string.
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
    """The tokens of a text, in parallel lists. The last one is `END`.

    The kind of an operator, a bracket or a keyword is its text.
    """

    kinds: list[str]
    texts: list[str]
    offsets: list[int]


def tokenize(text: str) -> Tokens | None:
    """Return all tokens of `text`; None if it contains an invalid token."""
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
    """One token of `scan`; `before` is the whitespace and comments since the previous token."""

    kind: str
    text: str
    offset: int
    before: str = ""


class Unrecognized(NamedTuple):
    """Characters that form no token, up to and including the first one that cannot continue it."""

    text: str
    offset: int


# The longest prefix of an invalid token. The next character belongs to it as well.
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
    """Yield the tokens of `text` in order, with the characters that form no token. The last one is `END`."""
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
