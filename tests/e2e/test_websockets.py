"""Watches over WebSockets on a server of their own: how it ends them, what it records of them, and what a hostile client costs."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import pathlib
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.e2e import objects
from tests.fixtures import websocket
from tests.fixtures.server import DevServer, dev_server
from tests.fixtures.websocket import CLOSE, PING, PONG, TEXT, Frame, WebSocket
from tests.hostile.campaign import Process

CLASSES = f"{objects.V1}/deviceclasses"
NORMAL = Frame(CLOSE, struct.pack(">H", 1000))
POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- level: Metadata
"""
MEMORY = 64 << 20
"""Bytes that one client may cost."""


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, audit_log: pathlib.Path) -> Iterator[DevServer]:
    policy = audit_log.with_name("policy.yaml")
    policy.write_text(POLICY)
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit_log}")
    with dev_server(tmp_path_factory.mktemp("websockets"), *flags) as running:
        yield running


def connection(server: DevServer) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", server.port, context=server.context(), timeout=120)


def opened(server: DevServer, query: str = "", headers: websocket.Headers | None = None) -> WebSocket:
    return WebSocket(connection(server), f"{CLASSES}?watch=1&timeoutSeconds=600{query}", headers)


def counted(server: DevServer, code: str) -> float:
    """How many watches of device classes were counted with that code."""
    lines = server.request("GET", "/metrics").text.splitlines()
    labels = ('verb="WATCH"', 'resource="deviceclasses"', f'code="{code}"')
    return sum(
        float(line.rpartition(" ")[2])
        for line in lines
        if line.startswith("apiserver_request_total{") and all(label in line for label in labels)
    )


def test_a_watch_is_recorded_and_counted_as_upstream_does(server: DevServer, audit_log: pathlib.Path) -> None:
    """Upstream's meter does not learn the status of a connection that is given away; its audit does."""
    before = counted(server, "0")
    headers = websocket.handshake(Audit_ID="of-a-websocket")
    with opened(server, headers=headers) as watch:
        watch.send(websocket.frame(CLOSE))
        assert watch.rest()[-1:] == [NORMAL]

    def recorded() -> list[dict[str, Any]]:
        events = map(json.loads, audit_log.read_text().splitlines())
        return [event for event in events if event["auditID"] == "of-a-websocket"]

    _eventually(lambda: len(recorded()) == 3)
    assert [(event["stage"], event.get("responseStatus", {}).get("code")) for event in recorded()] == [
        ("RequestReceived", None),
        ("ResponseStarted", 101),
        ("ResponseComplete", 101),
    ]
    _eventually(lambda: counted(server, "0") == before + 1)


def _eventually(happened: Any) -> None:
    pause = threading.Event()
    for _ in range(1200):
        if happened():
            return
        pause.wait(0.05)
    raise AssertionError("it did not happen within a minute")


def test_a_client_library_watches_until_it_closes(server: DevServer) -> None:
    """aiohttp's client judges every frame by the RFC."""

    async def watching() -> None:
        address = f"https://127.0.0.1:{server.port}"
        async with (
            asyncio.timeout(120),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=server.context())) as session,
            session.ws_connect(
                f"{address}{CLASSES}?watch=1", origin=address, protocols=["base64.binary.k8s.io"]
            ) as watch,
        ):
            assert watch.protocol == "base64.binary.k8s.io"
            obj = objects.device_class("aiohttp")
            created = await asyncio.to_thread(server.request, "POST", CLASSES, obj)
            assert created.status == 201
            while (event := await watch.receive_json())["object"]["metadata"]["name"] != "aiohttp":
                pass
            assert event["type"] == "ADDED"
            await watch.ping(b"there?")
            response: Any = watch._response
            transport = response.connection.transport
            await watch.close()
            assert watch.close_code == 1000
            # Otherwise it is still taking leave of its server, as TLS wants it, when the test is over.
            with contextlib.suppress(AttributeError):  # CPython's transport that was closed twice has no protocol
                transport.abort()

    asyncio.run(watching())


@pytest.mark.parametrize("one", [websocket.frame(PING, b"p" * 125), websocket.frame(TEXT)])
def test_frames_of_a_client_that_reads_nothing_cost_no_memory_or_health(server: DevServer, one: bytes) -> None:
    """Its pongs wait for it up to a bound, and no more are made."""
    process = Process(server.pid)
    with opened(server) as watch:
        before = process.memory()
        for _ in range(64):
            watch.send(one * ((256 << 10) // len(one)))
            assert server.request("GET", "/livez").status == 200
        assert process.memory() - before < MEMORY
    with opened(server) as watch:  # and others are served as before
        watch.send(websocket.frame(PING, b"x"))
        while (found := watch.frame()) != Frame(PONG, b"x"):
            assert found is not None


def test_a_frame_that_says_it_is_long_is_read_without_being_kept(server: DevServer) -> None:
    process = Process(server.pid)
    with opened(server, "&fieldSelector=metadata.name=none") as watch:
        before = process.memory()
        size = 32 << 20
        watch.send(websocket.frame(TEXT, length=size))
        for _ in range(32):
            watch.send(bytes(1 << 20))
        watch.send(websocket.frame(PING, b"behind it"))
        assert watch.frame() == Frame(PONG, b"behind it")
        assert process.memory() - before < MEMORY


def test_a_client_that_vanishes_is_let_go_of(server: DevServer) -> None:
    def running() -> float:
        lines = server.request("GET", "/metrics").text.splitlines()
        labels = ("apiserver_longrunning_requests{", 'resource="deviceclasses"')
        return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))

    _eventually(lambda: running() == 0)
    watch = opened(server)
    _eventually(lambda: running() == 1)
    watch._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    watch.close()
    _eventually(lambda: running() == 0)


def test_a_server_that_stops_ends_its_watches_with_a_close_frame(tmp_path: pathlib.Path) -> None:
    with dev_server(tmp_path) as server, opened(server) as one, opened(server) as other:
        assert server.request("POST", CLASSES, objects.device_class("last")).status == 201
        assert one.event()[1]["metadata"]["name"] == "last"
        assert server.stop(signal.SIGTERM) == 0
        assert one.rest() == [NORMAL]
        assert other.rest()[-1] == NORMAL
