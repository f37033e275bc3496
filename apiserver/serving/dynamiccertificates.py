"""The serving certificates and the trusted authorities, read again when files or the cluster change.

Upstream: kubernetes/apiserver `pkg/server/dynamiccertificates/`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.bindings.openssl.binding import Binding
from cryptography.hazmat.primitives import serialization
from OpenSSL import SSL, crypto

from apiserver import metrics
from apiserver.cluster.requestheader import ClusterTrust
from apiserver.config.config import Authentication, RequestHeader, Serving
from apiserver.config.tls_flags import CIPHERS, DEFAULT_CIPHERS, INSECURE, NamedPair
from apiserver.files import state
from apiserver.filters.authenticate import NO_HEADERS, Trust
from apiserver.serving.named_certificates import Named, choice, leaf
from apiserver.serving.x509.chains import BadCertificates, certificates, verifier

logger = logging.getLogger(__name__)

GROUPS = b"X25519MLKEM768:X25519:P-256:P-384:P-521", b"X25519:P-256:P-384:P-521"
"""The key exchanges of Go (`src/crypto/tls/defaults.go`); the second list is for OpenSSL before 3.5. Finite fields are left out: one
handshake of ffdhe8192 costs 160 ms of CPU.
"""
MOST_RSA_BITS = 8192
"""The largest RSA key of a client certificate, as in Go (`src/crypto/tls/handshake_client.go` checkKeySize)."""
_HTTP = b"http/1.1"
_lib: Any = Binding.lib


class Asked(Enum):
    """Whether clients are asked for a certificate.

    REFUSED: no authority for client certificates is known yet, but one will be. Without its certificate, a connection would stay
    anonymous as long as it lives. So the handshake fails, and the client tries again.
    """

    NOT, REFUSED, ACCEPTED = range(3)


def server_context(
    *,
    cert_file: Path,
    key_file: Path,
    asked: Asked = Asked.NOT,
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2,
    ciphers: Sequence[str] = (),
) -> SSL.Context:
    """Make the TLS context of one generation of certificates. Raises BadCertificates.

    The handshake proves that a client holds the key of its certificate, and does not judge the certificate. `chains` judges it for each
    request, so that the client gets 401 and not a broken handshake. `ciphers`: those of TLS 1.2 in Go's names, by default Go's.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    # Whole pieces are encrypted in one call; an idle connection keeps no buffers.
    context.clear_mode(_lib.SSL_MODE_ENABLE_PARTIAL_WRITE)
    context.set_mode(_lib.SSL_MODE_RELEASE_BUFFERS)
    context.set_options(
        SSL.OP_NO_TICKET | SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE
    )
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    if not any(_lib.SSL_CTX_set1_curves_list(context._context, groups) for groups in GROUPS):
        raise RuntimeError("OpenSSL has no X25519")
    _restrict(context, ciphers, minimum)
    context.set_alpn_select_callback(_choose_protocol)
    try:
        context.use_certificate_chain_file(str(cert_file))
        key: Any = serialization.load_pem_private_key(key_file.read_bytes(), None)
        context.use_privatekey(key)
        context.check_privatekey()
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm, SSL.Error) as e:
        raise BadCertificates(f"{cert_file} and {key_file} are no certificate with its key: {_reason(e)}") from None
    if asked is not Asked.NOT:
        context.set_verify(SSL.VERIFY_PEER, _accept_certificate if asked is Asked.ACCEPTED else _refuse_certificate)
        # The chain is not judged here, so OpenSSL should not spend time on it: it verifies one signature.
        context.set_verify_depth(0)
    return context


def _restrict(context: SSL.Context, ciphers: Sequence[str], minimum: ssl.TLSVersion) -> None:
    """Offer only these to clients of TLS 1.2. If all of them are of TLS 1.3, older clients are refused.

    Upstream refuses to start without a cipher that HTTP/2 requires, unless HTTP/2 is off, as it is here (golang/net `http2/server.go`
    ConfigureServer).
    """
    older = [known for name, known in CIPHERS.items() if known and name in (ciphers or DEFAULT_CIPHERS)]
    if older:
        context.set_cipher_list(":".join(older).encode())
    context.set_min_proto_version(minimum if older else ssl.TLSVersion.TLSv1_3)


