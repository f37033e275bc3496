"""Validate a value against its type, with upstream's error messages.

Upstream: kubernetes-sigs/structured-merge-diff `typed/validate.go`, `typed/typed.go` (ValidationErrors).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kubetext.quoting import SHOWN_CHARACTERS, go_quote
from kubetext.sorting import members
from structuredmerge.items import UnknownItem, namer
from structuredmerge.paths import FIELD, INDEX, Element, item, text
from structuredmerge.types import DEDUCED, UNTYPED_ATOMIC, List, Map, Scalar, Type, choose

__all__ = ["Foreign", "joined", "validate"]

MESSAGE_CHARACTERS = 320 << 10
"""Stop after this many characters of errors, more than any message of the API shows."""


def validate(value: Any, type_: Type, *, duplicates: bool = False, foreign: bool = False) -> list[str]:
    """Return the errors of a value, each with its path; an empty list when it is of the type.

    `duplicates` allows repeated items. `foreign` allows Foreign values, and checks for them wherever any value is
    allowed.

    Null is of every type. In a map only the first undeclared member is reported, in a list only the first item without
    path element. The check ends at either. It also ends when the errors exceed MESSAGE_CHARACTERS.
    """
    found = _Validating(tolerant=duplicates, foreign=foreign)
    found.value(value, type_)
    return [
        f"{text(tuple(reversed(error.path)))}: {error.text}" if error.path else error.text for error in found.errors
    ]


def joined(errors: Sequence[str]) -> str:
    """Return the errors as one text: a single one as it is, several on a line each."""
    return errors[0] if len(errors) == 1 else "\n  ".join(["errors:", *errors])


class Foreign:
    """A value that JSON cannot have but upstream's values can; it is of no type.

    `name` is its type in Go, `text` and `syntax` are how Go prints it (`%v`, `%#v`).
    """

    __slots__ = ("name", "syntax", "text")

    def __init__(self, name: str, text: str, syntax: str = "") -> None:
        self.name, self.text, self.syntax = name, text, syntax or text


class _Error:
    """One error. Its path is in reverse, and complete when the walk is back at the root."""

    __slots__ = ("path", "text")

    def __init__(self, text: str) -> None:
        self.path: list[Element] = []
        self.text = text


class _Validating:
    """One walk. The paths of `errors` are relative to the current place."""

    def __init__(self, *, tolerant: bool, foreign: bool) -> None:
        self.errors: list[_Error] = []
        self._tolerant = tolerant
        self._unseen = () if foreign else (UNTYPED_ATOMIC, DEDUCED)
        self._remaining = MESSAGE_CHARACTERS

    def value(self, value: Any, type_: Type) -> None:
        if value is None or type_ in self._unseen:
            return
        alternative = choose(type_, value)
        if isinstance(alternative, Map):
            if isinstance(value, dict):
                self._map(value, alternative)
            else:
                self._report(f"expected map, got &{{{_shown(value)}}}")
        elif isinstance(alternative, List):
            if isinstance(value, list):
                self._list(value, alternative)
            else:
                self._report(f"expected list, got &{{{_shown(value)}}}")
        elif value.__class__ not in alternative.classes:
            self._report(_EXPECTED[alternative](value))

    def _report(self, text: str) -> None:
        self.errors.append(_Error(text))
        self._remaining -= len(text)

    def _at(self, before: int, element: Element) -> bool:
        """Prepend the element to the paths of the errors since `before`. Return whether to look for more errors."""
        for error in self.errors[before:]:
            error.path.append(element)
        return self._remaining >= 0

    def _map(self, value: dict[str, Any], map_: Map) -> None:
        declared, before = map_.members, len(self.errors)
        for name, part in value.items():
            member = declared.get(name)
            type_ = member.type if member is not None else map_.element
            if type_ is None:
                self._report("field not declared in schema")
                self._at(before, (FIELD, name))
                return
            if type_.scalar is not None and part.__class__ in type_.scalar.classes:
                continue
            self.value(part, type_)
            if len(self.errors) > before:
                if not self._at(before, (FIELD, name)):
                    return
                before = len(self.errors)

    def _list(self, items: list[Any], list_: List) -> None:
        if list_.atomic:
            before = len(self.errors)
            for i, part in enumerate(items):
                self.value(part, list_.item)
                if len(self.errors) > before:
                    if not self._at(before, (INDEX, i)):
                        return
                    before = len(self.errors)
            return
        if not list_.keys and self._are_texts(items, list_.item):
            return
        name = namer(list_)
        seen: set[Element] = set()
        for i, part in enumerate(items):
            try:
                element = name(part)
            except UnknownItem as e:
                self._report(f"element {i}: {e}")
                return
            if element in seen and not self._tolerant:
                self._report(f"duplicate entries for key {text((element,))}")
            seen.add(element)
            before = len(self.errors)
            self.value(part, list_.item)
            if len(self.errors) > before:
                self._at(before, element)
            if self._remaining < 0:
                return

    def _are_texts(self, items: list[Any], type_: Type) -> bool:
        """Return whether all items are strings of the type, without repetitions. It is quick for very many items."""
        if type_.scalar is None or str not in type_.scalar.classes or not _TEXT.issuperset(map(type, items)):
            return False
        return self._tolerant or len(members(items)) == len(items)


_TEXT: Final = frozenset((str,))


def _expected_numeric(value: Any) -> str:
    name = value.name if isinstance(value, Foreign) else _GO_TYPES[value.__class__]
    return f"expected numeric (int or float), got {name}"


def _expected_string(value: Any) -> str:
    return f"expected string, got &value.valueUnstructured{{Value:{_shown(value, syntax=True)}}}"


def _expected_boolean(value: Any) -> str:
    return f"expected boolean, got &{{{_shown(value)}}}"


def _expected_scalar(value: Any) -> str:
    return f"expected any scalar, got &{{{_shown(value)}}}"


_EXPECTED: Final = {
    Scalar.NUMERIC: _expected_numeric,
    Scalar.STRING: _expected_string,
    Scalar.BOOLEAN: _expected_boolean,
    Scalar.UNTYPED: _expected_scalar,
}
_GO_TYPES: Final = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def _shown(value: Any, *, syntax: bool = False) -> str:
    """Return `%v` of a value, or `%#v` with `syntax`, as far as an error shows it."""
    parts: list[str] = []
    remaining = SHOWN_CHARACTERS
    for part in _printed(value, syntax=syntax, levels=_LEVELS):
        parts.append(part[: remaining + 1])
        remaining -= len(part)
        if remaining < 0:
            return f"{''.join(parts)}…"
    return "".join(parts)


_LEVELS: Final = 64


def _printed(value: Any, *, syntax: bool, levels: int) -> Iterator[str]:
    if not levels:
        yield "…"
    elif isinstance(value, dict):
        yield "map[string]interface {}{" if syntax else "map["
        for i, name in enumerate(sorted(value)):
            yield (", " if syntax else " ") if i else ""
            yield f"{go_quote(name) if syntax else name}:"
            yield from _printed(value[name], syntax=syntax, levels=levels - 1)
        yield "}" if syntax else "]"
    elif isinstance(value, list):
        yield "[]interface {}{" if syntax else "["
        for i, part in enumerate(value):
            yield (", " if syntax else " ") if i else ""
            yield from _printed(part, syntax=syntax, levels=levels - 1)
        yield "}" if syntax else "]"
    elif isinstance(value, str):
        yield go_quote(value) if syntax else value
    elif value is None:
        yield "interface {}(nil)" if syntax and levels < _LEVELS else "<nil>"
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, Foreign):
        yield value.syntax if syntax else value.text
    else:
        # Printed as a path shows it.
        yield text((item(value),))[2:-1]
