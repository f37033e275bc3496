"""Parse and evaluate kubectl's JSONPath on decoded JSON, as printer columns of CustomResourceDefinitions do.

A template is text with actions in braces: `{.spec.replicas}`, `{.status.conditions[?(@.type=="Ready")].status}`. Missing members are no
errors; they have no results.

Work is bounded. Each value that a step takes or yields costs one of the evaluation's steps, so `..` on a large object, or several in a
row, end with `TooMuchWork`. Parsing takes time in proportion to the template. Neither uses Python's stack for nesting in objects.
Objects have no order here, as in Go: steps that yield all members of an object yield them in the order of the dictionary.
Upstream: kubernetes/client-go `util/jsonpath/{parser,node,jsonpath}.go`, `third_party/forked/golang/template/funcs.go`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kubetext import printing, strconv, utf8

MAX_STEPS = 100_000
"""Steps of one evaluation unless the caller names fewer: about 20 ms."""


class JSONPathError(ValueError):
    """The template does not parse. The message is upstream's."""


class EvaluationError(ValueError):
    """The template cannot be evaluated on this object."""


class TooMuchWork(EvaluationError):
    """The evaluation took more steps than allowed."""


class _Failed(EvaluationError):
    """A step failed. `values` are its results so far, which a filter for existence counts."""

    def __init__(self, message: str, values: Sequence[Any]) -> None:
        super().__init__(message)
        self.values = values


class _Literal(int):
    """An integer of the template, or a byte of a text. It is no int64, so a column of integers does not show it."""

    __slots__ = ()


