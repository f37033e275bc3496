"""kill -9 of the server and of its store in the middle of writes: nothing acknowledged is lost, nothing happens twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import signal
import ssl
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from tests.fixtures.server import DevServer

GROUP = "resource.sluice.dev"
CLASSES = f"/apis/{GROUP}/v1/deviceclasses"
WRITES = 1000
KILL_AT = (250, 600)


@dataclass
class Seen:
    """Events that one resuming watcher received, in order."""

    position: str
    events: list[tuple[str, int]] = field(default_factory=list)

    def note(self, event: dict[str, Any]) -> None:
        metadata = event["object"]["metadata"]
        self.position = metadata["resourceVersion"]
        if event["type"] != "BOOKMARK":
            self.events.append((metadata["name"], int(metadata["resourceVersion"])))


def url(server: DevServer, query: str = "") -> str:
    return f"https://127.0.0.1:{server.port}{CLASSES}{query}"


async def watch_for_ever(server: DevServer, http: aiohttp.ClientSession, seen: Seen) -> None:
    """Resume at the last received version, as informers do. An ERROR event fails the test."""
    while True:
        with contextlib.suppress(aiohttp.ClientError, ConnectionError, asyncio.TimeoutError):
            query = f"?watch=1&allowWatchBookmarks=true&resourceVersion={seen.position}"
            async with http.get(url(server, query)) as stream:
                if stream.status == 200:
                    async for line in stream.content:
                        event = json.loads(line)
                        assert event["type"] != "ERROR", event
                        seen.note(event)
        await asyncio.sleep(0.05)  # a client's back-off


async def create_until_acknowledged(server: DevServer, http: aiohttp.ClientSession, name: str) -> int:
    """The version of the object, however often the request had to be sent. 409 means an earlier attempt had worked."""
    while True:
        try:
            async with http.post(url(server), json={"metadata": {"name": name}, "spec": {}}) as reply:
                if reply.status == 201:
                    return int((await reply.json())["metadata"]["resourceVersion"])
                if reply.status == 409:
                    return 0
                assert reply.status in (429, 503, 504), await reply.text()
        except (aiohttp.ClientError, ConnectionError):
            pass
        await asyncio.sleep(0.02)  # a client's back-off


async def listed(server: DevServer, http: aiohttp.ClientSession) -> Any:
    """The newest state, once the store can be asked about it."""
    while True:
        async with http.get(url(server)) as reply:
            if reply.status == 200:
                return await reply.json()
            assert reply.status in (429, 503, 504), await reply.text()
        await asyncio.sleep(0.02)  # a client's back-off


def store_pid(server: DevServer) -> int:
    """The Valkey that works in the server's data folder."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if b"valkey-server" in (entry / "cmdline").read_bytes():
                folder = (entry / "cwd").readlink()
                if server.data.resolve() in (folder, *folder.parents):
                    return int(entry.name)
    raise AssertionError("no Valkey of this server is running")


async def scenario(server: DevServer, victim: str) -> tuple[dict[str, int], Seen, list[dict[str, Any]]]:
    context: ssl.SSLContext = server.context()
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=None, sock_connect=60)
    ) as http:
        # From a version: the state that a watch from 0 begins with comes in the order of names.
        seen = Seen((await listed(server, http))["metadata"]["resourceVersion"])
        watching = asyncio.create_task(watch_for_ever(server, http, seen))
        acknowledged: dict[str, int] = {}
        names = iter(f"c{i:04}" for i in range(WRITES))

        async def writer() -> None:
            for name in names:
                acknowledged[name] = await create_until_acknowledged(server, http, name)

        writers = [asyncio.create_task(writer()) for _ in range(8)]
        for point in KILL_AT:
            while len(acknowledged) < point:  # noqa: ASYNC110 - a poll of what other processes did
                await asyncio.sleep(0.005)
            await asyncio.to_thread(strike, server, victim)
        await asyncio.gather(*writers)
        async with asyncio.timeout(60):
            while len(seen.events) < WRITES:  # noqa: ASYNC110 - the same
                await asyncio.sleep(0.02)
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        return acknowledged, seen, (await listed(server, http))["items"]


def strike(server: DevServer, victim: str) -> None:
    if victim == "store":
        os.kill(store_pid(server), signal.SIGKILL)
        return
    server.stop(signal.SIGKILL)
    server.start()


@pytest.mark.parametrize("victim", ["server", "store"])
def test_kill_nine_during_a_thousand_creates_loses_and_doubles_nothing(tmp_path: pathlib.Path, victim: str) -> None:
    with DevServer(tmp_path / "data", "--no-samples") as server:
        acknowledged, seen, items = asyncio.run(scenario(server, victim))

    stored = {i["metadata"]["name"]: int(i["metadata"]["resourceVersion"]) for i in items}
    assert sorted(stored) == sorted(acknowledged)
    assert all(stored[name] == version for name, version in acknowledged.items() if version)
    versions = [version for _, version in seen.events]
    assert versions == sorted(set(versions)), "events out of order or repeated"
    assert dict(seen.events) == stored
    assert len(seen.events) == WRITES


def test_a_store_that_stands_still_for_seconds_is_waited_for(tmp_path: pathlib.Path) -> None:
    with DevServer(tmp_path / "data", "--no-samples") as server, ThreadPoolExecutor() as clients:
        version = int(server.request("GET", CLASSES).json["metadata"]["resourceVersion"])
        store = store_pid(server)
        os.kill(store, signal.SIGSTOP)
        try:
            made = clients.submit(server.request, "POST", CLASSES, {"metadata": {"name": "a"}, "spec": {}})
            listed = clients.submit(server.request, "GET", CLASSES)
            # Waits three seconds for a version to come.
            assert server.request("GET", f"{CLASSES}?resourceVersion={version + 1000}").status == 504
        finally:
            os.kill(store, signal.SIGCONT)
        assert (made.result().status, listed.result().status) == (201, 200)
