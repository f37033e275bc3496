from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery.fieldpath import ROOT, FieldErrors
from apiserver.schema import shapes, validate, verdict
from tests.unit.schema.gadget import GADGET, SPEC

FINE: dict[str, Any] = {"owner": "o", "pool": {"rank": 1}, "raw": {}}


def errors(spec: dict[str, Any]) -> list[str]:
    return [str(e) for e in validate.validate(GADGET, {"metadata": {}, "spec": {**FINE, **spec}})]


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


def test_errors_come_in_declared_order_members_before_the_structs_own_check() -> None:
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
    found = [e.field for e in validate.validate(GADGET, {"metadata": {}})]
    assert found == ["spec.owner", "spec.pool.rank", "spec.raw"]


def test_a_shape_that_declares_nothing_is_always_in_order() -> None:
    assert validate.validate(shapes.NODE_SELECTOR, {"nodeSelectorTerms": [{}]}) == []
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
    passes, report = verdict.test(SPEC), validate._reporter(SPEC)
    assert passes is not None
    assert report is not None
    found = FieldErrors()
    report(spec, ROOT, found)
    assert passes(spec) is (not found)


def changes(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    return [str(e) for e in validate.validate_update(GADGET, {"spec": new}, {"spec": old})]


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
    assert validate.validate_update(shapes.CONDITION, {"type": "a"}, {"type": "b"}) == []
