"""Taking connections from a socket that others may have too, and letting go of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
import time
from collections.abc import Iterator
from typing import cast

import pytest
from aiohttp import web

from apiserver import server
from apiserver.config import config
from apiserver.filters.state import Request
from apiserver.generations import Generations
from apiserver.runtime.fairqueue import FairQueue
from apiserver.serving import dynamiccertificates, listener, pki
from apiserver.serving.connections import Connections
from apiserver.serving.listener import Listener
from tests.fixtures.connection import Connection
from tests.fixtures.failing import fail_once, failures
from tests.fixtures.valkey import eventually
from tests.unit.filters.chain import ok, outer

NOW = dt.datetime.now(dt.UTC)
REQUEST = b"GET /x HTTP/1.1\r\nHost: s\r\n\r\n"
AT_ONCE = config.Shutdown(delay_seconds=0, watch_seconds=0)


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> pki.Kit:
    return pki.kit(tmp_path_factory.mktemp("kit"), hosts=["localhost"], user="x", groups=[], now=NOW)


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


class Rig:
    """A listener on a socket of its own."""

    def __init__(self, kit: pki.Kit, sock: socket.socket) -> None:
        self.connections = Connections(outer(ok), read_peer=lambda _connection: None)
        certificates = dynamiccertificates.Certificates(kit.files)
        self.listener = Listener(
            sock,
            protocol=self.connections,
            context=lambda: certificates.context,
            fair_queue=FairQueue(urgent=lambda: False),
        )
        self.port = sock.getsockname()[1]
        self.client = ssl.create_default_context(cadata=kit.ca_pem.decode())

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    async def accepted(self) -> None:
        """Returns when a connection was taken whose handshake is not over."""
        while not self.listener._opening:  # noqa: ASYNC110 - what is waited for is state, not an event
            await asyncio.sleep(0)

    async def ask(self, plain: socket.socket) -> bytes:
        """Shakes hands and asks; the answer, which ends the connection."""
        return await asyncio.to_thread(self._ask, plain)

    def _ask(self, plain: socket.socket) -> bytes:
        with self.client.wrap_socket(plain, server_hostname="localhost") as connection:
            connection.sendall(b"GET /x HTTP/1.1\r\nHost: s\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := connection.recv(4096):
                answer += part
            return answer


async def test_a_handshake_that_has_begun_is_finished_after_the_port_was_closed(
    kit: pki.Kit, sock: socket.socket
) -> None:
    rig = Rig(kit, sock)
    rig.listener.open()
    with rig.connect() as early:
        await rig.accepted()
        rig.listener.close()
        handshakes = asyncio.ensure_future(rig.listener.handshakes_done())
        await asyncio.sleep(0)
        assert not handshakes.done()
        assert (await rig.ask(early)).startswith(b"HTTP/1.1 200")
        await handshakes
        with pytest.raises(ConnectionRefusedError):
            rig.connect()


async def test_handshakes_that_never_end_are_broken_off(kit: pki.Kit, sock: socket.socket) -> None:
    rig = Rig(kit, sock)
    rig.listener.open()
    with rig.connect() as silent:
        await rig.accepted()
        rig.listener.close()
        await rig.listener.abort()
        assert await asyncio.to_thread(silent.recv, 1) == b""


async def test_connections_queued_on_a_shared_socket_go_to_the_successor(kit: pki.Kit, sock: socket.socket) -> None:
    first, second = Rig(kit, sock.dup()), Rig(kit, sock.dup())
    first.listener.open()
    first.listener.close()
    with first.connect() as waiting:
        second.listener.open()
        assert (await second.ask(waiting)).startswith(b"HTTP/1.1 200")
        second.listener.close()


async def test_socket_is_left_to_a_process_that_accepts_its_connections(
    kit: pki.Kit, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LOOK_SECONDS", 0.005)  # one loop serves and looks, so some looks find a connection
    first, second = Rig(kit, sock.dup()), Rig(kit, sock.dup())
    first.listener.open()
    unaccepted = asyncio.ensure_future(second.listener.unaccepted(0.2))
    end = asyncio.get_running_loop().time() + 0.6
    while asyncio.get_running_loop().time() < end:
        with first.connect() as plain:
            assert (await first.ask(plain)).startswith(b"HTTP/1.1 200")
    assert not unaccepted.done()
    first.listener.close()
    with second.connect() as waiting:
        await unaccepted
        second.listener.open()
        assert (await second.ask(waiting)).startswith(b"HTTP/1.1 200")
        second.listener.close()


async def test_closing_twice_is_closing(kit: pki.Kit, sock: socket.socket) -> None:
    rig = Rig(kit, sock)
    rig.listener.close()
    rig.listener.close()
    await rig.listener.abort()


# ---------------------------------------------------------------------------------------------------------------- silence


async def test_connections_fall_silent_a_while_after_their_last_response(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> web.StreamResponse:
        asked.set()
        await answered.wait()
        return await ok(request)

    monkeypatch.setattr("apiserver.serving.connections.SILENT_SECONDS", 0.05)
    loop = asyncio.get_running_loop()
    connection = Connection(outer(slow))
    asking = asyncio.ensure_future(connection.ask("GET", "/x"))
    await asked.wait()
    silence = asyncio.ensure_future(connection.manager.silence())
    await asyncio.wait((silence,), timeout=0.2)
    assert not silence.done()
    answered.set()
    await asking
    last = loop.time()
    await silence
    assert loop.time() - last > 0.04
    again = asyncio.ensure_future(connection.manager.silence())
    last = loop.time()
    await again
    assert loop.time() - last < 0.04, "nobody has asked since"
    await connection.close()


async def test_request_that_came_while_the_process_stood_still_breaks_the_silence(
    kit: pki.Kit, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its connection would be closed under it."""
    monkeypatch.setattr("apiserver.serving.connections.SILENT_SECONDS", 0.5)
    rig = Rig(kit, sock)
    rig.listener.open()
    client = await asyncio.to_thread(rig.client.wrap_socket, rig.connect(), server_hostname="localhost")
    with client:
        client.sendall(REQUEST)
        assert (await asyncio.to_thread(client.recv, 4096)).startswith(b"HTTP/1.1 200")
        silence = asyncio.ensure_future(rig.connections.silence())
        assert not (await asyncio.wait((silence,), timeout=0.01))[0]
        client.sendall(REQUEST)
        time.sleep(0.6)  # noqa: ASYNC251 - the loop stands still
        began = asyncio.get_running_loop().time()
        await silence
        assert asyncio.get_running_loop().time() - began > 0.4
        assert (await asyncio.to_thread(client.recv, 4096)).startswith(b"HTTP/1.1 200")
    rig.listener.close()


