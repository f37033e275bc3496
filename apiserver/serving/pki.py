"""The throw-away CA of `dev`, of tests and of benchmarks: key pairs, certificates, and the folder that keeps them."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiserver.serving.dynamiccertificates import Files

CA_DAYS, LEAF_DAYS, RENEW_DAYS = 3650, 365, 30
CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key in SEC1 form (`BEGIN EC PRIVATE KEY`), as k3s writes it. Java clients do not read EC keys in PKCS#8: fabric8 says
        `Invalid DER` (fabric8io/kubernetes-client `CertUtils.java`)."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )


def make_ca(name: str, *, now: dt.datetime) -> Pair:
    """Make a self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, subject, key, now=now, days=CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_serving(ca: Pair, name: str, *, hosts: Iterable[str], now: dt.datetime) -> Pair:
    """Make a serving certificate for these DNS names and IP addresses."""
    names = [_general_name(host) for host in dict.fromkeys(hosts)]
    return _leaf(ca, name, (), ExtendedKeyUsageOID.SERVER_AUTH, now=now, names=names)


def make_client(ca: Pair, name: str, *, groups: Sequence[str], now: dt.datetime) -> Pair:
    """Make a client certificate that names a user."""
    return _leaf(ca, name, groups, ExtendedKeyUsageOID.CLIENT_AUTH, now=now)


def _leaf(
    ca: Pair,
    name: str,
    groups: Sequence[str],
    usage: x509.ObjectIdentifier,
    *,
    now: dt.datetime,
    names: Sequence[x509.GeneralName] = (),
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    builder = (
        _builder(subject, ca.certificate.subject, key, now=now, days=LEAF_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(digital_signature=True), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca.key.public_key()), critical=False)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(ca.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: dt.datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + dt.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature, key_cert_sign=key_cert_sign, crl_sign=crl_sign, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@dataclass(frozen=True, slots=True)
class Kit:
    """The throw-away certificates of one data folder."""

    files: Files
    ca_pem: bytes
    client: Pair


def kit(folder: Path, *, hosts: Sequence[str], user: str, groups: Sequence[str], now: dt.datetime) -> Kit:
    """Return the folder's CA, serving pair and client pair. Pairs that no longer fit or expire soon are made anew. Files are private."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca = _kept(folder, "ca", now=now)
    fresh = ca is None
    if ca is None:
        ca = make_ca("sluice-dev-ca", now=now)
        _keep(folder, "ca", ca)
    serving = None if fresh else _kept(folder, "serving", now=now)
    if serving is None or not _covers(serving.certificate, hosts) or not _signed(serving, ca):
        serving = make_serving(ca, "sluice", hosts=hosts, now=now)
        _keep(folder, "serving", serving)
    client = None if fresh else _kept(folder, "client", now=now)
    if client is None or not _signed(client, ca):
        client = make_client(ca, user, groups=groups, now=now)
        _keep(folder, "client", client)
    files = Files(folder / "serving.crt", folder / "serving.key", client_ca=folder / "ca.crt")
    return Kit(files, ca.cert_pem, client)


def _kept(folder: Path, name: str, *, now: dt.datetime) -> Pair | None:
    """Read a stored pair that is whole and does not expire soon. Rewrite its key if it has another form than `Pair.key_pem`."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())
        key_pem = (folder / f"{name}.key").read_bytes()
        key = serialization.load_pem_private_key(key_pem, password=None)
    except (OSError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    if certificate.not_valid_after_utc - now < dt.timedelta(days=RENEW_DAYS) or certificate.not_valid_before_utc > now:
        return None
    pair = Pair(certificate, key)
    if pair.key_pem != key_pem:  # in PKCS#8, which earlier versions wrote
        write_private(folder / f"{name}.key", pair.key_pem)
    return pair


def _keep(folder: Path, name: str, pair: Pair) -> None:
    write_private(folder / f"{name}.key", pair.key_pem)
    write_private(folder / f"{name}.crt", pair.cert_pem)


def write_private(path: Path, content: bytes) -> None:
    """Replace a file atomically. Others can never read it, and a crash leaves the old one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _signed(pair: Pair, ca: Pair) -> bool:
    try:
        pair.certificate.verify_directly_issued_by(ca.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _covers(certificate: x509.Certificate, hosts: Iterable[str]) -> bool:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_general_name(host) in names for host in hosts)
