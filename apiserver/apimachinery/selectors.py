"""Parse, match and print label and field selectors. Knows no kinds: other code decides which field labels are selectable.

Upstream: kubernetes/apimachinery `pkg/labels/selector.go`, `pkg/fields/selector.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.errors import StatusError, bad_request
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.long_labels import LongLabels
from kubetext import names, quoting, sorting, strconv

IN, NOT_IN, EQUALS, DOUBLE_EQUALS, NOT_EQUALS = "in", "notin", "=", "==", "!="
GREATER, LESS, EXISTS, DOES_NOT_EXIST = "gt", "lt", "exists", "!"
_BINARY_OPERATORS = "in, notin, =, ==, !=, gt, lt"
_COMPARISONS = ("=", "==", "!=", ">", "<")

Labels = Mapping[str, str]
Predicate = Callable[[Labels], bool]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a label selector. `values` are sorted; `operator` is upstream's name of it."""

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
    """A conjunction of requirements, sorted by key. `matches(labels)` is compiled once: watches call it for every event."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement] = ()) -> None:
        self.requirements = tuple(sorting.by_key(list(requirements), lambda r: r.key))
        self.matches: Predicate = _compiled(self.requirements)

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.requirements

    def lengthy(self, labels: Labels) -> bool:
        """Return whether a match takes longer than a step of the event loop may, and needs a thread."""
        return isinstance(labels, LongLabels) and len(self.requirements) > LOOKED_UP

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
    if len(requirements) == 1:
        return _predicate(requirements[0])
    if len(requirements) == 2:
        first, second = map(_predicate, requirements)
        return lambda labels: first(labels) and second(labels)
    return _Table(requirements).matches


_NONE: AbstractSet[str] = frozenset()
LOOKED_UP = 128
"""Terms up to which each looks for its label in the text of very many labels: one or two milliseconds."""


class _Table:
    """Many requirements by key. A match costs as much as the object's labels, at any length of the selector."""

    def __init__(self, requirements: Sequence[Requirement]) -> None:
        self._many = len(requirements) > LOOKED_UP
        self._wanted: dict[str, str | AbstractSet[str] | None] = {}
        """Keys that an object must have, with the allowed value or values; None allows any."""
        self._unwanted: dict[str, AbstractSet[str] | None] = {}
        """Keys that an object must not have with these values; None forbids any."""
        self._bounds: dict[str, tuple[int, int]] = {}
        """Exclusive bounds of the number that a key's value must be."""
        unwanted: dict[str, set[str]] = {}
        for requirement in requirements:
            key, values = requirement.key, requirement.values
            match requirement.operator:
                case "exists":
                    self._wanted.setdefault(key, None)
                case "!":
                    self._unwanted[key] = None
                case "gt" | "lt":
                    self._bound(key, strconv.parse_int(values[0]), greater=requirement.operator == GREATER)
                case "notin" | "!=":
                    sorting.add(values, to=unwanted.setdefault(key, set()))
                case _:
                    before = self._wanted.get(key)
                    allowed = sorting.members(values) if before is None else _set(before) & sorting.members(values)
                    self._wanted[key] = next(iter(allowed)) if len(allowed) == 1 else allowed
        for key, excluded in unwanted.items():
            self._unwanted.setdefault(key, excluded)

    def _bound(self, key: str, number: int, *, greater: bool) -> None:
        self._wanted.setdefault(key, None)
        low, high = self._bounds.get(key, (strconv.MIN_INT64 - 1, strconv.MAX_INT64 + 1))
        self._bounds[key] = (max(low, number), high) if greater else (low, min(high, number))

    def matches(self, labels: Labels) -> bool:
        if len(self._wanted) > len(labels):
            return False
        if self._many and isinstance(labels, LongLabels):
            labels = labels.decoded()
        for key, allowed in self._wanted.items():
            value = labels.get(key)
            if value is None or (allowed is not None and value != allowed and value not in _set(allowed)):
                return False
            if key in self._bounds and not _between(value, *self._bounds[key]):
                return False
        for key in labels if len(labels) < len(self._unwanted) else self._unwanted:
            value, excluded = labels.get(key), self._unwanted.get(key, _NONE)
            if value is not None and (excluded is None or value in excluded):
                return False
        return True


