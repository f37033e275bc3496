"""The TLS flags: versions, cipher suites, and pairs for some names, with kube-apiserver's names and messages.

Upstream: kubernetes/component-base `cli/flag/ciphersuites_flag.go`, `cli/flag/namedcertkey_flag.go`.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from apiserver.config.flags import Partly

VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}


def version(text: str) -> ssl.TLSVersion:
    """Parse a version by upstream's name, except versions that are too old."""
    if text not in VERSIONS:
        raise ValueError(f"{text!r} is neither {' nor '.join(VERSIONS)}")
    return VERSIONS[text]


CIPHERS: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
"""OpenSSL's name for each of Go's cipher suites that OpenSSL still has: no RC4, no 3DES. Empty for those of TLS 1.3, which cannot be
chosen. The order is Go's preference, whatever the operator's is (golang/go `src/crypto/tls/cipher_suites.go`).
"""

INSECURE = frozenset(
    name for name in CIPHERS if name.startswith("TLS_RSA_") or name.endswith("_WITH_AES_128_CBC_SHA256")
)
"""The cipher suites that Go warns of."""


DEFAULT_CIPHERS = tuple(name for name in CIPHERS if name not in INSECURE)
"""The suites that are offered by default, as by Go. DHE is left out: a peer could choose large groups."""
OPENSSL_CIPHERS = ":".join(dict.fromkeys(known for name in DEFAULT_CIPHERS if (known := CIPHERS[name])))
"""The same for clients of TLS 1.2, in OpenSSL's names."""


def ciphers(text: str) -> tuple[str, ...]:
    """Parse names of cipher suites, as Go's. All of them may be given; empty means the default."""
    names = text.split(",") if text else []
    known = tuple(name for name in names if name in CIPHERS)
    if len(known) != len(names):
        wrong = dict.fromkeys(name for name in names if name not in CIPHERS)
        raise Partly(known, [f"Cipher suite {name} not supported or doesn't exist" for name in wrong])
    return known


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A certificate and its key for clients that ask for one of these names; without names, for a name in the certificate."""

    cert: Path
    key: Path
    names: tuple[str, ...] = ()


BETWEEN_PAIRS = ";"
"""As in upstream's text form of several pairs."""


def named_pairs(text: str) -> tuple[NamedPair, ...]:
    """Parse `certfile,keyfile` or `certfile,keyfile:name,name`, several with `;` between them."""
    pairs, errors = list[NamedPair](), list[str]()
    for one in text.split(BETWEEN_PAIRS) if text else ():
        try:
            pairs.append(_named_pair(one))
        except ValueError as e:
            errors += e.args
    if errors:
        raise Partly(tuple(pairs), errors)
    return tuple(pairs)


def _named_pair(text: str) -> NamedPair:
    files, colon, names = text.partition(":")
    if colon and not names.strip():
        raise ValueError("empty names list is not allowed")
    paths = [path.strip() for path in files.split(",")]
    if len(paths) != 2:
        raise ValueError("expected comma separated certificate and key file paths")
    missing = [f"there is no file {path}" for path in paths if not Path(path).is_file()]
    if missing:
        raise ValueError(*missing)
    return NamedPair(Path(paths[0]), Path(paths[1]), tuple(n.strip() for n in names.split(",")) if colon else ())
