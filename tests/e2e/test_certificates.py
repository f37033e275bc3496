"""The table of client certificates, judged by Go, by a real kube-apiserver and by `sluice serve`."""

from __future__ import annotations

import base64
import contextlib
import json
import pathlib
import random
import socket
import ssl
import subprocess
from collections.abc import Iterator, Sequence, Set

from cryptography.hazmat.primitives import serialization

from apiserver.filters.authenticate import NotAuthentic
from apiserver.filters.state import Peer
from apiserver.serving.x509 import chains
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.plane import ControlPlane
from tests.e2e.test_serve import Authorities, Serve, empty_store
from tests.fixtures import certificate_table
from tests.fixtures.certificate_table import TABLE, Case
from tests.fixtures.forge import NOW

MUTATED = 3_000
"""Certificates with wrong bytes in them."""
AT_LEAST = 160
"""Cases that a TLS client can present."""
UNREADABLE = frozenset({"UTCTime without seconds"})
"""OpenSSL breaks off the handshake (docs/differences.md)."""

PROXIES = "--requestheader-allowed-names=" + ",".join(f"case-{number}" for number in range(len(TABLE)))
"""Every leaf of the table is called so, and may be a front proxy."""


def pem(*ders: bytes) -> bytes:
    frame = b"-----BEGIN CERTIFICATE-----\n%b-----END CERTIFICATE-----\n"
    return b"".join(frame % base64.encodebytes(each) for each in ders)


def judged_by_go(questions: Sequence[tuple[Sequence[bytes], Sequence[bytes]]]) -> list[str]:
    """Go's verdict on roots and presented certificates: the reason of a refusal, or nothing."""
    lines = [
        json.dumps({
            "roots": [base64.b64encode(each).decode() for each in roots],
            "presented": [base64.b64encode(each).decode() for each in presented],
            "at": int(NOW.timestamp()),
        })
        for roots, presented in questions
    ]  # fmt: skip
    done = subprocess.run(
        [binaries.binary("verifying")], input="\n".join(lines), capture_output=True, text=True, timeout=600, check=True
    )
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions)
    return answers


def test_go_judges_as_the_table_says() -> None:
    cases = certificate_table.cases()
    said = judged_by_go([([r.der for r in case.roots], [p.der for p in case.presented]) for case in cases])
    wrong = {case.title: words for case, words in zip(cases, said, strict=True) if (words == "") is not case.accepted}
    assert not wrong


def test_certificates_with_wrong_bytes_are_read_as_by_go() -> None:
    """Each is judged as a certificate that the bundle holds itself, so its signature does not count."""
    chance = random.Random(31)
    pool = [each.der for case in certificate_table.cases() for each in case.presented if len(each.der) < 900]
    mutated = list[bytes]()
    for _ in range(MUTATED):
        data = bytearray(chance.choice(pool))
        for _ in range(chance.choice((1, 1, 2, 3))):
            data[chance.randrange(len(data))] = chance.choice(
                (0, 1, 5, 6, 0x30, 0x80, 0x86, 0xA0, chance.randrange(256))
            )
        mutated.append(bytes(data))
    said = judged_by_go([([each], [each]) for each in mutated])
    for wrong, words in zip(mutated, said, strict=True):
        try:
            (own,) = chains.presented(Peer.of(wrong, ()))
            chains.Search([chains.Issuer(own)], [], NOW.timestamp()).chain(own)
            ours = ""
        except (NotAuthentic, chains.Refused) as e:
            ours = str(e)
        assert (ours == "") is (words == ""), (ours, words, wrong.hex())


# ---------------------------------------------------------------------------------------------------------------- live


class Client:
    """Presents the certificates of the table to a server."""

    def __init__(self, port: int, folder: pathlib.Path) -> None:
        self._port = port
        self._pair = folder / "presented.pem"

    def is_believed(self, case: Case, *, as_front_proxy: bool) -> bool:
        """Whether a request is answered in the name of the certificate, or of the user that a front proxy names.

        It is 401 otherwise, or the handshake is broken off.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        key = case.presented[0].key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._pair.write_bytes(pem(*(each.der for each in case.presented)) + key)
        try:
            context.load_cert_chain(self._pair)
        except ssl.SSLError:
            raise _CannotBePresented from None
        try:
            with (
                socket.create_connection(("127.0.0.1", self._port), timeout=60) as raw,
                context.wrap_socket(raw) as connection,
            ):
                proxied = b"X-Remote-User: proxied\r\n" if as_front_proxy else b""
                connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: server\r\nConnection: close\r\n%b\r\n" % proxied)
                answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        except (ssl.SSLError, ConnectionError):
            return False
        if b"system:anonymous" in answer:
            raise _CannotBePresented
        assert not as_front_proxy or b" 401 " in answer or b"proxied" in answer, answer
        status = answer.split(b" ")[1]
        assert status in (b"401", b"403", b"404"), answer
        return status != b"401"


def presentable() -> Iterator[Case]:
    """Cases that a TLS client can present."""
    for case in certificate_table.cases():
        if case.live:
            yield case


def bundle() -> bytes:
    """All roots in one. Their names differ, so no case changes another."""
    return pem(*(root.der for case in certificate_table.cases() for root in case.roots))


def check(client: Client, *, unreadable: Set[str] = frozenset()) -> None:
    """Each case as a client's certificate and as a front proxy's. Those that are `unreadable` get no connection."""
    for as_front_proxy in (False, True):
        judged = dict[str, bool]()
        for case in presentable():
            with contextlib.suppress(_CannotBePresented):
                judged[case.title] = client.is_believed(case, as_front_proxy=as_front_proxy)
        assert judged == {
            case.title: case.accepted and case.title not in unreadable for case in presentable() if case.title in judged
        }
        assert len(judged) >= AT_LEAST


class _CannotBePresented(Exception):
    """OpenSSL does not load it."""


def test_kube_apiserver_judges_as_the_table_says(tmp_path: pathlib.Path, our_own: None) -> None:
    plane = ControlPlane(tmp_path / "plane")
    roots = tmp_path / "roots.crt"
    roots.write_bytes(plane.pki.cluster.bundle + bundle())
    plane.flags = [
        f"--client-ca-file={roots}",
        f"--requestheader-client-ca-file={roots}",
        PROXIES,
    ]
    with plane:
        check(Client(plane.port, tmp_path))


def test_sluice_judges_as_kube_apiserver(tmp_path: pathlib.Path) -> None:
    authorities = Authorities(tmp_path / "authorities")
    for name in ("users.crt", "proxies.crt"):
        (authorities.folder / name).write_bytes(bundle())
    with empty_store(tmp_path) as store, Serve(authorities, store, PROXIES) as server:
        check(Client(server.port, tmp_path), unreadable=UNREADABLE)
