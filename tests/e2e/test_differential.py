"""What a real kube-apiserver 1.36.3 answered, against what Sluice answers to the same requests: behind a kube-apiserver, and directly."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.e2e.controlplane.bed import Bed
from tests.e2e.corpus import known, ways


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
