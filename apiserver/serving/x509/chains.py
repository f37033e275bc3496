"""Verify the certificates of a peer's handshake against a CA bundle, one bundle at a time.

The rules are Go's, so that exactly those certificates are accepted that kube-apiserver accepts. `cryptography` verifies signatures. Its
`verification` module follows the rules of the web, which refuse much of what clusters use.

    roots ──► trusted signers: signatures, from the roots down
    leaf  ──► chains: names, times, CAs, path lengths, from the leaf up ──► policies, usages, name constraints of each

Upstream: golang/go `src/crypto/x509/verify.go`, `src/crypto/tls/handshake_server.go` processCertsFromClient.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from apiserver.filters.authenticate import NotAuthentic, Verified, Verifier
from apiserver.filters.state import Peer
from apiserver.serving.sessions import ServerSession
from apiserver.serving.x509 import certificate_policies, name_constraints
from apiserver.serving.x509.certificates import SIGNS_CERTIFICATES, Certificate, parse
from apiserver.serving.x509.der import Budget, Malformed

logger = logging.getLogger(__name__)

LONGEST = 32
"""The most intermediates of a client that are read, in the order of a handshake: the leaf's issuer first. Real chains have one to
three. Go reads all.
"""
PRESENTED_BYTES = 32 << 10
"""The most bytes of all certificates of a client; four of RSA-4096 take 8 KiB. Go's limit is 256 KiB."""
PRESENTED_VALUES = 5_000
"""The most values in all certificates of a client. An ordinary one has eighty. Reading this many takes 8 ms."""
RSA_BITS = 8192
"""The largest RSA key of a client, as in Go."""
CANDIDATES = 100
"""The most issuers that are considered for one peer, as in Go."""
WRONG_SIGNATURES = 32
"""The most invalid signatures of one peer before the search in one bundle ends; verifying one takes an eighth of a millisecond. Those
of P-384, P-521 and RSA-8192 count four times. Go verifies 100 signatures of any kind.
"""

CLIENT_AUTH, ANY_USAGE = bytes.fromhex("2b06010505070302"), bytes.fromhex("551d2500")
_LEAF_KINDS = "RSA", "ECDSA", "Ed25519"
_RSA_LEAST_BITS, _RSA_HIGHEST_EXPONENT = 1024, (1 << 31) - 1
_HASHES: Mapping[str, hashes.HashAlgorithm] = {
    "sha256": hashes.SHA256(),
    "sha384": hashes.SHA384(),
    "sha512": hashes.SHA512(),
}


class BadCertificates(Exception):
    """A file holds no valid certificates or keys."""


class Refused(Exception):
    """No chain was found. The text is Go's."""


PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class Issuer:
    """A certificate that may have signed others. Its key is read on first use, which is after its own signature was verified."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate

    @functools.cached_property
    def may_sign(self) -> bool:
        """Whether it may sign certificates. Upstream: CheckSignatureFrom."""
        certificate, says = self.certificate, self.certificate.says
        if says.authority is False or (certificate.version == 3 and says.authority is None):
            return False
        return not says.key_usage or SIGNS_CERTIFICATES in says.key_usage

    @functools.cached_property
    def _key(self) -> PublicKey | None:
        """The key, None for one that verifies nothing in Go."""
        try:
            key = serialization.load_der_public_key(self.certificate.key)
        except (ValueError, UnsupportedAlgorithm):
            return None
        if isinstance(key, rsa.RSAPublicKey):
            numbers = key.public_numbers()
            odd = numbers.n % 2 == 1 and numbers.e % 2 == 1
            usable = key.key_size >= _RSA_LEAST_BITS and odd and 2 <= numbers.e <= _RSA_HIGHEST_EXPONENT
            return key if usable else None
        return key if isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey) else None

    @functools.cached_property
    def effort(self) -> int:
        """The cost of verifying one signature, in units of `WRONG_SIGNATURES`."""
        match self._key:
            case rsa.RSAPublicKey(key_size=bits):
                return max(1, (bits >> 12) ** 2)
            case ec.EllipticCurvePublicKey(key_size=bits):
                return 4 if bits > 256 else 1
        return 1

    def signed(self, certificate: Certificate) -> bool:
        algorithm, key = certificate.algorithm, self._key
        if algorithm is None or algorithm.kind != self.certificate.kind:
            return False
        try:
            match key:
                case rsa.RSAPublicKey():
                    hashed = _HASHES[algorithm.hash]
                    how = padding.PSS(padding.MGF1(hashed), hashed.digest_size) if algorithm.pss else padding.PKCS1v15()
                    key.verify(certificate.signature, certificate.signed, how, hashed)
                case ec.EllipticCurvePublicKey():
                    key.verify(certificate.signature, certificate.signed, ec.ECDSA(_HASHES[algorithm.hash]))
                case ed25519.Ed25519PublicKey():
                    key.verify(certificate.signature, certificate.signed)
                case _:
                    return False
        except (InvalidSignature, UnsupportedAlgorithm, ValueError):
            return False
        return True


def verifier(pem: bytes) -> Verifier:
    """Return a function that finds a chain from a peer's certificate to this bundle. Raises BadCertificates."""
    try:
        ders = [ca.public_bytes(serialization.Encoding.DER) for ca in certificates(pem)]
        bundle = [parse(der, Budget(len(der))) for der in ders]
    except Malformed as e:
        raise BadCertificates(f"a certificate cannot be used: x509: {e}") from None
    roots = _issuers(bundle)

    def verify(peer: Peer, at: float) -> Verified:
        leaf, *between = presented(peer)
        try:
            chain = Search(roots, _issuers(between), at).chain(leaf)
        except Refused as e:
            raise NotAuthentic(f"verifying certificate {_identifier(leaf)} failed: x509: {e}") from None
        return Verified(leaf.named(), min(certificate.ends for certificate in chain))

    return verify


