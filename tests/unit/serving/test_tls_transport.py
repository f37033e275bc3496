"""Guarantees to a protocol and its client, with real sockets and real TLS: every byte in order, and a known end."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from apiserver.serving import dynamiccertificates, pki, tls
from tests.fixtures.valkey import eventually

NOW = dt.datetime.now(dt.UTC)
KERNEL = 64 << 10
"""About what the kernel keeps for a client that does not read, at either end."""
LONG = 3 << 20


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> pki.Kit:
    return pki.kit(tmp_path_factory.mktemp("kit"), hosts=["localhost"], user="x", groups=[], now=NOW)


class Recorder(asyncio.Protocol):
    """Records every callback."""

    transport: tls.Transport

    def __init__(self) -> None:
        self.made = asyncio.Event()
        self.received = bytearray()
        self.pauses = self.resumptions = 0
        self.ended = False
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, tls.Transport)
        self.transport = transport
        self.made.set()

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> None:
        self.ended = True

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumptions += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


class Client:
    """The other end, which blocks: for threads."""

    def __init__(self, kit: pki.Kit, port: int) -> None:
        plain = socket.socket()
        plain.settimeout(60)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL)
        plain.connect(("127.0.0.1", port))
        context = ssl.create_default_context(cadata=kit.ca_pem.decode())
        # Python 3.11.2 takes an end that TLS does not announce for one that it does.
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        self.socket = context.wrap_socket(plain, server_hostname="localhost", suppress_ragged_eofs=False)

    def take_tickets(self) -> None:
        self.socket.settimeout(0)
        while True:
            try:
                self.socket.recv(1)
            except ssl.SSLWantReadError:
                break

    def read(self) -> bytes:
        """Everything up to the end, which TLS has to announce."""
        parts = []
        while part := self.socket.recv(1 << 16):
            parts.append(part)
        return b"".join(parts)


class Greedy(socket.socket):
    """Takes everything at once, as with a client that reads faster than we write."""

    def send(self, data: bytes | bytearray | memoryview, flags: int = 0) -> int:  # type: ignore[override]
        self.settimeout(60)
        self.sendall(data, flags)
        self.settimeout(0)
        return len(data)


@asynccontextmanager
async def connected(kit: pki.Kit, *, greedy: bool = False) -> AsyncIterator[tuple[Recorder, Client]]:
    """Both ends."""
    protocol, loop = Recorder(), asyncio.get_running_loop()
    context = dynamiccertificates.Certificates(kit.files).context
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        opening = asyncio.ensure_future(asyncio.to_thread(Client, kit, listening.getsockname()[1]))
        sock, _ = await loop.sock_accept(listening)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL)
        if greedy:
            sock = Greedy(fileno=sock.detach())
        await tls.accept(sock, context, lambda: protocol)
        client = await opening
    try:
        yield protocol, client
    finally:
        client.socket.close()
        protocol.transport.abort()
        await eventually(lambda: len(protocol.lost) == 1)


async def test_sent_bytes_arrive_in_both_directions(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        sent = bytes(range(256)) * 4096
        await asyncio.to_thread(client.socket.sendall, sent)
        await eventually(lambda: protocol.received == sent)
        protocol.transport.writelines([b"one ", b"two ", sent])
        protocol.transport.write(b"")
        protocol.transport.close()
        assert await asyncio.to_thread(client.read) == b"one two " + sent
        client.socket.close()
        await eventually(lambda: protocol.lost == [None])


async def test_bytes_that_a_client_does_not_read_yet_arrive_whole_before_the_end(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        transport, pieces = protocol.transport, [bytes([n]) * (LONG // 8) for n in range(24)]
        for piece in pieces:
            transport.write(piece)
        assert protocol.pauses == 1
        assert transport.get_write_buffer_size() > tls.HIGH
        transport.close()
        transport.write(b"too late")
        assert await asyncio.to_thread(client.read) == b"".join(pieces)
        assert protocol.resumptions == 1
        assert transport.get_write_buffer_size() == 0


async def test_many_small_pieces_that_wait_come_in_order(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        transport = protocol.transport
        transport.write(bytes(LONG))
        waiting = transport.get_write_buffer_size()
        assert waiting
        pieces = [b"%d " % number for number in range(1000)]
        for piece in pieces:
            transport.write(piece)
        assert transport.get_write_buffer_size() == waiting + sum(map(len, pieces))
        reading = asyncio.ensure_future(asyncio.to_thread(client.read))
        await eventually(lambda: not transport.get_write_buffer_size())
        transport.close()
        assert (await reading)[LONG:] == b"".join(pieces)


@pytest.mark.parametrize("parts", [1, 3])
async def test_one_step_sends_a_part_of_a_large_write(kit: pki.Kit, parts: int) -> None:
    async with connected(kit, greedy=True) as (protocol, client):
        transport, pieces = protocol.transport, [bytes([n]) * (8 * LONG // parts) for n in range(parts)]
        reading = asyncio.ensure_future(asyncio.to_thread(client.read))
        await asyncio.sleep(0)
        if parts == 1:
            transport.write(pieces[0])
        else:
            transport.writelines(pieces)
        assert transport.get_write_buffer_size() >= 8 * LONG - tls.AT_ONCE
        transport.close()
        assert await reading == b"".join(pieces)


async def test_paused_protocol_receives_nothing_until_it_resumes(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        transport = protocol.transport
        transport.pause_reading()
        assert not transport.is_reading()
        await asyncio.to_thread(client.socket.sendall, b"x" * 100_000)
        assert not protocol.received
        transport.resume_reading()
        transport.resume_reading()
        await eventually(lambda: len(protocol.received) == 100_000)


async def test_bytes_that_come_with_the_end_of_the_handshake_are_delivered(kit: pki.Kit) -> None:
    """A client sends its first request in the same segment."""
    protocol, loop = Recorder(), asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=kit.ca_pem.decode()).wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    ours, theirs = socket.socketpair()
    with theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
        accepting = asyncio.ensure_future(
            tls.accept(ours, dynamiccertificates.Certificates(kit.files).context, lambda: protocol)
        )
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                await loop.sock_sendall(theirs, outgoing.read())
                incoming.write(await loop.sock_recv(theirs, 1 << 16))
        client.write(b"GET /")
        await loop.sock_sendall(theirs, outgoing.read())
        await accepting
        await eventually(lambda: protocol.received == b"GET /")
        protocol.transport.abort()
        await eventually(lambda: protocol.lost == [None])


@pytest.mark.parametrize("politely", [True, False])
async def test_a_client_that_has_said_all_is_let_go(kit: pki.Kit, politely: bool) -> None:
    async with connected(kit) as (protocol, client):
        await asyncio.to_thread(client.socket.sendall, b"bye")
        if politely:
            await asyncio.to_thread(client.socket.unwrap)  # returns when the server has said so, too
        else:
            await asyncio.to_thread(client.take_tickets)  # unread bytes would make the end a reset
        client.socket.close()
        await eventually(lambda: protocol.lost == [None])
        assert protocol.received == b"bye"
        assert protocol.ended


async def test_a_reset_is_the_end(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.socket.close()
        await eventually(lambda: protocol.lost != [])
        protocol.transport.write(b"to nobody")
        protocol.transport.close()


async def test_a_record_that_was_tampered_with_ends_the_connection(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        with socket.socket(fileno=client.socket.detach()) as plain:
            plain.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            await eventually(lambda: protocol.lost != [])
            assert isinstance(protocol.lost[0], ssl.SSLError)
            assert not protocol.received


async def test_client_that_never_closes_its_end_is_waited_for_briefly(
    kit: pki.Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "LINGER_SECONDS", 0.05)
    async with connected(kit) as (protocol, client):
        protocol.transport.write(b"all")
        protocol.transport.close()
        assert await asyncio.to_thread(client.read) == b"all"
        await eventually(lambda: protocol.lost == [None])


async def test_client_that_still_sends_reads_the_answer_all_the_same(kit: pki.Kit) -> None:
    """The end of a connection is no reset, which would overtake what was answered."""
    async with connected(kit) as (protocol, client):
        await asyncio.to_thread(client.socket.sendall, b"x")
        await eventually(lambda: protocol.received == b"x")
        protocol.transport.write(b"refused")
        protocol.transport.close()
        await asyncio.to_thread(client.socket.sendall, b"x" * 100_000)
        assert await asyncio.to_thread(client.read) == b"refused"
        assert protocol.received == b"x"


async def test_client_that_does_not_read_the_rest_is_disconnected(
    kit: pki.Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "FLUSH_SECONDS", 0.05)
    async with connected(kit) as (protocol, _):
        protocol.transport.write(bytes(3 * LONG))
        protocol.transport.close()
        await eventually(lambda: protocol.lost == [None])


async def test_aborting_sends_nothing_more(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        protocol.transport.write(bytes(3 * LONG))
        protocol.transport.abort()
        protocol.transport.abort()
        assert protocol.transport.is_closing()
        await eventually(lambda: protocol.lost == [None])
        with pytest.raises(OSError):  # noqa: PT011 - a reset or an unexpected end, as the kernel likes
            await asyncio.to_thread(client.read)


async def test_failing_protocol_loses_its_connection_and_is_logged(
    kit: pki.Kit, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(kit) as (protocol, client):

        def fail(_data: bytes) -> None:
            raise LookupError("what?")

        monkeypatch.setattr(protocol, "data_received", fail)
        with caplog.at_level(logging.ERROR, "asyncio"):
            await asyncio.to_thread(client.socket.sendall, b"x")
            await eventually(lambda: protocol.lost != [])
        assert isinstance(protocol.lost[0], LookupError)
        assert "a protocol failed with what it received" in caplog.text


async def test_transport_knows_its_peer_and_its_session(kit: pki.Kit) -> None:
    async with connected(kit) as (protocol, client):
        told = protocol.transport.get_extra_info
        assert told("peername") == client.socket.getsockname()
        assert told("sockname") == client.socket.getpeername()
        assert told("ssl_object").version() == client.socket.version()
        assert told("sslcontext") is told("ssl_object").context
        assert told("socket").family == socket.AF_INET
        assert told("compression", "none") == "none"


async def test_a_handshake_that_fails_says_why_to_both_ends(kit: pki.Kit) -> None:
    loop = asyncio.get_running_loop()
    client = ssl.create_default_context()  # believes others
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        plain = socket.create_connection(listening.getsockname(), timeout=60)
        sock, _ = await loop.sock_accept(listening)
        sock.setblocking(False)
        opening = asyncio.ensure_future(asyncio.to_thread(client.wrap_socket, plain, server_hostname="localhost"))
        with pytest.raises(ssl.SSLError, match="unknown ca"):
            await tls.accept(sock, dynamiccertificates.Certificates(kit.files).context, Recorder)
        with pytest.raises(ssl.SSLCertVerificationError):
            await opening


async def test_a_client_that_leaves_in_its_handshake_leaves_nothing(kit: pki.Kit) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    accepting = asyncio.ensure_future(tls.accept(ours, dynamiccertificates.Certificates(kit.files).context, Recorder))
    await asyncio.sleep(0)
    theirs.close()
    with pytest.raises(OSError):  # noqa: PT011 - an end of the stream, as OpenSSL has it
        await accepting
