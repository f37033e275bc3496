"""Compare the arguments of a declaration's constructor with the types of its fields.

Python does not check them, and a wrong one fails late: `short_names="qq"` is two short names `q`.
"""

from __future__ import annotations

import functools
import types
import typing
from collections import abc
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal, Union, cast

SHOWN = 60
"""Characters of a wrong value that a message shows."""


def wrong(declaration: Any) -> dict[str, list[str]]:
    """Return the messages about each argument of a dataclass that does not have its type, by the argument's name."""
    found: dict[str, list[str]] = {}
    for name, hint in _hints(cast("Hashable", type(declaration))).items():
        if texts := list(_misfits(getattr(declaration, name), hint, name)):
            found[name] = texts
    return found


def shown(value: Any) -> str:
    """Return a value as messages quote it: never longer than SHOWN."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the package's own code
        text = f"<{type(value).__name__}>"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


@functools.cache
def _hints(made: Hashable) -> Mapping[str, Any]:
    resolved = typing.get_type_hints(made)
    return {field.name: resolved[field.name] for field in fields(cast("type[Any]", made))}


def _misfits(value: Any, hint: Any, path: str) -> Iterator[str]:
    """Yield messages about the innermost elements of a wrong type."""
    if _fits(value, hint):
        return
    inner = _elements(value, hint)
    if inner is None:
        yield f"{path}: {shown(value)} is not {_words(hint)}"
        return
    for place, element, wanted in inner:
        yield from _misfits(element, wanted, f"{path}{place}")


def _fits(value: Any, hint: Any) -> bool:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in args)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in args)
    if origin is abc.Callable:
        return callable(value)
    if origin is not None:
        inner = _elements(value, hint)
        return inner is not None and all(_fits(element, wanted) for _, element, wanted in inner)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _elements(value: Any, hint: Any) -> list[tuple[str, Any, Any]] | None:
    """Return path, value and required type of each element of a container; None if the value is not such a container."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        containers = [one for one in args if typing.get_origin(one) is not None]
        return _elements(value, containers[0]) if len(containers) == 1 else None
    if origin is abc.Mapping and isinstance(value, Mapping):
        keys = [(f"[{shown(key)}]", key, args[0]) for key in value]
        return keys + [(f"[{shown(key)}]", element, args[1]) for key, element in value.items()]
    if origin is tuple and not isinstance(value, tuple):
        return None
    if origin in (tuple, abc.Sequence) and isinstance(value, abc.Sequence) and not isinstance(value, str | bytes):
        return [(f"[{i}]", element, args[0]) for i, element in enumerate(value)]
    return None


def _words(hint: Any) -> str:
    """Return a type as messages name it."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(one) for one in args)
    if origin is Literal:
        return " or ".join(repr(one) for one in args)
    if origin is abc.Callable:
        return "a function"
    if origin is tuple:
        return f"a tuple of {args[0].__name__}"
    if origin is abc.Sequence:
        return f"a list or tuple of {getattr(args[0], '__name__', 'values')}"
    if origin is abc.Mapping:
        return "a mapping"
    if hint is types.NoneType:
        return "None"
    return f"{'an' if hint.__name__[0] in 'aeiouAEIOU' else 'a'} {hint.__name__}"
