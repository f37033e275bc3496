"""Find the errors of strict decoding in a JSON document: unknown and repeated members, with their paths, in document order.

Walks the document along a rule of the allowed members. Only suspicious documents come here.
Upstream: kubernetes-sigs/json `internal/golang/encoding/json/{decode,kubernetes_patch}.go`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import Path
from apiserver.codecs.json import json_syntax
from apiserver.schema.types import ListOf, MapOf, Struct, Type
from kubetext import quoting, utf8

MOST = 100
"""Upstream collects this many errors."""
LEVELS = 800
"""Levels that are searched in a document that nests too deep for the interpreter."""

Rule = Callable[[str], "Rule | None"]
"""Returns the rule of a member's value by its name (empty for an element); None for an unknown member."""


def anything(_: str) -> Rule | None:
    """Accept any value; only repetition is an error."""
    return anything


def opaque(_: str) -> Rule | None:
    """Accept a value that is kept as bytes, and do not search it."""
    return opaque


def members(rules: Mapping[str, Rule]) -> Rule:
    """Return the rule of an object with these members."""
    return rules.get


def elements(rule: Rule) -> Rule:
    """Return the rule of a list whose elements follow one rule."""
    return lambda _: rule


def shaped(kind: Type, *, extra: tuple[str, ...] = ()) -> Rule:
    """Return the rule of a shape. `extra` are further known members."""
    if isinstance(kind, Struct):
        return _members_of(kind, extra)
    if isinstance(kind, ListOf):
        return elements(shaped(kind.item))
    if isinstance(kind, MapOf):
        return elements(shaped(kind.value))
    return opaque


def _members_of(shape: Struct, extra: tuple[str, ...]) -> Rule:
    def member(name: str) -> Rule | None:
        if name in extra:
            return opaque
        for field in shape.fields:
            if field.inline and isinstance(field.type, Struct):
                found = _members_of(field.type, ())(name)
                if found is not None:
                    return found
            elif field.name == name:
                return shaped(field.type)
        return None

    return member


_CONTAINERS = (dict, list)


class _Members(list[tuple[str, Any]]):
    """A JSON object with every member that was written, repeated ones too."""


_Step = tuple[Any, Rule, Path]
"""A list or object, its rule, and its path."""


def find(raw: bytes, rule: Rule) -> list[str]:
    """Return errors such as `unknown field "spec.foo"` and `duplicate field "spec.driver"`: each once, at most MOST. `raw` is valid JSON.

    A document that nests too deep for the interpreter is not searched completely: hardly anything of the rest is kept anyway.
    """
    return find_in_text(utf8.decoded(raw), rule)


def find_in_text(text: str, rule: Rule) -> list[str]:
    """Return the same for a text. Names with lone surrogates count as Go reads them."""
    text = utf8.paired(text)
    try:
        value = _pairs(text)
    except RecursionError:
        try:
            value = _pairs(json_syntax.cut(text.encode(), LEVELS).decode())
        except RecursionError:
            return []
    return find_in(value, rule)


def find_in(value: Any, rule: Rule) -> list[str]:
    """Return the same for a decoded document, for example one without repeated members."""
    found: dict[str, None] = {}
    open_ = [_steps((value, rule, fieldpath.ROOT), found)]
    while open_ and len(found) < MOST:
        step = next(open_[-1], None)
        if step is None:
            open_.pop()
        else:
            open_.append(_steps(step, found))
    return list(found)[:MOST]


def _pairs(text: str) -> Any:
    """Return the document with every member of its objects, and numbers as text. Raises RecursionError."""
    return json.loads(text, object_pairs_hook=_Members, parse_int=str, parse_float=str)


def _steps(step: _Step, found: dict[str, None]) -> Iterator[_Step]:
    """Check the members of an object in their order. Yield each list and object below in its place."""
    value, rule, path = step
    if isinstance(value, dict):
        value = _Members(value.items())
    if not isinstance(value, _Members):
        for i, x in enumerate(value if isinstance(value, list) else ()):
            if isinstance(x, _CONTAINERS):
                yield x, rule("") or anything, path.index(i)
        return
    seen: set[str] = set()
    reported: set[str] = set()
    for name, x in value:
        below = rule(name)
        wrong = "unknown" if below is None else "duplicate" if name in seen else ""
        seen.add(name)
        if wrong and name not in reported:
            reported.add(name)
            found.setdefault(f"{wrong} field {quoting.go_quote(str(path.child(name)))}")
            if len(found) >= MOST:
                return
        if isinstance(x, _CONTAINERS) and below is not None and below is not opaque:
            yield x, below, path.child(name)
