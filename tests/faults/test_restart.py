"""Stopping and starting: clients notice nothing but a pause."""

from __future__ import annotations

import asyncio
import json
import pathlib
import signal

import aiohttp

from tests.e2e.controlplane.connection import Connection, Stream
from tests.fixtures.server import DevServer

GROUP = "resource.sluice.dev"
CLASSES = f"/apis/{GROUP}/v1/deviceclasses"


def create(server: DevServer, name: str) -> str:
    reply = server.request("POST", CLASSES, {"metadata": {"name": name}, "spec": {}})
    assert reply.status == 201, reply.text
    version: str = reply.json["metadata"]["resourceVersion"]
    return version


def events_after(server: DevServer, version: str, count: int) -> list[tuple[str, str]]:
    target = f"{CLASSES}?watch=1&resourceVersion={version}"
    with Connection(server.kubeconfig) as user, Stream(user, target) as stream:
        events = [stream.next() for _ in range(count)]
    return [(e["type"], e["object"]["metadata"].get("name", e["object"].get("message"))) for e in events]


def test_a_second_start_goes_on_with_the_same_objects_and_versions(tmp_path: pathlib.Path) -> None:
    with DevServer(tmp_path / "data", "--no-samples") as server:
        first = create(server, "a")
        create(server, "b")
        server.request("DELETE", f"{CLASSES}/a")
        before = server.request("GET", CLASSES).json
        server.stop()
        server.start()
        after = server.request("GET", CLASSES).json

        assert after["items"] == before["items"]
        assert int(after["metadata"]["resourceVersion"]) >= int(before["metadata"]["resourceVersion"])
        assert events_after(server, first, 2) == [("ADDED", "b"), ("DELETED", "a")]
        assert int(create(server, "c")) > int(before["metadata"]["resourceVersion"])


def test_exact_lists_and_continue_tokens_from_before_a_restart_work(tmp_path: pathlib.Path) -> None:
    with DevServer(tmp_path / "data", "--no-samples") as server:
        for name in ("a", "b", "c"):
            create(server, name)
        page = server.request("GET", f"{CLASSES}?limit=1").json["metadata"]
        server.request("DELETE", f"{CLASSES}/b")
        server.stop()
        server.start()

        rest = server.request("GET", f"{CLASSES}?continue={page['continue']}").json
        assert [i["metadata"]["name"] for i in rest["items"]] == ["b", "c"]
        assert rest["metadata"]["resourceVersion"] == page["resourceVersion"]


def test_stop_ends_every_watch_with_its_last_chunk_and_leaves_no_store(tmp_path: pathlib.Path) -> None:
    async def watch_and_stop(server: DevServer) -> list[bytes]:
        connector = aiohttp.TCPConnector(ssl=server.context())
        async with aiohttp.ClientSession(connector=connector) as http:
            watches = [await http.get(f"https://127.0.0.1:{server.port}{CLASSES}?watch=1") for _ in range(5)]
            stopping = asyncio.create_task(asyncio.to_thread(server.stop))
            # A body that ends without its terminating chunk raises ClientPayloadError here.
            bodies = [await w.read() for w in watches]
            assert await stopping == 0
            return bodies

    with DevServer(tmp_path / "data", "--no-samples") as server:
        create(server, "a")
        bodies = asyncio.run(watch_and_stop(server))

    assert [json.loads(b)["type"] for b in bodies] == ["ADDED"] * 5
    running = [p for p in pathlib.Path("/proc").glob("[0-9]*/cmdline") if _belongs(p, server.data)]
    assert running == []


def _belongs(cmdline: pathlib.Path, data: pathlib.Path) -> bool:
    try:
        return str(data).encode() in cmdline.read_bytes() or (cmdline.parent / "cwd").readlink().is_relative_to(data)
    except OSError:
        return False


def test_ctrl_c_stops_as_cleanly_as_sigterm(tmp_path: pathlib.Path) -> None:
    server = DevServer(tmp_path / "data", "--no-samples").start()

    assert server.stop(signal.SIGINT) == 0
    assert "Traceback" not in server.log.read_text()
