from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery.errors import StatusError
from apiserver.patching import json_patch
from tests.fixtures.cases import each_case
from tests.fixtures.cpu import Spent
from tests.unit.patching import recorded

CASES = recorded.cases("go_json_patch.jsonl")


def text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def result(operations: Any, document: dict[str, Any]) -> bytes:
    return json_patch.apply(json_patch.parse(text(operations)), text(document))


def applied(operations: Any, document: dict[str, Any]) -> Any:
    return json.loads(result(operations, document))


def refused(operations: Any, document: dict[str, Any]) -> StatusError:
    with pytest.raises(StatusError) as refusal:
        applied(operations, document)
    return refusal.value


@each_case("case", CASES, ids=lambda c: json.dumps(c["patch"]))
def test_a_patch_does_what_it_does_upstream(case: dict[str, Any]) -> None:
    if case["result"] is None:
        error = refused(case["patch"], case["document"])
        assert (error.code, error.reason, error.details) == (422, "Invalid", {})
        assert error.message == "the server rejected our request due to an error in our request"
    else:
        assert result(case["patch"], case["document"]).decode() == case["result"]


def test_a_patch_that_does_not_fit_says_in_upstreams_words_why() -> None:
    for case in CASES:
        with contextlib.ExitStack() as stack:
            caught = stack.enter_context(pytest.raises(json_patch.Inapplicable)) if "error" in case else None
            json_patch.applied(json_patch.parse(text(case["patch"])), text(case["document"]))
        if caught is not None:
            assert str(caught.value) == case["error"]
            assert isinstance(caught.value, json_patch.TestFailed) == case["error"].endswith(": test failed")


def test_no_patch_is_no_change() -> None:
    document = {"b": {"z": 1, "a": 2}, "a": 1}
    nothings: tuple[Any, ...] = (None, [])
    for nothing in nothings:
        assert applied(nothing, document) == document
        assert result(nothing, document) == b'{"a":1,"b":{"z":1,"a":2}}'


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
def test_operation_that_does_not_fit_is_refused_without_a_reason(operation: Any) -> None:
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


def test_object_copied_into_itself_is_copied_as_already_opened() -> None:
    document = {"a": {"z": {"y": 1, "x": 2}, "b": {"d": 1, "c": 2}}}
    steps = [{"op": "copy", "from": "/a", "path": "/a/z/new"}]
    opened = b'{"b":{"d":1,"c":2},"z":{"x":2,"y":1}}'
    assert result(steps, document) == b'{"a":{"b":{"d":1,"c":2},"z":{"new":%s,"x":2,"y":1}}}' % opened


def test_a_list_can_be_copied_into_its_own_element() -> None:
    steps = [{"op": "add", "path": "/a/0/z", "value": 1}, {"op": "copy", "from": "/a", "path": "/a/0/copy"}]
    assert applied(steps, {"a": [{"b": 2}]}) == {"a": [{"b": 2, "copy": [{"b": 2, "z": 1}], "z": 1}]}


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
        text([{"op": "add", "path": "/a", "value": {"l": []}}, {"op": "add", "path": "/a/l/-", "value": 1}])
    )
    for _ in range(2):
        assert json_patch.apply(patch, b"{}") == b'{"a":{"l":[1]}}'


SPELLED = b'{"z":1.0,"a":[1e400,-0,1e3],"z":"\\u003c<\\/","b": 12345678901234567890.10}'
COMPACT = SPELLED.replace(b" ", b"").replace(b"<", b"\\u003c")


def test_unopened_value_keeps_its_spelling_and_loses_its_blanks() -> None:
    document = b'{"spec":{"kept":%b,"a":1}}' % SPELLED
    found = json_patch.apply(json_patch.parse(b'[{"op":"add","path":"/spec/b","value":%b}]' % SPELLED), document)
    assert found == b'{"spec":{"a":1,"b":%b,"kept":%b}}' % (COMPACT, COMPACT)


def test_opened_object_has_the_last_repeated_members_and_their_spelling() -> None:
    found = json_patch.apply(json_patch.parse(b'[{"op":"add","path":"/x/c","value":1e0}]'), b'{"x":%b}' % SPELLED)
    assert found == b'{"x":{"a":[1e400,-0,1e3],"b":12345678901234567890.10,"c":1e0,"z":"\\u003c\\u003c\\/"}}'


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        (b"1.0", b"1.0", True),
        (b"1.0", b"1", False),
        (b"1e3", b"1000", False),
        (b'"\\u003c"', b'"\\u003c"', True),
        (b'"\\u003c"', b'"<"', False),
        (b'{"b":1,"a":[1,2]}', b'{ "a": [1, 2], "b": 1 }', True),
        (b'{"a":1,"a":2}', b'{"a":2}', True),
        (b"[null]", b"[null]", True),
        (b"[null]", b"[0]", False),
    ],
)
def test_spellings_are_tested(found: bytes, wanted: bytes, same: bool) -> None:
    patch = json_patch.parse(b'[{"op":"test","path":"/a","value":%b}]' % wanted)
    if same:
        assert json.loads(json_patch.apply(patch, b'{"a":%b}' % found)) == {"a": json.loads(found)}
    else:
        with pytest.raises(StatusError):
            json_patch.apply(patch, b'{"a":%b}' % found)


