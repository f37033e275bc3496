"""Messages about answers and connections that fail, word for word as those of kube-apiserver 1.36.3 about the same bytes.

`go_http.jsonl` and `go_answers.jsonl` hold what a webhook sent (bytes as Latin-1 text) and what kube-apiserver made of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import ipaddress
import json
import pathlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiserver.admission.webhooks import review
from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from apiserver.admission.webhooks.review import BadAnswer
from apiserver.serving import pki
from tests.unit.admission.webhooks import hook as plays
from tests.unit.admission.webhooks.hook import NOW, Hook

HERE = pathlib.Path(__file__).resolve().parent
UID = "0b4c9a2e-0000-4000-8000-000000000000"


BROKEN = 'failed to call webhook: Post "https://127.0.0.1:{port}/v?timeout=10s": net/http: HTTP/1.x transport connection broken: '
DIFFERENT = {
    "garbage2": BROKEN + 'malformed HTTP response "HTTP/1.1 abc"',
    "garbage3": BROKEN + 'malformed HTTP response "HTTP/x.y 200 OK"',
    "garbage5": BROKEN + 'malformed HTTP response "HTTP/1.1 20 OK"',
    "badheader": BROKEN + "Invalid header token",
    "badheader2": BROKEN + "Invalid header token",
    "badheader3": BROKEN + "Invalid header token",
    "badlength": BROKEN + "Invalid character in Content-Length",
    "twolengths": BROKEN + "Duplicate Content-Length",
    "badte": (
        "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type "
        r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
    ),
    "chunkbad": (
        "failed to call webhook: unexpected error when reading response body. Please retry. "
        "Original error: malformed chunked encoding"
    ),
    "s101": "failed to call webhook: 0-length response with status code: 101 and content type: application/json",
}
"""Cases that aiohttp's parser reads in another way than Go (docs/differences.md), and what comes of them here."""


def cases(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


async def said(caller: Caller, hook: Hook, case: dict[str, Any]) -> str:
    """The outcome of an answer, as upstream puts it into its text; "ok" for one that can be read."""
    raw = case["raw"].replace("{uid}", UID).encode("latin-1")
    hook.plays = [plays.says(raw, then_closes=case["closes"])]
    try:
        data = await caller.call(Target.of(hook.config("/v")), b"{}", seconds=10)
        found = review.read(data, version=case["version"], uid=UID, mutating=case["mutating"])
        if found.patch:
            found.operations()
    except (CallFailed, BadAnswer) as error:
        return f"{error.prefix}: {error}"
    return "ok"


@pytest.mark.parametrize("name", ["go_http.jsonl", "go_answers.jsonl"])
async def test_an_answer_means_what_kube_apiserver_takes_it_for(name: str, hook: Hook, caller: Caller) -> None:
    wrong = []
    for case in cases(name):
        text = DIFFERENT.get(case["name"], case["error"])
        expected = text.replace("{port}", str(hook.port)).replace("{uid}", UID) if case["called"] else "ok"
        found = await said(caller, hook, case)
        if found != expected:
            wrong.append(f"{case['name']}\n  expected {expected}\n  found    {found}")
    assert not wrong, "\n".join(wrong)


# --------------------------------------------------------------------------------------------------------------- certificates


def leaf(
    ca: pki.Pair,
    *,
    names: Sequence[str] = (),
    common_name: str = "hook",
    starts: dt.timedelta = dt.timedelta(days=-9),
    ends: dt.timedelta = dt.timedelta(days=9),
    usage: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> pki.Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + starts)
        .not_valid_after(NOW + ends)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    )
    if names:
        made = made.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
    return pki.Pair(made.sign(ca.key, hashes.SHA256()), key)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


CLIENTS = ExtendedKeyUsageOID.CLIENT_AUTH
VERIFY = "tls: failed to verify certificate: x509: "
EXPIRED = VERIFY + "certificate has expired or is not yet valid: current time TIME is"


@pytest.mark.parametrize(
    ("host", "certificate", "words"),
    [
        ("127.0.0.1", {"names": ["a.b"]}, "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"),
        ("127.0.0.1", {"names": ["a.b", "10.0.0.1", "10.0.0.2"]}, "certificate is valid for 10.0.0.1, 10.0.0.2, not 127.0.0.1"),
        ("localhost", {"names": ["10.0.0.1"]}, "certificate is not valid for any names, but wanted to match localhost"),
        ("localhost", {"names": ["a.b", "*.c"]}, "certificate is valid for a.b, *.c, not localhost"),
        ("localhost", {"names": [f"n{i}.b" for i in range(120)]}, "certificate is valid for 120 names, but none matched localhost"),
        ("localhost", {"common_name": "localhost"}, "certificate relies on legacy Common Name field, use SANs instead"),
        ("localhost", {"common_name": "some thing"}, "certificate is not valid for any names, but wanted to match localhost"),
        ("127.0.0.1", {"names": ["a.b"], "ends": dt.timedelta(days=-2)}, EXPIRED + " after TIME"),
        ("127.0.0.1", {"names": ["127.0.0.1"], "starts": dt.timedelta(days=2)}, EXPIRED + " before TIME"),
        ("127.0.0.1", {"names": ["127.0.0.1"], "usage": CLIENTS}, "certificate specifies an incompatible key usage"),
        ("127.0.0.1", {"names": ["127.0.0.1"], "stranger": True}, "certificate signed by unknown authority"),
    ],
)  # fmt: skip
async def test_untrusted_certificate_gets_gos_message(
    host: str, certificate: dict[str, Any], words: str, hook: Hook, caller: Caller
) -> None:
    ca = pki.make_ca("others", now=NOW) if certificate.pop("stranger", False) else hook.ca
    hook.plays = [plays.answer("{}")]
    await hook.show(leaf(ca, **certificate))
    url = f"https://{host}:{hook.port}/v"
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config(url=url)), b"{}", seconds=10)
    expected = f'Post "{url}?timeout=10s": {words if words.startswith(VERIFY) else VERIFY + words}'
    assert re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME", str(failed.value)) == expected
    assert not hook.seen


