"""A test over recorded cases (tests/fixtures/cases.py) runs them all and names each that differs."""

from __future__ import annotations

import inspect
import pathlib

import pytest

from tests.fixtures import cases
from tests.fixtures.cases import each_case


def test_every_case_runs_and_each_difference_is_shown_with_its_id_and_line() -> None:
    ran = []

    @each_case("value, expected", [(1, 1), (2, 3), (4, 4), (5, 6)], ids=lambda number: f"n{number}")
    def compare(value: int, expected: int) -> None:
        ran.append(value)
        if value == 5:
            raise KeyError(value)
        assert value == expected

    with pytest.raises(pytest.fail.Exception) as told:
        compare()
    assert ran == [1, 2, 4, 5]
    summary, first, second = str(told.value).split("\n\n")
    assert summary == "2 of 4 cases differ"
    assert first.startswith(f"[n2-n3] {pathlib.Path(__file__).name}:")
    assert "assert 2 == 3" in first
    assert "[n5-n6]" in second
    assert second.endswith(": KeyError: 5")


def test_a_test_over_cases_passes_when_all_pass() -> None:
    @each_case("value", range(3))
    def positive(value: int) -> None:
        assert value >= 0

    positive()


def test_differences_beyond_the_first_twenty_are_counted() -> None:
    @each_case("value", range(30))
    def wrong(value: int) -> None:
        pytest.fail(f"case {value}")

    with pytest.raises(pytest.fail.Exception) as told:
        wrong()
    summary, *shown, more = str(told.value).split("\n\n")
    assert (summary, len(shown), more) == ("30 of 30 cases differ", cases.SHOWN, "and 10 more")


def test_fixtures_stay_parameters_of_a_test_over_cases() -> None:
    @each_case("left", [1, 2])
    @each_case("right", [3, 4, 5])
    def both(left: int, right: int, tmp_path: pathlib.Path) -> None:
        assert left < right, tmp_path

    assert list(inspect.signature(both).parameters) == ["tmp_path"]
    assert vars(both)[cases.COUNTED] == 6


def test_the_option_selects_cases_by_a_part_of_their_id(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    @each_case("text", ["first", "second", "third"])
    def note(text: str) -> None:
        ran.append(text)

    monkeypatch.setattr(cases, "_wanted", "ir")
    note()
    assert ran == ["first", "third"]


def test_a_table_without_cases_is_an_error() -> None:
    with pytest.raises(AssertionError, match="without cases"):
        each_case("value", [])
