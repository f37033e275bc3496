"""A value without what stands at some paths, and what becomes of containers of which nothing is left."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from structuredmerge.paths import Path, item, keyed
from structuredmerge.removal import remove
from tests.unit.structuredmerge.declared import TYPE, at, owned

FIRST = keyed({"day": 1, "zone": "UTC"})


@pytest.mark.parametrize(
    ("value", "paths", "left"),
    [
        ({"name": "a", "age": 1}, [at("name")], {"age": 1}),
        ({"name": "a"}, [at("name")], None),
        ({"tags": {"a": "1"}, "age": 1}, [at("tags", "a")], {"tags": None, "age": 1}),
        ({"tags": {}, "age": 1}, [at("tags", "a")], {"tags": None, "age": 1}),
        ({"tags": {}, "age": 1}, [at("words")], {"tags": {}, "age": 1}),
        ({"choice": {"a": 1}}, [at("choice", "a")], {"choice": None}),
        ({"words": ["a"]}, [at("words", item("a"))], {"words": None}),
        ({"roles": ["a", "b", "a"]}, [at("roles", item("a"))], {"roles": ["b"]}),
        ({"roles": ["a"], "age": 1}, [at("roles", item("a"))], {"roles": None, "age": 1}),
        ({"dates": [{"day": 1}, {"day": 2}]}, [at("dates", FIRST)], {"dates": [{"day": 2}]}),
        ({"dates": [{"day": 1, "what": "x"}]}, [at("dates", FIRST, "what")], {"dates": [{"day": 1}]}),
        ({"dates": [{"day": 1}, {"day": 2}]}, [at("dates", FIRST, "day")], {"dates": [{"day": 2}]}),
        ({"place": {"town": "t"}}, [at("place", "town")], {"place": None}),
        ({"name": "a"}, [at("name", "x")], {"name": "a"}),
    ],
)
def test_values_at_the_paths_are_removed(value: Any, paths: list[Path], left: Any) -> None:
    before = copy.deepcopy(value)
    assert remove(value, owned(*paths), TYPE) == left
    assert value == before


def test_where_nothing_goes_the_value_is_returned_itself() -> None:
    value = {"tags": {"a": "1"}, "roles": ["a"], "dates": [{"day": 1}]}
    paths = owned(at("name"), at("tags", "b"), at("roles", item("b")), at("dates", FIRST, "what"))
    assert remove(value, paths, TYPE) is value
    assert remove(value, owned(), TYPE) is value
