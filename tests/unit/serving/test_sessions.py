"""Effects of TLS clients on the server: certificates, key exchanges, sessions, floods of records."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import secrets
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.bindings.openssl.binding import Binding
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from OpenSSL import SSL, crypto

from apiserver.runtime.tls_records import HANDSHAKE_BYTES, MOST_IDLE, Flood, Renegotiation
from apiserver.serving import dynamiccertificates, pki, tls
from apiserver.serving.dynamiccertificates import Asked
from apiserver.serving.sessions import ServerSession
from apiserver.serving.sessions import _Buffers as Buffers
from apiserver.serving.x509 import chains
from tests.fixtures import hellos
from tests.fixtures.authorities import NOW, SERVER, Holder, issue
from tests.fixtures.handshakes import shake_hands
from tests.fixtures.rawtls import Sealer, logging_keys
from tests.fixtures.valkey import eventually

BOTH = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
OPENSSL = shutil.which("openssl")
HANDSHAKE_FAILURE = 40


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> pki.Kit:
    now = dt.datetime.now(dt.UTC)
    return pki.kit(tmp_path_factory.mktemp("kit"), hosts=["localhost"], user="x", groups=[], now=now)


def served(kit: pki.Kit, asked: Asked = Asked.ACCEPTED) -> SSL.Context:
    return dynamiccertificates.server_context(cert_file=kit.files.cert, key_file=kit.files.key, asked=asked)


def client(kit: pki.Kit, version: ssl.TLSVersion, folder: Path, holder: Holder | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=kit.ca_pem.decode())
    context.maximum_version = version
    if holder is not None:
        pair = folder / "pair.pem"
        pair.write_bytes(holder.pem + b"".join(above.pem for above in holder.above) + holder.key_pem)
        context.load_cert_chain(pair)
    return context


# ------------------------------------------------------------------------------------------------------------ certificates


CLIENTS: dict[str, Callable[[], Holder]] = {
    "of an authority that nobody knows": lambda: issue("x", issue("stranger", ca=True)),
    "signed by itself": lambda: issue("x"),
    "of a CA": lambda: issue("x", ca=True),
    "expired": lambda: issue("x", ends=-0.5),
    "not valid yet": lambda: issue("x", starts=1),
    "for servers": lambda: issue("x", usages=(SERVER,)),
    "with a critical extension": lambda: issue("x", critical_nonsense=True),
    "with RSA": lambda: issue("x", key=rsa.generate_private_key(65537, 2048)),
    "with P-384": lambda: issue("x", key=ec.generate_private_key(ec.SECP384R1())),
    "with P-521": lambda: issue("x", key=ec.generate_private_key(ec.SECP521R1())),
}


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("kind", CLIENTS)
def test_handshake_lets_every_certificate_through_to_the_request(
    kit: pki.Kit, tmp_path: Path, version: ssl.TLSVersion, kind: str
) -> None:
    holder = CLIENTS[kind]()
    _, far = shake_hands(served(kit), client(kit, version, tmp_path, holder))
    assert chains.peer(far) == holder.peer


def certificate_message(holder: Holder, *, tls13: bool) -> bytes:
    entry = len(holder.der).to_bytes(3, "big") + holder.der + (b"\x00\x00" if tls13 else b"")
    body = (b"\x00" if tls13 else b"") + len(entry).to_bytes(3, "big") + entry
    return b"\x0b" + len(body).to_bytes(3, "big") + body


def signature_message(holder: Holder) -> bytes:
    """CertificateVerify, well-formed, of something else than this handshake."""
    assert isinstance(holder.key, ec.EllipticCurvePrivateKey)
    signature = holder.key.sign(b"another handshake", ec.ECDSA(hashes.SHA256()))
    body = b"\x04\x03" + len(signature).to_bytes(2, "big") + signature
    return b"\x0f" + len(body).to_bytes(3, "big") + body


@pytest.mark.parametrize("signed", [True, False])
def test_stolen_certificate_ends_the_handshake_of_tls_1_3(kit: pki.Kit, tmp_path: Path, signed: bool) -> None:
    """A certificate is public. A handshake proves possession of its key."""
    jane, mallory = issue("jane"), issue("mallory")
    context = client(kit, ssl.TLSVersion.TLSv1_3, tmp_path)
    keys = logging_keys(context, tmp_path)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    near, far = context.wrap_bio(received, sent, server_hostname="localhost"), ServerSession(served(kit), None)
    with pytest.raises(ssl.SSLWantReadError):
        near.do_handshake()
    far.feed(sent.read())
    with pytest.raises(ssl.SSLWantReadError):
        far.shake()
    received.write(far.output())
    near.do_handshake()
    sealer = Sealer.of(keys, "CLIENT_HANDSHAKE_TRAFFIC_SECRET")
    flight = certificate_message(jane, tls13=True) + (signature_message(mallory) if signed else b"")
    finished = b"\x14\x00\x00\x30" + bytes(48)
    far.feed(sealer.record(hellos.HANDSHAKE, flight) + sealer.record(hellos.HANDSHAKE, finished))
    with pytest.raises(ssl.SSLError, match="bad signature" if signed else "unexpected message"):
        far.shake()
    assert not far.records.open


@pytest.mark.parametrize("signed", [True, False])
def test_stolen_certificate_ends_the_handshake_of_tls_1_2(kit: pki.Kit, tmp_path: Path, signed: bool) -> None:
    jane, mallory = issue("jane"), issue("mallory")
    context = client(kit, ssl.TLSVersion.TLSv1_2, tmp_path, mallory)
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    near, far = context.wrap_bio(received, sent, server_hostname="localhost"), ServerSession(served(kit), None)
    for _ in range(2):
        with pytest.raises(ssl.SSLWantReadError):
            near.do_handshake()
        flight = split(sent.read())
        if len(flight) > 1:  # Certificate, ClientKeyExchange, CertificateVerify, ChangeCipherSpec, Finished
            assert [record[5] for record in flight[:3]] == [11, 16, 15]
            flight[0] = hellos.record(hellos.HANDSHAKE, certificate_message(jane, tls13=False))
            if not signed:
                del flight[2]
        far.feed(b"".join(flight))
        with pytest.raises(ssl.SSLError) as failed:
            far.shake()
        received.write(far.output())
    assert ("bad signature" if signed else "unexpected message") in str(failed.value)
    assert not far.records.open


def split(stream: bytes) -> list[bytes]:
    """Into records."""
    found = []
    while stream:
        end = 5 + int.from_bytes(stream[3:5], "big")
        found.append(stream[:end])
        stream = stream[end:]
    return found


def test_rsa_key_above_8192_bits_is_refused_before_it_is_used(kit: pki.Kit) -> None:
    """As by Go. An exponent may be as long as 64 bits, and such a signature costs milliseconds."""
    accepts = dynamiccertificates._accept_certificate
    for bits, fine in ((2048, True), (8192, True), (8193, False), (16384, False)):
        key = rsa.RSAPublicNumbers(65537, secrets.randbits(bits) | 1 | 1 << (bits - 1)).public_key()
        certificate = crypto.X509.from_cryptography(with_key(key))
        assert accepts(SSL.Connection(served(kit), None), certificate, 0, 0, 1) is fine
        assert accepts(SSL.Connection(served(kit), None), certificate, 0, 1, 1) is True


def with_key(key: rsa.RSAPublicKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    builder = x509.CertificateBuilder(name, name, key, 1, NOW, NOW + dt.timedelta(1))
    return builder.sign(issue("signer").key, hashes.SHA256())


@pytest.mark.parametrize("version", BOTH)
def test_no_session_is_resumed(kit: pki.Kit, tmp_path: Path, version: ssl.TLSVersion) -> None:
    context, jane = served(kit), issue("jane")
    near, far = shake_hands(context, (ours := client(kit, version, tmp_path, jane)))
    with pytest.raises(ssl.SSLWantReadError):
        near.read()  # takes tickets, if there are some
    again, far = shake_hands(context, ours, session=near.session)
    assert not again.session_reused
    assert chains.peer(far) == jane.peer


# ----------------------------------------------------------------------------------------------------------- key exchanges


def hello(kit: pki.Kit, message: bytes, *, size: int = 16384) -> tuple[str, int]:
    """The outcome of a ClientHello: the error, and the number of the alert that is sent."""
    far = ServerSession(served(kit), None)
    far.feed(hellos.records(hellos.HANDSHAKE, message, size))
    try:
        far.shake()
    except ssl.SSLWantReadError:
        return "", 0
    except ssl.SSLError as error:
        alert = bytes(far.output())
        assert alert[:5] == b"\x15\x03\x03\x00\x02"
        return str(error), alert[6]
    raise AssertionError("a hello is no handshake")


def test_finite_field_groups_are_refused(kit: pki.Kit) -> None:
    for groups in ([hellos.FFDHE2048], [hellos.FFDHE8192], [hellos.FFDHE8192, hellos.FFDHE2048]):
        assert hello(kit, hellos.client_hello(groups=groups)) == ("no suitable key share", HANDSHAKE_FAILURE)
    assert hello(kit, hellos.client_hello(groups=[hellos.X25519])) == ("", 0)


@pytest.mark.skipif(OPENSSL is None, reason="no openssl")
@pytest.mark.parametrize(
    ("group", "fine"),
    [("X25519", True), ("P-256", True), ("P-384", True), ("P-521", True), ("ffdhe2048", False), ("X448", False)],
)
async def test_groups_of_go_are_spoken_and_no_others(kit: pki.Kit, group: str, fine: bool) -> None:
    said = await s_client(kit, "-groups", group)
    assert ("Verify return code: 0 (ok)" in said and "New, TLSv1.3" in said) is fine, said


def test_post_quantum_group_is_spoken_where_openssl_has_it(kit: pki.Kit) -> None:
    near = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    near.set_connect_state()
    binding = Binding.lib
    if not binding.SSL_set1_curves_list(near._ssl, b"X25519MLKEM768"):
        pytest.skip("OpenSSL is older than 3.5")
    far = ServerSession(served(kit), None)
    with pytest.raises(SSL.WantReadError):
        near.do_handshake()
    far.feed(near.bio_read(1 << 16))
    with pytest.raises(ssl.SSLWantReadError):
        far.shake()
    near.bio_write(bytes(far.output()))
    near.do_handshake()
    assert near.get_group_name() == "X25519MLKEM768"


@pytest.mark.skipif(OPENSSL is None, reason="no openssl")
@pytest.mark.parametrize(
    ("suite", "fine"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
        ("DHE-RSA-AES128-GCM-SHA256", False),
        ("ADH-AES128-SHA256:@SECLEVEL=0", False),
    ],
)
async def test_suites_over_finite_fields_are_refused(kit: pki.Kit, suite: str, fine: bool) -> None:
    said = await s_client(kit, "-tls1_2", "-cipher", suite)
    assert ("New, TLSv1.2" in said) is fine, said


async def s_client(kit: pki.Kit, *arguments: str) -> str:
    """The report of OpenSSL's own client about the server."""
    assert OPENSSL is not None
    async with listening(kit) as (port, _):
        ca = ("-CAfile", str(kit.files.client_ca)) if kit.files.client_ca else ()
        process = await asyncio.create_subprocess_exec(
            OPENSSL, "s_client", "-connect", f"127.0.0.1:{port}", "-servername", "localhost", *ca, *arguments,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said, _ = await process.communicate()
        return said.decode()


# ----------------------------------------------------------------------------------------------------------------- floods


class Recorder(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.lost: list[Exception | None] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, tls.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)


@asynccontextmanager
async def listening(kit: pki.Kit) -> AsyncIterator[tuple[int, list[Recorder]]]:
    """A server for any number of connections, and what they received."""
    loop, made = asyncio.get_running_loop(), list[Recorder]()
    context = served(kit, Asked.NOT)

    def recorder() -> Recorder:
        made.append(Recorder())
        return made[-1]

    async def accept(sock: socket.socket) -> None:
        try:
            await tls.accept(sock, context, recorder)
        except OSError:
            pass

    async def serve(server: socket.socket) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                sock, _ = await loop.sock_accept(server)
                tasks.create_task(accept(sock))

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        serving = asyncio.create_task(serve(server))
        try:
            yield server.getsockname()[1], made
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
            for recorder_ in made:
                recorder_.transport.abort()
            await eventually(lambda: all(one.lost for one in made))


class Client:
    """A client whose records are made by hand after its handshake."""

    def __init__(self, kit: pki.Kit, plain: socket.socket, folder: Path) -> None:
        context = client(kit, ssl.TLSVersion.TLSv1_3, folder)
        keys = logging_keys(context, folder)
        with context.wrap_socket(plain, server_hostname="localhost") as tls_socket:
            self.socket = socket.socket(fileno=tls_socket.detach())
        self.socket.settimeout(60)
        self.sealer = Sealer.of(keys)

    def ended(self) -> bool:
        """Waits for the end of the connection."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            pass
        return True


@asynccontextmanager
async def connected(kit: pki.Kit, folder: Path) -> AsyncIterator[tuple[Client, Recorder]]:
    async with listening(kit) as (port, made):
        plain = socket.create_connection(("127.0.0.1", port), timeout=60)
        near = await asyncio.to_thread(Client, kit, plain, folder)
        await eventually(lambda: made)
        with near.socket:
            yield near, made[0]


FLOODS: dict[str, Callable[[Sealer], bytes]] = {
    "new keys": lambda sealer: sealer.key_update(),
    "new keys, asking for the same": lambda sealer: sealer.key_update(answer=True),
    "no data": lambda sealer: sealer.data(b""),
}


@pytest.mark.parametrize("kind", FLOODS)
@pytest.mark.parametrize("data", [b"x", b""])
async def test_seventeen_records_without_data_end_the_connection(
    kit: pki.Kit, tmp_path: Path, kind: str, data: bytes
) -> None:
    async with connected(kit, tmp_path) as (near, far):
        made = [FLOODS[kind](near.sealer) for _ in range(MOST_IDLE)]
        made += [near.sealer.data(b"between")] + [FLOODS[kind](near.sealer) for _ in range(MOST_IDLE)]
        near.socket.sendall(b"".join(made) + (near.sealer.data(data) if data else b""))
        await eventually(lambda: far.received == b"between" + data)
        assert not far.lost
        near.socket.sendall(b"".join(FLOODS[kind](near.sealer) for _ in range(2 * MOST_IDLE)))
        assert await asyncio.to_thread(near.ended)
        await eventually(lambda: far.lost)
        assert isinstance(far.lost[0], Flood)


async def test_records_are_counted_from_the_end_of_the_handshake_on(kit: pki.Kit, tmp_path: Path) -> None:
    """However many come in the same segment."""
    async with connected(kit, tmp_path) as (near, far):
        near.socket.sendall(b"".join(near.sealer.key_update() for _ in range(3000)))
        assert await asyncio.to_thread(near.ended)
        await eventually(lambda: far.lost)
        assert isinstance(far.lost[0], Flood)


async def test_warnings_end_the_connection(kit: pki.Kit, tmp_path: Path) -> None:
    async with connected(kit, tmp_path) as (near, far):
        near.socket.sendall(b"".join(near.sealer.warning() for _ in range(100)))
        assert await asyncio.to_thread(near.ended)
        await eventually(lambda: far.lost)
        assert isinstance(far.lost[0], ssl.SSLError)


async def test_records_of_one_byte_arrive(kit: pki.Kit, tmp_path: Path) -> None:
    async with connected(kit, tmp_path) as (near, far):
        sent = secrets.token_bytes(3000)
        near.socket.sendall(b"".join(near.sealer.data(sent[at : at + 1]) for at in range(len(sent))))
        await eventually(lambda: far.received == sent)


async def test_client_that_takes_no_answers_to_its_new_keys_is_not_read_from(kit: pki.Kit, tmp_path: Path) -> None:
    """Each byte of data allows sixteen more of them, and the answers would wait here."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    far = Recorder()
    opening = asyncio.ensure_future(asyncio.to_thread(Client, kit, theirs, tmp_path))
    await tls.accept(ours, served(kit, Asked.NOT), lambda: far)
    near = await opening
    with near.socket:
        near.socket.settimeout(0)
        while True:
            made = near.sealer.data(b"x") + near.sealer.key_update(answer=True)
            try:
                assert near.socket.send(made) == len(made)
            except BlockingIOError:
                break
            await asyncio.sleep(0)
        await eventually(lambda: far.transport._stalled)
        received = len(far.received)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(far.received) == received
        assert far.transport.get_write_buffer_size() < 64 << 10
        # It goes on where the client takes them.
        near.socket.settimeout(60)
        await asyncio.to_thread(near.socket.recv, 1 << 20)
        await eventually(lambda: len(far.received) > received)
        far.transport.abort()
        await eventually(lambda: far.lost)


async def test_renegotiation_ends_the_connection(kit: pki.Kit) -> None:
    async with listening(kit) as (port, made):
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)

        def renegotiate() -> None:
            plain = socket.create_connection(("127.0.0.1", port), timeout=60)
            plain.setblocking(True)
            near = SSL.Connection(context, plain)
            near.set_connect_state()
            near.do_handshake()
            near.sendall(b"before")
            near.renegotiate()
            with pytest.raises(SSL.Error):
                near.do_handshake()
            plain.close()

        await asyncio.to_thread(renegotiate)
        await eventually(lambda: made and made[0].lost)
        assert isinstance(made[0].lost[0], Renegotiation)
        assert made[0].received == b"before"


