"""Differences between two values: removed, modified, added, each with everything below it."""

from __future__ import annotations

from typing import Any

import pytest

from structuredmerge.comparison import compare
from structuredmerge.paths import Path, item, keyed, text
from structuredmerge.sets import Set
from tests.unit.structuredmerge.declared import TYPE, at, owned


def shown(found: Set) -> list[str]:
    return [text(path) for path in found.paths()]


@pytest.mark.parametrize(
    ("old", "new", "removed", "modified", "added"),
    [
        ({"name": "a"}, {"name": "b"}, [], [".name"], []),
        ({"name": "a"}, {}, [".name"], [], []),
        ({}, {"name": None}, [], [], [".name"]),
        ({"name": None}, {"name": "a"}, [], [".name"], []),
        ({"tags": {}}, {"tags": None}, [], [".tags"], []),
        ({"tags": {"a": "1"}}, {"tags": None}, [".tags.a"], [], []),
        ({"tags": {"a": "1"}}, {"tags": {}}, [".tags.a"], [], []),
        ({"tags": {"a": "1"}}, {}, [".tags", ".tags.a"], [], []),
        ({}, {"place": {"street": "s"}}, [], [], [".place", ".place.street"]),
        ({"words": ["a"]}, {"words": ["a", "b"]}, [], [".words"], []),
        ({"choice": {"a": 1}}, {"choice": {"a": 2}}, [], [".choice"], []),
        ({}, {"choice": {"a": 1}}, [], [], [".choice"]),
        ({"roles": ["a", "b"]}, {"roles": ["b", "a"]}, [], [], []),
        ({"roles": ["a"]}, {"roles": ["b"]}, ['.roles[="a"]'], [], ['.roles[="b"]']),
        (
            {"dates": [{"day": 1, "what": "x"}]},
            {"dates": [{"day": 2}, {"zone": "UTC", "day": 1, "what": "y"}]},
            [],
            ['.dates[day=1,zone="UTC"].what'],
            [
                '.dates[day=2,zone="UTC"]',
                '.dates[day=1,zone="UTC"].zone',
                '.dates[day=2,zone="UTC"].day',
            ],
        ),
        ({"anything": {"a": 1}}, {"anything": "x"}, [".anything.a"], [".anything"], []),
        ({"anything": {"a": 1}}, {"anything": {"a": True}}, [], [".anything.a"], []),
        ({"anything": [1]}, {"anything": [True]}, [], [".anything"], []),
        ({"age": 1}, {"age": 1.0}, [], [], []),
    ],
)
def test_values_differ_in_paths(old: Any, new: Any, removed: list[str], modified: list[str], added: list[str]) -> None:
    found = compare(old, new, TYPE)
    assert [shown(part) for part in found] == [removed, modified, added]
    back = compare(new, old, TYPE)
    assert [shown(part) for part in back] == [added, modified, removed]


ONE, OTHER = {"day": 1, "what": "x"}, {"day": 1, "what": "y"}
DATE: Path = at("dates", keyed({"day": 1, "zone": "UTC"}))


@pytest.mark.parametrize(
    ("old", "new", "removed", "modified", "added"),
    [
        ([ONE, OTHER], [ONE, OTHER], [], [], []),
        ([ONE, OTHER], [OTHER, ONE], [], [DATE], []),
        ([ONE, OTHER], [ONE, OTHER, ONE], [], [DATE], []),
        ([ONE, OTHER], [ONE], [DATE], [], [DATE, at(*DATE, "day"), at(*DATE, "what")]),
        ([ONE], [ONE, OTHER], [DATE, at(*DATE, "day"), at(*DATE, "what")], [], [DATE]),
        ([ONE, OTHER], [{"day": 2}], [DATE], [], None),
        ([{"day": 2}], [ONE, OTHER], None, [], [DATE]),
    ],
)
def test_an_item_that_is_there_twice_is_one_leaf(
    old: list[Any], new: list[Any], removed: list[Path] | None, modified: list[Path], added: list[Path] | None
) -> None:
    found = compare({"dates": old}, {"dates": new}, TYPE)
    for part, wanted in zip(found, (removed, modified, added), strict=True):
        assert wanted is None or part == owned(*wanted)


def test_new_list_with_a_repeated_item_has_that_item_alone() -> None:
    found = compare({}, {"roles": ["a", "a", "b"]}, TYPE)
    assert found.added == owned(at("roles"), at("roles", item("a")), at("roles", item("b")))


def test_excluded_path_excludes_everything_below() -> None:
    found = compare({"place": {"town": "t"}}, {"tags": {"a": "1"}, "place": {"street": "s"}}, TYPE)
    rest = found.without(owned(at("place")))
    assert (rest.removed, rest.modified) == (owned(), owned())
    assert rest.added == owned(at("tags"), at("tags", "a"))
