from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import ROOT, FieldError, Path
from apiserver.schema import shapes
from apiserver.schema.context import Context
from apiserver.schema.featuregate import Gate, Gates, Stage
from apiserver.schema.types import Field, Integer, ListOf, MapOf, Quantity, String, Struct, Type
from apiserver.validation import report, verdict
from tests.unit.schema.gadget import GADGET, SPEC, no_x

FINE: dict[str, Any] = {"owner": "o", "pool": {"rank": 1}, "raw": {}}


GATE = Gate("Heavy", default=False, stage=Stage.ALPHA)
CONTEXT = Context(gates=Gates((GATE,)))


def found(shape: Struct, new: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldError]:
    return list(report.validate(CONTEXT, shape, new, old))


def errors(spec: dict[str, Any]) -> list[str]:
    return [str(e) for e in found(GADGET, {"metadata": {}, "spec": {**FINE, **spec}})]


def test_an_object_in_order_has_no_errors() -> None:
    assert errors({}) == []
    part = {"name": "a", "size": "1", "count": 1, "tags": ["a", "b", "c"]}
    limits = {"a": {"top": "1"}, "b": {"top": "0"}}
    assert errors({"parts": [part, {**part, "name": "b"}], "limits": limits, "mode": "Shared", "solid": True}) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"owner": ""}, ["spec.owner: Required value"]),
        ({"owner": None}, ["spec.owner: Required value"]),
        ({"raw": None}, ["spec.raw: Required value"]),
        ({"limits": {"a": {}}}, ["spec.limits[a].top: Required value"]),
        ({"owner": "ööööo"}, ["spec.owner: Too long: may not be more than 8 bytes"]),
        ({"owner": "öööö"}, []),
        ({"mode": "Odd"}, ['spec.mode: Unsupported value: "Odd": supported values: "Solo", "Shared"']),
        ({"mode": ""}, []),
        ({"node": "x"}, ['spec.node: Invalid value: "x": must not contain x']),
        ({"node": ""}, []),
        ({"solid": False}, ["spec.solid: Invalid value: false: must be true"]),
        ({"pool": {"rank": -1}}, ["spec.pool.rank: Invalid value: -1: must be greater than zero"]),
        ({"pool": {}}, ["spec.pool.rank: Invalid value: 0: must be greater than zero"]),
        ({"pool": None}, ["spec.pool.rank: Invalid value: 0: must be greater than zero"]),
        ({"parts": [{"count": -1}]}, ["spec.parts[0].count: Invalid value: -1: must be greater than zero"]),
        ({"parts": [{"count": 0}]}, []),
        ({"parts": [{}] * 4}, ["spec.parts: Too many: 4: must have at most 3 items"]),
        (
            {"parts": [{"name": "a"}, {"name": "x"}, {"name": "a"}]},
            [
                'spec.parts[1].name: Invalid value: "x": must not contain x',
                'spec.parts[2]: Duplicate value: "a"',
            ],
        ),
        (
            {"parts": [{"tags": ["a", "a", "a"]}]},
            ['spec.parts[0].tags[1]: Duplicate value: "a"', 'spec.parts[0].tags[2]: Duplicate value: "a"'],
        ),
        ({"limits": {"a": {}, "b": {}, "c": {}}}, ["spec.limits: Too many: 3: must have at most 2 items"]),
        (
            {"limits": {"x": {}}},
            ['spec.limits: Invalid value: "x": must not contain x', "spec.limits[x].top: Required value"],
        ),
        ({"limits": {"a" * 17: {}}}, ["spec.limits[aaaaaaa...aaaaaa].top: Required value"]),
        ({"limits": {"a" * 16: {}}}, [f"spec.limits[{'a' * 16}].top: Required value"]),
        (
            {"mode": "Solo", "parts": [{"name": "a"}, {"name": "b"}]},
            ["spec.parts: Forbidden: only one part in mode Solo"],
        ),
        ({"grams": 10}, ["spec: Invalid value: 10: too heavy"]),
    ],
)
def test_a_broken_rule_is_reported_at_its_place(spec: dict[str, Any], expected: list[str]) -> None:
    assert errors(spec) == expected


def test_errors_of_members_come_in_order_before_those_of_the_struct() -> None:
    spec: dict[str, Any] = {
        "raw": None,
        "grams": 10,
        "solid": False,
        "mode": "Solo",
        "owner": "",
        "node": "x",
        "pool": {},
    }
    assert [e.split(":")[0] for e in errors({**spec, "parts": [{"name": "a"}, {"name": "b"}]})] == [
        "spec.owner",
        "spec.node",
        "spec.solid",
        "spec.pool.rank",
        "spec.raw",
        "spec",
        "spec.parts",
    ]


def test_an_absent_spec_is_an_empty_one() -> None:
    assert [e.field for e in found(GADGET, {"metadata": {}})] == ["spec.owner", "spec.pool.rank", "spec.raw"]


