"""Reading what the corpus's program prints."""

from __future__ import annotations

import pytest

from tests.e2e.corpus.comparison import Broken, Step, read

PLAYED = {"a.x": 3, "a.y": 4, "b": 1}
OUTPUT = """60 scenarios, 8 steps, 13.6 s

a.x #2  GET /resourceslices?a=b
    ! body.metadata.resourceVersion:
          A "rv@1.1"
          B "<rv@1.1"
    - headers.Vary[0]: "Accept"

    + body.kind: "Status"

a.y #3  POST something
    B ended early, 2 steps lost: setup GET /x: 406 {
  "kind": "Status",

  "code": 406
}

b  surplus step on B: {"step": "GET /y"}

6 passed, 4 failed
"""
"""As it really looks: texts of servers hold newlines."""


def test_each_failed_step_is_found_with_the_members_that_differ() -> None:
    outcome = read(OUTPUT.replace("6 passed", "5 passed"), PLAYED)
    assert len(outcome.steps) == 9
    assert list(outcome.failures) == [Step("a.x", 2), Step("a.y", 3), Step("a.y", 4), Step("b", 2)]
    first = outcome.failures[Step("a.x", 2)]
    assert first.title == "GET /resourceslices?a=b"
    assert first.members == ["body.metadata.resourceVersion", "headers.Vary[0]", "body.kind"]


def test_a_step_that_was_not_played_differs_in_everything() -> None:
    outcome = read(OUTPUT.replace("6 passed", "5 passed"), PLAYED)
    assert outcome.failures[Step("a.y", 4)].members == ["."]


def test_output_that_is_not_understood_is_no_result() -> None:
    with pytest.raises(Broken, match="6 steps passed and 4 failed, but 4 of 9"):
        read(OUTPUT, PLAYED)
    with pytest.raises(Broken, match="no result"):
        read("Traceback (most recent call last):\n", PLAYED)