class _Run:
    """The state of one evaluation."""

    __slots__ = ("begin_range", "end_range", "in_range", "last_end", "left")

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.begin_range = self.in_range = self.end_range = 0
        self.last_end = -1

    def spend(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork("the evaluation takes too many steps")


_Step = Callable[[list[Any], _Run], list[Any]]
"""Turns values into results. Raises EvaluationError."""


class Field:
    """The member of this name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, values: list[Any], run: _Run) -> list[Any]:
        name = self.name
        run.spend(len(values) + 1)
        return [value[name] for value in values if isinstance(value, dict) and name in value]


class Template:
    """A parsed template. `leading` are the names of the members on the way to everything that it reads; none if it may read all."""

    def __init__(self, parts: Sequence[Sequence[_Step]], *, plain: bool) -> None:
        self._parts = parts
        self.leading = _leading(parts[0]) if len(parts) == 1 else ()
        self.only_fields = len(parts) == 1 and 0 < len(parts[0]) == len(self.leading)
        """Whether the template is a way of names, which yields one value or none."""
        self.plain = plain and len(parts) == 1
        """Whether the template is one action without words, so that no range can begin."""

    def find(self, obj: Any, *, steps: int = MAX_STEPS) -> list[list[Any]]:
        """Return the results of each part: an action, or the text between actions. Raises EvaluationError."""
        return self._find(obj, 0, _Run(steps))

    def first(self, obj: Any, missing: Any, *, steps: int = MAX_STEPS) -> Any:
        """Return the first result of the first part, `missing` if it has none. Raises EvaluationError."""
        if self.only_fields:
            here = obj
            for name in self.leading:
                if not isinstance(here, dict) or name not in here:
                    return missing
                here = here[name]
            return here
        if self.plain:
            results = _walk([obj], self._parts[0], _Run(steps))
            return results[0] if results else missing
        found = self.find(obj, steps=steps)
        return found[0][0] if found and found[0] else missing

    def _find(self, obj: Any, at: int, run: _Run) -> list[list[Any]]:
        found: list[list[Any]] = []
        while at < len(self._parts):
            results = _walk([obj], self._parts[at], run)
            if 0 < run.end_range <= run.in_range:
                run.end_range -= 1
                run.last_end = at
                break
            at += 1
            if run.begin_range <= 0:
                found.append(results)
                continue
            run.begin_range -= 1
            run.in_range += 1
            if run.in_range > _MAX_RANGES:
                raise TooMuchWork("ranges nest too deep")
            # An empty range is walked once, to find its end.
            rounds = [self._find(value, at, run) for value in results or [None]]
            if results:
                found += [part for parts in rounds for part in parts]
            run.in_range -= 1
            if run.last_end >= at:
                at = run.last_end + 1
        return found


_MAX_RANGES = 32
"""Ranges in each other take Python's stack."""


def _leading(steps: Sequence[_Step]) -> tuple[str, ...]:
    names: list[str] = []
    for step in steps:
        if not isinstance(step, Field):
            break
        names.append(step.name)
    return tuple(names)


def _walk(values: list[Any], steps: Sequence[_Step], run: _Run) -> list[Any]:
    for step in steps:
        values = step(values, run)
    return values


# --- Steps -----------------------------------------------------------------------------------------------------------


def _constant(value: Any) -> _Step:
    def repeated(values: list[Any], run: _Run) -> list[Any]:
        run.spend(len(values) + 1)
        return [value] * len(values)

    return _Text(value) if isinstance(value, str) else repeated


def _identifier(name: str) -> _Step:
    def step(values: list[Any], run: _Run) -> list[Any]:
        run.spend(1)
        if name == "range":
            run.begin_range += 1
            return values
        if name != "end":
            raise _Failed(f"unrecognized identifier {name}", values)
        if run.in_range <= 0:
            raise _Failed("not in range, nothing to end", [])
        run.end_range += 1
        return []

    return step


def _inside(value: Any) -> list[Any]:
    """Return what is in a value: members, items, or the bytes of a text."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, list):
        return value
    return [_Literal(byte) for byte in value.encode()] if isinstance(value, str) else []


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list | str) else 0


def _wildcard(values: list[Any], run: _Run) -> list[Any]:
    run.spend(len(values) + 1)
    found: list[Any] = []
    for value in values:
        run.spend(_size(value))
        found += _inside(value)
    return found


def _recursive(values: list[Any], run: _Run) -> list[Any]:
    """Yield every value with something in it, outer ones before what is in them."""
    run.spend(len(values) + 1)
    found: list[Any] = []
    left = values[::-1]
    while left:
        value = left.pop()
        if not isinstance(value, dict | list | str) or not value:
            continue
        found.append(value)
        run.spend(len(value))
        if not isinstance(value, str):  # Bytes have nothing in them.
            left += reversed(_inside(value))
    return found


def _union(members: Sequence[Sequence[_Step]]) -> _Step:
    def step(values: list[Any], run: _Run) -> list[Any]:
        run.spend(1)
        found: list[Any] = []
        for member in members:
            try:
                found += _walk(values, member, run)
            except _Failed as e:
                raise _Failed(str(e), values) from None
        return found

    return step


class _Slice:
    """Items of lists. `stop` is None for the end; `single`: the brackets held one number."""

    __slots__ = ("single", "start", "step", "stop")

    def __init__(self, start: int, stop: int | None, step: int | None, *, single: bool) -> None:
        self.start, self.stop, self.step, self.single = start, stop, step, single

    def __call__(self, values: list[Any], run: _Run) -> list[Any]:
        run.spend(len(values) + 1)
        found: list[Any] = []
        for value in values:
            if value is None:
                continue
            if not isinstance(value, list):
                raise _Failed(f"{printing.go_type(value)} is not array or slice", values)
            length = len(value)
            start = self.start + length if self.start < 0 else self.start
            stop = length if self.stop is None else self.stop
            if stop < 0 or (stop == 0 and self.single):
                stop += length
            if start == stop:
                return found
            if problem := self._problem(start, stop, length):
                raise _Failed(problem, values)
            chosen = value[start : stop : self.step or 1]
            run.spend(len(chosen))
            found += chosen
        return found

    def _problem(self, start: int, stop: int, length: int) -> str:
        if not 0 <= start < length:
            return f"array index out of bounds: index {start}, length {length}"
        if not 0 <= stop <= length:
            return f"array index out of bounds: index {stop - 1}, length {length}"
        if start > stop:
            return f"starting index {start} is greater than ending index {stop}"
        return "step must be > 0" if self.step is not None and self.step <= 0 else ""


class _Text:
    """A text of the template."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, values: list[Any], run: _Run) -> list[Any]:
        run.spend(1)
        return [self.text]


def _items(values: list[Any], run: _Run) -> Iterator[Any]:
    """Yield the items that a filter looks at."""
    for value in values:
        if not isinstance(value, list):
            raise _Failed(f"{printing.go_type(value)} is not array or slice and cannot be filtered", values)
        run.spend(len(value))
        yield from value


def _filter(left: Sequence[_Step], relation: str, right: Sequence[_Step]) -> _Step:
    """Return the step that keeps the items for which the relation holds."""
    names = _leading(left)
    if relation == "==" and len(left) == len(names) == 1 and len(right) == 1 and isinstance(right[0], _Text):
        return _member_filter(names[0], right[0].text)
    return _general_filter(left, relation, right)


def _member_filter(name: str, text: str) -> _Step:
    """Return the filter `@.name=="text"`, which most columns with a filter have: a tenth of the work of the general one."""

    def step(values: list[Any], run: _Run) -> list[Any]:
        run.spend(len(values) + 1)
        found: list[Any] = []
        for item in _items(values, run):
            if isinstance(item, dict) and name in item:
                member = item[name]
                if not isinstance(member, str):
                    raise _Failed("incompatible types for comparison", found)
                if member == text:
                    found.append(item)
        return found

    return step


def _general_filter(left: Sequence[_Step], relation: str, right: Sequence[_Step]) -> _Step:
    compare = _COMPARISONS.get(relation)

    def step(values: list[Any], run: _Run) -> list[Any]:
        run.spend(len(values) + 1)
        found: list[Any] = []
        for item in _items(values, run):
            try:
                one = _only(item, left, run)
                other = one and _only(item, right, run)
            except _Failed as e:
                raise _Failed(str(e), values) from None
            if not one or not other:
                continue
            if compare is None:
                raise _Failed(f"unrecognized filter operator {relation}", found)
            try:
                passes = compare(one[0], other[0])
            except _Failed as e:
                raise _Failed(str(e), found) from None
            if passes:
                found.append(item)
        return found

    return step


def _only(item: Any, steps: Sequence[_Step], run: _Run) -> list[Any]:
    """Return the one result of an operand, or none."""
    found = _walk([item], steps, run)
    if len(found) > 1:
        raise _Failed("can only compare one element at a time", ())
    return found


def _exists(left: Sequence[_Step]) -> _Step:
    def step(values: list[Any], run: _Run) -> list[Any]:
        run.spend(len(values) + 1)
        found: list[Any] = []
        for item in _items(values, run):
            try:
                exists = bool(_walk([item], left, run))
            except _Failed as e:
                exists = bool(e.values)
            if exists:
                found.append(item)
        return found

    return step


def _comparison(relation: Callable[[Any, Any], bool], *, ordered: bool) -> Callable[[Any, Any], bool]:
    def compare(one: Any, other: Any) -> bool:
        kind, other_kind = _basic_kind(one), _basic_kind(other)
        if kind is not other_kind:
            raise _Failed("incompatible types for comparison", ())
        if ordered and kind is bool:
            raise _Failed("invalid type for comparison", ())
        return relation(one, other)

    return compare


def _basic_kind(value: Any) -> type:
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind
    raise _Failed("invalid type for comparison", ())


_COMPARISONS = {
    "==": _comparison(operator.eq, ordered=False),
    "!=": _comparison(operator.ne, ordered=False),
    "<": _comparison(operator.lt, ordered=True),
    "<=": _comparison(operator.le, ordered=True),
    ">": _comparison(operator.gt, ordered=True),
    ">=": _comparison(operator.ge, ordered=True),
}

# --- Parser ----------------------------------------------------------------------------------------------------------

_UNTIL_TERMINATOR = re.compile(r"[^ \t\r\n.,\[\]$@{}]*")
_NAME = re.compile(r"(?:\\.|[^ \t\r\n.,\[\]$@{}\\])*", re.DOTALL)
_KEY = re.compile(r"'([^']*)'")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?")
_RELATION = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)


