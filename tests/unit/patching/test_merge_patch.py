from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apiserver.patching import merge_patch
from tests.fixtures.cases import each_case
from tests.unit.patching import recorded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text(max_size=2), VALUES, max_size=4)


def text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def merged(patch: Any, document: Any) -> Any:
    return json.loads(merge_patch.apply(text(patch), text(document)))


@each_case("case", recorded.cases("go_merge_patch.jsonl"), ids=lambda c: json.dumps(c["patch"]))
def test_documents_merge_as_upstream_merges_them(case: dict[str, Any]) -> None:
    assert merge_patch.apply(text(case["patch"]), text(case["document"])).decode() == case["result"]


FULL = st.recursive(
    st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=2), FULL, max_size=4), DOCUMENTS)
def test_merging_twice_is_merging_once(patch: dict[str, Any], document: dict[str, Any]) -> None:
    once = merged(patch, document)
    assert merged(patch, once) == once


def test_null_deletes_and_is_nothing_where_nothing_is() -> None:
    assert merged({"a": None, "b": {"c": None, "d": None}, "x": None}, {"a": 1, "b": {"c": 1, "e": 2}}) == {
        "b": {"e": 2}
    }
    assert merged({"new": {"a": None, "b": [{"c": None}]}}, {}) == {"new": {"b": [{}]}}


def test_lists_replace_lists() -> None:
    assert merged({"a": [1]}, {"a": [2, 3]}) == {"a": [1]}


def test_untouched_parts_keep_their_order_and_their_spelling() -> None:
    document = b'{"z":{"b": 1e3,"a":1.0,"a":-0},"a":{"q":"\\/<"}}'
    found = merge_patch.apply(b'{"a":{"p":[1e400,{"z":1,"a":null}]}}', document)
    assert found == b'{"a":{"p":[1e400,{"z":1}],"q":"\\/\\u003c"},"z":{"b":1e3,"a":1.0,"a":-0}}'


def nested(levels: int, inmost: Any) -> Any:
    for _ in range(levels):
        inmost = {"a": [{"a": inmost}]}
    return inmost


def test_values_of_any_permitted_depth_can_be_merged() -> None:
    found = merged({"x": nested(300, {"gone": None, "b": 1}), "y": {"k": 2}}, {"y": {"z": 1}})
    assert found["y"] == {"k": 2, "z": 1}
    found = found["x"]
    for _ in range(300):
        found = found["a"][0]["a"]
    assert found == {"b": 1}


def test_members_come_out_sorted_however_many_they_are() -> None:
    names = [f"{i * 7919 % 20_011:05}" for i in range(20_000)]
    found = merged({"m": dict.fromkeys(names, 1)}, {"m": {"x": 0}})
    assert list(found["m"]) == [*sorted(names), "x"]
