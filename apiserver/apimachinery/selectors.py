"""Label and field selectors: parse, match, print. Knows no kinds: whether a field label is selectable is asked elsewhere.

Upstream: kubernetes/apimachinery `pkg/labels/selector.go`, `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from apiserver.apimachinery import fieldpath, names, strconv
from apiserver.apimachinery.errors import bad_request
from apiserver.apimachinery.fieldpath import FieldError

IN, NOT_IN, EQUALS, DOUBLE_EQUALS, NOT_EQUALS = "in", "notin", "=", "==", "!="
GREATER, LESS, EXISTS, DOES_NOT_EXIST = "gt", "lt", "exists", "!"
_BINARY_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_COMPARISONS = ("=", "==", "!=", ">", "<")

Labels = Mapping[str, str]
Predicate = Callable[[Labels], bool]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector; `values` are sorted, `operator` is upstream's name of it."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = ",".join(self.values)
        match self.operator:
            case "exists":
                return self.key
            case "!":
                return f"!{self.key}"
            case "in" | "notin":
                return f"{self.key} {self.operator} ({values})"
            case "gt":
                return f"{self.key}>{values}"
            case "lt":
                return f"{self.key}<{values}"
            case _:
                return f"{self.key}{self.operator}{values}"


class LabelSelector:
    """A conjunction of requirements, sorted by key. `matches(labels)` is compiled once: watches ask it for every event."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Sequence[Requirement] = ()) -> None:
        self.requirements = tuple(sorted(requirements, key=lambda r: r.key))
        self.matches: Predicate = _compiled(self.requirements)

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.requirements

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __repr__(self) -> str:
        return f"LabelSelector({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelSelector) and self.requirements == other.requirements

    def __hash__(self) -> int:
        return hash(self.requirements)


def _compiled(requirements: Sequence[Requirement]) -> Predicate:
    if not requirements:
        return lambda labels: True
    predicates = tuple(map(_predicate, requirements))
    if len(predicates) == 1:
        return predicates[0]
    if len(predicates) == 2:
        first, second = predicates
        return lambda labels: first(labels) and second(labels)

    def every(labels: Labels) -> bool:
        for predicate in predicates:  # noqa: SIM110 - a generator would cost more than the predicates
            if not predicate(labels):
                return False
        return True

    return every


def _predicate(requirement: Requirement) -> Predicate:
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "exists":
            return lambda labels: key in labels
        case "!":
            return lambda labels: key not in labels
        case "gt" | "lt":
            return _comparison(key, strconv.parse_int(values[0]), greater=requirement.operator == GREATER)
    if len(values) == 1:
        value = values[0]
        if requirement.operator in (NOT_IN, NOT_EQUALS):
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    allowed = frozenset(values)
    if requirement.operator == NOT_IN:
        return lambda labels: labels.get(key) not in allowed
    return lambda labels: labels.get(key) in allowed


def _comparison(key: str, bound: int, *, greater: bool) -> Predicate:
    def compare(labels: Labels) -> bool:
        text = labels.get(key)
        if text is None:
            return False
        try:
            value = strconv.parse_int(text)
        except ValueError:
            return False
        return value > bound if greater else value < bound

    return compare


EVERYTHING = LabelSelector()

_TOKEN = re.compile(r"[ \t\r\n]*(?:(?P<symbol>==|!=|[=!(),<>])\x00?|(?P<word>[^=!(),<> \t\r\n\x00]+)\x00?|\x00|\Z)")
_END, _SYMBOL, _WORD = "end", "symbol", "word"


def parse_labels(text: str) -> LabelSelector:
    """Reads a `labelSelector` parameter; raises StatusError 400."""
    if not text:
        return EVERYTHING
    try:
        return LabelSelector(_LabelParser(text).selector())
    except _SyntaxError as error:
        raise bad_request(str(error)) from None


class _SyntaxError(Exception):
    """The text of a 400."""


class _RequirementError(_SyntaxError):
    """A mistake inside a requirement; upstream says so in front."""

    def __str__(self) -> str:
        return f"unable to parse requirement: {super().__str__()}"