def parse(text: str) -> Template:
    """Parse a template. Raises JSONPathError."""
    parts = _Parser(text).parts()
    return Template(parts, plain="range" not in text and "end" not in text)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def parts(self) -> list[list[_Step]]:
        text, parts = self._text, []
        while (brace := text.find("{", self._at)) >= 0:
            if brace > self._at:
                parts.append([_constant(text[self._at : brace])])
            self._at = brace + 1
            parts.append(self._action())
        if self._at < len(text):
            parts.append([_constant(text[self._at :])])
        return parts

    def _action(self) -> list[_Step]:
        """Parse what stands between braces."""
        text, steps = self._text, list[_Step]()
        while True:
            at = self._at
            if text.startswith("[?(", at):
                steps.append(self._filter())
                continue
            if text.startswith("..", at):
                self._recursive(steps)
                continue
            self._at += 1
            match text[at : at + 1]:
                case "}":
                    return steps
                case "" | "\r" | "\n":
                    raise JSONPathError("unclosed action")
                case " " | "@" | "$":
                    pass
                case "[":
                    steps += self._brackets()
                case '"' | "'" as quote:
                    steps.append(_constant(self._quoted(quote)))
                case ".":
                    steps.append(self._field())
                case c if c in "+-" or c.isdecimal():
                    steps.append(self._number(at))
                case c if c == "_" or c.isalpha():
                    steps.append(self._word(at))
                case c:
                    shown = f" '{c}'" if c.isprintable() else ""
                    raise JSONPathError(f"unrecognized character in action: U+{ord(c):04X}{shown}")

    def _word(self, start: int) -> _Step:
        found = _UNTIL_TERMINATOR.match(self._text, start)
        assert found is not None
        self._at = found.end()
        word = found.group()
        return _constant(word == "true") if word in ("true", "false") else _identifier(word)

    def _recursive(self, steps: list[_Step]) -> None:
        if steps and steps[-1] is _recursive:
            raise JSONPathError("invalid multiple recursive descent")
        self._at += 2
        steps.append(_recursive)
        following = self._text[self._at : self._at + 1]
        if following == "_" or following.isalpha() or following.isdecimal():
            steps.append(self._field())

    def _field(self) -> _Step:
        found = _NAME.match(self._text, self._at)
        assert found is not None
        self._at, name = found.end(), found.group()
        if self._text.startswith("\\", self._at):  # The last character of all.
            self._at += 1
        return _wildcard if name == "*" else Field(name.replace("\\", ""))

    def _number(self, start: int) -> _Step:
        text, end = self._text, self._at
        while end < len(text) and (text[end] == "." or text[end].isdecimal()):
            end += 1
        self._at, number = end, text[start:end]
        try:
            return _constant(_Literal(strconv.parse_int(number)))
        except ValueError:
            pass
        try:
            if number.isascii():
                return _constant(strconv.parse_float(number))
        except ValueError:
            pass
        raise JSONPathError(f"cannot parse number {number}")

    def _quoted(self, quote: str) -> str:
        """Read a text to its closing quote. A quote after a backslash does not close it."""
        text, start = self._text, self._at
        while True:
            end = _first_of(text, self._at, quote + "\n")
            if text[end : end + 1] != quote:
                raise JSONPathError("unterminated quoted string")
            self._at = end + 1
            if text[end - 1] != "\\":
                return _unquoted(text[start:end], quote)

    def _brackets(self) -> list[_Step]:
        text, start = self._text, self._at
        end = _first_of(text, start, "]\n")
        if text[end : end + 1] != "]":
            raise JSONPathError("unterminated array")
        self._at = end + 1
        inner = text[start:end]
        if inner == "*":
            inner = ":"
        members = inner.split(",")
        if len(members) > 1:
            return [_union([_inner_action(f"[{member.strip(' ')}]") for member in members])]
        if key := _KEY.fullmatch(inner):
            return _inner_action(f".{key[1]}")
        found = _SLICE.fullmatch(inner)
        if found is None:
            raise JSONPathError(f"invalid array index {inner}")
        return [_slice(*found.groups(default=""))]

    def _filter(self) -> _Step:
        text, start = self._text, self._at + len("[?(")
        quote, closed, at = "", False, start
        while True:
            at = _first_of(text, at, "\n\"')")
            c = text[at : at + 1]
            at += 1
            match c:
                case "" | "\n":
                    raise JSONPathError("unterminated filter")
                case ")" if bool(quote) == closed:
                    break
                case '"' | "'" if not quote:
                    quote = c
                case '"' | "'" if c == quote and text[at - 2] != "\\":
                    closed = True
        if text[at : at + 1] != "]":
            raise JSONPathError("unclosed array expect ]")
        self._at, inner = at + 1, text[start : at - 1]
        found = _RELATION.fullmatch(inner)
        if found is None:
            return _exists(_inner_action(inner))
        return _filter(_inner_action(found[1]), found[2], _inner_action(found[3]))


