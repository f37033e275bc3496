"""Attacks of a client without any credential on TLS itself: floods of records, hellos of every sort, handshakes that do not end.

Each attack returns the status of an HTTP answer if it asked for one, else 0. The campaign judges its effect on the server.
"""

from __future__ import annotations

import datetime as dt
import pathlib
import socket
import ssl
import tempfile
import time
from collections.abc import Callable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from tests.fixtures import hellos
from tests.fixtures.rawtls import Sealer, logging_keys

FAMILY = "handshake"
MOST_RECORDS, MOST_BYTES = 4096, 16384
"""The largest amounts of an attack, and sizes of its records."""
SECONDS = 20.0
HALF_OPEN_SECONDS = 0.2
REQUEST = b"GET /version HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n"
Attack = Callable[[int, int, int], int]
"""A port, an amount and a size."""


def attack(port: int, head: bytes) -> int:
    """Do what a head of the family says: `HANDSHAKE kind amount size`. Blocks."""
    _, kind, amount, size = head.split()
    return ATTACKS[kind.decode()](port, int(amount), int(size))


def _dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def _send(sock: socket.socket, stream: bytes, size: int) -> None:
    """In pieces, as long as the server takes them."""
    try:
        for at in range(0, len(stream), size):
            sock.sendall(stream[at : at + size])
    except OSError:
        pass


def _rest(sock: socket.socket) -> None:
    """Say that nothing follows, and wait for the end."""
    try:
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    except OSError:
        pass


def _trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _sealed(make: Callable[[Sealer], bytes]) -> Attack:
    """Many records of one sort on an open connection, until the server ends it."""

    def flood(port: int, amount: int, size: int) -> int:
        with tempfile.TemporaryDirectory() as folder:
            context = _trusting()
            keys = logging_keys(context, pathlib.Path(folder))
            with context.wrap_socket(_dial(port)) as connection:
                sock = socket.socket(fileno=connection.detach())
            sealer = Sealer.of(keys)
        with sock:
            sock.settimeout(SECONDS)
            _send(sock, b"".join(make(sealer) for _ in range(max(amount, 64))), max(size, 512))
            _rest(sock)
        return 0

    return flood


def _one_byte_records(port: int, _amount: int, _size: int) -> int:
    with _trusting().wrap_socket(_dial(port)) as connection:
        for byte in REQUEST:
            connection.sendall(bytes([byte]))
        return int(connection.recv(1 << 16).split()[1])


def _renegotiation(port: int, _amount: int, _size: int) -> int:
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.set_max_proto_version(SSL.TLS1_2_VERSION)
    with _dial(port) as sock:
        sock.settimeout(None)
        connection = SSL.Connection(context, sock)
        connection.set_connect_state()
        connection.do_handshake()
        connection.renegotiate()
        try:
            connection.do_handshake()
        except SSL.Error:
            return 0
    raise AssertionError("the server negotiated anew")


def _hello(make: Callable[[int], bytes]) -> Attack:
    """A message of some size in records of some size."""

    def send(port: int, amount: int, size: int) -> int:
        with _dial(port) as sock:
            _send(sock, hellos.records(hellos.HANDSHAKE, make(amount), size), 1 << 16)
            _rest(sock)
        return 0

    return send


def _half_open(port: int, _amount: int, size: int) -> int:
    with _dial(port) as sock:
        _send(sock, hellos.record(hellos.HANDSHAKE, hellos.client_hello())[:size], 1 << 16)
        time.sleep(HALF_OPEN_SECONDS)
    return 0


def _records(kind: int, body: bytes) -> Attack:
    """Records of one sort instead of a handshake."""

    def send(port: int, amount: int, size: int) -> int:
        with _dial(port) as sock:
            _send(sock, hellos.record(hellos.HANDSHAKE, b"\x01") + hellos.record(kind, body) * amount, max(size, 512))
            _rest(sock)
        return 0

    return send


def _long_chain(port: int, amount: int, _size: int) -> int:
    """A client certificate with as many others as a handshake may hold, and more."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(1))
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    context = _trusting()
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(pem * (1 + amount // 10) + private)
        pair.flush()
        context.load_cert_chain(pair.name)
    try:
        with context.wrap_socket(_dial(port)) as connection:
            connection.sendall(REQUEST)
            answer = connection.recv(1 << 16)
    except OSError:
        return 0
    # The server may end such a connection without a word.
    return int(answer.split()[1]) if answer else 0


ATTACKS: dict[str, Attack] = {
    "new-keys": _sealed(Sealer.key_update),
    "new-keys-of-both": _sealed(lambda sealer: sealer.key_update(answer=True)),
    "warnings": _sealed(Sealer.warning),
    "no-data": _sealed(lambda sealer: sealer.data(b"")),
    "one-byte-records": _one_byte_records,
    "renegotiation": _renegotiation,
    "huge-hello": _hello(lambda amount: hellos.client_hello(more={60000: bytes(15 * amount)})),
    "endless-hello": _hello(lambda amount: b"\x01\xff\xff\xff" + bytes(64 * amount)),
    "many-suites": _hello(lambda amount: hellos.client_hello(suites=[0xC0A0] * (7 * amount) + [0x1301])),
    "finite-field": _hello(lambda _amount: hellos.client_hello(groups=[hellos.FFDHE8192])),
    "half-open": _half_open,
    "cipher-changes": _records(20, b"\x01"),
    "early-warnings": _records(hellos.ALERT, b"\x01\x5a"),
    "long-chain": _long_chain,
}
