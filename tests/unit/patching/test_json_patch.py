from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery.errors import StatusError
from apiserver.patching import json_patch
from tests.fixtures.cpu import Spent
from tests.unit.patching import recorded

CASES = recorded.cases("go_json_patch.jsonl")


def applied(operations: Any, document: dict[str, Any]) -> Any:
    return json_patch.apply(json_patch.parse(operations), document)


def refused(operations: Any, document: dict[str, Any]) -> StatusError:
    with pytest.raises(StatusError) as refusal:
        applied(operations, document)
    return refusal.value


@pytest.mark.parametrize("case", CASES, ids=lambda c: json.dumps(c["patch"]))
def test_a_patch_does_what_it_does_upstream(case: dict[str, Any]) -> None:
    before = copy.deepcopy((case["patch"], case["document"]))
    if case["result"] is None:
        error = refused(case["patch"], case["document"])
        assert (error.code, error.reason, error.details) == (422, "Invalid", {})
        assert error.message == "the server rejected our request due to an error in our request"
    else:
        assert applied(case["patch"], case["document"]) == json.loads(case["result"])
    assert (case["patch"], case["document"]) == before


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["result"] and "test" not in str(c["patch"])], ids=lambda c: json.dumps(c["patch"])
)
def test_what_a_patch_opens_is_sorted_and_the_rest_keeps_its_order(case: dict[str, Any]) -> None:
    assert json.dumps(applied(case["patch"], case["document"]), separators=(",", ":")) == case["result"]


def test_no_patch_is_no_change() -> None:
    document = {"b": {"z": 1, "a": 2}, "a": 1}
    nothings: tuple[Any, ...] = (None, [])
    for nothing in nothings:
        assert applied(nothing, document) == document
        assert json.dumps(applied(nothing, document)) == '{"a": 1, "b": {"z": 1, "a": 2}}'


def test_a_missing_member_is_null_to_replace_copy_and_test() -> None:
    labels: dict[str, Any] = {"labels": {}}
    assert applied([{"op": "replace", "path": "/labels/none", "value": "1"}], labels) == {"labels": {"none": "1"}}
    assert applied([{"op": "copy", "from": "/labels/none", "path": "/labels/z"}], labels) == {"labels": {"z": None}}
    assert applied([{"op": "test", "path": "/labels/none", "value": None}], labels) == labels
    assert refused([{"op": "test", "path": "/labels/none", "value": "1"}], labels).code == 422


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/labels/none"},
        {"op": "move", "from": "/labels/none", "path": "/labels/z"},
        {"op": "add", "path": "/nope/deep", "value": "1"},
        {"op": "bogus", "path": "/labels/z"},
        {"op": "add"},
        {"path": "/labels/x", "value": "1"},
        {"op": "add", "path": "labels", "value": "1"},
        {"op": "add", "path": "", "value": {}},
        {"op": "replace", "path": "", "value": "x"},
        {"op": "replace", "path": ""},
        {"op": "remove", "path": "/list/9"},
        {"op": "replace", "path": "/list/-", "value": 1},
        {"op": "add", "path": "/list/1.0", "value": 1},
        {"op": "add", "path": "/list/99999999999999999999", "value": 1},
        {"op": "test", "path": "/number", "value": 1.0},
        {"op": "test", "path": "/number", "value": True},
        {"op": "test", "path": "/labels"},
        {"op": 5, "path": "/labels"},
        {"op": ["add"], "path": "/labels"},
        None,
    ],
)
def test_what_does_not_fit_is_refused_without_saying_why(operation: Any) -> None:
    assert refused([operation], {"labels": {"l": "1"}, "list": [1], "number": 1}).message == (
        "the server rejected our request due to an error in our request"
    )


def test_lists_take_negative_indices_leading_zeros_and_the_dash() -> None:
    steps = [
        {"op": "add", "path": "/l/-", "value": "c"},
        {"op": "add", "path": "/l/0", "value": "first"},
        {"op": "replace", "path": "/l/-1", "value": "last"},
        {"op": "add", "path": "/l/01", "value": "x"},
    ]
    assert applied(steps, {"l": ["a", "b"]}) == {"l": ["first", "x", "a", "b", "last"]}


def test_the_whole_document_can_be_replaced_and_tested() -> None:
    assert applied([{"op": "replace", "path": "", "value": {}}], {"a": 1}) == {}
    assert applied([{"op": "test", "path": "", "value": {"a": [1, {"b": 2}]}}], {"a": [1, {"b": 2}]}) == {
        "a": [1, {"b": 2}]
    }
    assert applied([{"op": "replace", "path": "", "value": [1]}, {"op": "add", "path": "/-", "value": 2}], {}) == [1, 2]