# -------------------------------------------------------------------------------------------------------------- handshakes


HELLOS: dict[str, tuple[bytes, bytes]] = {
    "one byte in each record": (hellos.records(hellos.HANDSHAKE, hellos.client_hello(), 1), b"\x16"),
    "no room for it": (
        hellos.records(hellos.HANDSHAKE, b"\x01\x01\x00\x00" + bytes(2 * HANDSHAKE_BYTES), 1 << 14),
        b"",
    ),
    "empty records": (hellos.record(hellos.HANDSHAKE, b"") * 20000, b"\x15"),
    "ChangeCipherSpec without end": (hellos.record(20, b"\x01") * 20000, b"\x15"),
    "warnings": (hellos.record(hellos.ALERT, b"\x01\x5a") * 20000, b"\x15"),
    "a name that is too long": (
        hellos.records(hellos.HANDSHAKE, hellos.client_hello(name=b"a" * 40000), 1 << 14),
        b"\x15",
    ),
}


@pytest.mark.parametrize("kind", HELLOS)
async def test_handshake_is_bounded(kit: pki.Kit, kind: str) -> None:
    """The first byte of the answer: a ServerHello, an alert, or none."""
    stream, first = HELLOS[kind]

    def send(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
            try:
                sock.sendall(stream)
                return sock.recv(1)
            except ConnectionError:
                return b""

    async with listening(kit) as (port, made):
        assert await asyncio.to_thread(send, port) in (first, b"" if first != b"\x16" else first)
        assert not made


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("room", [100, 16 << 10, 20_000, (64 << 10) + 512])
@pytest.mark.parametrize("size", [1, 5000, 16 << 10, (16 << 10) + 1, 40_000, 64 << 10])
def test_write_arrives_whole_however_little_one_read_takes(
    kit: pki.Kit, tmp_path: Path, version: ssl.TLSVersion, room: int, size: int
) -> None:
    to_client, from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client(kit, version, tmp_path).wrap_bio(to_client, from_client, server_hostname="localhost")
    far = ServerSession(served(kit), None)
    while not far.records.open:
        with contextlib.suppress(ssl.SSLWantReadError):
            near.do_handshake()
        far.feed(from_client.read())
        with contextlib.suppress(ssl.SSLWantReadError):
            far.shake()
        to_client.write(far.output())
    near.do_handshake()
    far._buffers = Buffers()
    far._buffers.sealed = far._buffers.sealed[:room]
    for data in (secrets.token_bytes(size), secrets.token_bytes(size)):
        to_client.write(far.encrypt(memoryview(data)))
        came = b""
        while len(came) < size:
            came += near.read(size - len(came))
        assert came == data
