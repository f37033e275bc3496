"""JSON patch (RFC 6902) with the habits of evanphx/json-patch v4, which upstream uses.

`replace` of a missing member adds it, `copy` from one copies null, `test` for null passes on one; indices may be negative and may have
leading zeros; a path's text before its first slash is ignored. Containers are copied when they are opened, once, so that neither the
document nor the patch changes and nothing else is copied. Opened objects come out with sorted members, as they do upstream.
What a patch may cost is bounded, whatever it asks for (upstream bounds operations and copies only).
Upstream: evanphx/json-patch v4 `patch.go`; kubernetes/apiserver `pkg/endpoints/handlers/patch.go`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from apiserver.apimachinery import errors
from apiserver.patching.members import in_order
from apiserver.schema import canonical

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 << 20
"""Bytes of JSON by which `copy` may make a document grow."""
MOST_WORK = 1_000_000
"""Steps that the operations of one patch may take together: each level of a path that is walked, each value that `test` compares, and
SHIFTED elements of a list that make room or close up count as one. That is about half a second."""
SHIFTED = 1024


class _Inapplicable(Exception):
    """An operation does not fit the document. Clients are not told why."""


class _Missing:
    """What stands where nothing stands."""


_MISSING = _Missing()

Pointer = tuple[str, ...]
_INDEX = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Operation:
    """One step. A pointer is None when there is no usable one; `value` may be _MISSING."""

    op: Any
    path: Pointer | None
    source: Pointer | None
    value: Any


@dataclass(frozen=True, slots=True)
class Patch:
    """The steps in their order."""

    operations: Sequence[Operation]


def parse(operations: Sequence[Any] | None) -> Patch:
    """Of a decoded patch: a list of objects and nulls, or null for none. Raises 413 when there are too many."""
    operations = operations or ()
    if len(operations) > MOST_OPERATIONS:
        raise errors.request_entity_too_large(
            f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        )
    return Patch([_operation(o or {}) for o in operations])


def _operation(members: dict[str, Any]) -> Operation:
    return Operation(
        members.get("op"), _pointer(members.get("path")), _pointer(members.get("from")), members.get("value", _MISSING)
    )


def _pointer(path: Any) -> Pointer | None:
    """The steps of a path, none for the whole document. What stands before the first slash does not count; it takes one to be a path."""
    if not isinstance(path, str) or (path and "/" not in path):
        return None
    if "~" not in path:
        return tuple(path.split("/")[1:])
    return tuple(_ESCAPE.sub(lambda m: "/" if m.group() == "~1" else "~", step) for step in path.split("/")[1:])


_ESCAPE = re.compile("~[01]")


def apply(patch: Patch, document: dict[str, Any]) -> Any:
    """The patched document. Raises the 422 that does not say why."""
    run = _Run(document)
    try:
        for operation in patch.operations:
            step = _STEPS.get(operation.op) if isinstance(operation.op, str) else None
            if step is None:
                raise _Inapplicable
            step(run, operation)
    except (_Inapplicable, RecursionError) as e:
        raise errors.unprocessable_patch() from e
    return run.finished()


class _Run:
    """One application. `_opened` holds the containers that are this run's own, by identity."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.copied = 0
        self.work = 0
        self.root: Any = dict(document)
        self._opened: dict[int, Any] = {id(self.root): self.root}

    def finished(self) -> Any:
        for container in self._opened.values():
            if isinstance(container, dict):
                _sort(container)
        return self.root

    def spend(self, steps: int = 1) -> None:
        """Raises 413 when the patch asks for too much."""
        self.work += steps
        if self.work > MOST_WORK:
            raise errors.request_entity_too_large(f"The allowed maximum work of a JSON patch is {MOST_WORK} steps")

    def open(self, pointer: Pointer | None) -> tuple[Any, str]:
        """The container that holds what `pointer` names, ready to be changed, and the last step."""
        if not pointer:
            raise _Inapplicable
        self.spend(len(pointer))
        container = self.root
        for step in pointer[:-1]:
            below = get(container, step)
            if not isinstance(below, dict | list):
                raise _Inapplicable
            if id(below) not in self._opened:
                below = below.copy()
                self._opened[id(below)] = below
                _put(container, step, below)
            container = below
        return container, pointer[-1]

    def snapshot(self, value: Any) -> Any:
        """The value as it is now: what this run may still change in it is copied, the rest is shared."""
        if id(value) not in self._opened:
            return value
        if isinstance(value, dict):
            return {name: self.snapshot(x) for name, x in sorted(value.items())}
        return [self.snapshot(x) for x in value]

    def replace_root(self, value: Any) -> None:
        self.root = value.copy()
        self._opened = {id(self.root): self.root}


