from __future__ import annotations

import itertools

import pytest

from apiserver.watchcache import scope
from apiserver.watchcache.entry import Event, Key
from apiserver.watchcache.scope import Scope
from tests.fixtures.log import Log


def story() -> list[Event]:
    log = Log()
    log.put("a/x", "1", "n1", "d1")
    log.put("b/x", "1", "n1", "d2")
    log.put("a/x", "2", "n2", "d1")
    log.put("ab/x", "1", "", "d1")
    log.delete("a/x")
    log.put("plain", "1", "n1", "d1")
    return [record.event() for record in log.records]


SCOPES = [
    Scope(),
    *(Scope(key=Key(key)) for key in ("a/x", "b/x", "plain", "a/y")),
    *(Scope(prefix=prefix) for prefix in ("a/", "ab/", "c/")),
    *(Scope(field=field) for field in itertools.product((0, 1), ("n1", "n2", "d1", "d2", ""))),
    *(Scope(prefix=prefix, field=(0, "n1")) for prefix in ("a/", "b/", "c/")),
]


def keys(chosen: Scope) -> list[tuple[str, int]]:
    return [(event.entry.key, event.revision & 0xFF) for event in chosen.among(story())]


def test_a_namespace_is_no_prefix_of_another() -> None:
    assert keys(Scope(prefix="a/")) == [("a/x", 1), ("a/x", 3), ("a/x", 5)]


def test_a_change_of_a_field_concerns_the_old_value_and_the_new_one() -> None:
    assert keys(Scope(field=(0, "n1"))) == [("a/x", 1), ("b/x", 2), ("a/x", 3), ("plain", 6)]
    assert keys(Scope(field=(0, "n2"))) == [("a/x", 3), ("a/x", 5)]


def test_an_empty_value_is_a_value() -> None:
    assert keys(Scope(field=(0, ""))) == [("ab/x", 4)]


def test_a_field_within_a_namespace_needs_both() -> None:
    assert keys(Scope(prefix="a/", field=(0, "n1"))) == [("a/x", 1), ("a/x", 3)]


@pytest.mark.parametrize("chosen", SCOPES, ids=str)
def test_routes_find_an_event_exactly_where_a_scope_admits_it(chosen: Scope) -> None:
    for event in story():
        assert scope.routes(event).count(chosen.route) == len(chosen.among([event]))


@pytest.mark.parametrize("chosen", SCOPES, ids=str)
def test_scope_that_matches_an_event_matches_what_it_touched(chosen: Scope) -> None:
    events = story()
    for low, high in itertools.combinations(range(len(events) + 1), 2):
        part = events[low:high]
        if chosen.among(part):
            assert chosen.within(scope.touched(part))


def test_untouched_scope_is_passed_over() -> None:
    touched = scope.touched(story())
    assert not Scope(prefix="c/").within(touched)
    assert not Scope(key=Key("a/y")).within(touched)
    assert not Scope(field=(0, "n3")).within(touched)
    assert not Scope(field=(1, "n1")).within(touched)


@pytest.mark.parametrize(
    ("prefix", "key", "field"), [("a", None, None), ("a/", Key("a/x"), None), ("", Key("a/x"), (0, "n1"))]
)
def test_a_scope_that_says_two_things_is_refused(prefix: str, key: Key | None, field: tuple[int, str] | None) -> None:
    with pytest.raises(ValueError, match=r"prefix|key"):
        Scope(prefix, key, field)
