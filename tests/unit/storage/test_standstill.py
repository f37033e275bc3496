"""A process that stood still, with its store: the time does not count as silence of the store."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from apiserver.storage import log
from apiserver.storage.errors import Unavailable
from apiserver.storage.pipeline import STALLED_SECONDS
from apiserver.storage.store import Store, Write
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.valkey import Open, Server, install, value

PATIENCE = 2 * STALLED_SECONDS
STANDSTILL = PATIENCE + STALLED_SECONDS / 2


async def create(store: Store, name: str) -> Revision:
    return (await store.commit(Write(Key(name), value(name), Revision(0), "u"), dry_run=False)).revision


async def stand_still(server: Server, seconds: float) -> None:
    """Suspend the loop and the store. The loop goes on first, as after a pause of a machine with other work."""
    server.signal(signal.SIGSTOP)
    for _ in range(3):
        await asyncio.sleep(0)  # the questions of this moment leave first
    time.sleep(seconds)  # noqa: ASYNC251
    asyncio.get_running_loop().call_later(0.4, server.signal, signal.SIGCONT)


async def test_read_that_waits_during_a_standstill_is_answered(
    own_server: Server, resource: str, opening: Open
) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource, barrier_seconds=PATIENCE))[resource]
    standing = asyncio.create_task(stand_still(own_server, STANDSTILL))
    await asyncio.sleep(0)
    assert await store.barrier() == store.applied
    await standing


async def test_read_that_waits_too_long_after_a_standstill_fails(
    own_server: Server, resource: str, opening: Open
) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource, barrier_seconds=PATIENCE))[resource]
    own_server.signal(signal.SIGSTOP)
    waiting = asyncio.create_task(store.barrier())
    await asyncio.sleep(0)
    time.sleep(STANDSTILL)  # noqa: ASYNC251
    with pytest.raises(Unavailable, match="did not answer within 2 s"):
        await waiting


@pytest.mark.parametrize("idle", [True, False], ids=["idle", "a read waits"])
async def test_session_outlives_a_standstill(own_server: Server, resource: str, opening: Open, idle: bool) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource, reply_seconds=PATIENCE - log.BLOCK_MS / 1000))[resource]
    session = store._link.session
    await create(store, "a")  # so the log has been asked just now
    waiting = [] if idle else [asyncio.create_task(store.barrier())]
    await stand_still(own_server, STANDSTILL)
    await asyncio.gather(*waiting)
    assert await create(store, "b") == store.applied
    assert store._link.session is session
