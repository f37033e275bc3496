"""The excerpt is a true one, and speaks of every kind of request."""

from __future__ import annotations

import json

import pytest

from tests.e2e.corpus import excerpt, ways


@pytest.mark.skipif(not (ways.CORPUS / "run").exists(), reason="the corpus is not beside this checkout")
def test_the_excerpt_is_what_the_corpus_says() -> None:
    found = excerpt.files(ways.CORPUS)
    assert {name: (ways.EXCERPT / name).read_text() for name in found} == found


def test_the_excerpt_is_small_and_has_something_of_every_area() -> None:
    files = [file for file in ways.EXCERPT.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    assert sum(file.stat().st_size for file in files) < 400_000
    recorded = json.loads((ways.EXCERPT / "golden.json").read_text())["scenarios"]
    areas = {name.partition(".")[0] for name in recorded}
    assert areas >= {"create", "delete", "format", "list", "patch", "routes", "update", "watch"}
    assert 100 <= sum(map(len, recorded.values())) <= 150
