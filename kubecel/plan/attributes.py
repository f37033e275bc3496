"""Read variables and select parts of values: `a.b`, `a[b]`, `a.?b`, `a[?b]`, `has(a.b)`.

A chain of selections is one closure, however long. Each selection costs 1, and so does the chain.
Upstream: google/cel-go `interpreter/attributes.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kubecel.plan.frames import COST, Failure, Frame, Run
from kubecel.values.errors import EvaluationError
from kubecel.values.types import Type
from kubecel.values.values import ABSENT, NONE, Lazy, Optional, UInt, Unsupported, Value, find, go_type, lookup, text

KEYS = frozenset((str, int, UInt, bool, float))


class Qualifier(NamedTuple):
    """One selection: by a constant `key`, or by a key that `run` computes at a cost of at least `cost`.

    An `optional` selection makes all later ones optional. A `test` returns only whether there is a value. The key is
    `given` when it is part of the caller's input, which changes the message for an invalid key.
    """

    key: Value
    run: Run | None = None
    cost: int = 0
    optional: bool = False
    test: bool = False
    given: bool = False


class Root(NamedTuple):
    """The value to select from: `run` computes it at a cost of at least `cost`. `slot` is that of a variable."""

    run: Run
    cost: int = 0
    slot: int | None = None


def global_variable(name: str, slot: int) -> Run:
    """Read a variable of the caller, which is a value, Lazy or missing."""

    def run(f: Frame) -> Value:
        value = f[slot]
        if value is ABSENT:
            raise EvaluationError(f"no such attribute(s): {name}")
        if type(value) is Lazy:
            try:
                value = value.resolve()
            except EvaluationError as error:
                value = Failure(error.with_traceback(None))
            f[slot] = value
        if type(value) is Failure:
            # No local name may keep the error, whose traceback refers to this call.
            value = None
            raise f[slot].error
        return value

    return run


def loop_variable(slot: int) -> Run:
    """Read the variable of a loop, which always has a value."""

    def run(f: Frame) -> Value:
        return f[slot]

    return run


def accumulator(slot: int, init: Run | None) -> Run:
    """Read the accumulator of a comprehension.

    It is a value, the failure to compute it, or is computed by `init` at the first read.
    """

    def run(f: Frame) -> Value:
        value = f[slot]
        if value is ABSENT and init is not None:
            try:
                value = init(f)
            except EvaluationError as error:
                value = Failure(error.with_traceback(None))
            f[slot] = value
        if type(value) is Failure:
            # No local name may keep the error, whose traceback refers to this call.
            value = None
            raise f[slot].error
        return value

    return run


def selected(root: Root, qualifiers: Sequence[Qualifier]) -> tuple[Run, int]:
    """Return the closure of a root with selections, and the cost that it always has."""
    if not qualifiers:
        return root.run, root.cost
    if any(qualifier.run or qualifier.optional or qualifier.test for qualifier in qualifiers):
        return _general(root, qualifiers), root.cost
    keys = tuple(qualifier.key for qualifier in qualifiers)
    careful = _careful(root, keys)
    if root.slot is not None and all(type(key) is str for key in keys):
        return _fields(root.slot, keys, careful), root.cost + len(keys)
    return careful, root.cost + len(keys)


def _fields(slot: int, keys: tuple[str, ...], careful: Run) -> Run:
    """Read fields of a variable that holds a document. `careful` handles all other values."""
    if len(keys) == 1:
        (first,) = keys

        def one(f: Frame) -> Value:
            try:
                return f[slot][first]
            except (KeyError, TypeError):
                return careful(f)

        return one
    if len(keys) == 2:
        first, second = keys

        def two(f: Frame) -> Value:
            try:
                return f[slot][first][second]
            except (KeyError, TypeError):
                return careful(f)

        return two

    def many(f: Frame) -> Value:
        value = f[slot]
        try:
            for key in keys:
                value = value[key]
        except (KeyError, TypeError):
            return careful(f)
        return value

    return many


def _careful(root: Root, keys: tuple[Value, ...]) -> Run:
    """Select constant keys of any value.

    The caller counts the cost of all selections; the cost of those that are not reached is subtracted.
    """
    start, count = root.run, len(keys)
    general = _walk([Qualifier(key) for key in keys])

    def run(f: Frame) -> Value:
        reached = 0
        try:
            value = start(f)
            if type(value) is not Optional:
                for key in keys:
                    reached += 1
                    value = lookup(value, key)
                return value
        except EvaluationError:
            f[COST] -= count - reached
            raise
        f[COST] -= count
        return general(f, value)

    return run


def _general(root: Root, qualifiers: Sequence[Qualifier]) -> Run:
    start, walk = root.run, _walk(qualifiers)

    def run(f: Frame) -> Value:
        return walk(f, start(f))

    return run


def _walk(qualifiers: Sequence[Qualifier]) -> Callable[[Frame, Value], Value]:
    """Apply selections of every kind in turn. Selections of an optional value are optional."""

    def walk(f: Frame, value: Value) -> Value:
        optional = type(value) is Optional
        if optional:
            if not value.has_value:
                return value
            value = _opened(value)
        for qualifier in qualifiers:
            optional = optional or qualifier.optional
            if optional:
                value = find(value, _key(f, qualifier))
                if value is ABSENT:
                    return NONE
                f[COST] += 1
                continue
            f[COST] += 1
            key = _key(f, qualifier)
            value = find(value, key) is not ABSENT if qualifier.test else lookup(value, key)
        return Optional(value) if optional else value

    return walk


def flattened(run: Run) -> Run:
    """Read through a name or a branch: of nested optionals only the innermost one is left."""

    def read(f: Frame) -> Value:
        value = run(f)
        return Optional(_taken_back(_opened(value))) if type(value) is Optional and value.has_value else value

    return read


def _opened(of: Optional) -> Value:
    """Return what Go's Value() returns for the value of an optional.

    It resolves nested optionals; a type becomes its name.
    """
    value = of.value
    while type(value) is Optional:
        value = value.value if value.has_value else None
    return value.name if type(value) is Type else value


def _taken_back(value: Value) -> Value:
    """Return the value that Go makes from the result of Value() (cel-go `common/types/provider.go` NativeToValue)."""
    native = getattr(value, "go_native", None)
    if native is None:
        return value
    return Unsupported(f"unsupported conversion to ref.Val: ({native}){text(value)}" if native else "no such overload")


def _key(f: Frame, qualifier: Qualifier) -> Value:
    if qualifier.run is None:
        return qualifier.key
    f[COST] += qualifier.cost
    key = qualifier.run(f)
    if type(key) not in KEYS:
        raise EvaluationError(f"invalid qualifier type: {(qualifier.given and _GIVEN.get(type(key))) or go_type(key)}")
    return key


# Go's types of the values of a document.
_GIVEN = {type(None): "<nil>", list: "[]interface {}", dict: "map[string]interface {}", bytes: "[]uint8"}


def presence(run: Run) -> Run:
    """Evaluate `has(…)`: a chain that ends in a test."""

    def test(f: Frame) -> Value:
        value = run(f)
        return value.has_value if type(value) is Optional else value

    return test


def conditional(condition: Run, then: Run, otherwise: Run) -> Run:
    """Evaluate `condition ? then : otherwise`."""

    def run(f: Frame) -> Value:
        value = condition(f)
        if value is True:
            return then(f)
        if value is False:
            return otherwise(f)
        raise EvaluationError("no such overload")

    return run
