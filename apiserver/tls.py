"""Certificates: whom a CA bundle vouches for, what we serve with, and the throw-away CA of `dev`. Knows no requests.

Upstream: kubernetes/apiserver `pkg/server/dynamiccertificates/`, golang/go `src/crypto/x509/verify.go` (what is asked of a client's chain).
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import logging
import os
import secrets
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiserver.cluster.requestheader import ClusterTrust
from apiserver.config import Authentication, RequestHeader, Serving
from apiserver.filters.authenticate import NO_HEADERS, NotAuthentic, Trust, Verified, Verifier
from apiserver.filters.state import Peer

logger = logging.getLogger(__name__)


class BadCertificates(Exception):
    """A file does not hold what it should."""


# ---------------------------------------------------------------------------------------------------------------- verifying


def verifier(pem: bytes) -> Verifier:
    """A function that finds a chain from a peer's certificate to this bundle and no other."""
    policy = (
        verification.PolicyBuilder()
        .store(verification.Store(certificates(pem)))
        .extension_policies(ca_policy=_ISSUERS, ee_policy=_CLIENTS)
    )

    def verify(peer: Peer, at: float) -> Verified:
        try:
            leaf = x509.load_der_x509_certificate(peer.leaf)
            between = [x509.load_der_x509_certificate(der) for der in peer.intermediates]
            when = dt.datetime.fromtimestamp(at, dt.UTC)
            found = policy.time(when).build_client_verifier().verify(leaf, between)
        except verification.VerificationError as e:
            raise NotAuthentic(f"verifying certificate {_identifier(leaf)} failed: {e}") from None
        except ValueError as e:
            raise NotAuthentic(f"the client's certificate cannot be read: {e}") from None
        ends = min(certificate.not_valid_after_utc for certificate in found.chain)
        return Verified(leaf, ends.timestamp())

    return verify


def _for_clients(
    _policy: verification.Policy, _certificate: x509.Certificate, usage: x509.ExtendedKeyUsage | None
) -> None:
    """No usage stated means any."""
    if usage is None:
        return
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usage and ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE not in usage:
        raise ValueError("certificate specifies an incompatible key usage")


def _is_issuer(
    _policy: verification.Policy, _certificate: x509.Certificate, constraints: x509.BasicConstraints
) -> None:
    if not constraints.ca:
        raise ValueError("the issuer is no CA")


def _may_sign(_policy: verification.Policy, _certificate: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("the issuer's key may not sign certificates")


# Go's rules, not the web's: a client needs no SAN, a CA no key usage, but every certificate that states usages must state ours.
_CLIENTS = verification.ExtensionPolicy.permit_all().may_be_present(
    x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, _for_clients
)
_ISSUERS = (
    verification.ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, verification.Criticality.AGNOSTIC, _is_issuer)
    .may_be_present(x509.KeyUsage, verification.Criticality.AGNOSTIC, _may_sign)
    .may_be_present(x509.ExtendedKeyUsage, verification.Criticality.AGNOSTIC, _for_clients)
)


def _identifier(certificate: x509.Certificate) -> str:
    return f"SN={certificate.serial_number}, CN={certificate.subject.rfc4514_string()[:256]!r}"


def certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError as e:
        raise BadCertificates(f"no certificates in PEM form: {e}") from None


class Chains:
    """Reads what a peer presented in its handshake.

    A resumed TLS 1.2 session still shows the leaf but no chain (and OpenSSL's session cache cannot be turned off from here), so the
    intermediates of earlier handshakes are remembered by leaf. They only ever help to find a chain, never to skip the search.
    """

    REMEMBERED = 4096

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[bytes, ...]] = {}

    def peer(self, connection: ssl.SSLObject) -> Peer | None:
        leaf = connection.getpeercert(binary_form=True)
        if leaf is None:
            return None
        presented = _presented(connection)
        if presented is None:
            return Peer.of(leaf, self._seen.get(leaf, ()))
        intermediates = tuple(presented[1:])
        if intermediates:
            self._seen.pop(leaf, None)
            while len(self._seen) >= self.REMEMBERED:
                del self._seen[next(iter(self._seen))]
            self._seen[leaf] = intermediates
        return Peer.of(leaf, intermediates)


