"""Which of several certificates a client gets: by the name that it asks for (SNI), or by the address that it came to.

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
"""Called in each handshake; replaces the context of the connection. The connection's app data is its socket, if there is one."""


@dataclass(frozen=True, slots=True)
class Named:
    """A pair that is ready: the names that the operator gave it, its certificate, and what serves with it."""

    names: Sequence[str]
    certificate: x509.Certificate
    context: SSL.Context


def leaf(path: Path) -> x509.Certificate:
    """The first certificate in a file. Raises BadCertificates."""
    try:
        return certificates(path.read_bytes())[0]
    except OSError as e:
        raise BadCertificates(f"{path} cannot be read: {e.strerror}") from None
    except BadCertificates as e:
        raise BadCertificates(f"{path}: {e}") from None


def choice(default: x509.Certificate, pairs: Sequence[Named]) -> Choice:
    """What a context with the default certificate calls in each handshake, in a step of the loop: it looks into a few tables.

    The name that is asked for decides, then its first label as `*`; then which certificate is for that name, the default before the others.
    A client that names nothing gets what is meant for the address that it came to. Go looks as well whether the client can use the
    certificate's key, which cannot be asked of OpenSSL here.
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
    """Earlier pairs win, and those whose names the operator gave over those whose certificates say them."""
    found: dict[str, SSL.Context | None] = {}
    said = ((pair, pair.names) for pair in pairs)
    implied = ((pair, _own_names(pair.certificate)) for pair in pairs if not pair.names)
    for pair, its_names in (*said, *implied):
        for name in its_names:
            found.setdefault(name, pair.context)
    return found


def _covering(pairs: Iterable[Named]) -> dict[str, SSL.Context | None]:
    """By the names for which a certificate is good, whatever names the operator gave."""
    found: dict[str, SSL.Context | None] = {}
    for pair in pairs:
        for name in _dns_names(pair.certificate):
            found.setdefault(name, pair.context)
    return found


def _own_names(certificate: x509.Certificate) -> list[str]:
    """Its common name, where that is a domain, and its DNS names, each as it is written. An address is no name: none can be asked for."""
    common = [str(a.value) for a in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)][-1:]
    good = [
        cn for cn in common if not _is_address(cn) and (cn == "*" or not names.dns_subdomain(cn.removeprefix("*.")))
    ]
    return good + _subject_names(certificate)


def _dns_names(certificate: x509.Certificate) -> list[str]:
    """In lower case, as they are compared where it is asked whether a certificate is good for a name; `*` alone is good for none."""
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
    """Ours, as Go writes it: an address of IPv4 that came through a socket of IPv6 is one of IPv4. "" in a handshake in memory."""
    if sock is None:
        return ""
    try:
        host = str(sock.getsockname()[0])
    except OSError:  # the client is gone
        return ""
    return host.removeprefix("::ffff:") if "." in host else host