def _issuers(pool: Sequence[Certificate]) -> list[Issuer]:
    """Make issuers, each certificate once."""
    return [Issuer(certificate) for certificate in {each.encoded: each for each in pool}.values()]


@functools.lru_cache(maxsize=1)
def presented(peer: Peer) -> tuple[Certificate, ...]:
    """Parse a client's certificates, leaf first. Cached, because each bundle judges them in turn. Raises NotAuthentic."""
    ders = peer.leaf, *peer.intermediates[:LONGEST]
    if sum(map(len, ders)) > PRESENTED_BYTES:
        raise NotAuthentic("the client's certificates are too large")
    try:
        budget = Budget(PRESENTED_VALUES)
        found = tuple(parse(der, budget) for der in ders)
    except Malformed as e:
        raise NotAuthentic(f"failed to parse client certificate: x509: {e}") from None
    if any(certificate.kind == "RSA" and certificate.bits > RSA_BITS for certificate in found):
        raise NotAuthentic(f"client sent certificate containing RSA key larger than {RSA_BITS} bits")
    if found[0].kind not in _LEAF_KINDS:
        raise NotAuthentic("client certificate contains an unsupported public key")
    return found


class Search:
    """A search for chains of one peer at one time."""

    def __init__(self, roots: Sequence[Issuer], presented: Sequence[Issuer], at: float) -> None:
        self._roots, self._presented, self._at = roots, presented, at
        self._signed = set[tuple[Issuer, Certificate]]()
        """The valid signatures."""
        self._considered = 0
        self._hint = ""
        self._last: Refused | None = None
        """Why the last issuer that signed cannot be part of a chain."""

    def chain(self, leaf: Certificate) -> Sequence[Certificate]:
        """Return the first valid chain. Raises Refused."""
        self._check(leaf, ())
        if any(root.certificate.encoded == leaf.encoded for root in self._roots):
            candidates: Iterator[tuple[Certificate, ...]] = iter([(leaf,)])
        else:
            self._vouch(leaf)
            candidates = self._above((leaf,))
        refusal = None
        for chain in candidates:
            try:
                _check_chain(chain)
            except Refused as e:
                refusal = refusal or e
            else:
                return chain
        if refusal := refusal or self._last:
            raise refusal
        raise Refused(f"certificate signed by unknown authority{self._hint}")

    def _vouch(self, leaf: Certificate) -> None:
        """Verify signatures from the roots down.

        Anybody can make intermediates with the right names, and keys that take a millisecond each. So a key is used only after its
        owner's own signature was verified.
        """
        left = {id(issuer.certificate): issuer for issuer in self._presented}
        wrong = 0
        issuers = list(self._roots)
        for issuer in issuers:  # the list grows in the loop
            if not issuer.may_sign:
                continue
            for certificate in (leaf, *(other.certificate for other in self._presented)):
                if certificate.issuer != issuer.certificate.subject or certificate is issuer.certificate:
                    continue
                if issuer.signed(certificate):
                    self._signed.add((issuer, certificate))
                    vouched = left.pop(id(certificate), None)
                    if vouched is not None:
                        issuers.append(vouched)
                else:
                    wrong += issuer.effort
                    if wrong >= WRONG_SIGNATURES:
                        return

    def _above(self, below: tuple[Certificate, ...]) -> Iterator[tuple[Certificate, ...]]:
        """Yield the chains that begin with these certificates. Roots come before intermediates, and issuers with the named key before
        others.
        """
        child = below[-1]
        for pool in (self._roots, self._presented):
            for issuer in sorted(_named(pool, child.issuer), key=functools.partial(_match, child)):
                self._considered += 1
                if self._considered > CANDIDATES:
                    return
                candidate = issuer.certificate
                if _is_in(candidate, below):
                    continue
                if (issuer, child) not in self._signed:
                    self._hint = self._hint or (
                        f' (possibly because of "x509: {_why_unsigned(issuer, child)}" while trying to verify candidate'
                        f' authority certificate "{_short_name(candidate)}")'
                    )
                    continue
                try:
                    self._check(candidate, below, root=pool is self._roots)
                except Refused as e:
                    self._last = e
                    continue
                chain = (*below, candidate)
                if pool is self._roots:
                    yield chain
                else:
                    yield from self._above(chain)

    def _check(self, certificate: Certificate, below: Sequence[Certificate], *, root: bool = False) -> None:
        """Check whether a certificate may stand above these. Key usages do not count here. Upstream: isValid."""
        says = certificate.says
        if says.unhandled:
            raise Refused("unhandled critical extension")
        if not certificate.starts <= self._at <= certificate.ends:
            raise Refused("certificate has expired or is not yet valid")
        if below and not root and not says.authority:
            raise Refused("certificate is not authorized to sign other certificates")
        if says.authority is not None and 0 <= says.path_length < len(below) - 1:
            raise Refused("too many intermediates for path length constraint")