def _sort(container: dict[str, Any]) -> None:
    ordered = in_order(container)
    container.clear()
    container.update(ordered)


def get(container: Any, step: str) -> Any:
    """The member or element; a missing member is _MISSING, a missing element refuses the patch."""
    if isinstance(container, dict):
        return container.get(step, _MISSING)
    index = _index(step)
    if not -len(container) <= index < len(container):
        raise _Inapplicable
    return container[index]


def _index(step: str) -> int:
    if not _INDEX.fullmatch(step):
        raise _Inapplicable
    return int(step)


def _put(container: Any, step: str, value: Any) -> None:
    """Over what is there already."""
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
    index, places = _index(step), len(container) + 1
    if not -places <= index < places:
        raise _Inapplicable
    index = index + places if index < 0 else index
    run.spend((len(container) - index) // SHIFTED)
    container.insert(index, value)


def _take_out(run: _Run, container: Any, step: str) -> Any:
    value = get(container, step)
    if value is _MISSING:
        raise _Inapplicable
    if isinstance(container, dict):
        del container[step]
    else:
        index = _index(step)
        run.spend((len(container) - index if index >= 0 else -index) // SHIFTED)
        del container[index]
    return value


def _given(operation: Operation) -> Any:
    """The operation's value; none is null."""
    return None if operation.value is _MISSING else operation.value


def _add(run: _Run, operation: Operation) -> None:
    container, step = run.open(operation.path)
    _insert(run, container, step, _given(operation))


def _remove(run: _Run, operation: Operation) -> None:
    container, step = run.open(operation.path)
    _take_out(run, container, step)


def _replace(run: _Run, operation: Operation) -> None:
    if operation.path == ():
        if not isinstance(operation.value, dict | list):
            raise _Inapplicable
        run.replace_root(operation.value)
        return
    container, step = run.open(operation.path)
    get(container, step)
    _put(container, step, _given(operation))


def _move(run: _Run, operation: Operation) -> None:
    container, step = run.open(operation.source)
    value = _take_out(run, container, step)
    container, step = run.open(operation.path)
    _insert(run, container, step, value)


def _copy(run: _Run, operation: Operation) -> None:
    container, step = run.open(operation.source)
    value = get(container, step)
    value = None if value is _MISSING else value
    container, step = run.open(operation.path)
    run.copied += _size(value)
    if run.copied > MOST_COPIED:
        raise _Inapplicable
    _insert(run, container, step, run.snapshot(value))


def _test(run: _Run, operation: Operation) -> None:
    if operation.path == ():
        found: Any = run.root
    else:
        container, step = run.open(operation.path)
        found = get(container, step)
    if found is _MISSING:
        found = None
    if not canonical.same_json(found, _given(operation), each=run.spend):
        raise _Inapplicable


def _size(value: Any) -> int:
    """Bytes of JSON."""
    if value is None:
        return 0
    try:
        return len(orjson.dumps(value))
    except TypeError:
        return len(json.dumps(value, separators=(",", ":")))


_STEPS: dict[str, Callable[[_Run, Operation], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
