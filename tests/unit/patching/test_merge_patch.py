from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.patching import merge_patch
from tests.unit.patching import recorded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.dictionaries(st.text(max_size=2), VALUES, max_size=4)


@pytest.mark.parametrize("case", recorded.cases("go_merge_patch.jsonl"), ids=lambda c: json.dumps(c["patch"]))
def test_documents_merge_as_upstream_merges_them(case: dict[str, Any]) -> None:
    found = merge_patch.apply(case["patch"], case["document"])
    assert json.dumps(found, separators=(",", ":")) == case["result"]


@given(DOCUMENTS, DOCUMENTS)
def test_neither_the_patch_nor_the_document_changes(patch: dict[str, Any], document: dict[str, Any]) -> None:
    before = copy.deepcopy((patch, document))
    merge_patch.apply(patch, document)
    assert (patch, document) == before


FULL = st.recursive(
    st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=2), FULL, max_size=4), DOCUMENTS)
def test_merging_twice_is_merging_once(patch: dict[str, Any], document: dict[str, Any]) -> None:
    once = merge_patch.apply(patch, document)
    assert merge_patch.apply(patch, once) == once


def test_null_deletes_and_is_nothing_where_nothing_is() -> None:
    assert merge_patch.apply({"a": None, "b": {"c": None, "d": None}, "x": None}, {"a": 1, "b": {"c": 1, "e": 2}}) == {
        "b": {"e": 2}
    }
    assert merge_patch.apply({"new": {"a": None, "b": [{"c": None}]}}, {}) == {"new": {"b": [{}]}}


def test_lists_replace_lists() -> None:
    assert merge_patch.apply({"a": [1]}, {"a": [2, 3]}) == {"a": [1]}


def test_untouched_parts_are_shared_and_keep_their_order() -> None:
    document = {"z": {"b": 1, "a": 2}, "a": {"q": 1}}
    found = merge_patch.apply({"a": {"p": 2}}, document)
    assert found["z"] is document["z"]
    assert json.dumps(found) == '{"a": {"p": 2, "q": 1}, "z": {"b": 1, "a": 2}}'


def nested(levels: int, inmost: Any) -> Any:
    for _ in range(levels):
        inmost = {"a": [{"a": inmost}]}
    return inmost


def test_no_depth_fails() -> None:
    found = merge_patch.apply({"x": nested(5000, {"gone": None, "b": 1}), "y": {"k": 2}}, {"y": {"z": 1}})
    assert found["y"] == {"k": 2, "z": 1}
    found = found["x"]
    for _ in range(5000):
        found = found["a"][0]["a"]
    assert found == {"b": 1}


def test_members_come_out_sorted_however_many_they_are() -> None:
    names = [f"{i * 7919 % 20_011:05}" for i in range(20_000)]
    found = merge_patch.apply({"m": dict.fromkeys(names, 1)}, {"m": {"x": 0}})
    assert list(found["m"]) == [*sorted(names), "x"]
