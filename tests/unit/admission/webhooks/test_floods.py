"""TLS attacks of a hostile webhook, and the messages about them."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import socket
from pathlib import Path

import pytest
from OpenSSL import SSL

from apiserver.admission.webhooks import causes
from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from apiserver.serving import pki
from tests.fixtures import hellos
from tests.fixtures.tls_servers import Serve, cutting, flooding, server_side, serving

REVIEW = b"{}"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> pki.Kit:
    now = dt.datetime.now(dt.UTC)
    return pki.kit(tmp_path_factory.mktemp("kit"), hosts=["localhost"], user="x", groups=[], now=now)


def target(kit: pki.Kit, port: int) -> Target:
    bundle = base64.b64encode(kit.ca_pem).decode()
    return Target.of({"url": f"https://localhost:{port}/", "caBundle": bundle})


async def failure(caller: Caller, kit: pki.Kit, serve: Serve) -> str:
    """Call this webhook, and return what the call fails with, without its URL."""
    with serving(serve) as port:
        with pytest.raises(CallFailed) as failed:
            await caller.call(target(kit, port), REVIEW, seconds=30)
        await caller.close()
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
    return str(failed.value).rpartition('": ')[2].removeprefix(causes.unread(""))


HEADS = {
    "nothing": b"",
    "a part of the head": b"HTTP/1.1 200 OK\r\nContent-",
    "a part of the body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    "some chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "a body without a length": b"HTTP/1.1 200 OK\r\n\r\n{}",
}
TRANSPORT = "net/http: HTTP/1.x transport connection broken: "


@pytest.mark.parametrize(
    ("said", "within_record", "words"),
    [
        ("nothing", False, "EOF"),
        ("nothing", True, "unexpected EOF"),
        ("a part of the head", False, f"{TRANSPORT}unexpected EOF"),
        ("a part of the head", True, f"{TRANSPORT}unexpected EOF"),
        ("a part of the body", False, "unexpected EOF"),
        ("a part of the body", True, "unexpected EOF"),
        ("some chunks", False, "unexpected EOF"),
        ("some chunks", True, "unexpected EOF"),
        ("a body without a length", True, "unexpected EOF"),
    ],
)
async def test_webhook_that_is_cut_off_fails_in_gos_words(
    caller: Caller, kit: pki.Kit, said: str, within_record: bool, words: str
) -> None:
    """As Go's client, which takes an end between two records for an end."""

    def cut(sock: socket.socket) -> None:
        cutting(server_side(kit.files.cert, kit.files.key), sock, HEADS[said], within_record=within_record)

    assert await failure(caller, kit, cut) == words


async def test_answer_without_a_length_that_ends_with_a_record_is_whole(caller: Caller, kit: pki.Kit) -> None:
    def cut(sock: socket.socket) -> None:
        cutting(server_side(kit.files.cert, kit.files.key), sock, HEADS["a body without a length"], within_record=False)

    with serving(cut) as port:
        assert await caller.call(target(kit, port), REVIEW, seconds=30) == b"{}"
        await caller.close()


@pytest.mark.parametrize("answer", [True, False])
async def test_webhook_that_floods_new_keys_fails_in_gos_words(
    caller: Caller, kit: pki.Kit, tmp_path: Path, answer: bool
) -> None:
    flood = flooding(kit.files.cert, kit.files.key, tmp_path, answer=answer, data=b"HTTP/1.1 200 OK\r\n")
    said = await failure(caller, kit, flood)
    assert said == "tls: too many non-advancing records"


async def test_webhook_that_chooses_a_finite_field_fails(caller: Caller, kit: pki.Kit) -> None:
    def choose(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(hellos.record(hellos.HANDSHAKE, hellos.server_hello(hellos.FFDHE8192, retry=True)))
        sock.recv(1 << 16)

    assert await failure(caller, kit, choose) == "tls: server selected unsupported group"


async def test_webhook_that_never_ends_its_handshake_fails(caller: Caller, kit: pki.Kit) -> None:
    def chatter(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        while True:
            sock.sendall(hellos.record(20, b"\x01") * 1000)

    assert (await failure(caller, kit, chatter)).startswith("tls: ")


async def test_webhook_that_negotiates_anew_fails_in_gos_words(caller: Caller, kit: pki.Kit) -> None:
    def renegotiate(sock: socket.socket) -> None:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        context.use_certificate_chain_file(str(kit.files.cert))
        context.use_privatekey_file(str(kit.files.key))
        sock.settimeout(None)
        connection = SSL.Connection(context, sock)
        connection.set_accept_state()
        connection.do_handshake()
        connection.recv(1)
        connection.renegotiate()
        try:
            connection.do_handshake()  # sends the request for a hello
            connection.recv(1 << 16)
        except SSL.Error:
            pass

    assert await failure(caller, kit, renegotiate) == "local error: tls: no renegotiation"
