"""Check the hooks of a kind and the conversions of its versions: their signatures, then their results for the smallest object.

The smallest object has a name and nothing else. Any client can send it, and rules also run for objects that lack required members.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from apiserver.apimachinery.fieldpath import FieldError
from apiserver.codecs.objects import canonical, decoding, defaults
from apiserver.kinds.packages import functions
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gate, Gates
from apiserver.schema.resource import (
    Column,
    Consumption,
    Conversion,
    Object,
    Permission,
    Refused,
    Resource,
    Subresource,
)
from apiserver.schema.types import Struct

NOW = "2026-01-01T00:00:00Z"
"""The request time for which hooks are tried out."""
_NOTHING_SET = "for an object of which nothing is set"
HOOKS: Mapping[str, tuple[str, ...]] = {
    "prepare": ("context", "new", "old"),
    "requires": ("context", "new", "old"),
    "validate": ("context", "new", "old"),
    "warnings": ("context", "new", "old"),
    "expressions": ("new",),
    "name_check": ("name", "prefix"),
}
_ANSWERS: Mapping[str, tuple[type[Any], ...]] = {
    "requires": (FieldError, Permission),
    "validate": (FieldError,),
    "warnings": (str,),
    "expressions": (str,),
}


def signatures(owner: Resource | Subresource) -> Iterator[str]:
    """Yield the errors of hooks that cannot be called as declared."""
    for name, arguments in HOOKS.items():
        hook = getattr(owner, name, None)
        if hook is not None:
            yield from (f"{name}: {text}" for text in functions.wrong(hook, *arguments, returns=name != "prepare"))


def of_column(column: Column) -> Iterator[str]:
    """Yield the same for the functions of a column."""
    yield from (f"cell: {text}" for text in functions.wrong(column.cell, "object", "now"))
    if column.since is not None:
        yield from (f"since: {text}" for text in functions.wrong(column.since, "object"))


def of_consumption(consumption: Consumption) -> Iterator[str]:
    """Yield the same for the functions that measure usage."""
    called = {"reads": ("object",), "measures": ("name", "around"), "usage": ("object", "around"), "owner": ("object",)}
    for name, arguments in called.items():
        yield from (f"{name}: {text}" for text in functions.wrong(getattr(consumption, name), *arguments))


def of_conversion(made: Conversion) -> Iterator[str]:
    """Yield the same for both functions of a conversion."""
    for name in ("to_storage", "from_storage"):
        yield from (f"{name}: {text}" for text in functions.wrong(getattr(made, name), "object"))


def undeclared_gates(resource: Resource) -> Iterator[str]:
    """Yield an error for each feature gate that hooks use and the kind does not declare. The server would not know it, and a check is a
    500."""
    known = {gate.name for gate in _with_needs(resource.gates)}
    for owner in (resource, *resource.subresources):
        for name in HOOKS:
            hook = getattr(owner, name, None)
            named = functions.gates(hook) if hook is not None else ()
            for gate in sorted(gate.name for gate in named if gate.name not in known):
                yield f"{name}: the feature gate {gate} is not in gates"


def tried_out(resource: Resource) -> Iterator[str]:
    """Yield the errors of hooks that Sluice could not handle in a request: exceptions, and results of another type."""
    context = Context(gates=_AsDeclared(resource.gates))
    try:
        smallest = _smallest(resource.shape)
    except Exception as e:  # noqa: BLE001 - a default of the package's own
        yield f"a default fails {_NOTHING_SET}: {_named(e)}"
        return
    new, old = copy.deepcopy(smallest), copy.deepcopy(smallest)
    yield from _answers(resource, "prepare", context, new, None)
    for stored in (None, old):
        yield from _answers(resource, "validate", context, new, stored)
    yield from _answers(resource, "warnings", context, new, None)
    yield from _answers(resource, "expressions", new)
    for sub in resource.subresources:
        for name in ("prepare", "requires", "validate"):
            found = _answers(sub, name, context, copy.deepcopy(smallest), old)
            yield from (f"subresource {sub.name}: {text}" for text in found)


def converted(stored: Struct, shape: Struct, made: Conversion) -> Iterator[str]:
    """Yield the errors of converting an object with no member set, both ways."""
    for name, convert, before, after in (
        ("from_storage", made.from_storage, stored, shape),
        ("to_storage", made.to_storage, shape, stored),
    ):
        try:
            found: Any = convert(canonical.zero(before))
        except Refused as e:
            if name == "from_storage":
                yield f"from_storage refuses an object of which nothing is set: {e}"
        except Exception as e:  # noqa: BLE001 - the declaration's own code
            yield f"{name} fails {_NOTHING_SET}: {_named(e)}"
        else:
            yield from (f"{name} {text}" for text in _result(found, after))


def _result(found: Any, shape: Struct) -> Iterator[str]:
    if not isinstance(found, dict) or not isinstance(found.get("metadata"), dict):
        yield "must return an object with metadata"
        return
    try:
        unknown = decoding.decode(shape, copy.deepcopy(found)).unknown
    except decoding.DecodeError as e:
        yield f"returns what the shape cannot hold: {e}"
    except Exception as e:  # noqa: BLE001 - any result of the package's own code
        yield f"returns what is no object: {_named(e)}"
    else:
        yield from (f"returns {text}, which the shape does not have" for text in unknown)


def _answers(owner: Any, name: str, *arguments: Any) -> Iterator[str]:
    hook: Callable[..., Any] = getattr(owner, name)
    try:
        answer = hook(*arguments)
        wanted = _ANSWERS.get(name)
        found = list(_several(answer)) if wanted is not None else []
    except Exception as e:  # noqa: BLE001 - the declaration's own code
        yield f"{name} fails {_NOTHING_SET}: {_named(e)}"
        return
    for item in found:
        if not isinstance(item, wanted or ()):
            words = " or ".join(type_.__name__ for type_ in wanted or ())
            yield f"{name} yields a {type(item).__name__} {_NOTHING_SET}, not a {words}"
            return


def _several(answer: Any) -> Iterable[Any]:
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise TypeError(f"it must return several, not a {type(answer).__name__}")
    return answer


def _smallest(shape: Struct) -> Object:
    found = decoding.decode(shape, {"metadata": {"name": "example"}}).object
    defaults.apply(shape, found, now=NOW)
    return found


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


class _AsDeclared(Gates):
    """Every gate has its declared default, those of Sluice too."""

    def enabled(self, gate: Gate) -> bool:
        return gate.default


def _with_needs(gates: Iterable[Gate]) -> Iterator[Gate]:
    for gate in gates:
        yield gate
        yield from _with_needs(gate.needs)
