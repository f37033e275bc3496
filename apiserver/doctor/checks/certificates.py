"""The serving certificate: its time, its names, and whether the caBundle vouches for it.

It is taken from a handshake with the server itself or, without a route to it, from the Secret that the pods mount.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime as dt
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from apiserver.doctor.findings import Answers, Check, Finding, State, found, good
from apiserver.doctor.installation import Address, Installation, Unreached

SOON_DAYS = 14
HANDSHAKE_SECONDS = 5.0
MOST_LINKS = 16
"""The longest chain that is followed."""
_NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL: times are judged by themselves, so that their errors hide no other."""
_RENEW = "certs/make.sh && kubectl apply -k manifests/overlays/dev   # certs/README.md; the files are read again without a restart"


async def serving(installation: Installation) -> Answers:
    bundle = await installation.bundle()
    try:
        address = await installation.address()
    except Unreached:
        async for finding in _of_secret(installation, bundle):
            yield finding
        return
    try:
        leaf = await _presented(address)
    except (OSError, TimeoutError, ValueError) as error:
        text = f"no TLS handshake with {address} ({address.why}): {str(error) or 'timed out'}"
        yield found("tls-refused", text, f"openssl s_client -connect {address} -servername {installation.names.host}")
        return
    problem = await _chain_problem(address, installation.names.host, bundle) if bundle else ""
    for finding in judged(leaf, installation.names.host, installation.wall(), problem=problem):
        yield finding


async def _of_secret(installation: Installation, bundle: bytes) -> Answers:
    names = installation.names
    path = f"/api/v1/namespaces/{names.namespace}/secrets/{names.service}-serving"
    secret = None if await installation.outside() else await installation.get(path)
    if secret is None:
        where = f"openssl s_client -connect ADDRESS -servername {names.host} </dev/null | openssl x509 -noout -dates"
        text = "no route from here to the server itself, and no Secret with its certificate"
        yield Finding(State.SKIP, "not-reachable", text, where)
        return
    try:
        leaf, *between = x509.load_pem_x509_certificates(
            base64.b64decode((secret.get("data") or {}).get("tls.crt", ""))
        )
    except ValueError:
        why = f"the Secret {names.namespace}/{names.service}-serving has no readable tls.crt"
        yield found("secret-missing", why, _RENEW)
        return
    problem = unsigned(leaf, between, x509.load_pem_x509_certificates(bundle)) if bundle else ""
    for finding in judged(leaf, names.host, installation.wall(), problem=problem):
        yield finding


def judged(leaf: x509.Certificate, host: str, now: float, *, problem: str) -> Iterator[Finding]:
    """Judge a serving certificate. `problem` is why the caBundle does not vouch for it, empty if it does."""
    at, days = dt.datetime.fromtimestamp(now, dt.UTC), (leaf.not_valid_after_utc.timestamp() - now) / 86400
    names = _names(leaf)
    wrong = False
    if at > leaf.not_valid_after_utc:
        yield found(
            "certificate-expired", f"the serving certificate expired on {leaf.not_valid_after_utc:%Y-%m-%d}", _RENEW
        )
        wrong = True
    elif at < leaf.not_valid_before_utc:
        text = f"the serving certificate is valid from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"
        yield found("certificate-not-yet-valid", text, f"date -u   # then: {_RENEW}")
        wrong = True
    elif days < SOON_DAYS:
        text = f"the serving certificate expires in {days:.1f} days, on {leaf.not_valid_after_utc:%Y-%m-%d}"
        yield found("certificate-expires-soon", text, _RENEW)
    if not any(_matches(name, host) for name in names):
        text = f"the serving certificate names {', '.join(names) or 'no DNS name'}, not {host}"
        yield found("certificate-name", text, _RENEW)
        wrong = True
    if problem:
        text = f"the caBundle of the APIService does not vouch for the serving certificate: {problem}"
        remedy = "kubectl get apiservice -l app.kubernetes.io/name=sluice -o yaml   # caBundle must be the CA of the Secret sluice-serving"
        yield found("certificate-untrusted", text, remedy)
        wrong = True
    if not wrong and days >= SOON_DAYS:
        yield good(f"the serving certificate is valid for {host}, {days:.0f} days")


def _names(leaf: x509.Certificate) -> Sequence[str]:
    try:
        value = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return value.get_values_for_type(x509.DNSName)


def _matches(name: str, host: str) -> bool:
    """Match as Go does: a star stands for the whole first label (golang/go `src/crypto/x509/verify.go` matchHostnames)."""
    pattern, wanted = name.lower().rstrip(".").split("."), host.lower().split(".")
    return len(pattern) == len(wanted) and pattern[1:] == wanted[1:] and pattern[0] in ("*", wanted[0])


def unsigned(
    leaf: x509.Certificate, between: Sequence[x509.Certificate], authorities: Sequence[x509.Certificate]
) -> str:
    """Return why no chain leads from a certificate to the authorities; empty if one does."""
    current = leaf
    for _ in range(MOST_LINKS):
        if any(current == each or _signed(current, each) for each in authorities):
            return ""
        above = next((each for each in between if each != current and _signed(current, each)), None)
        if above is None:
            return f"no CA of the bundle signed {current.subject.rfc4514_string()} (issuer {current.issuer.rfc4514_string()})"
        current = above
    return "the chain of the certificate is too long"


def _signed(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


async def _presented(address: Address) -> x509.Certificate:
    """Return the certificate that a server presents, whatever it is. Raises OSError, TimeoutError, ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with _shaken(address, context, "") as session:
        der = session.getpeercert(binary_form=True)
    if der is None:
        raise ValueError("the server presents no certificate")
    return x509.load_der_x509_certificate(der)


async def _chain_problem(address: Address, host: str, bundle: bytes) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= _NO_CHECK_TIME
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii", "ignore"))
        async with _shaken(address, context, host):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, TimeoutError, ValueError) as error:
        return str(error)


@contextlib.asynccontextmanager
async def _shaken(address: Address, context: ssl.SSLContext, host: str) -> AsyncIterator[ssl.SSLObject]:
    async with asyncio.timeout(HANDSHAKE_SECONDS):
        _, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=host or address.host
        )
    try:
        session: ssl.SSLObject = writer.get_extra_info("ssl_object")
        yield session
    finally:
        writer.transport.abort()


CHECKS = (Check("certificate", "whether the serving certificate is in time, named and trusted", serving),)
