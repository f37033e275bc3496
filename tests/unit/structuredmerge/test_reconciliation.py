"""Sets that were stored before a type became atomic are read as they would be written today."""

from __future__ import annotations

from structuredmerge.openapi import type_of
from structuredmerge.paths import field, item, keyed
from structuredmerge.reconciliation import reconcile
from tests.unit.structuredmerge.declared import NUMBER, STRING, TYPE, at, changed, owned

FIRST = keyed({"day": 1, "zone": "UTC"})


def test_parts_of_what_is_atomic_now_become_the_whole() -> None:
    atomic = changed(
        place={"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"street": STRING, "town": STRING}},
        roles={"type": "array", "x-kubernetes-list-type": "atomic", "items": STRING},
    )
    before = owned(at("name"), at("place", "town"), at("roles", item("a")), at("roles"))
    assert reconcile(before, atomic) == owned(at("name"), at("place"), at("roles"))


def test_parts_deep_below_become_the_whole_of_what_is_atomic() -> None:
    items = {"type": "object", "properties": {"day": NUMBER, "zone": {**STRING, "default": "UTC"}}}
    dates = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["day", "zone"]}
    atomic = changed(dates={**dates, "items": {**items, "x-kubernetes-map-type": "atomic"}})
    before = owned(at("dates", FIRST), at("dates", FIRST, "day"), at("dates", keyed({"day": 2}), "day"))
    assert reconcile(before, atomic) == owned(at("dates", FIRST), at("dates", keyed({"day": 2})))


def test_a_set_that_fits_is_returned_itself() -> None:
    before = owned(at("place", "town"), at("choice"), at("dates", FIRST, "day"), at("raw", "a", "b"), at("gone", "x"))
    assert reconcile(before, TYPE) is before


def test_the_whole_of_what_has_parts_now_stays_the_whole() -> None:
    before = owned(at("place"))
    assert reconcile(before, TYPE) is before


def test_untyped_values_are_left_alone() -> None:
    free = changed(raw={"type": "object", "x-kubernetes-map-type": "atomic"})
    before = owned(at("raw", "a", "b"))
    assert reconcile(before, free) is before


def test_elements_of_another_kind_than_the_type_are_left_alone() -> None:
    tree = type_of({"type": "object", "properties": {"a": {"type": "object", "properties": {"b": STRING}}}})
    before = owned((FIRST, field("x")), at("a", item("x"), "y"))
    assert reconcile(before, tree) is before