def test_a_shape_that_declares_nothing_is_always_in_order() -> None:
    assert found(shapes.NODE_SELECTOR, {"nodeSelectorTerms": [{}]}) == []
    assert verdict.test(shapes.NODE_SELECTOR) is None


def test_long_texts_are_checked_without_being_remembered() -> None:
    long = "a" * 1000
    assert errors({"node": long}) == []
    assert errors({"node": long + "x"}) != []
    assert errors({"node": long + "x"}) != []


NAMES = st.sampled_from(["a", "b", "x", "ax"])
PARTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": NAMES,
            "count": st.integers(-1, 1),
            "tags": st.lists(NAMES, max_size=4),
        },
    ),
    max_size=4,
)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "owner": st.sampled_from(["", "o", "ööööo", None]),
        "node": st.sampled_from(["", "n", "x"]),
        "mode": st.sampled_from(["", "Solo", "Shared", "Odd"]),
        "parts": PARTS,
        "limits": st.dictionaries(NAMES, st.sampled_from([{}, {"top": "1"}]), max_size=3),
        "solid": st.booleans(),
        "pool": st.sampled_from([{}, {"rank": 0}, {"rank": 1}, None]),
        "raw": st.sampled_from([None, {}, 0]),
        "grams": st.integers(0, 12),
    },
)


@given(SPECS | SPECS.map(lambda spec: FINE | spec))
def test_the_verdict_agrees_with_the_report(spec: dict[str, Any]) -> None:
    passes, reader = verdict.test(SPEC), report._reader(SPEC)
    assert passes is not None
    assert reader is not None
    assert passes(spec) is (next(reader(CONTEXT, spec, None, ROOT), None) is None)


@given(SPECS | SPECS.map(lambda spec: FINE | spec), SPECS.map(lambda spec: FINE | spec))
def test_beside_a_value_that_obeys_the_verdict_is_the_same(new: dict[str, Any], old: dict[str, Any]) -> None:
    passes, change = verdict.test(SPEC), verdict.change_test(SPEC)
    assert passes is not None
    assert change is not None
    assume(passes(old))
    for value in (new, {**old, **new}):
        assert change(value, old) is passes(value)


def test_beside_a_value_that_obeys_only_what_differs_is_looked_at() -> None:
    seen: list[Any] = []

    def looks(value: Any, path: Path) -> Iterator[FieldError]:
        seen.append(value)
        yield from ()

    text = String(check=looks)

    def struct(name: str, **members: Type) -> Struct:
        return Struct(name=name, fields=[Field(name=m, number=i, type=t) for i, (m, t) in enumerate(members.items())])

    row = struct("Row", a=text, b=text)
    table = struct("Table", title=text, rows=ListOf(row), head=row)
    change = verdict.change_test(table)
    assert change is not None
    old = {"title": "t", "rows": [{"a": "1"}, {"a": "2"}], "head": {"a": "3", "b": "4"}}

    assert change(old, copy.deepcopy(old))
    assert seen == []
    assert change({"title": "u", "rows": [{"a": "1"}, {"a": "5"}, {"a": "6"}], "head": {"a": "3", "b": "7"}}, old)
    assert seen == ["u", "5", "6", "7"]


def changes(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    return [str(e) for e in report.validate_update(GADGET, {"spec": new}, {"spec": old})]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({"owner": "a"}, {"owner": "a"}, []),
        ({"owner": "b"}, {"owner": "a"}, ['spec.owner: Invalid value: "b": field is immutable']),
        ({}, {"owner": "a"}, ['spec.owner: Invalid value: "": field is immutable']),
        ({"node": "n"}, {}, ['spec.node: Invalid value: "n": field is immutable']),
        ({}, {"node": "n"}, ["spec.node: Invalid value: null: field is immutable"]),
        ({"node": ""}, {}, ['spec.node: Invalid value: "": field is immutable']),
        ({"pool": {"rank": 2}}, {"pool": {"rank": 1}}, ["spec.pool.rank: Invalid value: 2: field is immutable"]),
        ({}, {"pool": {"rank": 1}}, ["spec.pool.rank: Invalid value: 0: field is immutable"]),
        ({"parts": []}, {}, []),
        ({"parts": [{"size": "1Gi"}]}, {"parts": [{"size": "1024Mi"}]}, []),
        (
            {"parts": [{"size": "2Gi"}]},
            {"parts": [{"size": "1Gi"}]},
            ['spec.parts: Invalid value: [{"size":"2Gi"}]: field is immutable'],
        ),
        ({"mode": "Solo", "labels": {"a": "b"}}, {}, []),
    ],
)
def test_only_immutable_members_refuse_a_change(new: dict[str, Any], old: dict[str, Any], expected: list[str]) -> None:
    assert changes(new, old) == expected


