"""Prove to the store who Sluice is, and whom it trusts: passwords and TLS from files, which are read again for each connection."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cryptography import x509

from apiserver import files, metrics
from apiserver.config import store_address
from apiserver.config.tls_flags import OPENSSL_CIPHERS
from apiserver.storage.options import StoreOptions


class Unusable(Exception):
    """A password file or TLS file cannot be used. The text names it."""


def with_password(options: StoreOptions) -> StoreOptions:
    """Return the options with the password of their file, as it is now. Raises Unusable."""
    return replace(options, password=password(options.password_file)) if options.password_file else options


def password(path: Path) -> str:
    """Return the first line of a file. Raises Unusable."""
    try:
        found = path.read_text().partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"the password file {path} cannot be read: {_reason(error)}") from None
    if not found:
        raise Unusable(f"the password file {path} is empty")
    return found


def tls_context(options: StoreOptions) -> ssl.SSLContext | None:
    """Return the context that the TLS files make, as they are now; without any, the system's authorities are trusted.

    None if the URL itself has redis-py's TLS parameters. Takes tens of milliseconds when it is not cached. Raises Unusable.
    """
    paths = (options.ca_file, options.cert_file, options.key_file)
    if not any(paths) and "ssl_" in options.url:
        return None
    return _context(*paths, tuple(files.state(path) if path else None for path in paths))


@functools.lru_cache(maxsize=4)
def _context(ca: Path | None, cert: Path | None, key: Path | None, _states: object) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(OPENSSL_CIPHERS)
    try:
        if ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise Unusable(f"the authorities in {ca} cannot be used: {_reason(error)}") from None
    if cert is not None:
        try:
            context.load_cert_chain(cert, key, password=_no_passphrase)
            [first, *_] = x509.load_pem_x509_certificates(cert.read_bytes())
        except (OSError, ssl.SSLError, ValueError) as error:
            raise Unusable(
                f"the certificate {cert} with the key {key or cert} cannot be used: {_reason(error)}"
            ) from None
        metrics.CERTIFICATE_END.labels("store-client").set(first.not_valid_after_utc.timestamp())
    return context


def _no_passphrase() -> str:
    raise ValueError("the key is encrypted")  # OpenSSL would ask at the terminal


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def errors(options: StoreOptions) -> Iterator[str]:
    """Yield what contradicts or cannot be used in these settings, for the start of the program. The URL has its own error."""
    try:
        address = store_address.parse(options.url)
    except ValueError:
        return
    if not address.tls and any((options.ca_file, options.cert_file, options.key_file)):
        yield "--redis-ca-file, --redis-cert-file and --redis-key-file need a --redis-url with TLS, such as rediss://"
    if options.key_file and not options.cert_file:
        yield "--redis-key-file needs --redis-cert-file"
    if not address.sentinels and (options.sentinel_username or options.sentinel_password_file):
        yield "--redis-sentinel-username and --redis-sentinel-password-file need a --redis-url of sentinels, such as redis+sentinel://"
    if options.sentinel_username and not options.sentinel_password_file:
        yield "--redis-sentinel-username needs --redis-sentinel-password-file"
    try:
        with_password(options)
        if options.sentinel_password_file:
            password(options.sentinel_password_file)
        if address.tls:
            tls_context(options)
    except Unusable as unusable:
        yield str(unusable)