def _presented(connection: ssl.SSLObject) -> Sequence[bytes] | None:
    """The chain as sent, leaf first; None on a resumed session. Public since Python 3.13."""
    public: Callable[[], Sequence[bytes]] | None = getattr(connection, "get_unverified_chain", None)
    if public is not None:
        return public() or None
    inner = getattr(connection, "_sslobj", None)
    chain = inner.get_unverified_chain() if inner is not None else None
    return [ssl.PEM_cert_to_DER_cert(certificate.public_bytes()) for certificate in chain] if chain else None


# ---------------------------------------------------------------------------------------------------------------- serving


def server_context(
    *, cert_file: Path, key_file: Path, authorities: Sequence[x509.Certificate] | None
) -> ssl.SSLContext:
    """For one generation. The handshake accepts every authority; which of them vouches for what is judged per request.

    None: no client is asked for a certificate. An empty sequence asks for one and refuses whoever has one: authorities are expected that
    are not known yet, and a connection without its certificate would be nobody's for as long as it lives.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(cert_file, key_file)
    except (OSError, ssl.SSLError) as e:
        raise BadCertificates(f"{cert_file} and {key_file} are no certificate with its key: {e}") from None
    if authorities is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
    if authorities:
        ders = b"".join(authority.public_bytes(serialization.Encoding.DER) for authority in authorities)
        try:
            context.load_verify_locations(cadata=ders)
        except ssl.SSLError as e:
            raise BadCertificates(f"a CA bundle cannot be used: {e}") from None
    return context


@dataclass(frozen=True, slots=True)
class Files:
    """The PEM files that a server lives on; an absent one is None. `names` are those of the front proxy of `proxy_ca`."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    proxy_ca: Path | None = None
    names: RequestHeader = NO_HEADERS

    @staticmethod
    def of(serving: Serving, authentication: Authentication) -> Files:
        client, proxy = authentication.client_ca_file, authentication.request_header.ca_file
        return Files(
            Path(serving.cert_file),
            Path(serving.key_file),
            client_ca=Path(client) if client else None,
            proxy_ca=Path(proxy) if proxy else None,
            names=authentication.request_header,
        )

    def signature(self) -> tuple[object, ...]:
        """Changes when a file does."""
        return tuple(_state_of(path) for path in (self.cert, self.key, self.client_ca, self.proxy_ca))


def _state_of(path: Path | None) -> object:
    if path is None:
        return None
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


NOT_LOOKED_UP = ClusterTrust(client_ca=None, proxy_ca=None, names=None)