def test_tested_value_comes_out_sorted() -> None:
    patch = json_patch.parse(b'[{"op":"test","path":"/x","value":{"a":{"c":1,"d":2},"b":1}}]')
    assert json_patch.apply(patch, b'{"x":{"b":1,"a":{"d":2,"c":1}}}') == b'{"x":{"a":{"c":1,"d":2},"b":1}}'


def test_ten_thousand_operations_are_taken_and_one_more_is_not() -> None:
    step = {"op": "test", "path": "/a", "value": 1}
    assert applied([step] * 10_000, {"a": 1}) == {"a": 1}
    with pytest.raises(StatusError) as refusal:
        json_patch.parse(text([step] * 10_001))
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


def test_values_of_any_permitted_depth_can_be_opened() -> None:
    deep: Any = []
    for _ in range(700):
        deep = [deep]
    way = "/a" + "/0" * 600
    found = applied([{"op": "add", "path": f"{way}/-", "value": 1}], {"a": deep})["a"]
    for _ in range(600):
        found = found[0]
    assert found[-1] == 1
    test = [{"op": "test", "path": "/a", "value": deep}]
    assert applied(test, {"a": deep}) == {"a": deep}
    assert refused(test, {"a": [deep]}).code == 422


KEYS = st.sampled_from(["a", "b", "c/d", "e~f", "0"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def pointer(steps: list[str]) -> str:
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


@given(st.dictionaries(KEYS, VALUES, max_size=3), st.lists(KEYS, min_size=1, max_size=3), VALUES)
def test_added_value_can_be_tested_and_removed(document: dict[str, Any], steps: list[str], value: Any) -> None:
    path = pointer(steps)
    try:
        found = applied([{"op": "add", "path": path, "value": value}], document)
    except StatusError:
        return
    assert applied([{"op": "test", "path": path, "value": value}], found) == found
    applied([{"op": "remove", "path": path}], found)


HUGE = [0] * 600_000


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "add", "path": "/l/0", "value": 0}] * 10_000,
        [{"op": "remove", "path": "/l/0"}] * 10_000,
        [{"op": "remove", "path": "/l/-999"}, {"op": "add", "path": "/l/-600000", "value": 0}] * 5_000,
        [{"op": "move", "from": "/l/0", "path": "/l/1"}] * 10_000,
        [{"op": "test", "path": "/l", "value": HUGE}] * 2,
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
    assert spent.below(20)
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")
    assert error.message == "Request entity too large: The allowed maximum work of a JSON patch is 1000000 steps"


def test_ten_thousand_inserts_at_the_head_of_a_long_list_are_done() -> None:
    steps = [{"op": "add", "path": "/l/0", "value": 1}] * 10_000
    assert applied(steps, {"l": [0] * 50_000})["l"] == [1] * 10_000 + [0] * 50_000


@pytest.mark.parametrize("op", ["copy", "\\u0063opy", "c\\u006fpy"])
def test_a_patch_that_copies_says_that_its_result_may_be_long(op: str) -> None:
    document = text({"a": "x" * 10_000})
    patch = f'[{",".join(f"""{{"op":"{op}","from":"/a","path":"/a{i}"}}""" for i in range(200))}]'.encode()
    result = json_patch.apply(json_patch.parse(patch), document)
    added = len(result) - len(document) - len(patch)
    assert 0 < added <= json_patch.growth(patch)


def test_no_other_patch_makes_more_than_it_brings() -> None:
    assert (
        json_patch.growth(text([{"op": "add", "path": "/a", "value": "x"}, {"op": "move", "from": "/a", "path": "/b"}]))
        == 0
    )


def test_a_long_patch_is_taken_for_one_that_copies() -> None:
    assert json_patch.growth(text([{"op": "add", "path": "/a", "value": "x" * 100_000}])) == json_patch.MOST_COPIED


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        ({"op": "replace", "path": 1, "value": 1}, "path: json: cannot unmarshal number"),
        ({"op": "test", "path": {}, "value": 1}, "path: json: cannot unmarshal object"),
        ({"op": "move", "path": [], "from": "/a"}, "path: json: cannot unmarshal array"),
        ({"op": "copy", "path": "/b", "from": False}, "from: json: cannot unmarshal bool"),
    ],
)
def test_malformed_pointer_is_reported_with_a_reason(operation: dict[str, Any], said: str) -> None:
    with pytest.raises(json_patch.Inapplicable) as refused:
        json_patch.applied(json_patch.parse(text([operation])), b'{"a":1}')
    assert str(refused.value) == f"{operation['op']} operation failed to decode {said} into Go value of type string"


def test_pointer_is_unescaped_without_a_call_for_each_escape() -> None:
    called: list[str] = []

    def count(_frame: object, event: str, argument: Any) -> None:
        if event.endswith("call"):
            called.append(event)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        found = json_patch._pointer("/a" + "~1~0" * 10_000 + "/~01")
    finally:
        sys.setprofile(before)
    assert found == ("a" + "/~" * 10_000, "~1")
    assert len(called) < 100