def test_a_shape_without_immutable_members_allows_every_update() -> None:
    assert list(report.validate_update(shapes.CONDITION, {"type": "a"}, {"type": "b"})) == []


def not_heavier(context: Context, value: Any, old: Any, path: Path) -> Iterator[FieldError]:
    if not context.enabled(GATE) and value.get("grams", 0) > (old or {}).get("grams", 0) > 0:
        yield fieldpath.forbidden(path, "must not get heavier")


LEVEL = Struct(name="Level", fields=[Field(name="of", number=1, type=String(check=no_x))])
BOX = Struct(
    name="Box",
    fields=[
        Field(name="name", number=1, type=String()),
        Field(name="size", number=2, type=Quantity(), ratchets=True),
        Field(name="levels", number=3, type=ListOf(LEVEL, max_items=2), ratchets=True),
        Field(name="maker", number=4, type=String(), required=True, ratchets=True),
        Field(name="grams", number=5, type=Integer()),
    ],
    rule=not_heavier,
)
SHELF = Struct(
    name="Shelf",
    fields=[
        Field(name="boxes", number=1, type=ListOf(BOX, unique=lambda box: box.get("name", ""))),
        Field(name="loose", number=2, type=ListOf(BOX)),
        Field(name="named", number=3, type=MapOf(BOX)),
        Field(name="best", number=4, type=BOX, inline=True),
    ],
)
OLD_BOX = {"name": "a", "size": "1Ki", "levels": [{"of": "x"}], "grams": 5}
"""With levels that are not in order, and without a maker."""


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ({"boxes": [OLD_BOX]}, None, ["boxes[0].levels[0].of", "boxes[0].maker"]),
        ({"boxes": [OLD_BOX]}, {"boxes": []}, ["boxes[0].levels[0].of", "boxes[0].maker"]),
        ({"boxes": [OLD_BOX]}, {"boxes": [OLD_BOX]}, []),
        ({"boxes": [{**OLD_BOX, "size": "1024"}]}, {"boxes": [{"name": "b"}, OLD_BOX]}, []),
        ({"boxes": [{**OLD_BOX, "name": "b"}]}, {"boxes": [OLD_BOX]}, ["boxes[0].levels[0].of", "boxes[0].maker"]),
        ({"boxes": [{**OLD_BOX, "levels": [{"of": "xx"}]}]}, {"boxes": [OLD_BOX]}, ["boxes[0].levels[0].of"]),
        ({"loose": [OLD_BOX]}, {"loose": [OLD_BOX]}, ["loose[0].levels[0].of", "loose[0].maker"]),
        ({"named": {"k": OLD_BOX}}, {"named": {"k": OLD_BOX}}, []),
        ({"named": {"k": OLD_BOX}}, {"named": {"j": OLD_BOX}}, ["named[k].levels[0].of", "named[k].maker"]),
        ({"levels": [{"of": "x"}]}, {"levels": [{"of": "x"}]}, []),
        ({"levels": [{"of": "x"}]}, {"levels": []}, ["levels[0].of"]),
    ],
)
def test_stored_value_is_not_judged_again_where_the_shape_says_so(
    new: dict[str, Any], old: dict[str, Any] | None, expected: list[str]
) -> None:
    assert [e.field for e in found(SHELF, {"maker": "m", **new}, old)] == expected


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        ({"grams": 5}, []),
        ({"grams": 6}, ["boxes[0]", "named[k]", ""]),
    ],
)
def test_a_rule_sees_what_is_stored_at_its_place(new: dict[str, int], expected: list[str]) -> None:
    box, old = {"name": "a", "maker": "m", **new}, {"name": "a", "maker": "m", "grams": 5}
    shelf = {"boxes": [box], "named": {"k": box}, **box}
    assert [e.field for e in found(SHELF, shelf, {"boxes": [old], "named": {"k": old}, **old})] == expected
    assert found(SHELF, shelf) == []


def test_a_rule_sees_the_context() -> None:
    box, old = {"maker": "m", "grams": 6}, {"maker": "m", "grams": 5}
    for on in (False, True):
        context = Context(gates=Gates((GATE,), {"Heavy": on}))
        assert bool(list(report.validate(context, BOX, box, old))) is not on


def test_errors_are_looked_for_one_by_one() -> None:
    def never(value: Any, path: Path) -> Iterator[FieldError]:
        if value != "fine":
            yield fieldpath.invalid(path, value, "the first")
            raise AssertionError("nobody asked for a second")

    shape = Struct(name="Row", fields=[Field(name="texts", number=1, type=ListOf(String(check=never)))])
    row = {"texts": ["fine", "bad", "worse"]}
    assert str(next(report.validate(CONTEXT, shape, row, None))) == 'texts[1]: Invalid value: "bad": the first'