def _set(allowed: str | AbstractSet[str]) -> AbstractSet[str]:
    return frozenset((allowed,)) if isinstance(allowed, str) else allowed


def _between(text: str, low: int, high: int) -> bool:
    try:
        return low < strconv.parse_int(text) < high
    except ValueError:
        return False


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
    allowed = sorting.members(values)
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


_TURNS = 500
"""Terms or values that one match of a pattern takes: other threads wait for each match, and `re` keeps data for every repetition."""
_BLANK = r"[ \t\r\n]{0,100}"
_GAP = rf"\x00?{_BLANK}"
"""Matches the text that may follow a token. The parser skips more blanks: a pattern would try them one by one."""
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_KEY = rf"(?:(?=[-a-z0-9.]{{1,253}}/){_PART}(?:\.{_PART})*/)?{_NAME}"
_LARGEST = str(strconv.MAX_INT64)
_INTEGER = "|".join(
    [
        r"\d{1,18}",
        *(rf"{_LARGEST[:i]}[0-{int(d) - 1}]\d{{{18 - i}}}" for i, d in enumerate(_LARGEST) if d > "0"),
        _LARGEST,
    ]
)
_VALUE_OF_SET = rf"(?:{_NAME}{_GAP})?"
_WORD_IN = r"(?<=[ \t\r\n\x00])(?:not)?in"
_TERM_OF_LABELS = (
    rf"{_BLANK}(?:!{_GAP}{_KEY}{_GAP}|{_KEY}{_GAP}(?:(?:==|!=|=){_GAP}(?:{_NAME}{_GAP})?|"
    rf"[<>]{_GAP}0{{0,40}}(?:{_INTEGER})(?!\d){_GAP}|"
    rf"{_WORD_IN}{_GAP}\({_GAP}(?:{_VALUE_OF_SET},{_GAP}){{0,16}}{_VALUE_OF_SET}\){_GAP})?)"
)
_TERMS = re.compile(rf"(?:(?:{_NAME}(?:={_NAME})?|{_TERM_OF_LABELS}),\x00?){{0,{_TURNS}}}")
_LAST_TERM = re.compile(rf"{_TERM_OF_LABELS}\Z")
_SET_BEGINS = re.compile(rf"{_BLANK}{_KEY}{_GAP}{_WORD_IN}{_GAP}\({_GAP}")
_SET_VALUES = re.compile(rf"(?:{_VALUE_OF_SET},{_GAP}){{0,{_TURNS}}}")
_SET_ENDS = re.compile(rf"{_VALUE_OF_SET}\){_GAP}(?:(,)\x00?|\Z)")
_WORDS_OF_SET = re.compile(rf"(?:(?:[^=!(),<> \t\r\n\x00]+{_GAP})?,{_GAP}){{0,{_TURNS}}}")
_BLANKS = re.compile(r"[ \t\r\n\x00]+")


def parse_labels(text: str) -> LabelSelector:
    """Parse a `labelSelector` parameter. Raises StatusError 400."""
    if not text:
        return EVERYTHING
    check_labels(text)
    try:
        return LabelSelector(_LabelParser(text).selector())
    except _SyntaxError as error:
        raise bad_request(str(error)) from None


def check_labels(text: str) -> None:
    """Raise StatusError 400 if a long text is not a label selector. This takes a tenth of the time of parsing it."""
    if len(text) <= AT_ONCE:
        return
    at = _first_doubt(text)
    try:
        if at is not None:
            _LabelParser(text, at).selector()
    except _SyntaxError as error:
        raise bad_request(str(error)) from None


