"""Laws of every sequence of applies and updates, for every type."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from structuredmerge.comparison import compare
from structuredmerge.fieldset import fields_of
from structuredmerge.sets import EMPTY, Set, of
from structuredmerge.updater import Conflict, Conflicts, Managers, update
from structuredmerge.validation import validate
from tests.unit.structuredmerge.histories import VERSION, Shared, applies, histories

Apply = tuple[Shared, Any]

law = settings(max_examples=40, derandomize=True)


def fields(shared: Shared) -> Set:
    return fields_of(shared.value, shared.type)


def changed(before: Shared, after: Shared) -> Set:
    found = compare(before.value, after.value, before.type)
    return found.modified | found.added


@law
@given(applies())
def test_applying_twice_is_applying_once(drawn: Apply) -> None:
    shared, patch = drawn
    once = shared.applied(patch)
    twice = once.applied(patch)
    assert twice.value is once.value
    assert twice.managers == once.managers


@law
@given(applies(empty=True))
def test_repeated_apply_changes_only_nulls_and_empty_containers(drawn: Apply) -> None:
    shared, patch = drawn
    once = shared.applied(patch)
    twice = once.applied(patch)
    assert (full(twice.value) or None) == (full(once.value) or None)
    thrice = twice.applied(patch)
    assert thrice.value is twice.value
    assert thrice.managers == twice.managers


def full(value: Any) -> Any:
    """A value without what holds nothing."""
    if isinstance(value, dict):
        parts = {name: full(part) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part not in (None, {}, [])}
    return [full(item) for item in value] if isinstance(value, list) else value


@law
@given(applies(empty=True))
def test_the_applier_owns_what_it_applies_and_nothing_else(drawn: Apply) -> None:
    shared, patch = drawn
    after = shared.applied(patch)
    owner = after.managers.get("ada")
    assert (owner.set if owner else EMPTY) == fields_of(patch, shared.type)
    assert owner is None or (owner.applied and owner.set)


@law
@given(applies())
def test_applied_values_are_in_the_result(drawn: Apply) -> None:
    shared, patch = drawn
    found = compare(patch, shared.applied(patch).value, shared.type)
    assert not found.removed
    assert not found.modified


@law
@given(applies(empty=True))
def test_force_removes_all_conflicts_and_changes_nothing_without_one(drawn: Apply) -> None:
    shared, patch = drawn
    forced = shared.applied(patch)
    found = conflicts(shared, patch)
    for manager, path in found:
        assert manager != "ada"
        assert shared.managers[manager].set.has(path)
        assert manager not in forced.managers or not forced.managers[manager].set.has(path)
    assert not forced.owned(but="ada") & changed(shared, forced)
    assert bool(found) is bool(shared.owned(but="ada") & changed(shared, forced))
    if not found:
        assert shared.applied(patch, force=False) == forced


def conflicts(shared: Shared, patch: Any) -> Sequence[Conflict]:
    """Conflicts that refuse an apply that is not forced."""
    try:
        shared.applied(patch, force=False)
    except Conflicts as error:
        return error.conflicts
    return ()


@law
@given(histories())
def test_the_owners_own_all_that_is_there_between_them(shared: Shared) -> None:
    assert not fields(shared) - shared.owned()


@law
@given(histories(empty=True))
def test_missing_fields_have_no_owner(shared: Shared) -> None:
    there = compare(None, shared.value, shared.type).added | fields(shared)
    assert not shared.owned() - there
    assert all(owner.set for owner in shared.managers.values())


@law
@given(applies())
def test_pruning_keeps_fields_of_others_and_an_apply_changes_only_its_own(drawn: Apply) -> None:
    shared, patch = drawn
    after = shared.applied(patch)
    assert not compare(shared.value, after.value, shared.type).removed & shared.owned(but="ada")
    assert not changed(shared, after) - fields_of(patch, shared.type).named(shared.type)


@law
@given(applies())
def test_apply_removes_only_fields_of_the_applier_and_empty_parents(drawn: Apply) -> None:
    shared, patch = drawn
    before = shared.managers.get("ada")
    removed = compare(shared.value, shared.applied(patch).value, shared.type).removed
    owned = before.set.named(shared.type) if before else EMPTY
    assert not (removed & fields(shared)) - owned


@law
@given(applies(empty=True))
def test_updater_alone_owns_what_it_changed(drawn: Apply) -> None:
    shared, new = drawn
    after = shared.updated(new, manager="updater")
    touched = changed(shared, after)
    assert not touched - (after.managers["updater"].set if "updater" in after.managers else EMPTY)
    assert not touched & after.owned(but="updater")
    assert not after.owned() - (shared.owned() | touched)


@law
@given(histories(empty=True))
def test_an_update_that_changes_nothing_changes_no_set(shared: Shared) -> None:
    assert shared.updated(copy.deepcopy(shared.value), manager="updater").managers == shared.managers


@law
@given(applies(empty=True))
def test_merged_value_is_valid_and_changes_no_other_managers_values(drawn: Apply) -> None:
    shared, patch = drawn
    before = copy.deepcopy((shared.value, patch))
    after = shared.applied(patch)
    assert (shared.value, patch) == before
    assert validate(after.value, shared.type) == []


@law
@given(applies())
def test_manager_that_applies_nothing_is_removed(drawn: Apply) -> None:
    shared, patch = drawn
    assert "ada" not in shared.applied(patch).applied({}).managers


@law
@given(applies(empty=True), st.data())
def test_earlier_writer_owns_the_same_whether_or_not_it_regains_fields(drawn: Apply, data: st.DataObject) -> None:
    """Forgone fields are lost, and not got back."""
    shared, new = drawn
    paths = list(changed(shared, Shared(shared.type, new)).paths())
    forgone = of(data.draw(st.sets(st.sampled_from(paths)))) if paths else EMPTY

    def together(before: str) -> dict[str, Set]:
        managers: Managers = update(
            shared.value, new, version=VERSION, managers=shared.managers, manager="writer", versions=shared,
            before=before, forgone=forgone,
        )  # fmt: skip
        found = {name: owned.set for name, owned in managers.items()}
        found["updater"] = found.get("updater", EMPTY) | (found.pop("writer", EMPTY) - forgone)
        return found

    assert together("updater") == together("")
