"""The text of an expression, and errors in it, in cel-go's words.

Upstream: google/cel-go `common/{source,location,error,errors}.go`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

# Limit of printed issues. The number of further ones is printed (cel-go common.Errors).
PRINTED = 100
# A longer line, in bytes, is not printed below an issue.
MAX_SNIPPET = 16384

# The characters of the caret line. Characters of several bytes have wide marks.
_DOT, _IND = ".", "^"
_WIDE_DOT, _WIDE_IND = "\uff0e", "\uff3e"
_NARROW, _WIDE = re.compile("[\0-\x7f]"), re.compile("[^\0-\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class Issue(NamedTuple):
    """One error.

    `offset` counts code points, None if no place is at fault. `expression` is the id of the node, 0 for none.
    """

    offset: int | None
    message: str
    expression: int = 0


@dataclass(frozen=True)
class Source:
    """The text of an expression. Offsets, lines and columns count code points.

    Lines begin at 1, columns at 0. A lone surrogate reads as U+FFFD, as Go decodes it.
    """

    text: str
    name: str = "<input>"

    def __post_init__(self) -> None:
        if not self.text.isascii():
            object.__setattr__(self, "text", _SURROGATE.sub("\ufffd", self.text))

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    @cached_property
    def _snippets(self) -> dict[int, tuple[str, str] | None]:
        return {}

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset. Before the text, and in an empty one, cel-go's column is -1."""
        if offset < 0 or not self.text:
            return 1, -1
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def line(self, number: int) -> str:
        """Return the text of a line, without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end]

    def describe(self, issue: Issue) -> str:
        """Return an issue with its place, its line and a caret: cel-go Error.ToDisplayString."""
        line, column = (-1, -1) if issue.offset is None else self.place(issue.offset)
        said = f"ERROR: {self.name}:{line}:{column + 1}: {issue.message}"
        snippet = self._snippet(line)
        if snippet is None:
            return said
        text, dots = snippet
        indicator = _WIDE_IND if dots[column : column + 1] == _WIDE_DOT else _IND
        return f"{said}\n | {text}\n | {dots[: max(column, 0)]}{indicator}"

    def _snippet(self, line: int) -> tuple[str, str] | None:
        """Return a line as it is printed, with the dots of its caret line; None if it is not printed."""
        if line < 1 or not self.text:
            return None
        if line not in self._snippets:
            text = self.line(line)
            printed = len(text) <= MAX_SNIPPET and len(text.encode()) <= MAX_SNIPPET
            dots = _WIDE.sub(_WIDE_DOT, _NARROW.sub(_DOT, text)) if printed else ""
            self._snippets[line] = (text.replace("\t", " "), dots) if printed else None
        return self._snippets[line]


class CompileError(Exception):
    """An expression is refused. `str()` is cel-go's whole text: issues by line and column, with caret lines."""

    def __init__(self, source: Source, issues: Sequence[Issue]) -> None:
        """Keep the issues in the order in which they were found. The first `PRINTED` of them are printed."""
        super().__init__(source, issues)
        self.source = source
        self.issues = tuple(issues)

    @cached_property
    def text(self) -> str:
        """Return the text of `str()`."""
        printed = sorted(self.issues[:PRINTED], key=self._place)
        lines = [self.source.describe(issue) for issue in printed]
        if len(self.issues) > PRINTED:
            lines.append(f"{len(self.issues) - PRINTED} more errors were truncated")
        return "\n".join(lines)

    def _place(self, issue: Issue) -> tuple[int, int]:
        return (-1, -1) if issue.offset is None else self.source.place(issue.offset)

    def __str__(self) -> str:
        return self.text
