"""Check selectors of devices: whether they compile, return a boolean, and have a bounded cost. Nothing is evaluated here.

Upstream: kubernetes/dynamic-resource-allocation `cel/compile.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`
validateCELSelector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import V1_37, Release, at, since, until
from apiserver.apimachinery.remembered import Remembered
from apiserver.resources import _devices, _features
from apiserver.resources._rules import _formats
from apiserver.schema.featuregate import Gates
from kubecel.check import cost
from kubecel.check.declarations import CallEstimate, Estimator, Function, Node, Overload, Range, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes import environments
from kubecel.kubernetes.environments import Addition, Environments
from kubecel.libraries import bindings, lists, quantity, semver
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import Panic, ProgramError
from kubecel.values.types import ANY, BOOL, DYN, INT, STRING, Type, list_of, map_of, struct

MOST_COST = 1_000_000
"""The highest worst-case cost of one evaluation."""
DOMAIN_BYTES = 63
QUICK_CHARACTERS = 200
"""Characters of uncached expressions that always compile within five milliseconds."""
REMEMBERED_BYTES = 4 << 20


class _Verdict(NamedTuple):
    """The results of compiling an expression: the sort and text of its error if it cannot be used at all, its type if it compiles, and the
    highest cost of an evaluation if it can be evaluated."""

    sort: Literal["", "Invalid", "InternalError"] = ""
    detail: str = ""
    output: Type | None = None
    cost: int = 0


class _Use(NamedTuple):
    """The purpose of an expression: the types that it may return, and their names in the error of another one."""

    results: frozenset[Type]
    named: str

    def errors(self, verdict: _Verdict, path: Path, expression: str) -> Iterator[FieldError]:
        if verdict.output is not None and verdict.output not in self.results:
            yield fieldpath.invalid(path, expression, f"must evaluate to {self.named}, not {verdict.output}")
        elif verdict.sort == "Invalid":
            yield fieldpath.invalid(path, expression, verdict.detail)
        elif verdict.sort == "InternalError":
            yield fieldpath.internal(path, verdict.detail)
        elif verdict.cost > MOST_COST:
            yield fieldpath.forbidden(path, "too complex, exceeds cost limit")


class _Judge:
    """One environment, and a cache of its verdicts."""

    def __init__(self, environment: Environment, device: Shape) -> None:
        self._environment = environment
        self._shapes = {"device": device}
        self.remembered = Remembered[_Verdict](REMEMBERED_BYTES)

    def verdict(self, expression: str) -> _Verdict:
        known = self.remembered.get(expression)
        if known is None:
            known = self._judge(expression)
            self.remembered.add(expression, known, size=4 * len(known.detail))
        return known

    def _judge(self, expression: str) -> _Verdict:
        try:
            checked = self._environment.compile(expression)
        except CompileError as e:
            return _Verdict("Invalid", f"compilation failed: {e}")
        try:
            Program(checked, self._environment)
        except (ProgramError, Panic) as e:
            return _Verdict("InternalError", f"program instantiation failed: {e}", checked.output)
        most = cost.estimate(checked, self._environment, self._shapes).most
        return _Verdict(output=checked.output, cost=most)


STORED_ARE_CHECKED = until(
    V1_37, value=True, after=False, what="selectors of a class that are stored already are not compiled again"
)


class DeviceSelectors:
    """The compiler for the kinds about devices (schema.context.Compiler). Feature gates decide what an expression may use."""

    def __init__(self, gates: Gates) -> None:
        lists = gates.enabled(_features.LIST_TYPE_ATTRIBUTES)
        consumable = gates.enabled(_features.CONSUMABLE_CAPACITY)
        found = environments_of(gates.release, lists=lists, consumable=consumable)
        self._selector = _Use(frozenset((BOOL, ANY, DYN) if lists else (BOOL, ANY)), "bool or the unknown type")
        self._attribute = _attribute_use(lists=lists)
        # The sizes are those of the newest shape, whatever gates are on.
        shape = device(lists=lists, consumable=True)
        self._new = _Judge(found.new, shape)
        self._stored = _Judge(found.stored, shape) if at(gates.release, STORED_ARE_CHECKED) else None

    def problems(self, expression: str, path: Path, *, stored: bool) -> Iterator[FieldError]:
        """Return why the expression cannot be used. One that is `stored` may use everything that was ever allowed."""
        judge = self._stored if stored else self._new
        if judge is not None:
            yield from self._selector.errors(judge.verdict(expression), path, expression)

    def value_problems(self, expression: str, path: Path) -> tuple[list[FieldError], int]:
        """Return why the expression cannot be used for a derived attribute, and the highest cost of its evaluation, 0 if it has none."""
        verdict = self._new.verdict(expression)
        found = list(self._attribute.errors(verdict, path, expression))
        usable = not verdict.sort and verdict.output in self._attribute.results
        return found, verdict.cost if usable else 0

    def is_quick(self, expressions: Iterable[str]) -> bool:
        """Return whether checking all of them is quick enough for the event loop."""
        total = 0
        for text in expressions:
            if text in self._new.remembered:
                continue
            total += len(text) if len(text) > QUICK_CHARACTERS else _characters(text)
            if total > QUICK_CHARACTERS:
                return False
        return True


def _characters(expression: str) -> int:
    """Return the characters to check once macros are expanded: two of the macros double their receiver."""
    doubling = expression.count("optMap") + expression.count("optFlatMap")
    return len(expression) << min(doubling, 10)


def _attribute_use(*, lists: bool) -> _Use:
    """Return what a derived attribute may be: a value that constraints can compare."""
    scalars = (BOOL, INT, STRING, ANY, DYN, semver.SEMVER)
    named = "a primitive scalar (string, integer, boolean, semver)"
    if not lists:
        return _Use(frozenset(scalars), named)
    return _Use(frozenset((*scalars, *map(list_of, scalars))), f"{named} or a list of these scalars")


# --- The environment -------------------------------------------------------------------------------------------------


def device(*, lists: bool, consumable: bool) -> Shape:
    """Return the shape of `device`. The sizes are the limits of what a driver may publish."""
    driver, domain, identifier = (
        Shape(type=STRING, max_elements=size)
        for size in (_formats.DRIVER_BYTES, DOMAIN_BYTES, _formats.IDENTIFIER_BYTES)
    )
    # An attribute has one of several types. With lists it may be one, as long as the longest text or the longest list.
    size = max(_devices.ATTRIBUTE_BYTES, _devices.ATTRIBUTE_VALUES) if lists else _devices.ATTRIBUTE_BYTES
    attribute = Shape(type=DYN if lists else ANY, max_elements=size)
    fields = {
        "driver": driver,
        "attributes": _map(domain, _map(identifier, attribute, others=attribute)),
        "capacity": _map(domain, _map(identifier, Shape(type=quantity.QUANTITY))),
    }
    if consumable:
        fields["allowMultipleAllocations"] = Shape(type=BOOL, max_elements=1)
    return Shape(type=struct("kubernetes.DRADevice"), fields=fields)


def _map(keys: Shape, items: Shape, *, others: Shape | None = None) -> Shape:
    return Shape(
        type=map_of(STRING, items.type),
        max_elements=_devices.ATTRIBUTES_AND_CAPACITIES,
        keys=keys,
        items=items,
        others=others,
    )


def environments_of(release: Release, *, lists: bool, consumable: bool) -> Environments:
    """Return what an expression may use, by the feature gates DRAListTypeAttributes and DRAConsumableCapacity."""
    return environments.base(release).extend(
        Addition(introduced=(1, 31), extend=lambda e: e.extend(libraries=(bindings.LIBRARY,))),
        _variable(device(lists=lists, consumable=False), since=(1, 31), enabled=not consumable),
        _variable(device(lists=lists, consumable=True), since=(1, 34), enabled=consumable),
        Addition(introduced=(1, 36), enabled=lists, extend=lambda e: e.extend(functions=(at(release, INCLUDES),))),
    )


def _variable(device: Shape, *, since: environments.Version, enabled: bool) -> Addition:
    declared = Variable("device", device.type, shape=device)
    return Addition(
        introduced=since,
        enabled=enabled,
        extend=lambda e: e.extend(variables=(declared,), shapes=(device,), reserved_fields=True),
    )


def _includes_cost(_: Estimator, target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(Range(0, _devices.ATTRIBUTE_VALUES))


INCLUDES = since(
    V1_37,
    lists.INCLUDES,
    before=Function(
        "includes",
        (Overload(id="dra_includes_dyn_dyn", arguments=(DYN, DYN), result=BOOL, member=True, estimate=_includes_cost),),
    ),
    what="`includes` in selectors of devices is that of every expression, with its cost",
)
