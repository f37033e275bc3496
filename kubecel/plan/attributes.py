"""Variables, and what is selected of values: `a.b`, `a[b]`, `a.?b`, `a[?b]`, `has(a.b)`.

A chain of selections is one closure, however long. Each of them costs 1, and so does the chain.
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
    """One selection: by a constant `key`, or with `run` by one that is computed at a cost of `cost` at least.

    An `optional` one makes all that follow optional, a `test` asks only whether there is something. The key is `given` when it is part of
    what the caller has given, which matters to what is said of one that is none.
    """

    key: Value
    run: Run | None = None
    cost: int = 0
    optional: bool = False
    test: bool = False
    given: bool = False


class Root(NamedTuple):
    """What is selected of: the value that `run` gives at a cost of `cost` at least; `slot` when it is a variable."""

    run: Run
    cost: int = 0
    slot: int | None = None


def global_variable(name: str, slot: int) -> Run:
    """A variable of the caller: given, computed now, or missing."""

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
            # Nothing here may hold on to an error that holds on to this call by its traceback.
            value = None
            raise f[slot].error
        return value

    return run


def loop_variable(slot: int) -> Run:
    """The variable of a loop, which always has a value."""

    def run(f: Frame) -> Value:
        return f[slot]

    return run


def accumulator(slot: int, init: Run | None) -> Run:
    """The accumulator of a comprehension: its value, the failure to compute it, or with `init` what computes it when first read."""

    def run(f: Frame) -> Value:
        value = f[slot]
        if value is ABSENT and init is not None:
            try:
                value = init(f)
            except EvaluationError as error:
                value = Failure(error.with_traceback(None))
            f[slot] = value
        if type(value) is Failure:
            # Nothing here may hold on to an error that holds on to this call by its traceback.
            value = None
            raise f[slot].error
        return value

    return run


def selected(root: Root, qualifiers: Sequence[Qualifier]) -> tuple[Run, int]:
    """What a root and the selections of it give, and what that costs in any case."""
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
    """Fields of a variable that holds a document. Whatever is not that simple is left to `careful`."""
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
    """Constant keys of any value. The cost of all is counted already, and that of those that are not reached is taken back."""
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
    """Selections of every kind, one after the other; of an optional value optional ones."""

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
    """What is read through a name or a branch: of optionals in an optional the innermost alone is left."""

    def read(f: Frame) -> Value:
        value = run(f)
        return Optional(_taken_back(_opened(value))) if type(value) is Optional and value.has_value else value

    return read


def _opened(of: Optional) -> Value:
    """What Go's Value() gives for what an optional holds: it goes through optionals, and of a type it is the name."""
    value = of.value
    while type(value) is Optional:
        value = value.value if value.has_value else None
    return value.name if type(value) is Type else value


def _taken_back(value: Value) -> Value:
    """What becomes of it when Go makes a value of what Value() gave (cel-go `common/types/provider.go` NativeToValue)."""
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


# What Go has for the values of a document.
_GIVEN = {type(None): "<nil>", list: "[]interface {}", dict: "map[string]interface {}", bytes: "[]uint8"}


def presence(run: Run) -> Run:
    """`has(…)` of a chain that ends in a test."""

    def test(f: Frame) -> Value:
        value = run(f)
        return value.has_value if type(value) is Optional else value

    return test


def conditional(condition: Run, then: Run, otherwise: Run) -> Run:
    """`condition ? then : otherwise`"""

    def run(f: Frame) -> Value:
        value = condition(f)
        if value is True:
            return then(f)
        if value is False:
            return otherwise(f)
        raise EvaluationError("no such overload")

    return run
