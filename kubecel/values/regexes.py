"""Match regular expressions as Go does: RE2's syntax, linear time, Go's error messages. RE2 does the matching.

RE2 and Go's package have the same author and differ little: in error messages, names of groups, `\\C`, and the limit of
nested groups. One difference remains: a pattern counts as too large sooner than in Go (`_MEMORY`, `_UNICODE_CLASSES`).
So no pattern takes memory or a processor for long.
Upstream: Go `regexp`, `regexp/syntax`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2

from kubecel.values.errors import CostExceeded

# Memory of one compiled pattern, with its caches. A third of it is the program: some 130,000 instructions.
_MEMORY = 3 << 20
_INSTRUCTIONS = 130_000
# Unicode classes in one pattern: each takes 0.1 ms to look up.
_UNICODE_CLASSES = 256
# Go's limits of the height of a pattern's tree and of repetitions.
_HEIGHT = 1000
_REPEATS = 1000
# Instructions times bytes of one search in the worst case, which takes about a second.
_WORK = 1 << 30
# Limit of the matches of one text: each takes some microseconds.
_MATCHES = 1 << 18
# Cached patterns: those that an expression computes, or that no program keeps.
_REMEMBERED = 32

# RE2's messages and Go's.
_WORDS = {
    "invalid escape sequence": "invalid escape sequence",
    "invalid character class": "invalid character class",
    "invalid character class range": "invalid character class range",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid UTF-8": "invalid UTF-8",
    "invalid named capture group": "invalid named capture",
}

# One element of a pattern. Everything after a repetition is optional, so the match never backtracks.
_ELEMENT = re.compile(
    r"""
      (?P<quoted> \\Q .*? (?: \\E | \Z ) )
    | (?P<unicode> \\[pP] (?: \{[^}]*\}? | . )? )
    | (?P<byte> \\C )
    | \\x (?: \{[^}]*\}? | .{0,2} ) | \\.?
    | \[ \^? \]? [^\]\\[]* (?: (?: \\[pP](?:\{[^}]*\})? | \\. | \[:\^?[a-z]*:\] | \[ ) [^\]\\[]* )* \]?
    | (?P<named> \(\?P?< )
    | (?P<flags> \(\?[a-zA-Z-]*\) )
    | (?P<silent> \(\?[a-zA-Z-]*:? )
    | (?P<open> \( )
    | (?P<close> \) )
    | (?P<bar> \| )
    | (?P<repeat> (?: [*+?] | \{[0-9]+(?:,[0-9]*)?\} ) \?? )
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_NAME = re.compile(r"\(\?P?<(?P<name>[^>]*)>")
_COUNT = re.compile(r"\{(\d+)(?:,(\d*))?\}(\??)$")
_CLASSES = re.compile(r"\\[pP]")


class InvalidPattern(ValueError):
    """The pattern is invalid. The message is Go's: "error parsing regexp: missing closing ]: `[`"."""

    def __init__(self, problem: str, part: str) -> None:
        super().__init__(f"error parsing regexp: {problem}: `{part}`")


class Pattern:
    """A compiled regular expression."""

    __slots__ = ("_compiled", "_size")

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self._size = compiled.programsize

    def found(self, text: str) -> bool:
        """Return whether a text contains a match."""
        return self._search(_encoded(text)) is not None

    def first(self, text: str) -> str:
        """Return the leftmost match, "" without one."""
        encoded = _encoded(text)
        match = self._search(encoded)
        return "" if match is None else _decoded(match.group())

    def every(self, text: str, limit: int = -1) -> list[str]:
        """Return the first `limit` matches that do not overlap, or all if it is negative.

        An empty match directly after another one does not count.
        """
        encoded = _encoded(text)
        matches: list[str] = []
        position, previous = 0, -1
        while position <= len(encoded) and len(matches) != limit:
            match = self._search(encoded, position)
            if match is None:
                break
            start, end = match.span()
            if end > position:
                position = end
            else:
                position += _width(encoded, position)
            if start < end or start != previous:
                matches.append(_decoded(encoded[start:end]))
                if len(matches) > _MATCHES:
                    raise CostExceeded
            previous = end
        return matches

    def _search(self, encoded: bytes, position: int = 0) -> Any:
        if self._size * (len(encoded) - position) > _WORK:
            raise CostExceeded
        match = self._compiled.search(encoded, position)
        # In RE2, \B also matches in the middle of a character.
        while match is not None and _inside(encoded, match.start()):
            match = self._compiled.search(encoded, match.start() + 1)
        return match


@lru_cache(maxsize=_REMEMBERED)
def compiled(pattern: str) -> Pattern:
    """Return the compiled pattern. Raises InvalidPattern."""
    if len(pattern) > _INSTRUCTIONS or len(_CLASSES.findall(pattern)) > _UNICODE_CLASSES:
        raise _too_large(pattern)
    _examine(pattern)
    try:
        return Pattern(_compile(pattern))
    except re2.error as error:
        raise _in_go(error, pattern) from None


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MEMORY
    # Not through re2.compile, which caches 128 patterns of its own.
    return re2._Regexp(_encoded(pattern), options)


def _examine(pattern: str) -> None:
    """Raise InvalidPattern for patterns that RE2 accepts and Go does not, and for those that RE2 refuses slowly."""
    if "\\C" not in pattern and "(?" not in pattern and "{" not in pattern and pattern.count("(") < _HEIGHT // 4:
        return
    groups = [_Group(captures=False)]
    for element in _ELEMENT.finditer(pattern):
        kind, text, start = element.lastgroup, element.group(), element.start()
        group = groups[-1]
        if kind == "silent" and not text.endswith(":"):
            return
        if kind == "byte":
            raise _first(pattern, start, InvalidPattern("invalid escape sequence", text))
        if kind == "named":
            _named(pattern, start)
        if kind in {"named", "open", "silent"}:
            groups.append(_Group(captures=kind != "silent"))
        elif kind == "close":
            if len(groups) == 1:
                return
            groups.pop()
            groups[-1].add(*group.sums())
        elif kind == "repeat":
            if not group.repeat(text):
                return
        elif kind == "bar":
            group.bar()
        elif kind != "flags":
            group.add(max(1, len(text) - 4) if kind == "quoted" else 1, 1)
        if groups[-1].height > _HEIGHT:
            raise _first(pattern, start, InvalidPattern("expression nests too deeply", pattern))
        if groups[-1].size > _INSTRUCTIONS:
            raise _too_large(pattern)


class _Group:
    """The size of a group, or of the whole pattern, after expansion, and the height of its tree."""

    __slots__ = ("alternatives", "branch", "captures", "height", "items", "last", "repeated", "size")

    def __init__(self, *, captures: bool) -> None:
        self.captures = captures
        self.alternatives = 1
        # Size and height of all branches; then of the current branch: its height, its elements, and size and height of the last one.
        self.size = self.height = 0
        self.branch = self.items = 0
        self.last = (0, 0)
        self.repeated = False

    def add(self, size: int, height: int) -> None:
        """Add one element."""
        self.items += 1
        self.repeated = False
        self.size += size
        self.last = size, height
        self.branch = max(self.branch, height)
        self.height = max(self.height, self.branch + (self.items > 1))

    def repeat(self, operator: str) -> bool:
        """Repeat the last element. Return False without one, or if the repetition is refused anyway."""
        size, height = self.last
        times = max((int(number) for number in re.findall("[0-9]{1,5}", operator)), default=1)
        if self.items == 0 or self.repeated or times > _REPEATS:
            return False
        self.items -= 1
        self.size -= size
        self.add(size * times, height + 1)
        self.repeated = True
        return True

    def bar(self) -> None:
        """Begin another branch."""
        self.alternatives += 1
        self.branch = self.items = 0
        self.last = (0, 0)

    def sums(self) -> tuple[int, int]:
        """Return size and height of the closed group."""
        return self.size, max(self.height, 1) + (self.alternatives > 1) + self.captures


def _named(pattern: str, start: int) -> None:
    """Raise InvalidPattern if a group's name is empty or has other characters than ASCII letters, digits and
    underscores.
    """
    written = _NAME.match(pattern, start)
    if written is None or re.fullmatch("[0-9A-Za-z_]+", written["name"]) is None:
        wrong = pattern[start:] if written is None else written.group()
        raise _first(pattern, start, InvalidPattern("invalid named capture", wrong))


def _first(pattern: str, start: int, error: InvalidPattern) -> InvalidPattern:
    """Return an error that comes before the one at `start`, else that one. Open groups are not an error here."""
    try:
        _compile(pattern[:start])
    except re2.error as earlier:
        if _words(earlier)[0] not in {"missing )", "pattern too large - compile failed"}:
            return _in_go(earlier, pattern)
    return error


def _words(error: re2.error) -> tuple[str, str]:
    """Return RE2's message, and the part of the pattern that it concerns."""
    problem, _, part = _decoded(error.args[0]).partition(": ")
    return problem, part


def _in_go(error: re2.error, pattern: str) -> InvalidPattern:
    """Return RE2's error with Go's message."""
    problem, part = _words(error)
    count = _COUNT.search(part)
    if problem not in _WORDS:
        return _too_large(pattern)
    if problem == "unexpected )":
        part = pattern
    elif problem == "invalid UTF-8":
        # The only case left is an escape that ends too early: a str holds no broken UTF-8.
        problem, part = "invalid escape sequence", pattern[pattern.rindex("\\x{") :]
    elif (
        problem == "invalid escape sequence"
        and part in {"\\p", "\\P"}
        and pattern.endswith(part)
        and pattern[-3:-2] != "-"
    ):
        problem = "invalid character class range"
    elif problem in {"invalid repetition size", "bad repetition operator"} and count is not None and _impossible(count):
        # Go checks the numbers first.
        problem, part = "invalid repetition size", count.group().removesuffix("?")
    return InvalidPattern(_WORDS[problem], part)


def _too_large(pattern: str) -> InvalidPattern:
    return InvalidPattern("expression too large", pattern)


def _impossible(count: re.Match[str]) -> bool:
    least, most = int(count[1][:5]), int(count[2][:5] or 0) if count[2] is not None else 0
    return least > _REPEATS or most > _REPEATS or (bool(count[2]) and least > most)


def _inside(encoded: bytes, position: int) -> bool:
    """Return whether a position is in the middle of a character."""
    return position < len(encoded) and encoded[position] & 0xC0 == 0x80


def _width(encoded: bytes, position: int) -> int:
    """Return the length in bytes of the character at a position, 1 at the end."""
    if position >= len(encoded) or encoded[position] < 0xC0:
        return 1
    return 2 if encoded[position] < 0xE0 else 3 if encoded[position] < 0xF0 else 4


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _decoded(encoded: bytes) -> str:
    return encoded.decode(errors="surrogatepass")
