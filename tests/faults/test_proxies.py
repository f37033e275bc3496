"""Proxies between programs leave no connection when they stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import socket
from collections.abc import Awaitable, Callable

import pytest

from tests.faults.network import Network
from tests.fixtures.processes import free_port
from tests.fixtures.proxy import Proxy

Stop = Callable[[], Awaitable[None]]


async def network(_: pathlib.Path) -> tuple[int, Stop]:
    made = Network()
    made.add("test", os.getpid)
    made.hold("test", "server")
    return await made.listen("server", free_port()), made.close


async def proxy(folder: pathlib.Path) -> tuple[int, Stop]:
    made = Proxy(folder / "silent.sock")
    await made.start()
    return made.port, made.stop


@pytest.mark.parametrize("turns", range(7))
@pytest.mark.parametrize("start", [network, proxy])
async def test_connections_that_were_just_accepted_are_closed(
    tmp_path: pathlib.Path, start: Callable[[pathlib.Path], Awaitable[tuple[int, Stop]]], turns: int
) -> None:
    port, stop = await start(tmp_path)
    with socket.socket(socket.AF_UNIX) as silent, socket.create_connection(("127.0.0.1", port)) as client:
        silent.bind(str(tmp_path / "silent.sock"))
        silent.listen()
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop()
        client.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""
