"""TLS to other servers: what a hostile one can do, and that libraries find what asyncio promises them."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from apiserver.runtime.tls_records import BadGroup, Flood
from apiserver.serving import pki, steps, tls
from apiserver.serving.lookups import Lookups
from apiserver.serving.secured import Secured
from tests.fixtures import hellos
from tests.fixtures.tls_servers import Serve, cutting, flooding, server_side, serving

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "uvloop": steps.Loop,
    "asyncio": type("Loop", (Secured, Lookups, asyncio.SelectorEventLoop), {}),
}
Run = Callable[[Callable[[int], Coroutine[Any, Any, None]]], None]


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> pki.Kit:
    now = dt.datetime.now(dt.UTC)
    return pki.kit(tmp_path_factory.mktemp("kit"), hosts=["localhost"], user="x", groups=[], now=now)


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def run(
    loop: Callable[[], asyncio.AbstractEventLoop], serve: Serve, main: Callable[[int], Coroutine[Any, Any, None]]
) -> None:
    """`main` with the port of a server whose one connection `serve` handles in a thread."""
    with serving(serve) as port, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main(port))


def client_side(kit: pki.Kit) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=kit.ca_pem.decode())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_sent_bytes_arrive_in_both_directions(
    kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion
) -> None:
    sent = bytes(range(256)) * 4096

    def echo(sock: socket.socket) -> None:
        with server_side(kit.files.cert, kit.files.key, version).wrap_socket(sock, server_side=True) as connection:
            left = len(sent)
            while left:
                part = connection.recv(1 << 16)
                left -= len(part)
                connection.sendall(part)
            connection.unwrap().close()

    async def main(port: int) -> None:
        context = client_side(kit)
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        assert isinstance(writer.transport, tls.Transport)
        assert writer.get_extra_info("sslcontext") is context
        assert writer.get_extra_info("ssl_object").version() == version.name.replace("_", ".")
        assert writer.get_extra_info("peername") == ("127.0.0.1", port)
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    run(loop, echo, main)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("within_record", [False, True])
def test_end_without_close_notify_is_an_unexpected_eof(
    kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion, within_record: bool
) -> None:
    def cut(sock: socket.socket) -> None:
        context = server_side(kit.files.cert, kit.files.key, version)
        cutting(context, sock, b"whole", within_record=within_record)

    async def main(port: int) -> None:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=client_side(kit))
        assert await reader.readexactly(5) == b"whole"
        with pytest.raises(ConnectionResetError, match="unexpected EOF"):
            await reader.read()
        writer.close()

    run(loop, cut, main)


@pytest.mark.parametrize("answer", [True, False])
def test_server_that_floods_new_keys_loses_the_connection(
    kit: pki.Kit, tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], answer: bool
) -> None:
    async def main(port: int) -> None:
        reader, _ = await asyncio.open_connection("localhost", port, ssl=client_side(kit))
        assert await reader.readexactly(1) == b"x"
        with pytest.raises(Flood):
            await reader.read()

    run(loop, flooding(kit.files.cert, kit.files.key, tmp_path, answer=answer), main)


def test_server_that_chooses_a_finite_field_is_refused(
    kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    def choose(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(hellos.record(hellos.HANDSHAKE, hellos.server_hello(hellos.FFDHE8192, retry=True)))
        sock.recv(1 << 16)

    async def main(port: int) -> None:
        with pytest.raises(BadGroup):
            await asyncio.open_connection("localhost", port, ssl=client_side(kit))

    run(loop, choose, main)


def test_certificate_of_a_stranger_is_refused_in_pythons_words(
    kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    def serve(sock: socket.socket) -> None:
        server_side(kit.files.cert, kit.files.key).wrap_socket(sock, server_side=True)

    async def main(port: int) -> None:
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer certificate"):
            await asyncio.open_connection("localhost", port, ssl=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    run(loop, serve, main)


def test_name_that_the_certificate_lacks_is_refused(
    kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    def serve(sock: socket.socket) -> None:
        server_side(kit.files.cert, kit.files.key).wrap_socket(sock, server_side=True)

    async def main(port: int) -> None:
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            await asyncio.open_connection("localhost", port, ssl=client_side(kit), server_hostname="elsewhere")

    run(loop, serve, main)


def test_handshake_that_takes_too_long_is_given_up(kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    def wait(sock: socket.socket) -> None:
        while sock.recv(1 << 16):
            pass

    async def main(port: int) -> None:
        with pytest.raises(ConnectionAbortedError, match="SSL handshake is taking longer than"):
            await asyncio.open_connection("localhost", port, ssl=client_side(kit), ssl_handshake_timeout=0.05)

    run(loop, wait, main)


def test_server_that_never_ends_its_handshake_is_refused(
    kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    def chatter(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        while True:
            sock.sendall(hellos.record(hellos.HANDSHAKE, b"\x02\xff\xff\xff" + bytes(1000)))

    async def main(port: int) -> None:
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("localhost", port, ssl=client_side(kit))

    run(loop, chatter, main)


def test_open_connection_can_be_secured_afterwards(kit: pki.Kit, loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """As behind a proxy."""

    def serve(sock: socket.socket) -> None:
        assert sock.recv(5) == b"plain"
        sock.sendall(b"go on")
        with server_side(kit.files.cert, kit.files.key).wrap_socket(sock, server_side=True) as connection:
            connection.sendall(connection.recv(6).upper())

    async def main(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"plain")
        assert await reader.readexactly(5) == b"go on"
        await writer.start_tls(client_side(kit), server_hostname="localhost")
        writer.write(b"secret")
        assert await reader.readexactly(6) == b"SECRET"
        writer.close()

    run(loop, serve, main)
