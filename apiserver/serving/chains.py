"""Whom a CA bundle vouches for: the chain that a peer showed in its handshake, against one bundle at a time.

Upstream: golang/go `src/crypto/x509/verify.go` (what is asked of a client's chain).
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from apiserver.filters.authenticate import NotAuthentic, Verified, Verifier
from apiserver.filters.state import Peer
from apiserver.serving.sessions import ServerSession

logger = logging.getLogger(__name__)

LONGEST = 8
"""Intermediates that are read of what a client presents, in the order of a handshake: the leaf's issuer first. Real chains have one to
three, and cryptography's search ends at this depth anyway."""


class BadCertificates(Exception):
    """A file does not hold what it should."""


def verifier(pem: bytes) -> Verifier:
    """A function that finds a chain from a peer's certificate to this bundle and no other."""
    roots = certificates(pem)
    policy = (
        verification.PolicyBuilder()
        .store(verification.Store(roots))
        .extension_policies(ca_policy=_ISSUERS, ee_policy=_CLIENTS)
    )

    def verify(peer: Peer, at: float) -> Verified:
        try:
            leaf = x509.load_der_x509_certificate(peer.leaf)
            between = [x509.load_der_x509_certificate(der) for der in peer.intermediates[:LONGEST]]
            when = dt.datetime.fromtimestamp(at, dt.UTC)
            found = policy.time(when).build_client_verifier().verify(leaf, _vouched_for(between, roots))
        except verification.VerificationError as e:
            raise NotAuthentic(f"verifying certificate {_identifier(leaf)} failed: {e}") from None
        except ValueError as e:
            raise NotAuthentic(f"the client's certificate cannot be read: {e}") from None
        ends = min(certificate.not_valid_after_utc for certificate in found.chain)
        return Verified(leaf, ends.timestamp())

    return verify


def _vouched_for(presented: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]) -> list[x509.Certificate]:
    """The intermediates that can be part of a chain: what a root signed, and what those signed.

    The search goes up from the leaf, and tries the key of everything with the right name. Anybody can make such certificates, with keys
    that take a millisecond each. From the roots down, no key is used before its owner is known.
    """
    issuers, left = list(roots), list(presented)
    for issuer in issuers:  # which grows
        signed = [certificate for certificate in left if _signed(certificate, issuer)]
        left = [certificate for certificate in left if certificate not in signed]
        issuers += signed
    return issuers[len(roots) :]


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


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
    except ValueError:
        raise BadCertificates("no certificates in PEM form") from None


def peer(session: ServerSession) -> Peer | None:
    """What a client presented in its handshake, which proved that it holds the key of the first certificate."""
    presented = session.peer_certificates(1 + LONGEST)
    return Peer.of(presented[0], tuple(presented[1:])) if presented else None
