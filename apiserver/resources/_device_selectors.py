"""Check selectors of devices: whether they compile, return a boolean, and have a bounded cost. Nothing is evaluated here.

Upstream: kubernetes/dynamic-resource-allocation `cel/compile.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`
validateCELSelector.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.apimachinery.releases import V1_37, Release, at, since
from apiserver.apimachinery.remembered import Remembered
from apiserver.resources import _devices, _features, _formats
from apiserver.schema.featuregate import Gates
from kubecel.check import cost
from kubecel.check.declarations import CallEstimate, Estimator, Function, Node, Overload, Range, Shape, Variable
from kubecel.check.environment import Environment
from kubecel.kubernetes import environments
from kubecel.kubernetes.environments import Addition, Environments
from kubecel.libraries import bindings, lists, quantity
from kubecel.parse.source import CompileError
from kubecel.plan.program import Program
from kubecel.values.errors import Panic, ProgramError
from kubecel.values.types import ANY, BOOL, DYN, STRING, Type, map_of, struct

MOST_COST = 1_000_000
"""The highest worst-case cost of one evaluation."""
DOMAIN_BYTES = 63
QUICK_CHARACTERS = 200
"""Characters of uncached expressions that always compile within five milliseconds."""
REMEMBERED_BYTES = 4 << 20


class _Verdict(NamedTuple):
    """The error of an expression: its sort and its text. An empty sort means a valid expression."""

    sort: Literal["", "Invalid", "InternalError", "Forbidden"] = ""
    detail: str = ""

    def errors(self, path: Path, expression: str) -> Iterator[FieldError]:
        match self.sort:
            case "Invalid":
                yield fieldpath.invalid(path, expression, self.detail)
            case "InternalError":
                yield fieldpath.internal(path, self.detail)
            case "Forbidden":
                yield fieldpath.forbidden(path, self.detail)


class _Judge:
    """One environment, and a cache of its verdicts."""

    def __init__(self, environment: Environment, device: Shape, results: frozenset[Type]) -> None:
        self._environment = environment
        self._shapes = {"device": device}
        self._results = results
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
        if checked.output not in self._results:
            return _Verdict("Invalid", f"must evaluate to bool or the unknown type, not {checked.output}")
        try:
            Program(checked, self._environment)
        except (ProgramError, Panic) as e:
            return _Verdict("InternalError", f"program instantiation failed: {e}")
        if cost.estimate(checked, self._environment, self._shapes).most > MOST_COST:
            return _Verdict("Forbidden", "too complex, exceeds cost limit")
        return _Verdict()


class DeviceSelectors:
    """The compiler for the kinds about devices (schema.context.Compiler). Feature gates decide what an expression may use."""

    def __init__(self, gates: Gates) -> None:
        lists = gates.enabled(_features.LIST_TYPE_ATTRIBUTES)
        consumable = gates.enabled(_features.CONSUMABLE_CAPACITY)
        found = environments_of(gates.release, lists=lists, consumable=consumable)
        results = frozenset((BOOL, ANY, DYN) if lists else (BOOL, ANY))
        # The sizes are those of the newest shape, whatever gates are on.
        shape = device(lists=lists, consumable=True)
        self._new = _Judge(found.new, shape, results)
        self._stored = _Judge(found.stored, shape, results)

    def problems(self, expression: str, path: Path, *, stored: bool) -> Iterator[FieldError]:
        """Return why the expression cannot be used. One that is `stored` may use everything that was ever allowed."""
        judge = self._stored if stored else self._new
        return judge.verdict(expression).errors(path, expression)

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
