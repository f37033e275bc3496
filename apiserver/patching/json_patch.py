"""Apply JSON patches (RFC 6902) as evanphx/json-patch v4 does, which upstream uses.

* `replace` of a missing member adds it, `copy` from one copies null, and `test` for null passes on one.
* Indices may be negative and may have leading zeros. A path's text before its first slash is ignored.
* Opened objects come out with sorted members, as upstream. Other text keeps its spelling, and `test` compares spellings.

The cost of any patch is bounded (upstream bounds operations and copies only).
Upstream: evanphx/json-patch v4 `patch.go`; kubernetes/apiserver `pkg/endpoints/handlers/patch.go`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec

from apiserver.apimachinery import errors
from apiserver.codecs.json import surrogates
from apiserver.kinds import type_meta
from apiserver.patching import lazy
from kubetext import strconv
from kubetext.quoting import go_quote

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 << 20
"""Bytes of JSON by which `copy` may make a document grow."""
MOST_WORK = 1_000_000
"""Steps that the operations of one patch may take together, about half a second. One step is a level of a path, a value that `test`
compares, SHIFTED list elements that move, or SHIFTED bytes that are read."""
SHIFTED = 1024
SEARCHED = 64 << 10
"""Bytes of the longest patch that `growth` searches."""


class Inapplicable(Exception):
    """An operation does not fit the document. The text is evanphx's."""


class TestFailed(Inapplicable):
    """The operation is a test."""

    __test__ = False  # not a test of pytest


class _Unreachable(Exception):
    """A path leads through a missing value or a scalar."""


class _Misfit(Exception):
    """The last step of a path does not fit its container. The text is evanphx's."""


class _Missing:
    """Stands for a missing value."""


_MISSING = _Missing()

Pointer = tuple[str, ...]
_MISSING_VALUE = "missing value"
_INDEX = re.compile(r"[+-]?[0-9]{1,18}")


