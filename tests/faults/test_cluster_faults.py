"""Run half a minute of `make faults` on a cluster, from a fixed seed."""

from __future__ import annotations

import pytest

from tests.faults.test_faults import clients_see_what_survived


async def test_clients_see_what_survived_whatever_fault_happens_in_a_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    await clients_see_what_survived(tmp_path_factory, "cluster", 15)
