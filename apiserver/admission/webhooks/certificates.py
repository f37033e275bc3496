"""Trust in a webhook's certificate, and Go's error without it. OpenSSL verifies it.

Upstream: golang/go `src/crypto/x509/verify.go`, kubernetes/client-go `transport/transport.go` (TLSConfigFor).
"""

from __future__ import annotations

import datetime as dt
import functools
import ipaddress
import ssl
import tempfile

from cryptography import x509
from cryptography.x509.oid import ExtensionOID, NameOID

from apiserver.config.tls_flags import OPENSSL_CIPHERS

MOST_NAMES = 100
"""Names of a certificate that an error shows."""
_BEGIN, _CERTIFICATE = b"-----BEGIN ", b"-----BEGIN CERTIFICATE-----"
_EARLY, _LATE, _PURPOSE, _NAMES = 9, 10, 26, (62, 64)
"""OpenSSL's numbers (`x509_vfy.h`)."""


class Unusable(Exception):
    """The configuration makes no TLS client; the text is Go's."""


def context(bundle: bytes, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext:
    """Believes the CAs of `bundle`, the system's where it is empty, and shows the pair if there is one. Raises Unusable.

    Takes tens of milliseconds for the system's CAs.
    """
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers(OPENSSL_CIPHERS)
    made.hostname_checks_common_name = False
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.set_alpn_protocols(["http/1.1"])
    if bundle:
        _believe(made, bundle)
    else:
        made.load_default_certs()
    if certificate or key:
        _show(made, certificate, key)
    return made


@functools.cache
def anybody() -> ssl.SSLContext:
    """Believes anybody: to look at a certificate that was refused, never to send anything."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.set_ciphers(OPENSSL_CIPHERS)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    return made


def _believe(made: ssl.SSLContext, bundle: bytes) -> None:
    if _BEGIN not in bundle:
        raise Unusable("unable to load root certificates: unable to parse bytes as PEM block")
    if _CERTIFICATE not in bundle:
        raise Unusable("unable to load root certificates: no valid certificate authority data seen")
    try:
        made.load_verify_locations(cadata=bundle.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise Unusable(
            "unable to load root certificates: failed to parse certificate: x509: malformed certificate"
        ) from None


def _show(made: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    # Read by OpenSSL from a path only; a temporary file is its owner's alone, and gone at once.
    try:
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(certificate + b"\n" + key)
            pair.flush()
            made.load_cert_chain(pair.name)
    except (OSError, ValueError):  # ssl.SSLError is an OSError
        raise Unusable("tls: failed to find any PEM data in certificate input") from None


def words(error: ssl.SSLCertVerificationError, shown: bytes | None, name: str) -> str:
    """Return Go's error for an untrusted certificate (DER). Its validity comes first, then its names, then its signer."""
    return f"tls: failed to verify certificate: {_words(error.verify_code, shown, name)}"


def _words(code: int, shown: bytes | None, name: str) -> str:
    try:
        leaf = None if shown is None else x509.load_der_x509_certificate(shown)
    except ValueError:
        leaf = None
    if leaf is not None and (said := _wrong_time(leaf) or _wrong_name(leaf, name)):
        return said
    if code == _PURPOSE:
        return "x509: certificate specifies an incompatible key usage"
    if code in (_EARLY, _LATE):
        return "x509: certificate has expired or is not yet valid"
    if code in _NAMES:
        return f"x509: certificate is not valid for any names, but wanted to match {name}"
    return "x509: certificate signed by unknown authority"


def _wrong_time(leaf: x509.Certificate) -> str:
    now = dt.datetime.now(dt.UTC)
    if now < leaf.not_valid_before_utc:
        relation, when = "before", leaf.not_valid_before_utc
    elif now > leaf.not_valid_after_utc:
        relation, when = "after", leaf.not_valid_after_utc
    else:
        return ""
    said = f"current time {now:%Y-%m-%dT%H:%M:%SZ} is {relation} {when:%Y-%m-%dT%H:%M:%SZ}"
    return f"x509: certificate has expired or is not yet valid: {said}"


def _wrong_name(leaf: x509.Certificate, name: str) -> str:
    try:
        extension = leaf.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME).value
    except (x509.ExtensionNotFound, ValueError):
        extension = None
    names = extension if isinstance(extension, x509.SubjectAlternativeName) else None
    address = _address(name)
    if address is not None:
        known = [] if names is None else [str(ip) for ip in names.get_values_for_type(x509.IPAddress)]
        if str(address) in known:
            return ""
    else:
        known = [] if names is None else names.get_values_for_type(x509.DNSName)
        if any(_matches(pattern, name) for pattern in known):
            return ""
    if names is None and any(_matches(str(cn.value), name) for cn in _common_names(leaf)):
        return "x509: certificate relies on legacy Common Name field, use SANs instead"
    if address is not None and not known:
        return f"x509: cannot validate certificate for {name} because it doesn't contain any IP SANs"
    if len(known) >= MOST_NAMES:
        what = "IP SANs" if address is not None else "names"
        return f"x509: certificate is valid for {len(known)} {what}, but none matched {name}"
    if not known:
        return f"x509: certificate is not valid for any names, but wanted to match {name}"
    return f"x509: certificate is valid for {', '.join(known)}, not {name}"


def _common_names(leaf: x509.Certificate) -> list[x509.NameAttribute[str | bytes]]:
    return leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)


def _matches(pattern: str, name: str) -> bool:
    """A star stands for one whole label, the first."""
    wanted, labels = pattern.lower().rstrip(".").split("."), name.lower().rstrip(".").split(".")
    if len(wanted) != len(labels) or not all(wanted):
        return False
    return wanted[1:] == labels[1:] and (wanted[0] in ("*", labels[0]))


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
