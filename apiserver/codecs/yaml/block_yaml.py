"""Read YAML files of the form that programs write, twice as fast as `as_yaml`, with the same result.

The form: mappings and sequences in block style, keys without surprises, scalars of every style. Text of any other form, and text that might
be wrong, is left to `as_yaml`, which also words the errors.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from apiserver.codecs.yaml import as_yaml, yaml_scalars

MOST_LEVELS = 100
"""Levels of nesting that are read here: each takes three calls."""

_USUAL = bytes([ord("\n"), *range(0x20, 0x7F), *range(0x80, 0x100)])
_STRANGE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters besides control characters that YAML forbids or that end a line."""
_KEY = re.compile(r"""([A-Za-z0-9_$][A-Za-z0-9_$./-]*|"[^"\\]*"|'[^']*'):(?:[ ]+(.*))?""")
_NOT_PLAIN = frozenset("?:,[]{}#&*!|>'\"%@`")
"""Characters with which no plain scalar begins, or only sometimes."""
_INSIDE = re.compile(r": |:$| #")
"""Ends a plain scalar."""
_BLOCK = re.compile(r"([|>])(-?)")
_EMPTY = 1 << 30
"""The indentation of a line without content: a scalar may hold any number of these."""
_HINTS = frozenset("+-0123456789yYnNtTfFoO~.")


class _OtherForm(Exception):
    """The text has another form."""


OTHER = object()
"""The result for text of another form."""