def _inner_action(text: str) -> list[_Step]:
    return _Parser(f"{{{text}}}").parts()[0]


def _first_of(text: str, start: int, characters: str) -> int:
    """Return where one of the characters stands first; the length of the text if none does."""
    found = re.compile(f"[{re.escape(characters)}]").search(text, start)
    return len(text) if found is None else found.start()


def _slice(start: str, stop: str, step: str) -> _Step:
    first = _index(start)
    if not stop:
        return _Slice(first or 0, (first or 0) + 1, _index(step[1:]), single=True)
    return _Slice(first or 0, _index(stop[1:]), _index(step[1:]), single=False)


def _index(text: str) -> int | None:
    if not text:
        return None
    try:
        return strconv.parse_int(text)
    except ValueError:
        raise JSONPathError(f"array index {text} is not a number") from None


_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_HEX = {"x": 2, "u": 4, "U": 8}
_ESCAPE = re.compile(r"\\([0-7]{3}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|(.)", re.DOTALL)
_SURROGATES = range(0xD800, 0xE000)


def _unquoted(text: str, quote: str) -> str:
    """Return what stands between quotes, without its escapes."""
    if "\\" not in text:
        return text
    data, at = bytearray(), 0
    while at < len(text):
        found = _ESCAPE.match(text, at)
        escaped = found[1] if found else None
        if found is None or found[2] == quote or (escaped is None and found[2] == "\\"):
            raise _bad_quoting(text, quote)
        at = found.end()
        if escaped is None:
            data += found[2].encode()
        elif escaped in _ESCAPES or escaped == quote:
            data += _ESCAPES.get(escaped, escaped).encode()
        else:
            data += _code(escaped, text, quote)
    return utf8.decoded(bytes(data))


def _code(escaped: str, text: str, quote: str) -> bytes:
    """Return the bytes of an escape with digits."""
    octal = len(escaped) == 3 and escaped.isdecimal()
    code = int(escaped, 8) if octal else int(escaped[1:], 16) if len(escaped) > 1 else -1
    one_byte = octal or escaped[0] == "x"
    if code < 0 or code > (0xFF if one_byte else 0x10FFFF) or (not one_byte and code in _SURROGATES):
        raise _bad_quoting(text, quote)
    return bytes([code]) if one_byte else chr(code).encode()


def _bad_quoting(text: str, quote: str) -> JSONPathError:
    return JSONPathError(f"unquote string {quote}{text}{quote} error invalid syntax")
