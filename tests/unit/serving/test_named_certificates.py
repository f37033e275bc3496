"""The certificate and the cipher suites for a client, by its hello and the operator's flags."""

from __future__ import annotations

import asyncio
import datetime as dt
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from apiserver.config import config, tls_flags
from apiserver.serving import dynamiccertificates, tls
from apiserver.serving.dynamiccertificates import Certificates
from apiserver.serving.sessions import ServerSession
from apiserver.serving.x509 import chains
from tests.fixtures import hellos
from tests.fixtures.authorities import NOW
from tests.fixtures.handshakes import shake_hands

STORE = ("serve", "--standalone", "--redis-url", "redis://h")


def write_pair(folder: Path, name: str, common: str, hosts: Sequence[str] = ()) -> tuple[Path, Path]:
    """A certificate that signs itself, and its key. Its serial number, which is that of its name, identifies it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = made.serial_number(int.from_bytes(name.encode())).not_valid_before(NOW - dt.timedelta(1))
    made = made.not_valid_after(NOW + dt.timedelta(1))
    if hosts:
        made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
    cert, private = folder / f"{name}.crt", folder / f"{name}.key"
    cert.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


class Served:
    """The certificates that `sluice serve` presents with these flags; its own pair, `default`, is for `main.example.org`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        cert, key = write_pair(folder, "default", "main", ["main.example.org"])
        words = [*STORE, "--tls-cert-file", str(cert), "--tls-private-key-file", str(key), *flags]
        found = config.parse(words, {})
        self.certificates = Certificates(dynamiccertificates.Files.of(found.serving, found.authentication))

    def shown(self, name: str | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> str:
        """The pair that a client gets when it asks for a name."""
        der = handshake(self.certificates.context, name=name, maximum=version).getpeercert(binary_form=True)
        assert der is not None
        serial = x509.load_der_x509_certificate(der).serial_number
        return serial.to_bytes((serial.bit_length() + 7) // 8).decode()


def trusting(*, maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, ciphers: str = "") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = maximum
    if ciphers:
        context.set_ciphers(ciphers)
    return context


def handshake(
    server: SSL.Context,
    *,
    name: str | None = None,
    maximum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ciphers: str = "",
) -> ssl.SSLObject:
    """The client's end of a handshake in memory. Raises ssl.SSLError."""
    near, _ = shake_hands(server, trusting(maximum=maximum, ciphers=ciphers), name=name)
    near.do_handshake()
    return near


def flag_of(pair: tuple[Path, Path], names: str = "") -> tuple[str, str]:
    return "--tls-sni-cert-key", f"{pair[0]},{pair[1]}{f':{names}' if names else ''}"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_client_that_asks_for_a_name_gets_its_pair(tmp_path: Path, version: ssl.TLSVersion) -> None:
    served = Served(tmp_path, *flag_of(write_pair(tmp_path, "other", "x"), "a.example.org, *.deep.example.org"))
    told = {
        name: served.shown(name, version)
        for name in ("a.example.org", "A.Example.ORG", "b.deep.example.org", "c.b.deep.example.org", "b.example.org")
    }
    assert told == {
        "a.example.org": "other",
        "A.Example.ORG": "other",
        "b.deep.example.org": "other",
        "c.b.deep.example.org": "default",
        "b.example.org": "default",
    }
    assert served.shown(None, version) == "default"


def test_without_names_those_in_the_certificate_count(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, "other", "*.common.org", ["san.example.org", "*.wild.org"])
    served = Served(tmp_path, *flag_of(pair))
    assert {served.shown(name) for name in ("x.common.org", "san.example.org", "x.wild.org")} == {"other"}
    assert served.shown("common.org") == "default"


def test_a_common_name_that_is_an_address_or_no_domain_is_not_a_name(tmp_path: Path) -> None:
    served = Served(
        tmp_path, *flag_of(write_pair(tmp_path, "one", "Some Words")), *flag_of(write_pair(tmp_path, "two", "10.0.0.1"))
    )
    assert served.shown("words") == served.shown("10.0.0.1") == "default"


def test_operators_names_win_over_certificates_and_earlier_pairs_first(tmp_path: Path) -> None:
    first = flag_of(write_pair(tmp_path, "first", "x", ["n.example.org", "m.example.org"]))
    second = flag_of(write_pair(tmp_path, "second", "x"), "n.example.org")
    third = flag_of(write_pair(tmp_path, "third", "x"), "n.example.org,m2.example.org")
    fourth = flag_of(write_pair(tmp_path, "fourth", "x", ["m.example.org"]))
    served = Served(tmp_path, *first, *second, *third, *fourth)
    assert [served.shown(f"{name}.example.org") for name in ("n", "m", "m2")] == ["second", "first", "third"]


def test_unnamed_host_gets_the_valid_certificate_with_the_default_first(tmp_path: Path) -> None:
    pair = write_pair(tmp_path, "other", "x", ["Main.example.org", "*.covered.org"])
    served = Served(tmp_path, *flag_of(pair, "something.else"))
    assert [served.shown(name) for name in ("main.example.org", "a.covered.org", "something.else")] == [
        "default",
        "other",
        "other",
    ]


def test_name_that_is_not_ascii_gets_the_default_certificate(tmp_path: Path) -> None:
    context = Served(tmp_path, *flag_of(write_pair(tmp_path, "other", "x"), "a.example.org")).certificates.context
    far, hello = ServerSession(context, None), hellos.client_hello(name=b"\xff\n\x1b\xfe.org")
    far.feed(hellos.record(hellos.HANDSHAKE, hello))
    with pytest.raises(ssl.SSLWantReadError):
        far.shake()
    assert far.output()


async def test_client_without_sni_gets_the_pair_of_the_address(tmp_path: Path) -> None:
    served = Served(tmp_path, *flag_of(write_pair(tmp_path, "other", "x"), "127.0.0.1"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        loop = asyncio.get_running_loop()

        async def answer() -> None:
            sock, _ = await loop.sock_accept(listening)
            await tls.accept(sock, served.certificates.context, asyncio.Protocol)

        answering = asyncio.create_task(answer())
        _, writer = await asyncio.open_connection(*listening.getsockname(), ssl=trusting(), server_hostname="")
        await answering
        der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
    assert x509.load_der_x509_certificate(der).serial_number == int.from_bytes(b"other")


def test_named_pair_is_reloaded_on_change_and_kept_while_files_are_bad(tmp_path: Path) -> None:
    cert, key = write_pair(tmp_path, "other", "x")
    served = Served(tmp_path, *flag_of((cert, key), "a.example.org"))
    cert.write_text("garbage")
    with pytest.raises(chains.BadCertificates):
        served.certificates.refresh()
    assert served.shown("a.example.org") == "other"
    newer = write_pair(tmp_path, "newer", "x")
    newer[0].replace(cert)
    newer[1].replace(key)
    assert served.certificates.refresh()
    assert served.shown("a.example.org") == "newer"


def test_named_pair_that_does_not_match_is_an_error(tmp_path: Path) -> None:
    one, two = write_pair(tmp_path, "one", "x"), write_pair(tmp_path, "two", "x")
    words = [*STORE, "--tls-cert-file", str(one[0]), "--tls-private-key-file", str(one[1]), *flag_of((one[0], two[1]))]
    found = config.parse(words, {})
    (told,) = dynamiccertificates.errors(found.serving, found.authentication)
    assert told.startswith(f"--tls-sni-cert-key: {one[0]} and {two[1]} are no certificate with its key")


@pytest.mark.parametrize(
    ("suites", "spoken", "unspoken"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305", "ECDHE-ECDSA-CHACHA20-POLY1305", "ECDHE-ECDSA-AES256-GCM-SHA384"),
    ],
)
def test_only_the_operators_cipher_suites_work_in_tls_1_2_and_all_in_1_3(
    tmp_path: Path, suites: str, spoken: str, unspoken: str
) -> None:
    context = Served(tmp_path, "--tls-cipher-suites", suites).certificates.context
    old = ssl.TLSVersion.TLSv1_2
    assert (handshake(context, maximum=old).cipher() or "?")[0] == spoken
    with pytest.raises(ssl.SSLError):
        handshake(context, maximum=old, ciphers=unspoken)
    assert (handshake(context).cipher() or "??")[1] == "TLSv1.3"


def test_gos_order_of_cipher_suites_decides_and_not_the_operators(tmp_path: Path) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    context = Served(tmp_path, "--tls-cipher-suites", suites).certificates.context
    found = handshake(
        context, maximum=ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-ECDSA-AES256-SHA:ECDHE-ECDSA-AES128-GCM-SHA256"
    )
    assert (found.cipher() or "?")[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"


def test_suites_of_tls_1_3_alone_leave_older_clients_nothing_to_speak(tmp_path: Path) -> None:
    context = Served(tmp_path, "--tls-cipher-suites", "TLS_AES_128_GCM_SHA256").certificates.context
    with pytest.raises(ssl.SSLError):
        handshake(context, maximum=ssl.TLSVersion.TLSv1_2)
    assert (handshake(context).cipher() or "??")[1] == "TLSv1.3"


def test_every_cipher_suite_that_may_be_named_can_be_spoken(tmp_path: Path) -> None:
    for name in tls_flags.CIPHERS:
        Served(tmp_path, "--tls-cipher-suites", name)