def test_a_copy_is_a_copy() -> None:
    steps = [
        {"op": "add", "path": "/a/x", "value": 1},
        {"op": "copy", "from": "/a", "path": "/b"},
        {"op": "add", "path": "/a/y", "value": 2},
        {"op": "add", "path": "/b/z", "value": 3},
        {"op": "copy", "from": "/b/deep", "path": "/c"},
        {"op": "add", "path": "/c/-", "value": 4},
    ]
    assert applied(steps, {"a": {"deep": [0]}}) == {
        "a": {"deep": [0], "x": 1, "y": 2},
        "b": {"deep": [0], "x": 1, "z": 3},
        "c": [0, 4],
    }


def test_a_value_used_twice_stays_two_values() -> None:
    patch = json_patch.parse(
        [{"op": "add", "path": "/a", "value": {"l": []}}, {"op": "add", "path": "/a/l/-", "value": 1}]
    )
    for _ in range(2):
        assert json_patch.apply(patch, {}) == {"a": {"l": [1]}}


def test_what_is_not_opened_is_shared() -> None:
    document: dict[str, Any] = {"a": {"b": {"c": 1}}, "big": {"x": [1, 2]}}
    found = applied([{"op": "add", "path": "/a/d", "value": 1}], document)
    assert found["big"] is document["big"]
    assert found["a"]["b"] is document["a"]["b"]
    assert document == {"a": {"b": {"c": 1}}, "big": {"x": [1, 2]}}


def test_ten_thousand_operations_are_taken_and_one_more_is_not() -> None:
    step = {"op": "test", "path": "/a", "value": 1}
    assert applied([step] * 10_000, {"a": 1}) == {"a": 1}
    with pytest.raises(StatusError) as refusal:
        json_patch.parse([step] * 10_001)
    assert (refusal.value.code, refusal.value.reason) == (413, "RequestEntityTooLarge")
    assert refusal.value.message == (
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    )


def test_copies_may_add_three_mebibytes_in_all() -> None:
    text = "x" * ((1 << 20) - 2)
    step = {"op": "copy", "from": "/a", "path": "/b"}
    assert applied([step] * 3, {"a": text})["b"] == text
    assert refused([step] * 4, {"a": text}).code == 422
    assert refused([step] * 3, {"a": text + "x"}).code == 422


def test_doubling_again_and_again_is_stopped() -> None:
    steps = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 100
    assert refused(steps, {"a": ["xxxxxxxxxx"]}).code == 422


def test_no_depth_fails() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    way = "/a" + "/0" * 4000
    found = applied([{"op": "add", "path": f"{way}/-", "value": 1}], {"a": deep})["a"]
    for _ in range(4000):
        found = found[0]
    assert found[-1] == 1
    test = [{"op": "test", "path": "/a", "value": copy_of(deep)}]
    assert applied(test, {"a": deep}) == {"a": deep}
    assert refused(test, {"a": [deep]}).code == 422
    assert (
        refused(
            [{"op": "add", "path": f"{way}/-", "value": 1}, {"op": "copy", "from": "/a", "path": "/b"}], {"a": deep}
        ).code
        == 422
    )


def copy_of(deep: Any) -> Any:
    found: Any = []
    while deep:
        deep = deep[0]
        found = [found]
    return found


KEYS = st.sampled_from(["a", "b", "c/d", "e~f", "0"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def pointer(steps: list[str]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.lists(KEYS, min_size=1, max_size=3), VALUES)
def test_what_was_added_can_be_tested_and_removed(document: dict[str, Any], steps: list[str], value: Any) -> None:
    path = pointer(steps)
    try:
        found = applied([{"op": "add", "path": path, "value": value}], document)
    except StatusError:
        return
    assert applied([{"op": "test", "path": path, "value": value}], found) == found
    applied([{"op": "remove", "path": path}], found)


HUGE = [0] * 1_000_000


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/l/0", "value": 0}] * 10_000,
        [{"op": "remove", "path": "/l/0"}] * 10_000,
        [{"op": "remove", "path": "/l/-999"}, {"op": "add", "path": "/l/-1000000", "value": 0}] * 5_000,
        [{"op": "move", "from": "/l/0", "path": "/l/1"}] * 10_000,
        [{"op": "test", "path": "/l", "value": HUGE}] * 10_000,
        [{"op": "test", "path": "/deep" + "/d" * 149, "value": {"d": {}}}] * 10_000,
    ],
    ids=["add", "remove", "from the end", "move", "test", "walk"],
)
def test_work_that_has_no_end_is_refused_before_it_takes_long(operations: Any) -> None:
    deep: Any = {}
    for _ in range(150):
        deep = {"d": deep}
    document = {"l": HUGE, "deep": deep}
    with Spent() as spent:
        error = refused(operations, document)
    assert spent.below(5)
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")
    assert error.message == "Request entity too large: The allowed maximum work of a JSON patch is 1000000 steps"


def test_ten_thousand_inserts_at_the_head_of_a_long_list_are_done() -> None:
    steps = [{"op": "add", "path": "/l/0", "value": 1}] * 10_000
    assert applied(steps, {"l": [0] * 50_000})["l"] == [1] * 10_000 + [0] * 50_000