class Certificates:
    """The newest good generation of what the next handshake uses and of whom each request trusts.

    A bundle is that of its file, or else the cluster's; `bundles` says what the cluster's are at the moment, and a change there counts
    from the next request on. Upstream: kubernetes/apiserver `pkg/server/options/authentication.go` ApplyTo.
    """

    def __init__(self, files: Files, bundles: Callable[[], ClusterTrust] | None = None) -> None:
        """Raises BadCertificates."""
        self._files = files
        self._bundles = bundles or (lambda: NOT_LOOKED_UP)
        self._asks = bundles is not None or files.client_ca is not None or files.proxy_ca is not None
        self._signature: tuple[object, ...] | None = files.signature()
        self._own = _read_bundles(files)
        self._cluster = self._seen = NOT_LOOKED_UP
        self._authorities = _Authorities.of(self._own, files.names, self._cluster)
        self._trust = self._authorities.trust()
        self._context = self._make_context(self._authorities)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next handshake."""
        if self._bundles() is not self._seen:
            self._follow()
        return self._context

    @property
    def trust(self) -> Trust:
        """For the next request."""
        if self._bundles() is not self._seen:
            self._follow()
        return self._trust

    def _make_context(self, authorities: _Authorities) -> ssl.SSLContext:
        return server_context(
            cert_file=self._files.cert,
            key_file=self._files.key,
            authorities=authorities.parsed() if self._asks else None,
        )

    def _follow(self) -> None:
        """Takes over what the cluster says now, if that is good."""
        seen = self._seen = self._bundles()
        authorities = _Authorities.of(self._own, self._files.names, seen)
        try:
            trust = authorities.trust()
        except BadCertificates as e:
            logger.error("changed authorities of the cluster are not used", extra={"error": str(e)})
            return
        try:
            context = self._make_context(authorities)
        except BadCertificates as e:
            # The serving pair is just being replaced. Rights do not wait for that; handshakes do, until the files are looked at.
            logger.error("handshakes still use the authorities of before", extra={"error": str(e)})
            context, self._signature = self._context, None
        self._cluster = seen
        self._install(authorities, context, trust)

    def refresh(self) -> bool:
        """Reads the files again if they changed, and says whether they had. While they are bad it raises BadCertificates and keeps
        what it has."""
        signature = self._files.signature()
        if signature == self._signature:
            return False
        own = _read_bundles(self._files)
        authorities = _Authorities.of(own, self._files.names, self._cluster)
        self._install(authorities, self._make_context(authorities), authorities.trust())
        self._own, self._signature = own, signature
        return True

    def _install(self, authorities: _Authorities, context: ssl.SSLContext, trust: Trust) -> None:
        changed = authorities != self._authorities
        self._authorities, self._context, self._trust = authorities, context, trust
        if changed:
            about = {"clients": _listed(authorities.client), "front_proxy": _listed(authorities.proxy)}
            logger.info("authorities changed", extra=about)


def _read_bundles(files: Files) -> tuple[bytes | None, bytes | None]:
    return _read(files.client_ca), _read(files.proxy_ca)


def _read(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        return path.read_bytes()
    except OSError as e:
        raise BadCertificates(f"{path} cannot be read: {e.strerror}") from None


@dataclass(frozen=True, slots=True)
class _Authorities:
    """The bundles of one generation, as PEM, and the front proxy's names."""

    client: bytes | None
    proxy: bytes | None
    names: RequestHeader

    @staticmethod
    def of(own: tuple[bytes | None, bytes | None], names: RequestHeader, cluster: ClusterTrust) -> _Authorities:
        """Item by item: what a file says is not looked up."""
        client, proxy = own
        if client is None:
            client = cluster.client_ca
        if proxy is not None:
            return _Authorities(client, proxy, names)
        # Without its list of names every holder of such a certificate would be the front proxy.
        if cluster.names is None:
            return _Authorities(client, None, NO_HEADERS)
        return _Authorities(client, cluster.proxy_ca, cluster.names)

    def parsed(self) -> list[x509.Certificate]:
        """All, each once. Raises BadCertificates."""
        return list(
            dict.fromkeys(ca for pem in (self.client, self.proxy) if pem is not None for ca in certificates(pem))
        )

    def trust(self) -> Trust:
        """Raises BadCertificates."""
        return Trust(
            client=verifier(self.client) if self.client is not None else None,
            proxy=verifier(self.proxy) if self.proxy is not None else None,
            names=self.names,
        )


def _listed(pem: bytes | None) -> str:
    """For the log."""
    return "; ".join(
        f"{ca.subject.rfc4514_string()[:256]} until {ca.not_valid_after_utc:%Y-%m-%d}"
        for ca in (certificates(pem) if pem is not None else ())
    )


# ---------------------------------------------------------------------------------------------------------------- making

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
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )


def make_ca(name: str, *, now: dt.datetime) -> Pair:
    """A self-signed CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, subject, key, now=now, days=CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(key_cert_sign=True, crl_sign=True), critical=True)
    )
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_serving(ca: Pair, name: str, *, hosts: Iterable[str], now: dt.datetime) -> Pair:
    """A serving certificate for these DNS names and IP addresses."""
    names = [_general_name(host) for host in dict.fromkeys(hosts)]
    return _leaf(ca, name, (), ExtendedKeyUsageOID.SERVER_AUTH, now=now, names=names)


def make_client(ca: Pair, name: str, *, groups: Sequence[str], now: dt.datetime) -> Pair:
    """A client certificate that names a user."""
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
    """The folder's CA, serving pair and client pair: kept while they fit and last, else made anew. Keys are readable by the owner only."""
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
    """A stored pair that is whole and does not end soon."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())
        key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), password=None)
    except (OSError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    if certificate.not_valid_after_utc - now < dt.timedelta(days=RENEW_DAYS) or certificate.not_valid_before_utc > now:
        return None
    return Pair(certificate, key)


def _keep(folder: Path, name: str, pair: Pair) -> None:
    write_private(folder / f"{name}.key", pair.key_pem)
    (folder / f"{name}.crt").write_bytes(pair.cert_pem)


def write_private(path: Path, content: bytes) -> None:
    """Replaces a file so that nobody else can ever read it and a crash leaves the old one."""
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