def _first_doubt(text: str) -> int | None:
    """Return a place where a term begins, such that all terms before it are valid. None if all terms are."""
    at = 0
    while True:
        at = _end_of_run(_TERMS, text, at)
        opening = _SET_BEGINS.match(text, at)
        if opening is None:
            return None if _LAST_TERM.match(text, at) else at
        closing = _SET_ENDS.match(text, _end_of_run(_SET_VALUES, text, opening.end()))
        if closing is None:
            return at
        if not closing[1]:
            return None
        at = closing.end()


def _end_of_run(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of all matches from this place on."""
    while found := pattern.match(text, at):
        if found.end() == at:
            break
        at = found.end()
    return at


_JSON_OPERATORS = {"In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}


def of_json(selector: Mapping[str, Any]) -> LabelSelector:
    """Return the selector that API objects spell as `matchLabels` and `matchExpressions`.

    Keys and values are not checked: they were when the object was written. Raises ValueError for an unknown operator.
    Upstream: kubernetes/apimachinery `pkg/apis/meta/v1/helpers.go` LabelSelectorAsSelector.
    """
    found = [Requirement(key, IN, (value,)) for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        operator = _JSON_OPERATORS.get(term.get("operator", ""))
        if operator is None:
            raise ValueError(f"{quoting.go_quote(term.get('operator', ''))} is not a valid label selector operator")
        found.append(Requirement(term.get("key", ""), operator, tuple(sorted(term.get("values") or ()))))
    return LabelSelector(found) if found else EVERYTHING


class _SyntaxError(Exception):
    """The text of a 400."""


class _RequirementError(_SyntaxError):
    """An error inside a requirement, which has upstream's prefix."""

    def __str__(self) -> str:
        return f"unable to parse requirement: {super().__str__()}"


class _LabelParser:
    """Upstream's recursive descent over the tokens of one selector. A NUL ends the text, as it does there."""

    def __init__(self, text: str, at: int = 0) -> None:
        """`at` is the start of the first term to parse."""
        self._text = text
        self._at = self._start = at
        self._token = self._read()

    def _read(self) -> tuple[str, str]:
        self._start = self._at
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            return _END, ""
        self._at = match.end()
        kind = match.lastgroup
        return (kind, match.group(kind)) if kind else (_END, "")

    def selector(self) -> Iterable[Requirement]:
        """Parse the requirements, each once: repeated ones change nothing."""
        found: dict[Requirement, None] = {}
        continues = self._start > 0
        while True:
            kind, literal = self._peek()
            if continues and kind != _WORD and literal != "!":
                raise _SyntaxError(f"found '{literal}', expected: identifier after ','")
            continues = False
            if kind == _END:
                return found
            if kind != _WORD and literal != "!":
                raise _SyntaxError(f"found '{literal}', expected: !, identifier, or 'end of string'")
            found[self._requirement()] = None
            kind, literal = self._next()
            if kind == _END:
                return found
            if literal != ",":
                raise _SyntaxError(f"found '{literal}', expected: ',' or 'end of string'")
            kind, literal = self._peek()
            if kind != _WORD and literal != "!":
                raise _SyntaxError(f"found '{literal}', expected: identifier after ','")

    def _peek(self) -> tuple[str, str]:
        return self._token

    def _next(self) -> tuple[str, str]:
        token = self._token
        if token[0] != _END:
            self._token = self._read()
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
        requirement = Requirement(key, operator, tuple(sorting.in_order(values)))
        if problems := _texts_of(_value_errors(requirement)):
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
        """Parse words between commas. A comma at the start, at the end, or after a comma stands for an empty word."""
        values = self._words()
        if values and self._peek()[1] == ")":
            values.add("")
            return values
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

    def _words(self) -> set[str]:
        """Parse all words that a comma follows, some hundred at a time."""
        values: set[str] = set()
        while (run := _WORDS_OF_SET.match(self._text, self._start)) and run.end() > run.start():
            words = run.group()
            if _BLANKS.search(words):
                words = _BLANKS.sub("", words)
            values.update(words.split(",")[:-1])
            self._at = run.end()
            self._token = self._read()
        return values


ERRORS_LIMIT = 512 << 10
"""Characters of errors of one requirement. An answer holds fewer."""


def _texts_of(errors: Iterable[FieldError]) -> list[str]:
    """Return each text once, up to the limit."""
    texts: dict[str, None] = {}
    left = ERRORS_LIMIT
    for text in map(str, errors):
        texts[text] = None
        left -= len(text)
        if left < 0:
            break
    return list(texts)


def _value_errors(requirement: Requirement) -> Iterator[FieldError]:
    if requirement.operator in (GREATER, LESS):
        try:
            strconv.parse_int(requirement.values[0])
        except ValueError:
            detail = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield fieldpath.invalid("values[0]", requirement.values[0], detail)
    for i, value in enumerate(requirement.values):
        if problems := names.label_value(value):
            yield fieldpath.invalid(f"values[{i}][{requirement.key}]", value, "; ".join(problems))


@dataclass(frozen=True, slots=True)
class FieldTest:
    """The terms of one label. The value must equal `equal`, unless that is None, and none of `others`. `never`: the terms contradict each
    other."""

    equal: str | None = None
    others: AbstractSet[str] = frozenset()
    never: bool = False

    def __call__(self, value: str) -> bool:
        return not self.never and (self.equal is None or self.equal == value) and value not in self.others


@dataclass(frozen=True)
class FieldSelector:
    """A conjunction of `(label, operator, value)`, operator `=` or `!=`, sorted as upstream sorts the terms' texts."""

    terms: tuple[tuple[str, str, str], ...] = ()

    @property
    def empty(self) -> bool:
        """Whether everything matches."""
        return not self.terms

    @cached_property
    def tests(self) -> Mapping[str, FieldTest]:
        """The tests by label, in the order of their first terms. Their number is that of the labels, at any length of the selector."""
        equal: dict[str, str] = {}
        others: dict[str, set[str]] = {}
        never: set[str] = set()
        for label, operator, value in self.terms:
            excluded = others.setdefault(label, set())
            if operator == NOT_EQUALS:
                excluded.add(value)
            elif equal.setdefault(label, value) != value:
                never.add(label)
        return {label: FieldTest(equal.get(label), excluded, label in never) for label, excluded in others.items()}

    def requires(self, label: str) -> str | None:
        """Return the value that `label` must have, by the first term that requires one; otherwise None."""
        test = self.tests.get(label)
        return None if test is None else test.equal

    def unsupported(self, supported: Collection[str]) -> str | None:
        """Return the first label that is not among the supported ones."""
        return next((label for label in self.tests if label not in supported), None)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Return whether the fields' values satisfy every term; an absent field is empty."""
        return all(test(fields.get(label, "")) for label, test in self.tests.items())

    def __str__(self) -> str:
        return ",".join(f"{name}{operator}{escape_value(value)}" for name, operator, value in self.terms)


ALL_FIELDS = FieldSelector()

_TERM = re.compile(r"(.*?)(!=|==|=)(.*)", re.DOTALL)
_ESCAPABLE = re.compile(r"([\\,=])")


def escape_value(value: str) -> str:
    r"""Return a value as a field selector spells it: `\`, `,` and `=` behind a backslash."""
    return _ESCAPABLE.sub(r"\\\1", value)


def parse_fields(text: str) -> FieldSelector:
    """Parse a `fieldSelector` parameter. Raises StatusError 400 for bad syntax."""
    if not text:
        return ALL_FIELDS
    check_fields(text)
    terms: list[tuple[str, str, str]] = []
    labels: set[str] = set()
    for part in sorting.in_order(_split_terms(text)):
        if not part:
            continue
        label, operator, value = _field_term(text, part)
        # Upstream's transformation step drops a term without label and value.
        if label or value:
            terms.append((label, operator, value))
            labels.add(label)
            if len(labels) > MOST_FIELDS:
                break
    selector = FieldSelector(tuple(terms))
    selector.tests  # noqa: B018 - computed where the selector is parsed, which may be in a thread
    return selector


MOST_FIELDS = 256
"""Labels at which parsing of a field selector ends: no kind has so many selectable fields. The error names the first label that the kind
does not have."""
_PLAIN_FIELD = r"(?:[^,=!\\]*(?:!=|==?)[^,=\\]*)?"
_FIELDS = re.compile(rf"(?:{_PLAIN_FIELD},){{0,{_TURNS}}}")
_is_plain_field = re.compile(_PLAIN_FIELD).fullmatch


def check_fields(text: str) -> None:
    """Raise StatusError 400 if a long text is not a field selector. This takes a tenth of the time of parsing it."""
    if len(text) <= AT_ONCE:
        return
    at = _end_of_run(_FIELDS, text, 0)
    for part in sorting.in_order([part for part in _split_terms(text[at:]) if not _is_plain_field(part)]):
        _field_term(text, part)


def _field_term(text: str, part: str) -> tuple[str, str, str]:
    """Parse one term of a field selector. Raises StatusError 400."""
    match = _TERM.fullmatch(part)
    if match is None:
        raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
    return match.group(1), NOT_EQUALS if match.group(2) == NOT_EQUALS else EQUALS, _unescape(match.group(3))


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


class Given:
    """The two selectors of a request as they were sent. Each is parsed once, even if that raises StatusError 400."""

    __slots__ = ("_fields", "_labels", "field_text", "label_text")

    def __init__(self, label_text: str = "", field_text: str = "") -> None:
        self.label_text, self.field_text = label_text, field_text
        self._labels: LabelSelector | StatusError | None = None if label_text else EVERYTHING
        self._fields: FieldSelector | StatusError | None = None if field_text else ALL_FIELDS

    @property
    def large(self) -> bool:
        """Whether parsing takes so long that it needs a thread."""
        return len(self.label_text) + len(self.field_text) > AT_ONCE

    @property
    def narrows_authorization(self) -> bool:
        """Whether authorization uses the selectors. Longer ones do not narrow a request, and are parsed only for users that may see
        everything."""
        return len(self.label_text) + len(self.field_text) <= AUTHORIZED_LENGTH

    @property
    def known(self) -> bool:
        """Whether both were parsed."""
        return self._labels is not None and self._fields is not None

    @property
    def labels(self) -> LabelSelector:
        if self._labels is None:
            self._labels = _attempt(parse_labels, self.label_text)
        return _result(self._labels)

    @property
    def fields(self) -> FieldSelector:
        if self._fields is None:
            self._fields = _attempt(parse_fields, self.field_text)
        return _result(self._fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Given) and self._texts == other._texts

    def __hash__(self) -> int:
        return hash(self._texts)

    def __repr__(self) -> str:
        return f"Given({self.label_text!r}, {self.field_text!r})"

    @property
    def _texts(self) -> tuple[str, str]:
        return self.label_text, self.field_text

    def read(self) -> None:
        """Parse both now, so that later access costs nothing. If one is invalid, access to either raises its error, and the other is not
        parsed."""
        if self.known:
            return
        try:
            check_labels(self.label_text)
            check_fields(self.field_text)
        except StatusError as error:
            self._labels = self._labels or error.again()
            self._fields = self._fields or error.again()
            return
        for selector in ("labels", "fields"):
            with suppress(StatusError):
                getattr(self, selector)

    def let_go(self) -> list[Any]:
        """Remove and return the parsed selectors."""
        held = [self._labels, self._fields]
        self._labels = self._fields = None
        return held


AT_ONCE = 4096
"""Characters of selectors that are parsed on the event loop: some milliseconds."""
AUTHORIZED_LENGTH = 10_000
"""Characters of selectors that authorization uses. Parsing more would cost more than a refusal may."""
NONE_GIVEN = Given()

_Read = TypeVar("_Read")


def _attempt(parse: Callable[[str], _Read], text: str) -> _Read | StatusError:
    try:
        return parse(text)
    except StatusError as error:
        return error.again()


def _result(found: _Read | StatusError) -> _Read:
    if isinstance(found, StatusError):
        raise found.again()
    return found
