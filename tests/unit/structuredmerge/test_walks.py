"""The laws of the walks: what merging, comparing, removing, and reconciling do to any values of any type."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from structuredmerge import sets, values
from structuredmerge.comparison import compare
from structuredmerge.fieldset import fields_of
from structuredmerge.merging import merge
from structuredmerge.reconciliation import reconcile
from structuredmerge.removal import remove
from structuredmerge.sets import Set
from structuredmerge.types import Type
from tests.unit.structuredmerge.histories import hardened, pairs

Pair = tuple[Type, Any, Any]

law = settings(max_examples=40, derandomize=True)


def there(value: Any, type_: Type) -> Set:
    """All places of a value."""
    return compare(None, value, type_).added | fields_of(value, type_)


def unordered(value: Any, type_: Type) -> Any:
    """The value with items that are merged one by one in a fixed order."""
    if isinstance(value, dict) and type_.map is not None and not type_.map.atomic:
        types = {name: member.type for name, member in type_.map.members.items()}
        return {name: unordered(part, types.get(name) or type_.map.element or type_) for name, part in value.items()}
    if isinstance(value, list) and type_.list is not None and not type_.list.atomic:
        return sorted((unordered(item, type_.list.item) for item in value), key=values.key)
    return value


@law
@given(pairs(empty=True))
def test_values_with_no_difference_differ_in_the_order_of_items_at_most(drawn: Pair) -> None:
    type_, one, other = drawn
    assert not any(compare(one, one, type_))
    found = compare(one, other, type_)
    # The root is no path: whether it is null or has no members is not told.
    assert any(found) is (not values.equal(unordered(one, type_) or None, unordered(other, type_) or None))


@law
@given(pairs(empty=True))
def test_seen_from_the_other_side_what_was_added_was_removed(drawn: Pair) -> None:
    type_, one, other = drawn
    there_and, back = compare(one, other, type_), compare(other, one, type_)
    assert (there_and.added, there_and.removed, there_and.modified) == (back.removed, back.added, back.modified)
    assert not there_and.added & there_and.removed
    assert not there_and.modified & (there_and.added | there_and.removed)


@law
@given(pairs())
def test_a_merged_value_says_what_was_applied_and_whatever_else_was_there(drawn: Pair) -> None:
    type_, live, applied = drawn
    merged = merge(live, applied, type_)
    asked = compare(applied, merged, type_)
    kept = compare(live, merged, type_)
    assert not asked.removed
    assert not asked.modified
    assert not kept.removed
    assert not (kept.modified | kept.added) - there(applied, type_)
    assert there(merged, type_) == there(live, type_) | there(applied, type_)


@law
@given(pairs(empty=True))
def test_merging_again_changes_nothing(drawn: Pair) -> None:
    type_, live, applied = drawn
    merged = merge(live, applied, type_)
    assert merge(merged, applied, type_) is merged
    assert values.equal(merge(live, live, type_), live)


@law
@given(pairs())
def test_nothing_is_left_at_what_was_removed_and_the_rest_is_as_it_was(drawn: Pair) -> None:
    type_, value, other = drawn
    paths = fields_of(other, type_)
    left = remove(value, paths, type_)
    found = compare(value, left, type_)
    assert not there(left, type_) & paths
    assert not found.added
    assert remove(left, paths, type_) is left
    # Empty values go with everything that could be below them.
    assert left is value or not value or paths & there(value, type_)


@law
@given(pairs(empty=True))
def test_without_the_fields_that_it_spells_nothing_of_a_value_is_left(drawn: Pair) -> None:
    type_, value, _ = drawn
    fields = fields_of(value, type_)
    assert not fields - there(value, type_)
    assert empty(remove(value, fields, type_))


def empty(value: Any) -> bool:
    """Whether a value holds nothing but maps and lists."""
    if isinstance(value, dict):
        return all(map(empty, value.values()))
    return all(map(empty, value)) if isinstance(value, list) else value is None


@law
@given(st.data())
def test_a_reconciled_set_ends_at_what_is_atomic_now(data: st.DataObject) -> None:
    type_, value, _ = data.draw(pairs(empty=True))
    now = data.draw(hardened(type_))
    owned = there(value, type_)
    reconciled = reconcile(owned, now)
    assert reconcile(reconciled, now) is reconciled
    assert reconcile(owned, type_) is owned
    if now.map is not None and not now.map.atomic:
        assert reconciled == sets.of(path[: reach(path, now)] for path in owned.paths())


def reach(path: tuple[tuple[int, Any], ...], type_: Type) -> int:
    """How much of a path there is before it goes through something atomic."""
    for depth, (_, what) in enumerate(path):
        if type_.map is not None:
            if depth and type_.map.atomic:
                return depth
            member = type_.map.members.get(what)
            below = member.type if member is not None else type_.map.element
        else:
            if type_.list is None or type_.list.atomic:
                return depth
            below = type_.list.item
        assert below is not None
        type_ = below
    return len(path)