async def test_a_new_connection_and_one_that_is_sending_are_not_silent() -> None:
    connection = Connection(outer(ok))
    now = asyncio.get_running_loop().time()
    assert connection.protocol.used(now + 100) == pytest.approx(now, abs=1)  # type: ignore[attr-defined]
    connection.feed(b"GET /x HTTP/1.1\r\nHo")
    assert connection.protocol.used(now + 100) == now + 100  # type: ignore[attr-defined]
    await connection.close()


async def test_without_connections_it_is_silent() -> None:
    connections = Connections(outer(ok), read_peer=lambda _connection: None)
    await asyncio.wait_for(connections.silence(), 1)


# ------------------------------------------------------------------------------------------------------------------- leaving


async def test_open_connections_end_with_their_next_answer_and_later_ones_are_kept() -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> web.StreamResponse:
        if request.path == "/slow":
            asked.set()
            await answered.wait()
        return await ok(request)

    idle = Connection(outer(slow))
    asking = Connection.to(idle.manager, with_peer=False)
    assert "Connection" not in (await idle.ask("GET", "/x")).headers
    asked_before = asyncio.ensure_future(asking.ask("GET", "/slow"))
    await asked.wait()
    idle.manager.leave()
    later = Connection.to(idle.manager, with_peer=False)
    answered.set()
    for last in (await asked_before, await idle.ask("GET", "/x")):
        assert (last.status, last.headers["Connection"]) == (200, "close")
    await asking.end()
    await idle.end()
    for _ in range(2):
        assert "Connection" not in (await later.ask("GET", "/x")).headers
    await later.close()


async def test_idle_connections_stay_open_until_the_end_of_a_stop(kit: pki.Kit, sock: socket.socket) -> None:
    app = Stopping(sock)
    running = server.Server(cast(Generations, app), dynamiccertificates.Certificates(kit.files), sock, shared=False)
    running.open()
    idle = Connection.to(running._connections, with_peer=False)
    assert (await idle.ask("GET", "/x")).status == 200
    stop = server.Stop()
    shutdown = config.Shutdown(delay_seconds=600, watch_seconds=0)
    stopping = asyncio.ensure_future(running.stop(stop, shutdown, request_seconds=1))
    await eventually(lambda: app.stopped)
    assert not idle.closed
    stop.hurry.set()
    await stopping
    assert idle.closed


# ---------------------------------------------------------------------------------------------------------------- the order of a stop


class Stopping:
    """The parts of the generations that a stop consists of; writes down whether the port was still open for each."""

    def __init__(self, sock: socket.socket) -> None:
        self.handle = outer(ok)
        self.stopped = self.drained = False
        self.unfinished = 0, 0
        self.steps: list[tuple[str, bool]] = []
        self._sock = sock

    def _step(self, name: str) -> None:
        self.steps.append((name, self._sock.fileno() >= 0))

    def filling(self) -> bool:
        return False

    def stopping(self) -> None:
        self.stopped = True

    def drain(self, *, handed_over: bool) -> None:
        assert self.stopped
        self.drained = True

    async def end_watches(self, seconds: float) -> None:
        assert self.drained
        self._step("watches end")

    async def finish(self) -> None:
        self._step("requests end")


@pytest.mark.parametrize("shared", [True, False])
async def test_shared_socket_is_left_early_and_another_after_the_last_request(
    kit: pki.Kit, sock: socket.socket, shared: bool
) -> None:
    app = Stopping(sock)
    running = server.Server(cast(Generations, app), dynamiccertificates.Certificates(kit.files), sock, shared=shared)
    running.open()
    await running.stop(server.Stop(), AT_ONCE, request_seconds=1)
    assert app.steps == [("watches end", not shared), ("requests end", not shared), ("requests end", False)]
    assert app.stopped


async def test_certificates_are_looked_at_on_after_a_failure(
    kit: pki.Kit, sock: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "CERTIFICATE_POLL_SECONDS", 0.01)
    fault, before = fail_once(monkeypatch, dynamiccertificates.Certificates, "refresh"), failures("certificates")
    running = server.Server(
        cast(Generations, Stopping(sock)), dynamiccertificates.Certificates(kit.files), sock, shared=False
    )
    running.open()
    await eventually(lambda: fault.calls >= 3)
    assert failures("certificates") == before + 1
    await running.stop(server.Stop(), AT_ONCE, request_seconds=1)