def _choose_protocol(_connection: SSL.Connection, offered: list[bytes]) -> Any:
    return _HTTP if _HTTP in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def _accept_certificate(
    _connection: SSL.Connection, certificate: crypto.X509, _error: int, depth: int, _ok: int
) -> bool:
    """Accept every certificate whatever OpenSSL thinks of it, unless its key takes long to use or cannot be read."""
    if depth:
        return True
    try:
        key = certificate.get_pubkey()
    except crypto.Error:
        return False
    return key.type() != crypto.TYPE_RSA or key.bits() <= MOST_RSA_BITS


def _refuse_certificate(*_: object) -> bool:
    return False


def _reason(error: Exception) -> str:
    """Return the first of OpenSSL's messages, which come as a list of triples."""
    words = error.args[0] if error.args else ""
    return str(words[0][-1] if words and isinstance(words, list) else error)


@dataclass(frozen=True, slots=True)
class Files:
    """The PEM files of a server; a missing one is None.

    `names`: those of the front proxy of `proxy_ca`. `minimum`: the oldest TLS version. `ciphers`: Go's names for TLS 1.2, empty for
    Go's default. `named`: pairs for clients that ask for a certain name.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    proxy_ca: Path | None = None
    names: RequestHeader = NO_HEADERS
    minimum: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    ciphers: tuple[str, ...] = ()
    named: tuple[NamedPair, ...] = ()

    @staticmethod
    def of(serving: Serving, authentication: Authentication) -> Files:
        client, proxy = authentication.client_ca_file, authentication.request_header.ca_file
        return Files(
            Path(serving.cert_file),
            Path(serving.key_file),
            client_ca=Path(client) if client else None,
            proxy_ca=Path(proxy) if proxy else None,
            names=authentication.request_header,
            minimum=serving.tls_minimum,
            ciphers=serving.ciphers,
            named=serving.named_pairs,
        )

    def signature(self) -> tuple[object, ...]:
        """Return a value that changes when a file does."""
        named = (path for pair in self.named for path in (pair.cert, pair.key))
        return tuple(path and state(path) for path in (self.cert, self.key, self.client_ca, self.proxy_ca, *named))


NOT_LOOKED_UP = ClusterTrust(client_ca=None, proxy_ca=None, names=None)


class Certificates:
    """The newest good generation of certificates for handshakes and of authorities for requests.

    A bundle is that of its file, or else the cluster's. `bundles` returns the cluster's present ones, and a change there counts from
    the next request on. Upstream: kubernetes/apiserver `pkg/server/options/authentication.go` ApplyTo.
    """

    def __init__(self, files: Files, bundles: Callable[[], ClusterTrust] | None = None) -> None:
        """Read the files. Raises BadCertificates."""
        self._files = files
        self._bundles = bundles or (lambda: NOT_LOOKED_UP)
        self._asks = bundles is not None or files.client_ca is not None or files.proxy_ca is not None
        self._signature: tuple[object, ...] | None = files.signature()
        self._own = _read_bundles(files)
        self._cluster = self._seen = NOT_LOOKED_UP
        self._authorities = _Authorities.of(self._own, files.names, self._cluster)
        self._trust = self._authorities.trust()
        self._context = self._make_context(self._authorities)
        self._authorities.show_ends()
        for name in files.ciphers:
            if name in INSECURE:
                logger.warning("use of an insecure cipher suite", extra={"cipher": name})

    @property
    def context(self) -> SSL.Context:
        """The context for the next handshake."""
        if self._bundles() is not self._seen:
            self._follow()
        return self._context

    @property
    def trust(self) -> Trust:
        """The authorities for the next request."""
        if self._bundles() is not self._seen:
            self._follow()
        return self._trust

    def _make_context(self, authorities: _Authorities) -> SSL.Context:
        files = self._files
        make = partial(
            server_context,
            asked=authorities.asked if self._asks else Asked.NOT,
            minimum=files.minimum,
            ciphers=files.ciphers,
        )
        context = make(cert_file=files.cert, key_file=files.key)
        leaves = [leaf(path) for path in (files.cert, *(pair.cert for pair in files.named))]
        if files.named:
            loaded = [
                Named(pair.names, certificate, make(cert_file=pair.cert, key_file=pair.key))
                for pair, certificate in zip(files.named, leaves[1:], strict=True)
            ]
            context.set_tlsext_servername_callback(choice(leaves[0], loaded))
        metrics.CERTIFICATE_END.labels("serving").set(min(each.not_valid_after_utc.timestamp() for each in leaves))
        return context

    def _follow(self) -> None:
        """Use the cluster's present bundles, if they are good."""
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
            # The serving pair is just being replaced. Trust does not wait for that; handshakes do, until the files are read again.
            logger.error(
                "the serving certificate is unreadable, handshakes use the last authorities",
                extra={"error": str(e)},
            )
            context, self._signature = self._context, None
        self._cluster = seen
        self._install(authorities, context, trust)

    def refresh(self) -> bool:
        """Read changed files again, and return whether they had changed. Bad files raise BadCertificates and change nothing."""
        signature = self._files.signature()
        if signature == self._signature:
            return False
        own = _read_bundles(self._files)
        authorities = _Authorities.of(own, self._files.names, self._cluster)
        self._install(authorities, self._make_context(authorities), authorities.trust())
        self._own, self._signature = own, signature
        return True

    def _install(self, authorities: _Authorities, context: SSL.Context, trust: Trust) -> None:
        changed = authorities != self._authorities
        self._authorities, self._context, self._trust = authorities, context, trust
        if changed:
            authorities.show_ends()
            about = {"clients": _listed(authorities.client), "front_proxy": _listed(authorities.proxy)}
            logger.info("authorities changed", extra=about)