class Blocks:
    """Nodes that were read before, by their text with its indentation. Equal blocks are read once, and are the same value then, which must
    not be changed. Half of the text of large definitions repeats other parts of them."""

    MOST_CHARACTERS = 16 << 10
    """The longest block that is kept. The parts of longer ones are."""
    LIMIT = 32 << 20
    """Characters of all texts: beyond it, all are forgotten."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._characters = 0
        self.get = self._values.get

    def keep(self, text: str, value: Any) -> None:
        self._characters += len(text)
        if self._characters > self.LIMIT:
            self._values.clear()
            self._characters = len(text)
        self._values[text] = value


def read(raw: bytes, blocks: Blocks | None = None) -> Any:
    """Return the value of a document that is a mapping, with members sorted by name, or OTHER.

    Parts that are in `blocks` are not read again.
    """
    if raw.translate(None, _USUAL):
        return OTHER
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return OTHER
    if not raw.isascii() and _STRANGE.search(text):
        return OTHER
    reader = _Reader(text, Blocks() if blocks is None else blocks)
    try:
        value, end = reader.mapping(reader.next(0), 0)
        return value if value and end == len(reader.lines) - 1 else OTHER
    except _OtherForm:
        return OTHER


def _following(indents: Sequence[int]) -> Sequence[int]:
    """Return for each line the next one that has no greater indentation. The last line is followed by itself."""
    found = [len(indents) - 1] * len(indents)
    for at in range(len(indents) - 2, -1, -1):
        indent, after = indents[at], at + 1
        while indents[after] > indent:
            after = found[after]
        found[at] = after
    return found


class _Reader:
    """Reads nodes from lines. Each function gets the line where a node begins, and returns the node and the line behind it."""

    def __init__(self, text: str, blocks: Blocks) -> None:
        self._text = text
        self._blocks = blocks
        # A line without indentation that begins no key ends every node.
        self.lines = [*text.split("\n"), "."]
        self._starts = [0, *itertools.accumulate(len(line) + 1 for line in self.lines)]
        self.indents = [len(line) - len(text) if (text := line.lstrip(" ")) else _EMPTY for line in self.lines]
        self._following = _following(self.indents)
        self._levels = 0
        self._keys: dict[str, str] = {}

    def next(self, at: int) -> int:
        """Return the next line that has content."""
        lines, indents = self.lines, self.indents
        while (indent := indents[at]) == _EMPTY or lines[at][indent] == "#":
            at += 1
        return at

    def mapping(self, at: int, indent: int) -> tuple[dict[str, Any], int]:
        self._enter()
        found: dict[str, Any] = {}
        lines, indents, keys = self.lines, self.indents, self._keys
        while indents[at] == indent:
            match = _KEY.fullmatch(lines[at], indent)
            if match is None:
                if at != len(lines) - 1:
                    raise _OtherForm
                break
            written, text = match.groups()
            key = keys.get(written) or self._key(written)
            if key in found:
                raise _OtherForm
            found[key], at = self._value(text, at, indent, listed=False)
            at = self.next(at)
        if indents[at] > indent:
            raise _OtherForm
        self._levels -= 1
        names = list(found)
        ordered = sorted(names)
        return (found if names == ordered else {name: found[name] for name in ordered}), at

    def sequence(self, at: int, indent: int) -> tuple[list[Any], int]:
        self._enter()
        found: list[Any] = []
        lines, indents = self.lines, self.indents
        while True:
            line = lines[at]
            if indents[at] != indent or line[indent : indent + 2] != "- ":
                if indents[at] > indent or line[indent : indent + 1] == "-":
                    raise _OtherForm
                break
            rest = line[indent + 2 :].lstrip(" ")
            inner = len(line) - len(rest)
            if rest.startswith("- ") or _KEY.fullmatch(rest):
                lines[at], indents[at] = " " * inner + rest, inner
                value: Any
                value, at = (self.sequence if rest[0] == "-" else self.mapping)(at, inner)
            elif rest:
                value, at = self._value(rest, at, indent, listed=True)
            else:
                raise _OtherForm
            found.append(value)
            at = self.next(at)
        self._levels -= 1
        return found, at

    def _enter(self) -> None:
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise _OtherForm

    def _key(self, written: str) -> str:
        key = self._keys.get(written)
        if key is None:
            value = written[1:-1] if written[0] in "\"'" else yaml_scalars.value(None, written, plain=True)
            found = yaml_scalars.key_text(value)
            if found is None or isinstance(value, float):
                raise _OtherForm
            key = self._keys[written] = found
        return key

    def _value(self, written: str | None, at: int, indent: int, *, listed: bool) -> tuple[Any, int]:
        """Read the value behind a key, or the item of a sequence, of a holder with this indentation."""
        text = (written or "").rstrip(" ")
        if not text:
            return self._below(self.next(at + 1), indent)
        first = text[0]
        if first not in _NOT_PLAIN:
            return self._plain(text, at, indent)
        if first == "'":
            return self._single(text, at, indent)
        if first == '"':
            return self._double(text, at, indent)
        if text in ("{}", "[]"):
            return ({} if text == "{}" else []), self._ended(at + 1, indent)
        if first in _FLOW and text[-1] == _FLOW[first] and not _REFERENCE.search(text):
            return _parsed(text), self._ended(at + 1, indent)
        match = _BLOCK.fullmatch(text)
        if match is None or listed:
            raise _OtherForm
        return self._block(at + 1, indent, folded=match[1] == ">", strips=bool(match[2]))

    def _below(self, at: int, indent: int) -> tuple[Any, int]:
        line, inner = self.lines[at], self.indents[at]
        listed = line[inner : inner + 2] == "- " and inner >= indent
        if not listed and inner <= indent:
            return None, at
        behind = self._behind(at, inner, listed=listed)
        start, end = self._starts[at], self._starts[behind]
        if end - start > Blocks.MOST_CHARACTERS or self.next(behind) != behind or behind == len(self.lines) - 1:
            return self.sequence(at, inner) if listed else self.mapping(at, inner)
        text = self._text[start:end]
        if " \n" in text:
            # White space in an empty line may count.
            return self.sequence(at, inner) if listed else self.mapping(at, inner)
        text = text.replace("\n" + " " * inner, "\n")[inner:]
        if (known := self._blocks.get(text)) is not None:
            return known, behind
        value, after = self.sequence(at, inner) if listed else self.mapping(at, inner)
        if after == behind:
            self._blocks.keep(text, value)
        return value, after

    def _behind(self, at: int, indent: int, *, listed: bool) -> int:
        """Return the line behind the node that begins at this line. `listed`: it is a sequence. A comment may end it too early."""
        lines, indents, following = self.lines, self.indents, self._following
        at = following[at]
        while indents[at] == indent and (not listed or lines[at][indent] == "-"):
            at = following[at]
        return at

    def _ended(self, at: int, indent: int) -> int:
        """Return the next line, which must not go on with a scalar."""
        at = self.next(at)
        if self.indents[at] > indent:
            raise _OtherForm
        return at

    # Scalars

    def _plain(self, text: str, at: int, indent: int) -> tuple[Any, int]:
        if _INSIDE.search(text) or text.startswith("- ") or text == "-":
            raise _OtherForm
        parts, at, indents = [text], at + 1, self.indents
        while indents[at] > indent:
            part = self.lines[at].strip(" ")
            if part.startswith("#") or _INSIDE.search(part):
                raise _OtherForm
            parts.append(part)
            at += 1
        if len(parts) > 1:
            while not parts[-1]:
                parts.pop()
            text = _folded(parts)
        if text[0] not in _HINTS:
            return text, at
        value = yaml_scalars.value(None, text, plain=True)
        if isinstance(value, float):
            value = yaml_scalars.json_number(value)
            if isinstance(value, str):
                raise _OtherForm
        return value, at

    def _single(self, text: str, at: int, indent: int) -> tuple[str, int]:
        parts: list[str] = []
        part = text[1:]
        while True:
            quotes = part.replace("''", "")
            if "'" in quotes:
                break
            parts.append(part.strip(" ") if parts else part.rstrip(" "))
            at += 1
            part = self.lines[at]
            if self.indents[at] <= indent:
                raise _OtherForm
        if not quotes.endswith("'") or quotes.index("'") != len(quotes) - 1 or not part.endswith("'"):
            raise _OtherForm
        last = part[:-1]
        parts.append(last.lstrip(" ") if parts else last)
        return _folded(parts).replace("''", "'"), self._ended(at + 1, indent)

    def _double(self, text: str, at: int, indent: int) -> tuple[str, int]:
        if len(text) > 1 and text[-1] == '"' and "\\" not in text and '"' not in text[1:-1]:
            return text[1:-1], self._ended(at + 1, indent)
        parts = [text]
        while not _DOUBLE.fullmatch("\n".join(parts)):
            at += 1
            if self.indents[at] <= indent or len(parts) > _MOST_LINES:
                raise _OtherForm
            parts.append(self.lines[at].rstrip(" "))
        return _parsed("\n".join(parts)), self._ended(at + 1, indent)

    def _block(self, at: int, indent: int, *, folded: bool, strips: bool) -> tuple[str, int]:
        lines, indents = self.lines, self.indents
        parts: list[str] = []
        inner = indents[at]
        while (this := indents[at]) > indent:
            line = lines[at]
            if this == _EMPTY:
                if len(line) > indent:
                    raise _OtherForm
                parts.append("")
            else:
                if this < inner or (folded and this > inner):
                    raise _OtherForm
                parts.append(line[inner:])
            at += 1
        while parts and not parts[-1]:
            parts.pop()
        if not parts or not parts[0] or at == len(lines) - 1:
            raise _OtherForm
        text = _folded(parts) if folded else "\n".join(parts)
        return text if strips else f"{text}\n", at


_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_MOST_LINES = 100


def _parsed(text: str) -> Any:
    """Return the value of a short node in flow style. It is read as a member, so that nothing may follow it."""
    if len(text) > _LONG:
        raise _OtherForm
    try:
        reading = as_yaml.read(f"x: {text}".encode())
    except as_yaml.YAMLProblem:
        raise _OtherForm from None
    if reading.repeats:
        raise _OtherForm
    return reading.value["x"]


_FLOW = {"[": "]", "{": "}"}
_REFERENCE = re.compile("[&*!#%]")
_LONG = 16 << 10


def _folded(parts: Sequence[str]) -> str:
    """Join lines: by a space, or by as many line ends as there are empty lines between."""
    found = [parts[0]]
    empty = 0
    for part in parts[1:-1]:
        if not part:
            empty += 1
            continue
        found.append("\n" * empty or " ")
        found.append(part)
        empty = 0
    if len(parts) > 1:
        found.append("\n" * empty or " ")
        found.append(parts[-1])
    return "".join(found)
