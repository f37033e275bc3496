"""Check a shape: its names, protobuf numbers, lists, limits, defaults and checks. Messages name members by their JSON path."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from apiserver.codecs.objects import decoding
from apiserver.codecs.objects.decoding import DecodeError
from apiserver.kinds.packages import arguments, functions
from apiserver.schema import shapes, types
from apiserver.schema.context import Context
from apiserver.schema.types import (
    UNSET,
    Boolean,
    Field,
    Integer,
    ListOf,
    ListType,
    MapOf,
    RawJSON,
    String,
    Struct,
    Time,
    Type,
)
from apiserver.validation import report

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""JSON names of members that Go, CEL, JSON paths and field selectors all accept."""
_GO_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")
_HEAD = ("kind", "apiVersion")
_NUMBERS, _RESERVED_NUMBERS = range(1, 1 << 29), range(19000, 20000)
"""Protobuf's field numbers, and those of them that it reserves."""
_STRATEGIES = frozenset({"", "merge", "replace", "retainKeys", "merge,retainKeys"})
"""Upstream: kubernetes/apimachinery `pkg/util/strategicpatch/patch.go`."""


def errors(shape: Any) -> tuple[list[str], bool]:
    """Return the errors of a kind's shape, and whether the shape can be walked in spite of them."""
    if not isinstance(shape, Struct):
        return ["the shape is not a Struct"], False
    survey = _Survey()
    survey.add(shape, "")
    if survey.wrong:
        return survey.wrong, False
    found = list(_root(shape))
    for path, node in survey.nodes:
        found += (f"{_prefix(path)}{text}" for text in _of_node(node, whole=not path.endswith(_INLINE)))
    return found, True


def same_json(stored: Struct, other: Struct) -> Iterator[str]:
    """Yield where the JSON of two versions differs. If it does, the stored bytes of one cannot be served as the other's."""
    yield from _differences(stored, other, "", set())


def at(shape: Struct, path: str) -> Type | None:
    """Return the type at a path of member names. Below a map any name leads to its values."""
    here: Type = shape
    for name in path.split("."):
        if isinstance(here, MapOf):
            here = here.value
            continue
        members = types.members(here) if isinstance(here, Struct) else ()
        found = next((field for field in members if field.name == name), None)
        if found is None:
            return None
        here = found.type
    return here


def repeated(texts: Iterable[Any]) -> list[str]:
    """Return each text that occurs more than once."""
    known = list(texts)
    return sorted({str(text) for text in known if known.count(text) > 1})


_INLINE = "\0"
"""Ends the path of an inline struct, whose members stand in the JSON of the outer one."""


def _prefix(path: str) -> str:
    path = path.replace(_INLINE, "")
    return f"member {path}: " if path else ""


