"""Half a minute of `make soak`."""

from __future__ import annotations

import pathlib

import pytest

from tests.soak.clients import Load
from tests.soak.run import Options, soak

LOAD = Load(writes=60, watchers=60, of_everything=4, nodes=40, slices=2, lists=2, shortest_watch=2, longest_watch=10)
OPTIONS = Options(30, LOAD, seed=36, restart_seconds=5, sample_seconds=0.5, grace_seconds=1)


async def test_watchers_miss_nothing_and_nothing_grows_while_a_server_is_replaced(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder: pathlib.Path = tmp_path_factory.mktemp("s")
    result = await soak(folder, OPTIONS)
    assert not result.findings
    assert not result.rising, {name: result.verdicts[name] for name in result.rising}
    assert result.counts["restarts"] >= 1
    assert result.counts["events"] > result.counts["writes"] > 100
    assert result.counts["watches resumed"] > LOAD.watchers
    assert result.counts["lists"] > 10
    assert min(value for _, value in result.series["steady: tasks"]) > LOAD.watchers / 2