def _why_unsigned(issuer: Issuer, child: Certificate) -> str:
    if not issuer.may_sign:
        return "invalid signature: parent certificate cannot sign this kind of certificate"
    return "invalid signature" if child.algorithm is not None else "cannot verify signature: insecure algorithm"


def _named(pool: Sequence[Issuer], subject: bytes) -> Iterator[Issuer]:
    return (issuer for issuer in pool if issuer.certificate.subject == subject)


def _match(child: Certificate, issuer: Issuer) -> int:
    """Return how well an issuer's key fits the one that the certificate names: 0 is best."""
    wanted, has = child.says.authority_key, issuer.certificate.says.subject_key
    if wanted == has:
        return 0
    return 2 if wanted and has else 1


def _is_in(candidate: Certificate, chain: Sequence[Certificate]) -> bool:
    """Return whether the chain has the same subject with the same key already. Upstream: alreadyInChain."""
    for other in chain:
        if (candidate.subject, candidate.key) == (other.subject, other.key):
            if candidate.says.san == other.says.san:
                return True
            if candidate.says.san is None or other.says.san is None:
                return False
    return False


def _check_chain(chain: Sequence[Certificate]) -> None:
    if not certificate_policies.are_valid(chain):
        raise Refused("no valid chains built: 1 candidate chains with invalid policies")
    for certificate in chain:
        usages = certificate.says.usages
        if usages and CLIENT_AUTH not in usages and ANY_USAGE not in usages:
            raise Refused("certificate specifies an incompatible key usage")
    try:
        name_constraints.check(
            [(None if c.says.san is None else c.says.names, c.says.constraints) for c in chain],
        )
    except name_constraints.Forbidden as e:
        raise Refused(
            f"a root or intermediate certificate is not authorized to sign for this name: {e}",
        ) from None


def _identifier(certificate: Certificate) -> str:
    keys = (certificate.says.subject_key, certificate.says.authority_key)
    subject, authority = (key[:64].hex(":").upper() for key in keys)
    return f"SN={certificate.serial}, SKID={subject}, AKID={authority}"


def _short_name(certificate: Certificate) -> str:
    subject = certificate.named()
    return (subject.common_name or "".join(subject.organizations[:1]) or f"serial:{certificate.serial}")[:256]


def certificates(pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise BadCertificates("no certificates in PEM form") from None


def peer(session: ServerSession) -> Peer | None:
    """Return the certificates of a client's handshake, which proved that it holds the key of the first one."""
    presented = session.peer_certificates(1 + LONGEST)
    return Peer.of(presented[0], tuple(presented[1:])) if presented else None
