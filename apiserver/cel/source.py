"""The text of an expression, and what is wrong with it: issues as cel-go words them.

Upstream: google/cel-go `common/{source,location,error,errors}.go`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

# At most so many issues are printed; of the others their number is said (cel-go common.Errors).
PRINTED = 100

# What the caret line of an issue is made of. A wide character above has wide marks below.
_DOT, _IND = ".", "^"
_WIDE_DOT, _WIDE_IND = "\uff0e", "\uff3e"


class Issue(NamedTuple):
    """One complaint. `offset` is counted in code points, None when no place is to blame; `expression` is the id of the node, 0 for none."""

    offset: int | None
    message: str
    expression: int = 0


@dataclass(frozen=True)
class Source:
    """An expression as it was written. Offsets, lines and columns count code points; lines begin at 1, columns at 0."""

    text: str
    name: str = "<input>"

    @cached_property
    def _starts(self) -> list[int]:
        starts = [0]
        at = self.text.find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = self.text.find("\n", at + 1)
        return starts

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def line(self, number: int) -> str:
        """The text of a line, without its end."""
        start = self._starts[number - 1]
        end = self._starts[number] - 1 if number < len(self._starts) else len(self.text)
        return self.text[start:end]
