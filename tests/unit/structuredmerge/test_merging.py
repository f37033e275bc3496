"""Applied values are merged into the live ones: by members, by items in an order, and without a copy of unchanged parts."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from structuredmerge.merging import merge
from structuredmerge.values import ABSENT
from tests.unit.structuredmerge.declared import TYPE


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        # Common items stand in the applied order.
        (["a", "b", "c"], ["c", "a"], ["b", "c", "a"]),
        (["a", "b", "c", "d"], ["d", "b"], ["a", "c", "d", "b"]),
        # Items of the live list alone stay before the ones that they precede.
        (["x", "a", "y", "b", "z"], ["a", "b"], ["x", "a", "y", "b", "z"]),
        # Items that are only applied come before the next common one, or at the end.
        (["a", "b"], ["n", "a", "m", "b", "o"], ["n", "a", "m", "b", "o"]),
        (["a", "x", "b"], ["a", "n", "b"], ["a", "x", "n", "b"]),
        (["a"], ["n"], ["a", "n"]),
        (["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"]),
        # Items that are there twice stay, or give way to the one that is applied.
        (["a", "a", "b"], ["b"], ["a", "a", "b"]),
        (["a", "b", "a"], ["b", "a"], ["b", "a"]),
        (["a", "a"], ["a"], ["a"]),
    ],
)
def test_items_of_two_lists_have_one_order(live: list[str], applied: list[str], merged: list[str]) -> None:
    assert merge({"roles": live}, {"roles": applied}, TYPE) == {"roles": merged}


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ({"tags": {"a": "1"}}, {"tags": None}, {"tags": {"a": "1"}}),
        ({"tags": {"a": "1"}}, {"tags": {}}, {"tags": {"a": "1"}}),
        ({"tags": None}, {"tags": {"a": "1"}}, {"tags": {"a": "1"}}),
        ({"tags": {}}, {"tags": None}, {"tags": None}),
        ({"tags": None}, {"tags": {}}, {"tags": {}}),
        ({"words": ["a"]}, {"words": None}, {"words": None}),
        ({"words": ["a"]}, {"words": []}, {"words": []}),
        ({"name": "a"}, {"name": None}, {"name": None}),
        ({"choice": {"a": 1}}, {"choice": {"b": 2}}, {"choice": {"b": 2}}),
        ({"roles": ["a"]}, {"roles": []}, {"roles": ["a"]}),
        (None, {"name": "a"}, {"name": "a"}),
        ({"anything": {"a": 1}}, {"anything": [1]}, {"anything": [1]}),
        ({"anything": {"a": 1}}, {"anything": {"b": 1}}, {"anything": {"a": 1, "b": 1}}),
        ({"anything": 1}, {"anything": True}, {"anything": True}),
    ],
)
def test_null_and_empty_change_nothing_that_has_members(live: Any, applied: Any, merged: Any) -> None:
    found = merge(live, applied, TYPE)
    assert found == merged
    assert type(found) is type(merged)


def test_repeated_item_takes_nothing_of_either_into_the_applied_one() -> None:
    live = {"dates": [{"day": 1, "what": "x"}, {"day": 1, "what": "y"}, {"day": 2, "what": "z"}]}
    assert merge(live, {"dates": [{"day": 1}]}, TYPE) == {"dates": [{"day": 1}, {"day": 2, "what": "z"}]}


def test_keys_that_are_left_out_are_those_of_the_default() -> None:
    merged = merge({"dates": [{"day": 1, "zone": "UTC"}]}, {"dates": [{"day": 1, "what": "x"}]}, TYPE)
    assert merged == {"dates": [{"day": 1, "zone": "UTC", "what": "x"}]}


LIVE: dict[str, Any] = {
    "name": "a",
    "tags": {"a": "1"},
    "place": {"street": "s", "town": "t"},
    "roles": ["a", "b"],
    "dates": [{"day": 1, "zone": "UTC", "what": "x"}, {"day": 2}],
    "words": ["w"],
}


def test_repeated_apply_returns_the_live_value_itself() -> None:
    assert merge(LIVE, copy.deepcopy(LIVE), TYPE) is LIVE


def test_neither_value_is_changed_and_what_stays_is_shared() -> None:
    live: dict[str, Any] = copy.deepcopy(LIVE)
    applied = {"dates": [{"day": 2, "what": "z"}], "roles": ["c"], "tags": {"b": "2"}}
    before = copy.deepcopy((live, applied))
    merged = merge(live, applied, TYPE)
    assert (live, applied) == before
    assert merged["dates"] == [{"day": 1, "zone": "UTC", "what": "x"}, {"day": 2, "what": "z"}]
    assert merged["dates"][0] is live["dates"][0]
    assert merged["place"] is live["place"]


def test_merge_with_an_absent_side_returns_the_other() -> None:
    assert merge(ABSENT, LIVE, TYPE) is LIVE
    assert merge(LIVE, ABSENT, TYPE) is LIVE