class _Survey:
    """Collects structs, fields and types, each once, with its path. `wrong` has the errors that prevent further checks: arguments of a
    wrong type, endless shapes."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, Any]] = []
        self.wrong: list[str] = []
        self._seen: set[int] = set()
        self._above: list[Struct] = []

    def add(self, node: Any, path: str) -> None:
        """Add a node with everything below."""
        if any(node is outer for outer in self._above):
            self.wrong.append(f"{_prefix(path)}the struct {node.name} contains itself; a shape ends somewhere")
            return
        if id(node) in self._seen or node is shapes.OBJECT_META:
            return
        self._seen.add(id(node))
        self.nodes.append((path, node))
        misfits = arguments.wrong(node)
        for texts in misfits.values():
            self.wrong += (f"{_prefix(path)}{type(node).__name__}: {text}" for text in texts)
        match node:
            case Struct() if "fields" not in misfits:
                self._above.append(node)
                for field in node.fields:
                    inner = path.replace(_INLINE, "")
                    self.add(field, f"{inner}.{field.name}" if inner else str(field.name))
                self._above.pop()
            case Field() if "type" not in misfits:
                self.add(node.type, path.rpartition(".")[0] + _INLINE if node.inline is True else path)
            case ListOf() if "item" not in misfits:
                self.add(node.item, f"{path}[*]")
            case MapOf() if "value" not in misfits:
                self.add(node.value, f"{path}[*]")


def _root(shape: Struct) -> Iterator[str]:
    if not shape.fields or shape.fields[0].name != "metadata" or shape.fields[0].type is not shapes.OBJECT_META:
        yield "the first member of the shape must be metadata, of the type OBJECT_META"
    for name in _HEAD:
        if any(field.name == name for field in types.members(shape)):
            yield f"the shape has a member {name}, which every object has by itself"


def _of_node(node: Any, *, whole: bool) -> Iterator[str]:
    match node:
        case Struct():
            yield from _struct(node, whole=whole)
        case Field():
            yield from _field(node)
        case String():
            yield from _limits(max_bytes=node.max_bytes)
            for what, values in (("enum", node.enum), ("known", node.known)):
                yield from (f"{what} has {value!r} twice" for value in repeated(values))
            for value in node.enum:
                if node.max_bytes > 0 and len(value.encode("utf-8", "surrogatepass")) > node.max_bytes:
                    yield f"enum has {arguments.shown(value)}, which is longer than max_bytes"
            yield from _function("check", node.check, "value", "path")
        case Integer() | Boolean():
            yield from _function("check", node.check, "value", "path")
        case ListOf():
            yield from _list(node)
        case MapOf():
            yield from _limits(max_items=node.max_items, shown_key_bytes=node.shown_key_bytes)
            yield from _function("key_check", node.key_check, "key", "path")


def _struct(struct: Struct, *, whole: bool) -> Iterator[str]:
    """Yield the errors of a struct. Without `whole` it is an inline struct, whose names are those of the outer one."""
    if not _GO_NAME.fullmatch(struct.name):
        yield f"the struct name {struct.name!r} is no name of letters and digits that begins with a capital"
    names = [field.name for field in types.members(struct)]
    if whole:
        yield from (f"the struct {struct.name} has the member {name} twice" for name in repeated(names))
    for number in repeated(field.number for field in struct.fields):
        yield f"the struct {struct.name} has the protobuf number {number} twice"
    for name in struct.judged:
        if name and not name.startswith("#") and name not in names:
            yield f"judged: the struct {struct.name} has no member {name}"
    yield from (f"judged has {name!r} twice" for name in repeated(struct.judged))
    for name in struct.alternatives:
        if name not in names:
            yield f"alternatives: the struct {struct.name} has no member {name}"
    yield from (f"alternatives has {name} twice" for name in repeated(struct.alternatives))
    yield from _function("check", struct.check, "value", "path")
    yield from _function("rule", struct.rule, "context", "value", "stored", "path")


def _field(field: Field) -> Iterator[str]:
    if not _NAME.fullmatch(field.name):
        yield f"the name {field.name!r} is no JSON name of letters, digits and _"
    if field.number not in _NUMBERS or field.number in _RESERVED_NUMBERS:
        yield f"{field.number} is no protobuf number of a field"
    if field.inline and not isinstance(field.type, Struct):
        yield "only the members of a Struct can be inline"
    yield from _function("check", field.check, "value", "path")
    yield from _patch(field)
    yield from _default(field)


def _patch(field: Field) -> Iterator[str]:
    """Yield the errors of how strategic merge patches treat the member."""
    if field.patch_strategy not in _STRATEGIES:
        known = ", ".join(sorted(filter(None, _STRATEGIES)))
        yield f"patch_strategy: {field.patch_strategy!r} is none of {known}"
        return
    merges = "merge" in field.patch_strategy.split(",")
    items = field.type.item if isinstance(field.type, ListOf) else None
    if field.patch_merge_key:
        if not merges:
            yield "patch_merge_key is used with the patch_strategy merge alone"
        if not isinstance(items, Struct) or not _is_key(items, field.patch_merge_key):
            yield f"patch_merge_key: the items have no text, number or boolean {field.patch_merge_key}"
    elif merges and isinstance(items, Struct):
        yield "patch_strategy: a list of structs is merged by a patch_merge_key"


def _list(list_: ListOf) -> Iterator[str]:
    yield from _limits(max_items=list_.max_items)
    yield from _function("unique", list_.unique, "item")
    yield from _function("limit", list_.limit, "items")
    match list_.list_type, list_.item:
        case ListType.SET, Struct() | ListOf() | MapOf() | RawJSON():
            yield f"a SET has items of text, number, boolean, quantity or time, not {type(list_.item).__name__}"
        case ListType.MAP, Struct() as item:
            if not list_.keys:
                yield "a MAP list needs keys"
            for key in list_.keys:
                if not _is_key(item, key):
                    yield f"keys: the struct {item.name} has no text, number or boolean {key}"
        case ListType.MAP, _:
            yield f"a MAP list has items that are a Struct, not {type(list_.item).__name__}"
    if list_.keys and list_.list_type is not ListType.MAP:
        yield f"keys are those of a MAP list, and this one is {list_.list_type.name}"
    yield from (f"keys has {key} twice" for key in repeated(list_.keys))


def _is_key(struct: Struct, name: str) -> bool:
    return any(field.name == name and isinstance(field.type, _SCALARS) for field in types.members(struct))


_SCALARS = (String, Integer, Boolean)


def _limits(**limits: int) -> Iterator[str]:
    return (f"{name}: {value} is less than 0" for name, value in limits.items() if value < 0)


def _function(name: str, function: Callable[..., Any] | None, *arguments_: str) -> Iterator[str]:
    if function is not None:
        yield from (f"{name}: {text}" for text in functions.wrong(function, *arguments_))


def _default(field: Field) -> Iterator[str]:
    """Yield the errors of a default value that no client could send."""
    default = field.default
    if default is UNSET or default is None:
        return
    if callable(default):
        yield from _function("default", default, "struct", "now")
        return
    if not _fits(field):
        yield f"the default {arguments.shown(default)} is no value of its type"
        return
    try:
        refused = next(iter(_refusals(field)), None)
    except Exception as e:  # noqa: BLE001 - the package's own checks
        yield f"the default {arguments.shown(default)} makes its own checks fail: {type(e).__name__}: {e}"
    else:
        if refused is not None:
            yield f"the default {arguments.shown(default)} is refused: {refused}"


def _fits(field: Field) -> bool:
    match field.type:
        case RawJSON():
            return _is_json(field.default)
        case String(enum=(_, *_) as values):
            return field.default in values
    try:
        return not decoding.decode(_alone(field), {field.name: field.default}).unknown
    except (DecodeError, TypeError):
        return False


def _is_json(value: Any) -> bool:
    if not isinstance(value, bytes | msgspec.Raw):
        return False
    try:
        json.loads(bytes(value))
    except ValueError:
        return False
    return True


def _refusals(field: Field) -> Iterable[object]:
    """Yield what the rules of the member refuse in its default."""
    if isinstance(field.type, RawJSON):
        return ()
    shape = _alone(field)
    return report.validate(Context(), shape, decoding.decode(shape, {field.name: field.default}).object, None)


def _alone(field: Field) -> Struct:
    return Struct(name="", fields=[replace(field, inline=False)])


def _differences(stored: Type, other: Type, path: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    if stored is other or (id(stored), id(other)) in seen:
        return
    seen.add((id(stored), id(other)))
    match stored, other:
        case Struct(), Struct():
            yield from _different_members(types.members(stored), types.members(other), path, seen)
        case ListOf(item=first), ListOf(item=second):
            yield from _differences(first, second, f"{path}[*]", seen)
        case MapOf(value=first), MapOf(value=second):
            yield from _differences(first, second, f"{path}[*]", seen)
        case (
            (Integer(bits=a), Integer(bits=b))
            | (Time(micro=a), Time(micro=b))
            | (RawJSON(verbatim=a), RawJSON(verbatim=b))
        ):
            if a != b:
                yield f"{path} is written differently"
        case _ if type(stored) is not type(other):
            yield f"{path} is a {type(stored).__name__} in one and a {type(other).__name__} in the other"


def _different_members(
    stored: Sequence[Field], other: Sequence[Field], path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    ours, theirs = ({field.name: field for field in fields} for fields in (stored, other))
    prefix = f"{path}." if path else ""
    yield from (f"{prefix}{name} is in one only" for name in sorted(ours.keys() ^ theirs.keys()))
    for name in (name for name in ours if name in theirs):
        if ours[name].presence is not theirs[name].presence:
            yield f"{prefix}{name} is left out by different rules (presence)"
        yield from _differences(ours[name].type, theirs[name].type, f"{prefix}{name}", seen)
