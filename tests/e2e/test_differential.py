"""Answers of a real kube-apiserver compared with Sluice's to the same requests: recorded ones, behind a kube-apiserver and
directly; random ones; and random sequences of writes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.e2e.controlplane.bed import Bed
from tests.e2e.corpus import known, ways
from tests.fuzz import objects, sequences
from tests.fuzz.objects import Side

pytestmark = pytest.mark.releases

SEED, OBJECTS = 36, 240
SEQUENCES, STEPS = 16, 8


@pytest.fixture(scope="module")
def corpus() -> pathlib.Path:
    """All of it where it stands beside the checkout, otherwise the project's own excerpt."""
    return ways.corpus()


@pytest.fixture(scope="module")
def quiet_bed(our_own: None, corpus: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with ways.bed(tmp_path_factory.mktemp("c")) as bed:
        yield bed


@pytest.mark.parametrize("way", ways.WAYS.values(), ids=ways.WAYS)
def test_the_recorded_answers_of_a_real_server_agree(quiet_bed: Bed, corpus: pathlib.Path, way: ways.Way) -> None:
    verdict = ways.verdict(way, quiet_bed, corpus)

    print(verdict)
    assert not verdict.unlisted
    assert not verdict.stale
    assert verdict.ratio >= known.FLOOR


@pytest.fixture(scope="module")
def sides(quiet_bed: Bed) -> Iterator[tuple[Side, Side]]:
    with objects.sides(quiet_bed) as both:
        yield both


def test_random_objects_are_judged_as_a_real_server_judges_them(sides: tuple[Side, Side]) -> None:
    found = [str(difference) for difference in objects.differences(*sides, seed=SEED, count=OBJECTS)]

    assert found == []


def test_random_write_sequences_leave_what_a_real_server_stores(sides: tuple[Side, Side]) -> None:
    """Managers of fields are compared too."""
    found = sequences.differences(*sides, seed=SEED, count=SEQUENCES, steps=STEPS)

    assert [str(difference) for difference in found] == []