def errors(serving: Serving, authentication: Authentication) -> Iterator[str]:
    """Yield the errors in the files that flags name."""
    files = Files.of(serving, authentication)
    if serving.cert_file and serving.key_file:
        try:
            server_context(cert_file=files.cert, key_file=files.key)
        except BadCertificates as e:
            yield str(e)
    for pair in files.named:
        try:
            server_context(cert_file=pair.cert, key_file=pair.key)
        except BadCertificates as e:
            yield f"--tls-sni-cert-key: {e}"
    bundles = {"client-ca-file": files.client_ca, "requestheader-client-ca-file": files.proxy_ca}
    for flag, path in bundles.items():
        try:
            _read(path)
        except BadCertificates as e:
            yield f"--{flag}: {e}"


def _read_bundles(files: Files) -> tuple[bytes | None, bytes | None]:
    return _read(files.client_ca), _read(files.proxy_ca)


def _read(path: Path | None) -> bytes | None:
    """Read a bundle and check that each certificate can be used. Raises BadCertificates."""
    if path is None:
        return None
    try:
        pem = path.read_bytes()
        verifier(pem)
    except OSError as e:
        raise BadCertificates(f"{path} cannot be read: {e.strerror}") from None
    except BadCertificates as e:
        raise BadCertificates(f"{path}: {e}") from None
    return pem


@dataclass(frozen=True, slots=True)
class _Authorities:
    """The bundles of one generation, as PEM, and the front proxy's names."""

    client: bytes | None
    proxy: bytes | None
    names: RequestHeader

    @staticmethod
    def of(own: tuple[bytes | None, bytes | None], names: RequestHeader, cluster: ClusterTrust) -> _Authorities:
        """Combine item by item: what a file provides is not taken from the cluster."""
        client, proxy = own
        if client is None:
            client = cluster.client_ca
        if proxy is not None:
            return _Authorities(client, proxy, names)
        # Without the list of names, every holder of such a certificate would be the front proxy.
        if cluster.names is None:
            return _Authorities(client, None, NO_HEADERS)
        return _Authorities(client, cluster.proxy_ca, cluster.names)

    @property
    def asked(self) -> Asked:
        """Whether an authority for client certificates is known."""
        return Asked.REFUSED if self.client is None and self.proxy is None else Asked.ACCEPTED

    def trust(self) -> Trust:
        """Parse the bundles. Raises BadCertificates."""
        return Trust(
            client=verifier(self.client) if self.client is not None else None,
            proxy=verifier(self.proxy) if self.proxy is not None else None,
            names=self.names,
        )

    def show_ends(self) -> None:
        """Let scrapes show when each bundle ends. During a rotation it holds several authorities, and the last one counts."""
        for name, pem in (("client-ca", self.client), ("front-proxy-ca", self.proxy)):
            if pem is None:
                metrics.CERTIFICATE_END.remove(name)
            else:
                ends = max(ca.not_valid_after_utc for ca in certificates(pem))
                metrics.CERTIFICATE_END.labels(name).set(ends.timestamp())


def _listed(pem: bytes | None) -> str:
    """Describe a bundle for the log."""
    return "; ".join(
        f"{ca.subject.rfc4514_string()[:256]} until {ca.not_valid_after_utc:%Y-%m-%d}"
        for ca in (certificates(pem) if pem is not None else ())
    )