class _LabelParser:
    """Upstream's recursive descent over the tokens of one selector; a NUL ends the text, as it does there."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, kind = 0, ""
        while kind != _END:
            match = _TOKEN.match(text, at)
            kind = match.lastgroup or _END if match else _END
            self._tokens.append((kind, match.group(kind) if match and kind != _END else ""))
            at = match.end() if match else at
        self._at = 0

    def selector(self) -> list[Requirement]:
        found: list[Requirement] = []
        while True:
            kind, literal = self._peek()
            if kind == _END:
                return found
            if kind != _WORD and literal != "!":
                raise _SyntaxError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            found.append(self._requirement())
            kind, literal = self._next()
            if kind == _END:
                return found
            if literal != ",":
                raise _SyntaxError(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self._peek()
            if kind != _WORD and literal != "!":
                raise _SyntaxError(f"found '{literal}', expected: identifier after ','")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at]

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _requirement(self) -> Requirement:
        kind, key = self._next()
        negated = key == "!"
        if negated:
            kind, key = self._next()
        if kind != _WORD:
            raise _RequirementError(f"found '{key}', expected: identifier")
        if problems := names.label_key(key):
            raise _RequirementError(str(fieldpath.invalid("<nil>", key, "; ".join(problems))))
        kind, literal = self._peek()
        if negated:
            return Requirement(key, DOES_NOT_EXIST)
        if kind == _END or literal == ",":
            return Requirement(key, EXISTS)
        return self._with_values(key)

    def _with_values(self, key: str) -> Requirement:
        _, literal = self._next()
        if literal in (IN, NOT_IN):
            operator, values = literal, self._set()
        elif literal in _COMPARISONS:
            operator, values = {">": GREATER, "<": LESS}.get(literal, literal), {self._exact()}
        else:
            raise _RequirementError(f"found '{literal}', expected: {_BINARY_OPERATORS}")
        requirement = Requirement(key, operator, tuple(sorted(values)))
        if problems := list(dict.fromkeys(map(str, _value_errors(requirement)))):
            raise _RequirementError(problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]")
        return requirement

    def _exact(self) -> str:
        kind, literal = self._peek()
        if kind == _END or literal == ",":
            return ""
        self._next()
        if kind != _WORD:
            raise _RequirementError(f"found '{literal}', expected: identifier")
        return literal

    def _set(self) -> set[str]:
        _, literal = self._next()
        if literal != "(":
            raise _RequirementError(f"found '{literal}' expected: '('")
        kind, literal = self._peek()
        if literal == ")":
            self._next()
            return {""}
        if kind != _WORD and literal != ",":
            raise _RequirementError(f"found '{literal}', expected: ',', ')' or identifier")
        values = self._identifiers()
        self._next()
        return values

    def _identifiers(self) -> set[str]:
        """Words between commas; a comma at the start, at the end, or after a comma stands for an empty word."""
        values: set[str] = set()
        while True:
            kind, literal = self._next()
            _, following = self._peek() if kind != _END else (_END, "")
            if kind == _WORD:
                values.add(literal)
                if following == ")":
                    return values
                if following != ",":
                    raise _RequirementError(f"found '{following}', expected: ',' or ')'")
            elif literal == ",":
                if not values or following in (",", ")"):
                    values.add("")
                if following == ")":
                    return values
            else:
                raise _RequirementError(f"found '{literal}', expected: ',', or identifier")


def _value_errors(requirement: Requirement) -> list[FieldError]:
    errors: list[FieldError] = []
    if requirement.operator in (GREATER, LESS):
        try:
            strconv.parse_int(requirement.values[0])
        except ValueError:
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(fieldpath.invalid("values[0]", requirement.values[0], detail))
    for i, value in enumerate(requirement.values):
        if problems := names.label_value(value):
            errors.append(fieldpath.invalid(f"values[{i}][{requirement.key}]", value, "; ".join(problems)))
    return errors


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of `(label, operator, value)`, operator `=` or `!=`, sorted as upstream sorts the terms' texts."""

    terms: tuple[tuple[str, str, str], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.terms

    def requires(self, label: str) -> str | None:
        """The value that `label` must have, if a term says so."""
        return next((value for name, operator, value in self.terms if name == label and operator == EQUALS), None)

    def unsupported(self, supported: Collection[str]) -> str | None:
        """The first label that is not among the supported ones."""
        return next((name for name, _, _ in self.terms if name not in supported), None)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether the fields' values satisfy every term; an absent field is empty."""
        return all((fields.get(name, "") == value) == (operator == EQUALS) for name, operator, value in self.terms)

    def __str__(self) -> str:
        return ",".join(f"{name}{operator}{escape_value(value)}" for name, operator, value in self.terms)


ALL_FIELDS = FieldSelector()

_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_ESCAPABLE = re.compile(r"([\\,=])")


def escape_value(value: str) -> str:
    r"""A value as it stands in a field selector: `\`, `,` and `=` behind a backslash."""
    return _ESCAPABLE.sub(r"\\\1", value)


def parse_fields(text: str) -> FieldSelector:
    """Reads a `fieldSelector` parameter; raises StatusError 400 for bad syntax."""
    if not text:
        return ALL_FIELDS
    terms: list[tuple[str, str, str]] = []
    for part in sorted(_split_terms(text)):
        if not part:
            continue
        match = _TERM.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        label, operator, value = match.group(1), match.group(2), _unescape(match.group(3))
        # Upstream's transformation step drops a term without label and value.
        if label or value:
            terms.append((label, NOT_EQUALS if operator == NOT_EQUALS else EQUALS, value))
    return FieldSelector(tuple(terms))


def _split_terms(text: str) -> list[str]:
    if "\\" not in text:
        return text.split(",")
    parts, start, escaped = [], 0, False
    for i, c in enumerate(text):
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif c == ",":
            parts.append(text[start:i])
            start = i + 1
    parts.append(text[start:])
    return parts


def _unescape(value: str) -> str:
    if not _ESCAPABLE.search(value):
        return value
    out, escaped = [], False
    for c in value:
        if escaped:
            if c not in "\\,=":
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{c}")
            out.append(c)
            escaped = False
        elif c == "\\":
            escaped = True
        elif c in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(c)}")
        else:
            out.append(c)
    if escaped:
        raise bad_request("invalid field selector: invalid escape sequence: \\")
    return "".join(out)
