"""Declarations that differ by release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from apiserver.apimachinery import releases
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release, at, differences, since, until


@dataclass(frozen=True, eq=False)
class Part:
    name: str
    value: Any = None
    parts: tuple[Any, ...] = ()


SHARED = Part("shared", since(V1_37, 2, before=1))
DECLARED = Part(
    "whole",
    parts=(
        since(V1_37, Part("young")),
        until(V1_37, Part("old")),
        Part("first", SHARED),
        Part("second", SHARED),
        Part("still"),
    ),
)


def names(part: Part) -> list[str]:
    return [each.name for each in part.parts]


@pytest.mark.parametrize(
    ("release", "expected"),
    [(V1_36, ["old", "first", "second", "still"]), (V1_37, ["young", "first", "second", "still"])],
)
def test_a_release_has_the_elements_that_hold_for_it(release: Release, expected: list[str]) -> None:
    assert names(at(release, DECLARED)) == expected


@pytest.mark.parametrize(("release", "expected"), [(V1_36, 1), (V1_37, 2), (Release(1, 38), 2), (Release(1, 35), 1)])
def test_a_value_turns_at_its_release(release: Release, expected: int) -> None:
    assert at(release, SHARED).value == expected


def test_a_shared_part_is_made_once_for_each_release() -> None:
    *_, first, second, _ = at(V1_36, DECLARED).parts
    assert first.value is second.value
    assert at(V1_36, DECLARED) is at(V1_36, DECLARED)


def test_a_part_without_differences_is_the_declared_object() -> None:
    assert at(V1_36, DECLARED).parts[-1] is at(V1_37, DECLARED).parts[-1] is DECLARED.parts[-1]


def test_a_dataclass_has_none_and_a_mapping_nothing_for_a_value_that_does_not_hold() -> None:
    assert at(V1_36, Part("a", since(V1_37, 2))).value is None
    assert at(V1_36, {"a": since(V1_37, 1), "b": 2}) == {"b": 2}


def test_a_difference_may_hold_another_one() -> None:
    nested = since(V1_36, since(V1_37, "newest", before="middle"), before="oldest")
    assert [at(release, nested) for release in (Release(1, 35), V1_36, V1_37)] == ["oldest", "middle", "newest"]


def test_every_difference_is_found_with_its_place() -> None:
    found = [(each.path, each.attribute, each.varying.turn) for each in differences(DECLARED)]
    assert found == [("whole.young", "", V1_37), ("whole.old", "", V1_37), ("whole.first.shared", "value", V1_37)]


@pytest.mark.parametrize(
    ("release", "expected"),
    [(Release(1, 30), V1_36), (V1_36, V1_36), (V1_37, V1_37), (Release(1, 40), NEWEST), (Release(2, 0), NEWEST)],
)
def test_the_nearest_release_is_one_that_is_supported(release: Release, expected: Release) -> None:
    assert releases.nearest(release) is expected
