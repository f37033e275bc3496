"""Headers that never end, from many connections at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.fixtures.server import DevServer, dev_server
from tests.hostile.heads import SHAPES, flood

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    with dev_server(tmp_path_factory.mktemp("heads")) as started:
        yield started


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("certificate", [False, True], ids=["stranger", "administrator"])
def test_unfinished_heads_take_no_more_than_their_budget(server: DevServer, shape: str, certificate: bool) -> None:
    assert asyncio.run(flood(server, shape=shape, certificate=certificate)) == []
