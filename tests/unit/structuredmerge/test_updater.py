"""Applies and updates beyond the shared cases: several versions, what an endpoint ignores, and what a write costs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from structuredmerge.openapi import type_of
from structuredmerge.paths import Element, keyed
from structuredmerge.sets import EMPTY, Set
from structuredmerge.types import Type
from structuredmerge.updater import UNCHANGED, Conflicts, Managers, OneVersion, Owned, apply, update
from tests.fixtures import cpu
from tests.unit.structuredmerge.declared import STRING, TYPE, at, owned

VERSIONS = OneVersion("v1", TYPE)


def applied(live: Any, patch: Any, managers: Managers, **more: Any) -> tuple[Any, Managers]:
    known: dict[str, Any] = {"version": "v1", "manager": "ada", "versions": VERSIONS, "force": False} | more
    return apply(live, patch, managers=managers, **known)


def test_an_apply_changes_neither_objects_nor_managers() -> None:
    live, patch = {"name": "a", "tags": {"a": "1", "b": "2"}}, {"tags": {"b": "3"}}
    managers = {"ada": Owned(owned(at("tags", "a"), at("tags", "b")), "v1", applied=True)}
    before = copy.deepcopy((live, patch, dict(managers)))
    new, left = applied(live, patch, managers)
    assert new == {"name": "a", "tags": {"b": "3"}}
    assert left == {"ada": Owned(owned(at("tags", "b")), "v1", applied=True)}
    assert (live, patch, dict(managers)) == before


def test_conflicts_are_ordered_by_manager_and_then_by_path() -> None:
    live = {"name": "a", "age": 1, "tags": {"a": "1"}}
    mine = Owned(owned(at("name"), at("tags", "a"), at("age")), "v1", applied=True)
    managers = {"cid": mine, "bob": mine}
    with pytest.raises(Conflicts) as raised:
        applied(live, {"name": "b", "age": 2, "tags": {"a": "2"}}, managers)
    found = [(conflict.manager, conflict.path) for conflict in raised.value.conflicts]
    paths = [at("age"), at("name"), at("tags", "a")]
    assert found == [(manager, path) for manager in ("bob", "cid") for path in paths]


def test_force_takes_the_conflicting_paths_from_all_managers() -> None:
    live = {"name": "a", "age": 1}
    managers = {who: Owned(owned(at("name"), at("age")), "v1", applied=False) for who in ("bob", "cid")}
    new, left = applied(live, {"name": "b"}, managers, force=True)
    assert new == {"name": "b", "age": 1}
    assert {who: entry.set for who, entry in left.items()} == {
        "ada": owned(at("name")),
        "bob": owned(at("age")),
        "cid": owned(at("age")),
    }


def test_manager_of_a_version_that_is_not_served_is_dropped() -> None:
    managers = {"old": Owned(owned(at("name")), "v0", applied=True)}
    assert applied({"name": "a"}, {"name": "b"}, managers)[1].keys() == {"ada"}
    assert update({"name": "a"}, {"name": "a"}, version="v1", managers=managers, manager="x", versions=VERSIONS) == {}


def test_ignored_fields_neither_conflict_nor_change_owners() -> None:
    versions = OneVersion("v1", TYPE, ignored=owned(at("place")))
    live: dict[str, Any] = {"place": {"town": "t"}, "name": "a"}
    managers = {"bob": Owned(owned(at("place", "town")), "v1", applied=False)}
    new, left = applied(live, {"place": {"town": "u"}, "name": "a"}, managers, versions=versions)
    assert new == {"place": {"town": "u"}, "name": "a"}
    assert left["ada"].set == owned(at("name"))
    assert left["bob"] is managers["bob"]
    after = update(live, {"name": "b"}, version="v1", managers=managers, manager="x", versions=versions)
    assert after == {**managers, "x": Owned(owned(at("name")), "v1", applied=False)}


def test_items_in_another_order_are_a_change_without_an_owner() -> None:
    live = {"roles": ["a", "b"]}
    new, left = applied(live, {"roles": ["b", "a"]}, {})
    assert new == {"roles": ["b", "a"]}
    again, left = applied(new, {"roles": ["b", "a"]}, left)
    assert again is UNCHANGED
    assert update(live, new, version="v1", managers=left, manager="x", versions=VERSIONS) == left


# --- Versions that look different ------------------------------------------------------------------------------------

_NAMES: Mapping[str, str] = {"v1": "name", "v2": "title"}
_TYPES = {
    version: type_of({"type": "object", "properties": {name: STRING, "age": {"type": "integer"}}})
    for version, name in _NAMES.items()
}


class TwoVersions:
    """A member has another name in each version."""

    def type_at(self, version: str) -> Type | None:
        return _TYPES.get(version)

    def convert(self, value: Any, version_from: str, version_to: str) -> Any:
        renamed = {_NAMES[version_from]: _NAMES[version_to]}
        return value and {renamed.get(name, name): part for name, part in value.items()}

    def ignored(self, version: str) -> Set:
        return EMPTY


def test_each_manager_loses_what_changed_in_its_own_version() -> None:
    managers = {
        "one": Owned(owned(at("name"), at("age")), "v1", applied=False),
        "two": Owned(owned(at("title"), at("age")), "v2", applied=False),
    }
    known: dict[str, Any] = {"managers": managers, "manager": "ada", "versions": TwoVersions()}
    with pytest.raises(Conflicts) as raised:
        apply({"title": "a", "age": 1}, {"title": "b"}, version="v2", force=False, **known)
    assert [(c.manager, c.path) for c in raised.value.conflicts] == [("one", at("name")), ("two", at("title"))]
    new, left = apply({"title": "a", "age": 1}, {"title": "b"}, version="v2", force=True, **known)
    assert new == {"title": "b", "age": 1}
    assert {who: (entry.version, entry.set) for who, entry in left.items()} == {
        "ada": ("v2", owned(at("title"))),
        "one": ("v1", owned(at("age"))),
        "two": ("v2", owned(at("age"))),
    }


def test_fields_applied_in_another_version_are_pruned_when_left_out() -> None:
    known: dict[str, Any] = {"manager": "ada", "versions": TwoVersions(), "force": False}
    managers: Managers = {}
    new, managers = apply(None, {"name": "a", "age": 1}, version="v1", managers=managers, **known)
    new, managers = apply({"title": "a", "age": 1}, {"age": 1}, version="v2", managers=managers, **known)
    assert new == {"age": 1}
    assert managers == {"ada": Owned(owned(at("age")), "v2", applied=True)}


def test_fields_owned_in_another_version_stay() -> None:
    known: dict[str, Any] = {"versions": TwoVersions(), "force": False}
    managers: Managers = {"bob": Owned(owned(at("title")), "v2", applied=True)}
    managers = {**managers, "ada": Owned(owned(at("name"), at("age")), "v1", applied=True)}
    new, left = apply({"name": "a", "age": 1}, {"age": 1}, version="v1", managers=managers, manager="ada", **known)
    assert new is UNCHANGED
    assert {who: entry.set for who, entry in left.items()} == {"ada": owned(at("age")), "bob": owned(at("title"))}


# --- What it costs ---------------------------------------------------------------------------------------------------


def _claimants(count: int, *, reverse: bool) -> dict[str, Any]:
    days = [{"day": day, "what": "x"} for day in range(count)]
    return {"dates": days[::-1] if reverse else days}


def _everybody(count: int) -> Set:
    elements: list[Element] = [keyed({"day": day, "zone": "UTC"}) for day in range(count)]
    return owned(*(at("dates", element) for element in elements))


def _reordered(count: int) -> Callable[[], Any]:
    live, patch = _claimants(count, reverse=False), _claimants(count, reverse=True)
    return lambda: applied(live, patch, {})


def _pruned(count: int) -> Callable[[], Any]:
    live, mine = _claimants(count, reverse=False), Owned(_everybody(count), "v1", applied=True)
    return lambda: applied(live, {"dates": live["dates"][::2]}, {"ada": mine})


def _updated(count: int) -> Callable[[], Any]:
    live, new = _claimants(count, reverse=False), {"dates": [{"day": day, "what": "y"} for day in range(count)]}
    managers = {f"m{i}": Owned(_everybody(count), "v1", applied=True) for i in range(4)}
    return lambda: update(live, new, version="v1", managers=managers, manager="x", versions=VERSIONS)


@pytest.mark.parametrize("write", [_reordered, _pruned, _updated])
def test_long_lists_take_time_in_proportion(write: Callable[[int], Callable[[], Any]]) -> None:
    # Sixteen times the length: quadratic time would be 256 times as much.
    assert _cost(write(4000)) < 100 * _cost(write(250))


def _cost(write: Callable[[], Any]) -> float:
    with cpu.Spent() as spent:
        write()
    return spent.seconds
