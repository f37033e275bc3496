"""The capacities of a device, and the policies by which requests may consume them in part.

Upstream: kubernetes/api `resource/v1/types.go`, kubernetes/kubernetes `pkg/apis/resource/validation/validation.go`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.resources._rules._formats import MODEL
from apiserver.schema.types import Field, ListOf, Presence, Quantity, Struct
from kubetext.quantity import Quantity as Amount
from kubetext.quantity import as_sent, wrapped

VALID_VALUES = 10

REQUEST_POLICY_RANGE = Struct(
    name="CapacityRequestPolicyRange",
    model=MODEL,
    doc="Lets a request consume any amount between two bounds, perhaps only in steps.",
    fields=(
        Field(
            name="min",
            number=1,
            type=Quantity(),
            presence=Presence.POINTER,
            expected=True,
            doc="The least amount that can be consumed; smaller requests are rounded up to it. Has to be given, and be no more than "
            "the policy's default and the device's capacity.",
        ),
        Field(
            name="max",
            number=2,
            type=Quantity(),
            presence=Presence.POINTER,
            doc="The greatest amount that one request can consume; the capacity if absent. Not less than `min` and the policy's "
            "default, and no more than the capacity.",
        ),
        Field(
            name="step",
            number=3,
            type=Quantity(),
            presence=Presence.POINTER,
            doc="The distance between amounts that can be consumed, counted from `min`; requests are rounded up to the next one. "
            "The default and `max` have to be such amounts, and one step from `min` has to fit into the capacity.",
        ),
    ),
)

REQUEST_POLICY = Struct(
    name="CapacityRequestPolicy",
    model=MODEL,
    doc="Which amounts of a shared device's capacity a request can consume. At most one of `validValues` and `validRange` may be "
    "given; with neither, a request consumes what it asks for.",
    fields=(
        Field(
            name="default",
            number=1,
            type=Quantity(),
            presence=Presence.NULLABLE,
            doc="What a request consumes that does not mention this capacity. Needed when the amounts are limited, and itself one of "
            "them. Without it such a request consumes the whole capacity.",
        ),
        Field(
            name="validValues",
            number=3,
            type=ListOf(Quantity()),
            doc="The amounts that can be consumed, in rising order, at most ten, none above the capacity. A request is rounded up to "
            "the next one; a request above the last cannot be met by this device.",
        ),
        Field(
            name="validRange",
            number=4,
            type=REQUEST_POLICY_RANGE,
            presence=Presence.POINTER,
            doc="The bounds between which amounts can be consumed.",
        ),
    ),
)

DEVICE_CAPACITY = Struct(
    name="DeviceCapacity",
    model=MODEL,
    doc="An amount of something that a device has.",
    fields=(
        Field(
            name="value",
            number=1,
            type=Quantity(),
            presence=Presence.ALWAYS,
            doc="How much the device has. For a device that may be allocated several times, what all allocations share; otherwise "
            "the user of the device gets all of it.",
        ),
        Field(
            name="requestPolicy",
            number=2,
            type=REQUEST_POLICY,
            presence=Presence.POINTER,
            doc="How much of it requests can consume. Only for devices that may be allocated several times.",
        ),
    ),
)

# --- Rules -----------------------------------------------------------------------------------------------------------


_RangeCheck = Callable[[Mapping[str, Amount], Path, Amount, Amount], Iterator[FieldError]]
_Amounts = Mapping[str, Amount]
_Identity = Callable[[Amount], str]


def request_policy(capacity: Mapping[str, Any], path: Path, *, shared: bool) -> Iterator[FieldError]:
    """Check a request policy as 1.36 does."""
    found = _request_policy(capacity, path, shared=shared, identity=_as_integer, valid_range=_older_valid_range)
    return (error.at(path) for error in found)


def new_request_policy(
    capacity: Mapping[str, Any], path: Path, *, shared: bool, fractional: bool
) -> Iterator[FieldError]:
    """Check a request policy as releases from 1.37 on do. `fractional` amounts are compared in thousandths."""
    found = _request_policy(
        capacity,
        path,
        shared=shared,
        identity=Amount.decimal if fractional else _as_integer,
        valid_range=functools.partial(_valid_new_range, fractional=fractional),
    )
    return (error.at(path) for error in found)


def _as_integer(amount: Amount) -> str:
    """Return the text by which repeated values are found: a spelling with a fraction can repeat another value."""
    return str(amount.value())


def _request_policy(
    capacity: Mapping[str, Any], path: Path, *, shared: bool, identity: _Identity, valid_range: _RangeCheck
) -> Iterator[FieldError]:
    policy = capacity["requestPolicy"]
    values, bounds, default = policy.get("validValues"), policy.get("validRange"), policy.get("default")
    if not shared:
        yield fieldpath.forbidden(path, "allowMultipleAllocations must be true")
    elif values and bounds is not None:
        text = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        yield fieldpath.forbidden(path, text)
    elif default is None and (values or bounds is not None):
        limit = "validValues" if values else "validRange"
        yield fieldpath.required(path.child("default"), f"required when {limit} is defined")
    elif values or bounds is not None:
        whole, wanted = as_sent(capacity.get("value", "0")), as_sent(default)
        if values:
            options = [as_sent(v) for v in values]
            at = path.child("validValues")
            yield from _valid_values(options, at, whole, identity)
            if len(options) > VALID_VALUES or wanted not in options:
                text = "default value is not valid according to the requestPolicy"
                yield fieldpath.invalid(at, wanted.canonical(), text)
        else:
            parsed = {name: as_sent(v) for name, v in bounds.items()}
            yield from valid_range(parsed, path.child("validRange"), whole, wanted)


def _valid_values(values: list[Amount], path: Path, whole: Amount, identity: _Identity) -> Iterator[FieldError]:
    for i, (a, b) in enumerate(itertools.pairwise(values), 1):
        if b < a:
            yield fieldpath.invalid(path.index(i), b.canonical(), "values must be sorted in ascending order")
    if len(values) <= VALID_VALUES:
        yield from _options(values, path, whole, identity)
    else:
        yield fieldpath.too_many(path, len(values), VALID_VALUES)


def _options(values: list[Amount], path: Path, whole: Amount, identity: _Identity) -> Iterator[FieldError]:
    for i, value in enumerate(values):
        if whole < value:
            text = f"option is larger than capacity value: {whole.canonical()}"
            yield fieldpath.invalid(path.index(i), value.canonical(), text)
    seen: set[str] = set()
    for i, text in enumerate(map(identity, values)):
        if text in seen:
            yield fieldpath.duplicate(path.index(i), text)
        seen.add(text)


MOST = (1 << 63) - 1


def _valid_new_range(
    bounds: Mapping[str, Amount], path: Path, whole: Amount, default: Amount, *, fractional: bool
) -> Iterator[FieldError]:
    """Check the bounds against each other, the default and the capacity.

    Upstream: kubernetes/kubernetes `pkg/apis/resource/validation/validation.go` validateRequestPolicyRange.
    """
    yield from _bounds(bounds, path, whole, default, of_default=("default", "default"))
    if "min" in bounds:
        yield from _new_steps(bounds, path, whole, default, fractional=fractional)


def _new_steps(
    bounds: Mapping[str, Amount], path: Path, whole: Amount, default: Amount, *, fractional: bool
) -> Iterator[FieldError]:
    """Check the step, and that the amounts can be compared at all."""
    low, high, step = bounds["min"], bounds.get("max"), bounds.get("step")
    amounts = {"default": default} | {name: a for name in ("min", "max", "step") if (a := bounds.get(name)) is not None}
    in_milli = fractional and not all(amount.is_whole() for amount in amounts.values())
    if in_milli:
        coarse = [name for name, amount in amounts.items() if amount.milli() is None]
        for name in coarse:
            text = "value cannot be represented as a milli value"
            yield fieldpath.invalid(path.child(name), amounts[name].canonical(), text)
        if coarse:
            return
    if step is None:
        return
    at = path.child("step")
    if step.sign() <= 0:
        yield fieldpath.invalid(at, step.canonical(), "must be greater than zero")
        return
    yield from _first_step(low, step, at, whole)
    beyond = [] if in_milli else list(_beyond_int64(amounts, path))
    yield from beyond
    if not beyond:
        unit = _milli if in_milli else Amount.value
        for value in (default, high):
            if value is not None and wrapped(unit(value) - unit(low)) % unit(step):
                text = f"value is not a multiple of a given step ({step.canonical()}) from ({low.canonical()})"
                yield fieldpath.invalid(at, value.canonical(), text)


def _milli(amount: Amount) -> int:
    return amount.milli() or 0


def _beyond_int64(amounts: Mapping[str, Amount], path: Path) -> Iterator[FieldError]:
    for name, amount in amounts.items():
        if amount.sign() < 0:
            yield fieldpath.invalid(path.child(name), amount.canonical(), "must be greater than or equal to 0")
        elif Amount(MOST) < amount:
            yield fieldpath.invalid(path.child(name), amount.canonical(), f"must not be larger than {MOST}")


def _older_valid_range(bounds: _Amounts, path: Path, whole: Amount, default: Amount) -> Iterator[FieldError]:
    """Do the same as 1.36 does. A step of zero ends its connections; 1.37 words it as here."""
    yield from _bounds(bounds, path, whole, default, of_default=("min", "max"))
    low, high, step = bounds.get("min"), bounds.get("max"), bounds.get("step")
    if low is None or step is None:
        return
    if step.sign() <= 0:
        yield fieldpath.invalid(path.child("step"), step.canonical(), "must be greater than zero")
        return
    yield from _first_step(low, step, path.child("step"), whole)
    yield from _steps(low, step, path.child("step"), [default] if high is None else [default, high])


def _bounds(
    bounds: _Amounts, path: Path, whole: Amount, default: Amount, *, of_default: tuple[str, str]
) -> Iterator[FieldError]:
    """Check the bounds. `of_default` are the members that errors of the default name: below `min`, and above `max`."""
    low, high = bounds.get("min"), bounds.get("max")
    if low is None:
        yield fieldpath.required(path.child("min"), "required when validRange is defined")
        return
    at = path.child("min")
    if whole < low:
        yield fieldpath.invalid(at, low.canonical(), f"min is larger than capacity value: {whole.canonical()}")
    if default < low:
        at = path.child(of_default[0])
        yield fieldpath.invalid(at, default.canonical(), f"default is less than min: {low.canonical()}")
    if high is not None:
        at = path.child("max")
        if high < low:
            yield fieldpath.invalid(at, low.canonical(), f"min is larger than max: {high.canonical()}")
        if whole < high:
            yield fieldpath.invalid(at, high.canonical(), f"max is larger than capacity value: {whole.canonical()}")
        if high < default:
            at = path.child(of_default[1])
            yield fieldpath.invalid(at, default.canonical(), f"default is more than max: {high.canonical()}")


def _first_step(low: Amount, step: Amount, path: Path, whole: Amount) -> Iterator[FieldError]:
    """Check that one step fits into the capacity. An addition does not change an amount of thousands of digits."""
    try:
        first = low + step
    except OverflowError:
        first = max(low, step)
    if whole < first:
        text = f"one step {first.canonical()} is larger than capacity value: {whole.canonical()}"
        yield fieldpath.invalid(path, step.canonical(), text)


def _steps(low: Amount, step: Amount, path: Path, reached: Iterable[Amount]) -> Iterator[FieldError]:
    """Check that steps reach these amounts. Amounts are compared as whole numbers of 64 bits."""
    width = step.value()
    for value in reached:
        if width and wrapped(value.value() - low.value()) % width:
            text = f"value is not a multiple of a given step ({step.canonical()}) from ({low.canonical()})"
            yield fieldpath.invalid(path, value.canonical(), text)
