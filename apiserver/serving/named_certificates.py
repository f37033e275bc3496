"""Choose one of several certificates for a client: by the requested name (SNI), or by the address that it connected to.

Upstream: kubernetes/apiserver `pkg/server/dynamiccertificates/named_certificates.go`, `tlsconfig.go` GetConfigForClient, golang/go
`src/crypto/tls/common.go` getCertificate.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from apiserver.serving.x509.chains import BadCertificates, certificates
from kubetext import names

Choice = Callable[[SSL.Connection], None]
"""Called in each handshake; replaces the context of the connection. The connection's app data is its socket, or None."""


@dataclass(frozen=True, slots=True)
class Named:
    """A loaded pair: the names that the operator gave it, its certificate, and its context."""

    names: Sequence[str]
    certificate: x509.Certificate
    context: SSL.Context


def leaf(path: Path) -> x509.Certificate:
    """Return the first certificate in a file. Raises BadCertificates."""
    try:
        return certificates(path.read_bytes())[0]
    except OSError as e:
        raise BadCertificates(f"{path} cannot be read: {e.strerror}") from None
    except BadCertificates as e:
        raise BadCertificates(f"{path}: {e}") from None


def choice(default: x509.Certificate, pairs: Sequence[Named]) -> Choice:
    """Return the callback that a context with the default certificate calls in each handshake. It only looks into a few tables.

    The requested name decides, then its first label as `*`. Next comes the certificate that is valid for the name, the default first. A
    client without SNI gets the certificate for the address that it connected to. Go also checks whether the client can use the
    certificate's key; OpenSSL does not tell that here.
    """
    by_name = _by_name(pairs)
    tables = by_name, dict.fromkeys(_dns_names(default)), _covering(pairs)

    def choose(connection: SSL.Connection) -> None:
        asked = connection.get_servername()
        if not asked:
            found = by_name.get(_own_address(connection.get_app_data()))
        else:
            name = names.lower(asked.decode("utf-8", "replace"))
            wildcard = f"*{name[at:]}" if (at := name.find(".")) >= 0 else "*"
            found = next((table[n] for table in tables for n in (name, wildcard) if n in table), None)
        if found is not None:
            connection.set_context(found)

    return choose


def _by_name(pairs: Sequence[Named]) -> dict[str, SSL.Context | None]:
    """Map names to contexts. Earlier pairs win, and names from the operator win over names in certificates."""
    found: dict[str, SSL.Context | None] = {}
    said = ((pair, pair.names) for pair in pairs)
    implied = ((pair, _own_names(pair.certificate)) for pair in pairs if not pair.names)
    for pair, its_names in (*said, *implied):
        for name in its_names:
            found.setdefault(name, pair.context)
    return found


def _covering(pairs: Iterable[Named]) -> dict[str, SSL.Context | None]:
    """Map the names for which a certificate is valid, whatever names the operator gave."""
    found: dict[str, SSL.Context | None] = {}
    for pair in pairs:
        for name in _dns_names(pair.certificate):
            found.setdefault(name, pair.context)
    return found


def _own_names(certificate: x509.Certificate) -> list[str]:
    """Return its common name, if that is a domain, and its DNS names, as written. Addresses are left out: SNI cannot request them."""
    common = [str(a.value) for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)][-1:]
    good = [
        cn for cn in common if not _is_address(cn) and (cn == "*" or not names.dns_subdomain(cn.removeprefix("*.")))
    ]
    return good + _subject_names(certificate)


def _dns_names(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names in lower case, to check whether a certificate is valid for a name. `*` alone is valid for none."""
    return [name.lower() for name in _subject_names(certificate) if name != "*"]


def _subject_names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _own_address(sock: socket.socket | None) -> str:
    """Return the server's address as Go writes it: an IPv4 address on an IPv6 socket in IPv4 form. "" for a handshake in memory."""
    if sock is None:
        return ""
    try:
        host = str(sock.getsockname()[0])
    except OSError:  # the client has disconnected
        return ""
    return host.removeprefix("::ffff:") if "." in host else host