@pytest.mark.parametrize(
    ("bundle", "words"),
    [
        ("Z2FyYmFnZQ==", "unable to load root certificates: unable to parse bytes as PEM block"),
        (
            "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCkFBQUEKLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo=",
            "unable to load root certificates: no valid certificate authority data seen",
        ),
        (
            "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=",
            "unable to load root certificates: failed to parse certificate: x509: malformed certificate",
        ),
    ],
)
async def test_malformed_bundle_makes_no_client(bundle: str, words: str, hook: Hook, caller: Caller) -> None:
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config(caBundle=bundle)), b"{}", seconds=10)
    assert (failed.value.prefix, str(failed.value)) == ("could not get REST client", words)


# ---------------------------------------------------------------------------------------------------------------- connections


Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _junk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"hello world, this is no TLS\n")
    writer.close()


async def _plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def _closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1 << 20)
    writer.close()


@pytest.mark.parametrize(
    ("accept", "words"),
    [
        (_junk, "tls: first record does not look like a TLS handshake"),
        (_plain, "http: server gave HTTP response to HTTPS client"),
        (_closes, "EOF"),
    ],
)
async def test_server_without_tls_is_reported_by_its_first_bytes(
    accept: Accept, words: str, hook: Hook, caller: Caller
) -> None:
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v"
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config(url=url)), b"{}", seconds=10)
    assert str(failed.value) == f'Post "{url}?timeout=10s": {words}'
    server.close()


async def test_refused_connection_gets_gos_message(hook: Hook, caller: Caller) -> None:
    await hook.stop()
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config("/v")), b"{}", seconds=10)
    at = f"127.0.0.1:{hook.port}"
    assert str(failed.value) == f'Post "https://{at}/v?timeout=10s": dial tcp {at}: connect: connection refused'


async def test_unresolved_host_is_reported_with_its_name_server(hook: Hook, caller: Caller) -> None:
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config(url="https://nosuch.invalid/v")), b"{}", seconds=100)
    begin = re.escape('Post "https://nosuch.invalid/v?timeout=1m40s": dial tcp: lookup nosuch.invalid')
    assert re.fullmatch(begin + r" on \S+:53: (no such host|server misbehaving)", str(failed.value))


async def test_a_webhook_that_wants_a_certificate_says_so(hook: Hook, caller: Caller) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(hook.folder / "hook.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=hook.ca.cert_pem.decode())
    listening = socket.create_server(("127.0.0.1", 0))

    def refuse() -> None:
        # Blocking, since asyncio drops the alert.
        with contextlib.suppress(ssl.SSLError), context.wrap_socket(listening.accept()[0], server_side=True):
            pass

    thread = threading.Thread(target=refuse)
    thread.start()
    with pytest.raises(CallFailed, match=r"/v\?timeout=10s\": remote error: tls: handshake failure$"):
        await caller.call(
            Target.of(hook.config(url=f"https://127.0.0.1:{listening.getsockname()[1]}/v")), b"{}", seconds=10
        )
    thread.join()
    listening.close()


async def test_body_that_does_not_end_in_time_has_its_own_message(hook: Hook, caller: Caller) -> None:
    async def half(exchange: plays.Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
        await asyncio.Event().wait()

    hook.plays = [half]
    expected = "unexpected error when reading response body. Please retry. Original error: context deadline exceeded"
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config("/v")), b"{}", seconds=0.3)
    assert str(failed.value) == expected


async def test_connection_that_is_reset_is_reported_with_both_addresses(hook: Hook, caller: Caller) -> None:
    async def reset(exchange: plays.Exchange) -> None:
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.writer.transport.abort()

    hook.plays = [reset]
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config("/v")), b"{}", seconds=10)
    at = f"127.0.0.1:{hook.port}"
    words = f"read tcp 127.0.0.1:{hook.seen[0].peer}->{at}: read: connection reset by peer"
    assert str(failed.value) == f'Post "https://{at}/v?timeout=10s": {words}'


async def test_body_that_is_reset_gets_gos_message(hook: Hook, caller: Caller) -> None:
    async def reset(exchange: plays.Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\n\r\n{")
        for _ in range(20):
            await asyncio.sleep(0)
        sock = exchange.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        exchange.writer.transport.abort()

    hook.plays = [reset]
    unread = "unexpected error when reading response body. Please retry. Original error: read tcp "
    with pytest.raises(CallFailed, match=f"^{re.escape(unread)}.*: read: connection reset by peer$"):
        await caller.call(Target.of(hook.config("/v")), b"{}", seconds=10)


async def test_address_in_an_old_form_is_an_unknown_name(hook: Hook, caller: Caller) -> None:
    for act in (
        caller.call(Target.of({"url": "https://127.1/v"}), b"{}", seconds=10),
        caller.reach(Target.of({"url": "https://127.1/v"}), seconds=10),
    ):
        with pytest.raises(CallFailed, match=r"dial tcp: lookup 127\.1: no such host$"):
            await act


async def test_header_that_is_no_utf8_is_reported_as_one(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.says(b'HTTP/1.1 200 OK\r\nContent-Type: a/b; c="\xff"\r\nContent-Length: 0\r\n\r\n')]
    with pytest.raises(CallFailed) as failed:
        await caller.call(Target.of(hook.config("/v")), b"{}", seconds=10)
    assert str(failed.value) == '0-length response with status code: 200 and content type: a/b; c="\ufffd"'
