"""Holding a run against what is known to differ."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.e2e.corpus import comparison, known, ways
from tests.e2e.corpus.comparison import Failure, Outcome, Step
from tests.e2e.corpus.known import Entry, Pattern, Verdict

STEPS = [Step(name, number) for name in ("a.x", "b") for number in (1, 2, 3)]
FAILURE = Failure("GET /", ["    ! body.message:"])


def listed(*patterns: str, members: str = "", way: str = "") -> Entry:
    return Entry("why", [Pattern.of(text) for text in patterns], members=members, way=way)


def judged(*failed: Step, differences: Entry | None = None) -> Verdict:
    listed = [differences] if differences else []
    return known.judge(Outcome(STEPS, dict.fromkeys(failed, FAILURE)), listed, way="direct")


def test_a_step_that_fails_has_to_be_listed() -> None:
    verdict = judged(Step("a.x", 2), Step("b", 1), differences=listed("b #1"))
    assert list(verdict.unlisted) == [Step("a.x", 2)]
    assert "NOT LISTED: a.x #2  GET /\n    ! body.message:" in str(verdict)


def test_a_scenario_that_is_listed_has_to_fail_somewhere_and_a_step_itself() -> None:
    verdict = judged(Step("b", 1), Step("b", 3), differences=listed("b", "a.x", "b #1", "b #1-2", "b #3-4"))
    assert verdict.stale == ["a.x", "b #1-2", "b #3-4"]


def test_a_scenario_that_was_not_played_is_not_stale() -> None:
    assert judged(differences=listed("c #1")).stale == []


def test_a_difference_may_be_limited_to_members_and_to_a_way() -> None:
    failed = Step("b", 1)
    assert not judged(failed, differences=listed("b #1", members=r"^body\.")).unlisted
    assert judged(failed, differences=listed("b #1", members=r"^headers\.")).unlisted
    assert not judged(failed, differences=listed("b #1", way="direct")).unlisted
    assert judged(failed, differences=listed("b #1", way="aggregated")).unlisted


@pytest.mark.parametrize("text", ["", "b #", "b 1", "b #x", "b.*", "b #1-"])
def test_pattern_names_a_scenario_or_its_steps(text: str) -> None:
    with pytest.raises(ValueError, match="names no steps"):
        Pattern.of(text)


def test_list_names_recorded_steps_once_each_and_existing_ways(shared: pathlib.Path) -> None:
    golden = shared.parent / "differential" / "golden.json"
    if not golden.exists():
        pytest.skip("the corpus is not beside this checkout")
    recorded = json.loads(golden.read_text())["scenarios"]
    steps = {Step(name, number) for name, played in recorded.items() for number in range(1, len(played) + 1)}
    entries = known.load()
    assert {entry.way for entry in entries} <= {"", *ways.WAYS}
    for pattern in (pattern for entry in entries for pattern in entry.patterns):
        assert {Step(pattern.scenario, max(number, 1)) for number in (pattern.first, pattern.last)} <= steps, pattern
    for step in steps:
        for minor in ("1.36", "1.37"):
            concerned = [entry for entry in entries if entry.release in ("", minor) and entry.concerns(step)]
            assert len(concerned) <= 1, (step, minor)


@pytest.mark.parametrize("minor", ["1.36", "1.37"])
def test_answers_that_were_recorded_again_replace_all_steps_of_scenarios(shared: pathlib.Path, minor: str) -> None:
    corpus = shared.parent / "differential"
    if not (corpus / "golden.json").exists():
        pytest.skip("the corpus is not beside this checkout")
    recorded = json.loads((corpus / comparison.recording(minor)).read_text())["scenarios"]
    direct, behind = comparison.scenarios(corpus, minor), comparison.scenarios(corpus, minor, behind=True)
    for replaced in (direct, behind):
        assert {name: len(steps) for name, steps in replaced.items()} == {
            name: len(steps) for name, steps in recorded.items()
        }
    assert direct["list.expired"][0]["status"] == 410
    assert "Vary" not in direct["format.gzip"][2]["headers"]
    assert behind["format.gzip"][2]["headers"]["Vary"] == ["Accept-Encoding"]
