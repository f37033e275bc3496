"""Every decodable object gets a verdict: no rule of a kind may fail on an odd object."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.objects import canonical, decoding
from apiserver.schema import types
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Boolean, Integer, ListOf, MapOf, Quantity, String, Struct, Time, Type
from apiserver.validation import report, verdict
from apiserver.verbs import lifecycle
from tests.fixtures.cpu import Spent
from tests.unit.resources.odd import WHOLE, odd
from tests.unit.resources.samples import NOW, all_on, context_of, decoded

TEXTS = st.sampled_from(
    [
        "",
        "a",
        "A",
        "n1",
        "x.io/y",
        "a/b/c",
        "main",
        "main/a",
        "In",
        "Exists",
        "All",
        "1.0.0",
        "1.2.3.4/24",
        "\u00e9" * 70,
    ]
)
SCALARS: dict[type, st.SearchStrategy[Any]] = {
    String: TEXTS,
    Boolean: st.booleans(),
    Quantity: st.sampled_from(["0", "-1", "1", "2.5", "1e18", "16Ei", "100m", 3]),
    Time: st.sampled_from(["2026-01-01T00:00:00Z", "0001-01-01T00:00:00Z"]),
}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=3,
)


def sent(type_: Type) -> st.SearchStrategy[Any]:
    """Values as a client may send them: any member may be missing or null."""
    match type_:
        case Struct():
            members = {f.name: st.none() | sent(f.type) for f in types.members(type_)}
            return st.fixed_dictionaries({}, optional=members)
        case ListOf():
            return st.lists(st.none() | sent(type_.item), max_size=2)
        case MapOf():
            return st.dictionaries(TEXTS, st.none() | sent(type_.value), max_size=2)
        case Integer():
            least, greatest = types.bounds(type_)
            return st.sampled_from([least, -1, 0, 1, greatest])
    return SCALARS.get(type(type_), ANY_JSON)


STRATEGIES = {resource.kind: sent(resource.shape) for resource in at(NEWEST, resources.RESOURCES)}


def judge(resource: Resource, new: Object, old: Object) -> None:
    """Every hook of the kind, and every declared rule."""
    context = context_of(resource)
    created = copy.deepcopy(new)
    resource.prepare(context, created, None)
    list(report.validate(context, resource.shape, created, None))
    list(resource.validate(context, created, None))
    list(resource.warnings(context, created, None))
    before = copy.deepcopy(old)
    resource.prepare(context, new, old)
    list(report.validate(context, resource.shape, new, old))
    list(report.validate_update(resource.shape, new, old))
    list(resource.validate(context, new, old))
    for sub in resource.subresources:
        sub.prepare(context, new, old)
        list(sub.validate(context, new, old))
    for column in resource.columns:
        column.cell(new, 0.0)
    assert old == before


@pytest.mark.parametrize("kind", sorted(STRATEGIES))
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_any_object_that_decodes_gets_a_verdict(kind: str, data: st.DataObject) -> None:
    resource = next(r for r in at(NEWEST, resources.RESOURCES) if r.kind == kind)
    new = decoded(resource, data.draw(STRATEGIES[kind]))
    old = decoded(resource, data.draw(STRATEGIES[kind]))
    judge(resource, new, old)


@pytest.mark.parametrize("kind", sorted(STRATEGIES))
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_an_object_that_was_written_is_read_back_as_it_was(kind: str, data: st.DataObject) -> None:
    resource = next(r for r in at(NEWEST, resources.RESOURCES) if r.kind == kind)
    obj = decoded(resource, data.draw(STRATEGIES[kind]))
    # Go's zero time is written as null, which is read as absent: the second text is the one that stays.
    stable = rewritten(resource, canonical.encode(resource.shape, obj))
    assert rewritten(resource, stable) == stable


@pytest.mark.parametrize(("kind", "whole"), WHOLE)
def test_object_that_obeys_its_shape_still_does_when_read_from_the_store(kind: str, whole: dict[str, Any]) -> None:
    """So nobody has to look again at what a change leaves as it is."""
    resource = next(r for r in at(NEWEST, resources.RESOURCES) if r.kind == kind)
    passes = verdict.test(resource.shape)
    assert passes is not None
    obeyed = 0
    for spec in (whole["spec"], *odd(whole["spec"])):
        try:
            obj = decoded(resource, {**whole, "spec": spec})
        except decoding.DecodeError:
            continue
        if passes(obj):
            obeyed += 1
            assert passes(canonical.decode(resource.shape, canonical.encode(resource.shape, obj))), obj
    assert obeyed > 1


def rewritten(resource: Resource, written: bytes) -> bytes:
    again = decoding.decode(resource.shape, json.loads(written))
    assert again.unknown == []
    return canonical.encode(resource.shape, again.object)


def long_lists(type_: Type, items: int) -> Iterator[Any]:
    """For each list and map below a value that has nothing else but this one, with so many members."""
    match type_:
        case Struct():
            for field in types.members(type_):
                for inner in long_lists(field.type, items):
                    yield {field.name: inner}
        case ListOf():
            yield [scalar(type_.item, i) for i in range(items)]
            for inner in long_lists(type_.item, items):
                yield [inner]
        case MapOf():
            yield {f"k{i}": scalar(type_.value, i) for i in range(items)}
            for inner in long_lists(type_.value, items):
                yield {"k": inner}


def scalar(type_: Type, i: int) -> Any:
    match type_:
        case String():
            return f"t{i}"
        case Integer():
            return i
        case Boolean():
            return True
        case Quantity():
            return str(i)
        case Time():
            return "2026-01-01T00:00:00Z"
        case Struct():
            texts = {f.name: f"t{i}" for f in types.members(type_) if isinstance(f.type, String)}
            return {name: text for name, text in texts.items() if name in ("name", "uid", "key", "type", "driver")}
    return {}


def doubled(value: Any) -> Any:
    """With another list as long beside one that is compared with it."""
    if isinstance(value, dict) and "bindingConditions" in value:
        return {**value, "bindingFailureConditions": [f"f{name}" for name in value["bindingConditions"]]}
    if isinstance(value, dict):
        return {name: doubled(inner) for name, inner in value.items()}
    return [doubled(item) for item in value] if isinstance(value, list) and len(value) == 1 else value


@pytest.mark.parametrize("kind", sorted(STRATEGIES))
def test_a_verdict_and_its_words_take_linear_time(kind: str) -> None:
    resource = next(r for r in at(NEWEST, resources.RESOURCES) if r.kind == kind)
    context = context_of(resource, **all_on(resource))

    def seconds(sent: dict[str, Any]) -> float:
        new, old = decoded(resource, sent), decoded(resource, sent)
        for obj in (new, old):
            obj["metadata"] = {"name": "a", "namespace": "n", "uid": "u", "deletionTimestamp": NOW, **obj["metadata"]}
        with Spent() as spent:
            for sub in (None, *resource.subresources):
                for stored in (None, old) if sub is None else (old,):
                    lifecycle.prepare_and_judge(context, resource, copy.deepcopy(new), stored, sub=sub)
                    lifecycle.refusal(context, resource, new, stored, sub=sub)
        return spent.seconds

    few, many = 500, 5000
    for small, large in zip(long_lists(resource.shape, few), long_lists(resource.shape, many), strict=True):
        quick, slow = seconds(doubled(small)), seconds(doubled(large))
        assert slow < 0.1 + 3 * (many / few) * quick, (quick, slow, json.dumps(large)[:200])