_Members = TypedDict("_Members", {"op": Any, "path": Any, "from": Any, "value": msgspec.Raw}, total=False)
_read = surrogates.kept(msgspec.json.Decoder(list[_Members | None] | None, float_hook=strconv.parse_float).decode)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. A pointer is None if it is unusable. `value` is a node, or None. `to` and `origin` are the texts of the
    pointers, None if missing: `no_path` and `no_origin` say why."""

    op: Any
    path: Pointer | None
    source: Pointer | None
    value: Any
    to: str | None
    origin: str | None
    no_path: str
    no_origin: str


@dataclass(frozen=True, slots=True)
class Patch:
    """The operations in their order."""

    operations: Sequence[Operation]


def parse(patch: bytes, *, nulls: bool = False) -> Patch:
    """Parse JSON text: a list of objects and nulls, or null for an empty list. Raises 413 if there are too many.

    With `nulls`, null is a value that differs from an absent one. Go has that for operations that were built instead of decoded.
    """
    operations = _read(patch) or ()
    if len(operations) > MOST_OPERATIONS:
        raise errors.request_entity_too_large(
            f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        )
    return Patch([_operation(o or {}, null=_NULL if nulls else None) for o in operations])


def growth(patch: bytes) -> int:
    """Return by how many bytes the result may be longer than document and patch together.

    Only short patches are searched for copies: searching a long one takes half of what a step of the event loop may.
    """
    return MOST_COPIED if len(patch) > SEARCHED or b"copy" in patch or b"\\u" in patch else 0


_NULL = msgspec.Raw(b"null")


def _operation(members: dict[str, Any], *, null: Any) -> Operation:
    value, to, origin = members.get("value"), members.get("path"), members.get("from")
    return Operation(
        members.get("op"),
        _pointer(to),
        _pointer(origin),
        None if value is None else lazy.node(bytes(value)) or null,
        to if isinstance(to, str) else None,
        origin if isinstance(origin, str) else None,
        _unread(to, "operation missing path field"),
        _unread(origin, "operation, missing from field"),
    )


def _unread(text: Any, missing: str) -> str:
    """Return why a pointer cannot be read (Operation.Path, Operation.From)."""
    if text is None:
        return f"{missing}: {_MISSING_VALUE}"
    return f"json: cannot unmarshal {type_meta.json_kind(text)} into Go value of type string"


def _pointer(path: Any) -> Pointer | None:
    """Return the steps of a path, empty for the whole document. Text before the first slash is ignored, but a path needs a slash."""
    if not isinstance(path, str) or (path and "/" not in path):
        return None
    if "~" not in path:
        return tuple(path.split("/")[1:])
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:])


def apply(patch: Patch, document: bytes) -> bytes:
    """Return the patched document, which is an object. Raises a 422 without a reason."""
    try:
        return applied(patch, document)
    except Inapplicable as e:
        raise errors.unprocessable_patch() from e


def applied(patch: Patch, document: bytes) -> bytes:
    """Return the same. Raises Inapplicable, and 413 for a patch that costs too much."""
    run = _Run(document)
    try:
        for operation in patch.operations:
            kind = operation.op if isinstance(operation.op, str) else "unknown"
            step = _STEPS.get(kind)
            if step is None:
                raise Inapplicable(f"Unexpected kind: {kind}")
            step(run, operation)
        return lazy.text(run.root)
    except RecursionError as e:
        raise Inapplicable("the document is too deep") from e


class _Run:
    """One application of a patch. It owns everything reachable from `root`: opening a node makes new containers."""

    def __init__(self, document: bytes) -> None:
        self.copied = 0
        self.work = 0
        self.root: Any = lazy.document(document)

    def spend(self, steps: int = 1) -> None:
        """Count steps. Raises 413 when the patch costs too much."""
        self.work += steps
        if self.work > MOST_WORK:
            raise errors.request_entity_too_large(f"The allowed maximum work of a JSON patch is {MOST_WORK} steps")

    def open(self, pointer: Pointer | None) -> tuple[Any, str]:
        """Return the container of the value that `pointer` names, ready to be changed, and the last step. Raises _Unreachable."""
        if not pointer:
            raise _Unreachable
        self.spend(len(pointer))
        container = self.root
        for step in pointer[:-1]:
            try:
                found = get(container, step)
            except _Misfit:
                raise _Unreachable from None
            below = self.opened(found)
            if not isinstance(below, dict | list):
                raise _Unreachable
            if below is not found:
                _put(container, step, below)
            container = below
        return container, pointer[-1]

    def target(self, operation: Operation, missing: str, undecoded: str = "") -> tuple[Any, str]:
        """Return the same for the path of an operation. Raises Inapplicable, with `missing` as the text if there is no container."""
        if operation.to is None:
            raise Inapplicable(f"{operation.op} operation failed to decode path: {undecoded or operation.no_path}")
        try:
            return self.open(operation.path)
        except _Unreachable:
            where = missing.format(operation.to)
            raise Inapplicable(f"{operation.op} operation does not apply: {where}: {_MISSING_VALUE}") from None

    def source(self, operation: Operation) -> tuple[Any, str]:
        """Return the same for the source of an operation."""
        if operation.origin is None:
            raise Inapplicable(f"{operation.op} operation failed to decode from: {operation.no_origin}")
        try:
            return self.open(operation.source)
        except _Unreachable:
            where = f"doc is missing from path: {operation.origin}"
            raise Inapplicable(f"{operation.op} operation does not apply: {where}: {_MISSING_VALUE}") from None

    def opened(self, value: Any) -> Any:
        self.spend(lazy.size(value) // SHIFTED)
        return lazy.opened(value)


def get(container: Any, step: str) -> Any:
    """Return the member or element. A missing member is _MISSING; a missing element raises _Misfit."""
    if isinstance(container, dict):
        return container.get(step, _MISSING)
    index = _index(step)
    if not -len(container) <= index < len(container):
        raise _out_of_range(index)
    return container[index]


def _index(step: str) -> int:
    if not _INDEX.fullmatch(step):
        why = "value out of range" if _NUMBER.fullmatch(step) else "invalid syntax"
        raise _Misfit(f"strconv.Atoi: parsing {go_quote(step)}: {why}")
    return int(step)


_NUMBER = re.compile(r"[+-]?[0-9]+")


def _out_of_range(index: int) -> _Misfit:
    return _Misfit(f"Unable to access invalid index: {index}: invalid index referenced")


def _put(container: Any, step: str, value: Any) -> None:
    """Set the member or element, replacing an existing one."""
    if isinstance(container, dict):
        container[step] = value
    else:
        container[_index(step)] = value


def _insert(run: _Run, container: Any, step: str, value: Any) -> None:
    if isinstance(container, dict):
        container[step] = value
        return
    if step == "-":
        container.append(value)
        return
    try:
        index, places = _index(step), len(container) + 1
    except _Misfit as e:
        raise _Misfit(f"value was not a proper array index: '{step}': {e}") from None
    if not -places <= index < places:
        raise _out_of_range(index)
    index = index + places if index < 0 else index
    run.spend((len(container) - index) // SHIFTED)
    container.insert(index, value)


def _take_out(run: _Run, container: Any, step: str) -> Any:
    value = get(container, step)
    if value is _MISSING:
        raise _Misfit(f"Unable to remove nonexistent key: {step}: {_MISSING_VALUE}")
    if isinstance(container, dict):
        del container[step]
    else:
        index = _index(step)
        run.spend((len(container) - index if index >= 0 else -index) // SHIFTED)
        del container[index]
    return value


def _add(run: _Run, operation: Operation) -> None:
    container, step = run.target(operation, 'doc is missing path: "{}"', _MISSING_VALUE)
    try:
        _insert(run, container, step, operation.value)
    except _Misfit as e:
        raise Inapplicable(f"error in add for path: '{operation.to}': {e}") from None


def _remove(run: _Run, operation: Operation) -> None:
    container, step = run.target(operation, 'doc is missing path: "{}"', _MISSING_VALUE)
    try:
        _take_out(run, container, step)
    except _Misfit as e:
        raise Inapplicable(f"error in remove for path: '{operation.to}': {e}") from None


def _replace(run: _Run, operation: Operation) -> None:
    if operation.path == ():
        root = run.opened(operation.value)
        if not isinstance(root, dict | list):
            raise Inapplicable("replace operation value must be object or array: %!w(<nil>)")
        run.root = root
        return
    container, step = run.target(operation, "doc is missing path: {}")
    try:
        get(container, step)
    except _Misfit:
        where = f"doc is missing key: {operation.to}"
        raise Inapplicable(f"replace operation does not apply: {where}: {_MISSING_VALUE}") from None
    _put(container, step, operation.value)


def _move(run: _Run, operation: Operation) -> None:
    container, step = run.source(operation)
    try:
        value = _take_out(run, container, step)
    except _Misfit as e:
        raise Inapplicable(f"error in move for path: '{step}': {e}") from None
    container, step = run.target(operation, "doc is missing destination path: {}")
    try:
        _insert(run, container, step, value)
    except _Misfit as e:
        raise Inapplicable(f"error in move for path: '{operation.to}': {e}") from None


def _copy(run: _Run, operation: Operation) -> None:
    source, name = run.source(operation)
    try:
        get(source, name)
    except _Misfit as e:
        raise Inapplicable(f"error in copy for from: '{operation.origin}': {e}") from None
    container, step = run.target(operation, "doc is missing destination path: {}", _MISSING_VALUE)
    # Look it up again: a value that is copied into itself was opened just now.
    value = get(source, name)
    value = None if value is _MISSING else value
    text = b"" if value is None else lazy.text(value)
    run.copied += len(text)
    if run.copied > MOST_COPIED:
        raise Inapplicable(
            "Unable to complete the copy, the accumulated size increase of copy is "
            f"{run.copied}, exceeding the limit {MOST_COPIED}"
        )
    try:
        _insert(run, container, step, lazy.node(text) if text else None)
    except _Misfit as e:
        raise Inapplicable(f"error while adding value during copy: {e}") from None


def _test(run: _Run, operation: Operation) -> None:
    """Test a value. As upstream, a value that passes is opened by that."""
    failed = f"testing value {operation.to} failed: test failed"
    if operation.path == ():
        if not _same(run, run.root, operation.value):
            raise TestFailed(failed)
        run.root = lazy.through(run.root)
        return
    container, step = run.target(operation, "is missing path: {}")
    try:
        found = get(container, step)
    except _Misfit as e:
        raise Inapplicable(f"error in test for path: '{operation.to}': {e}") from None
    if not _same(run, None if found is _MISSING else found, operation.value):
        raise TestFailed(failed)
    if found is not _MISSING:
        _put(container, step, lazy.through(found))


def _same(run: _Run, found: Any, wanted: Any) -> bool:
    """Return whether two nodes have the same spelling, apart from blanks and the order of members. Works at any depth."""
    open_: list[Iterator[tuple[Any, Any]]] = [iter(((found, wanted),))]
    while open_:
        pair = next(open_[-1], None)
        if pair is None:
            open_.pop()
            continue
        run.spend()
        a, b = map(run.opened, pair)
        if type(a) is not type(b):
            return False
        if isinstance(a, dict):
            if a.keys() != b.keys():
                return False
            open_.append(zip(a.values(), map(b.__getitem__, a), strict=True))
        elif isinstance(a, list):
            if len(a) != len(b):
                return False
            open_.append(zip(a, b, strict=True))
        elif a != b:
            return False
    return True


_STEPS: dict[str, Callable[[_Run, Operation], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
