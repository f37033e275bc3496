"""Parse X.509 certificates like Go. Certificates that Go refuses to parse raise Malformed.

`cryptography` has other rules: it refuses version 2, and names and extensions that Go never reads.

Upstream: golang/go `src/crypto/x509/parser.go`, `src/crypto/x509/x509.go`.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from cryptography.hazmat.primitives.asymmetric import ec

from apiserver.filters.authenticate import Subject
from apiserver.serving.x509 import der
from apiserver.serving.x509.der import Budget, Malformed, Reader
from apiserver.serving.x509.name_constraints import Constraints, Names, is_domain, is_mask, mailbox
from kubecel.libraries import urls

SIGNS_CERTIFICATES, LAST_USAGE = 5, 8
"""Bits of keyUsage: keyCertSign, and the last one that is read."""

URI_VALUES = 8
"""Parsing a URI takes as long as reading this many values."""

Kind = Literal["RSA", "ECDSA", "Ed25519", "DSA", ""]
"""The kind of a key; empty for one that Go does not know, which verifies no signature."""

_KINDS: Mapping[bytes, Kind] = {
    bytes.fromhex("2a864886f70d010101"): "RSA",
    bytes.fromhex("2a8648ce3d0201"): "ECDSA",
    bytes.fromhex("2b6570"): "Ed25519",
    bytes.fromhex("2a8648ce380401"): "DSA",
}
_CURVES: Mapping[bytes, ec.EllipticCurve] = {
    bytes.fromhex("06052b81040021"): ec.SECP224R1(),
    bytes.fromhex("06082a8648ce3d030107"): ec.SECP256R1(),
    bytes.fromhex("06052b81040022"): ec.SECP384R1(),
    bytes.fromhex("06052b81040023"): ec.SECP521R1(),
}
_UNCOMPRESSED = 4
"""First byte of a point."""
_ED25519_BYTES = 32


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A signature algorithm: the kind of key and the hash ("" for Ed25519)."""

    kind: Kind
    hash: str
    pss: bool = False


_ALGORITHMS = {
    bytes.fromhex("2a864886f70d01010b"): Algorithm("RSA", "sha256"),
    bytes.fromhex("2a864886f70d01010c"): Algorithm("RSA", "sha384"),
    bytes.fromhex("2a864886f70d01010d"): Algorithm("RSA", "sha512"),
    bytes.fromhex("2a8648ce3d040302"): Algorithm("ECDSA", "sha256"),
    bytes.fromhex("2a8648ce3d040303"): Algorithm("ECDSA", "sha384"),
    bytes.fromhex("2a8648ce3d040304"): Algorithm("ECDSA", "sha512"),
}
"""The algorithms that Go verifies. MD5, SHA-1 and DSA are left out."""
_ED25519, _PSS = bytes.fromhex("2b6570"), bytes.fromhex("2a864886f70d01010a")


def _tlv(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    return bytes((tag, len(content))) + content


def _pss_parameters() -> Iterator[tuple[bytes, Algorithm]]:
    """Yield the parameters of RSASSA-PSS that Go accepts: one hash for everything, and a salt of its length. NULLs may be left out."""
    mgf1 = _tlv(der.OBJECT_IDENTIFIER, bytes.fromhex("2a864886f70d010108"))
    for name, last in (("sha256", 1), ("sha384", 2), ("sha512", 3)):
        oid = _tlv(der.OBJECT_IDENTIFIER, bytes.fromhex("6086480165030402"), bytes((last,)))
        salt = _tlv(0xA2, _tlv(der.INTEGER, bytes((hashlib.new(name).digest_size,))))
        for null in (der.NULL, b""):
            for inner_null in (der.NULL, b""):
                for trailer in (b"", _tlv(0xA3, _tlv(der.INTEGER, b"\x01"))):
                    hashed = _tlv(0xA0, _tlv(der.SEQUENCE, oid, null))
                    masked = _tlv(0xA1, _tlv(der.SEQUENCE, mgf1, _tlv(der.SEQUENCE, oid, inner_null)))
                    yield _tlv(der.SEQUENCE, hashed, masked, salt, trailer), Algorithm("RSA", name, pss=True)


_PSS_ALGORITHMS = dict(_pss_parameters())


@dataclass(slots=True)
class Extensions:
    """The extensions of a certificate. `usages`, `policies` and `mappings` hold encoded object identifiers.

    `authority` is True for a CA, None without basicConstraints. `path_length` is -1 without a limit. `san` is the encoded
    subjectAltName. `explicit_after`, `no_mapping_after` and `no_any_after` count certificates below, None for never. `unhandled`: a
    critical extension is not understood.
    """

    authority: bool | None = None
    path_length: int = -1
    key_usage: frozenset[int] = frozenset()
    usages: tuple[bytes, ...] = ()
    subject_key: bytes = b""
    authority_key: bytes = b""
    san: bytes | None = None
    names: Names = field(default_factory=Names)
    constraints: Constraints | None = None
    policies: tuple[bytes, ...] = ()
    mappings: tuple[tuple[bytes, bytes], ...] = ()
    explicit_after: int | None = None
    no_mapping_after: int | None = None
    no_any_after: int | None = None
    unhandled: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """A parsed certificate. `issuer`, `subject` and `key` (SubjectPublicKeyInfo) are encoded; `starts` and `ends` are seconds since the
    epoch.

    `algorithm` is None for one that Go does not verify. `bits` is the size of an RSA key.
    """

    encoded: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    signature: bytes = field(repr=False)
    algorithm: Algorithm | None
    version: int
    serial: int
    issuer: bytes
    subject: bytes
    attributes: tuple[tuple[str, str], ...]
    starts: float
    ends: float
    key: bytes = field(repr=False)
    kind: Kind
    bits: int
    says: Extensions = field(repr=False)

    def named(self) -> Subject:
        return Subject(self.attributes, hashlib.sha256(self.encoded).hexdigest())


def parse(data: bytes, budget: Budget) -> Certificate:
    """Parse a certificate. Raises Malformed."""
    outer = Reader(data, budget)
    whole = outer.content(der.SEQUENCE)
    if outer:
        raise Malformed("trailing data")
    signed = whole.element(der.SEQUENCE)
    tbs = Reader(signed, budget).content(der.SEQUENCE)
    version = 1
    explicit = tbs.optional(der.CONTEXT | der.CONSTRUCTED)
    if explicit is not None:
        version += explicit.integer()
        if explicit or not 1 <= version <= 3:
            raise Malformed("invalid version")
    serial = tbs.integer()
    if serial < 0:
        raise Malformed("negative serial number")
    algorithm, outer_algorithm = tbs.content(der.SEQUENCE), whole.content(der.SEQUENCE)
    if algorithm.rest != outer_algorithm.rest:
        raise Malformed("inner and outer signature algorithm identifiers don't match")
    signed_with = _algorithm(algorithm)
    issuer = tbs.element(der.SEQUENCE)
    _attributes(issuer, budget)
    validity = tbs.content(der.SEQUENCE)
    starts, ends = validity.time(), validity.time()
    subject = tbs.element(der.SEQUENCE)
    attributes = _attributes(subject, budget)
    key = tbs.element(der.SEQUENCE)
    kind, bits = _key(key, budget)
    says = Extensions()
    if version > 1:
        tbs.optional(der.CONTEXT | 1)
        tbs.optional(der.CONTEXT | 2)
    if version == 3:
        extensions = tbs.optional(der.CONTEXT | der.CONSTRUCTED | 3)
        if extensions is not None:
            says = _extensions(extensions.content(der.SEQUENCE))
    return Certificate(
        encoded=data, signed=signed, signature=whole.bits(), algorithm=signed_with, version=version, serial=serial, issuer=issuer,
        subject=subject, attributes=attributes, starts=starts, ends=ends, key=key, kind=kind, bits=bits, says=says,
    )  # fmt: skip


def _algorithm(sequence: Reader) -> Algorithm | None:
    oid, parameters = _with_parameters(sequence)
    if oid == _PSS:
        return _PSS_ALGORITHMS.get(parameters)
    if oid == _ED25519:
        return None if parameters else Algorithm("Ed25519", "")
    return _ALGORITHMS.get(oid)


def _with_parameters(sequence: Reader) -> tuple[bytes, bytes]:
    """Read an AlgorithmIdentifier without its header."""
    return sequence.object_identifier(), sequence.any_element() if sequence else b""


# ---------------------------------------------------------------------------------------------------------------- names


def _latin_1(value: bytes) -> str:
    return value.decode("latin-1")


def _ascii_of(allowed: bytes) -> Callable[[bytes], str]:
    def text(value: bytes) -> str:
        if value.translate(None, allowed):
            raise Malformed("invalid character in a string")
        return value.decode("ascii")

    return text


def _utf8(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Malformed("invalid UTF-8 string") from None


def _bmp(value: bytes) -> str:
    """Decode UCS-2. Raises Malformed for code points that are not characters."""
    if len(value) % 2:
        raise Malformed("invalid BMPString")
    value = value.removesuffix(b"\x00\x00") if value[-2:] == b"\x00\x00" else value
    points = [int.from_bytes(value[at : at + 2], "big") for at in range(0, len(value), 2)]
    if any(point >= 0xFFFE or 0xFDD0 <= point <= 0xFDEF or 0xD800 <= point <= 0xDFFF for point in points):
        raise Malformed("invalid BMPString")
    return "".join(map(chr, points))


_DIGITS = b"0123456789"
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ia5 = _ascii_of(bytes(range(0x80)))
_STRINGS: Mapping[int, Callable[[bytes], str]] = {
    der.UTF8_STRING: _utf8,
    der.NUMERIC_STRING: _ascii_of(_DIGITS + b" "),
    # `*` and `&` are common in practice.
    der.PRINTABLE_STRING: _ascii_of(_LETTERS + _DIGITS + b"'()+,-./ :=?*&"),
    der.T61_STRING: _latin_1,
    der.IA5_STRING: _ia5,
    der.BMP_STRING: _bmp,
}


def _attributes(name: bytes, budget: Budget) -> tuple[tuple[str, str], ...]:
    """Return object identifiers with their values, in order."""
    found = list[tuple[str, str]]()
    sequence = Reader(name, budget).content(der.SEQUENCE)
    while sequence:
        together = sequence.content(der.SET)
        while together:
            attribute = together.content(der.SEQUENCE)
            oid = attribute.object_identifier()
            tag, value = attribute.any()
            if tag not in _STRINGS:
                raise Malformed("unsupported string type")
            found.append((_dotted(oid), _STRINGS[tag](value.rest)))
    return tuple(found)


def _dotted(oid: bytes) -> str:
    numbers, number = list[int](), 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


# ---------------------------------------------------------------------------------------------------------------- keys


def _key(encoded: bytes, budget: Budget) -> tuple[Kind, int]:
    """Return the kind of a key, and the bits of an RSA key."""
    info = Reader(encoded, budget).content(der.SEQUENCE)
    oid, parameters = _with_parameters(info.content(der.SEQUENCE))
    data = info.bits()
    kind = _KINDS.get(oid, "")
    if kind == "RSA":
        if parameters != der.NULL:
            raise Malformed("RSA key missing NULL parameters")
        numbers = Reader(data, budget).content(der.SEQUENCE)
        modulus, exponent = numbers.integer(), numbers.small_integer()
        if modulus <= 0 or exponent <= 0:
            raise Malformed("an RSA key has a number that is not positive")
        return kind, modulus.bit_length()
    if kind == "ECDSA":
        _check_point(data, _CURVES.get(parameters))
    if kind == "Ed25519" and (parameters or len(data) != _ED25519_BYTES):
        raise Malformed("wrong Ed25519 public key")
    if kind == "DSA":
        numbers = Reader(parameters, budget).content(der.SEQUENCE)
        if min(Reader(data, budget).integer(), numbers.integer(), numbers.integer(), numbers.integer()) <= 0:
            raise Malformed("zero or negative DSA parameter")
    return kind, 0


def _check_point(point: bytes, curve: ec.EllipticCurve | None) -> None:
    """Check a point. It takes a hundredth of a millisecond; verifying a signature takes up to fifty times as long."""
    if curve is None or point[:1] != bytes((_UNCOMPRESSED,)):
        raise Malformed("unsupported elliptic curve")
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
    except ValueError:
        raise Malformed("point not on curve") from None


# ---------------------------------------------------------------------------------------------------------------- extensions


def _extensions(sequence: Reader) -> Extensions:
    says = Extensions()
    seen = set[bytes]()
    while sequence:
        extension = sequence.content(der.SEQUENCE)
        oid = extension.object_identifier()
        critical = extension.boolean() if extension.peek(der.BOOLEAN) else False
        value = extension.content(der.OCTET_STRING)
        if oid in seen:
            raise Malformed("duplicate extension")
        seen.add(oid)
        if critical and oid in _NEVER_CRITICAL:
            raise Malformed("an extension is incorrectly marked critical")
        handled = _EXTENSIONS[oid](says, value) if oid in _EXTENSIONS else False
        if critical and not handled:
            says.unhandled = True
    return says


# Each reads the value of one extension, and returns whether it understood all of it.


def _key_usage(says: Extensions, value: Reader) -> bool:
    says.key_usage = frozenset(bit for bit in value.flags() if bit <= LAST_USAGE)
    return True


def _basic_constraints(says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    says.authority = value.boolean() if value.peek(der.BOOLEAN) else False
    if value.peek(der.INTEGER):
        says.path_length = value.small_integer()
        if says.path_length < 0:
            raise Malformed("invalid basic constraints")
    return True


def _subject_alternative_names(says: Extensions, value: Reader) -> bool:
    says.san = value.rest
    says.names = names = Names()
    value = value.content(der.SEQUENCE)
    while value:
        tag, name = value.any()
        text = name.rest
        if tag == _EMAIL:
            names.emails.append(_ia5(text))
        elif tag == _DNS:
            names.dns.append(_ia5(text))
        elif tag == _URI:
            value.budget.spend(URI_VALUES)
            names.hosts.append(_host(_ia5(text)))
        elif tag == _IP:
            if len(text) not in (4, 16):
                raise Malformed(f"cannot parse IP address of length {len(text)}")
            names.addresses.append(text)
    return bool(names)


def _host(uri: str) -> str:
    """Return the host of a URI, as Go's url.Parse finds it."""
    host = urls.host(uri)
    if host is None or (host and not is_domain(host)):
        raise Malformed("cannot parse URI")
    return host


def _name_constraints(says: Extensions, value: Reader) -> bool:
    top = value.content(der.SEQUENCE)
    permitted, excluded = top.optional(0xA0), top.optional(0xA1)
    if value or top or not (permitted or excluded):
        raise Malformed("invalid NameConstraints extension")
    constraints = says.constraints = Constraints()
    understood = True
    for subtrees, names in ((permitted, constraints.permitted), (excluded, constraints.excluded)):
        while subtrees:
            tag, base = subtrees.content(der.SEQUENCE).any()
            understood &= _subtree(tag, base.rest, names)
    return understood


def _subtree(tag: int, base: bytes, into: Names) -> bool:
    """Add a subtree. Return whether Go knows this type of name."""
    if tag == _IP:
        address, mask = base[: len(base) // 2], base[len(base) // 2 :]
        if len(base) not in (8, 32) or not is_mask(mask):
            raise Malformed("invalid IP constraint")
        into.addresses.append(address + mask)
        return True
    if tag not in (_DNS, _EMAIL, _URI):
        return False
    text = _ia5(base)
    if tag == _EMAIL and "@" in text:
        if mailbox(text) is None:
            raise Malformed("failed to parse rfc822Name constraint")
    elif not is_domain(text, constraint=True) or (tag == _URI and _is_address(text)):
        raise Malformed("failed to parse a name constraint")
    {_DNS: into.dns, _EMAIL: into.emails, _URI: into.hosts}[tag].append(text)
    return True


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text)) and "%" not in text
    except ValueError:
        return False


def _crl_distribution_points(_says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    while value:
        point = value.content(der.SEQUENCE).optional(0xA0)
        if point is not None:
            names = point.content(0xA0)
            while names.peek(_URI):
                names.any()
    return True


def _authority_key(says: Extensions, value: Reader) -> bool:
    identifier = value.content(der.SEQUENCE).optional(der.CONTEXT)
    says.authority_key = identifier.rest if identifier is not None else b""
    return True


def _subject_key(says: Extensions, value: Reader) -> bool:
    says.subject_key = value.content(der.OCTET_STRING).rest
    return True


def _policy_constraints(says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    if value.peek(der.CONTEXT):
        says.explicit_after = _count(value.small_integer(der.CONTEXT))
    if value.peek(der.CONTEXT | 1):
        says.no_mapping_after = _count(value.small_integer(der.CONTEXT | 1))
    return True


def _inhibit_any_policy(says: Extensions, value: Reader) -> bool:
    says.no_any_after = _count(value.small_integer())
    return True


def _count(number: int) -> int | None:
    """Return a count; None for a negative one, which has no meaning."""
    return number if number >= 0 else None


def _extended_key_usage(says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    usages = list[bytes]()
    while value:
        usages.append(value.object_identifier())
    says.usages = tuple(usages)
    return True


def _policies(says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    policies = list[bytes]()
    while value:
        policies.append(value.content(der.SEQUENCE).content(der.OBJECT_IDENTIFIER).rest)
    if len(set(policies)) < len(policies) or not all(map(_POLICY.fullmatch, policies)):
        raise Malformed("invalid certificate policies")
    says.policies = tuple(policies)
    return True


def _policy_mappings(says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    mappings = list[tuple[bytes, bytes]]()
    while value:
        mapping = value.content(der.SEQUENCE)
        issuer, subject = (mapping.content(der.OBJECT_IDENTIFIER).rest for _ in range(2))
        mappings.append((issuer, subject))
    says.mappings = tuple(mappings)
    return True


def _authority_information(_says: Extensions, value: Reader) -> bool:
    value = value.content(der.SEQUENCE)
    while value:
        access = value.content(der.SEQUENCE)
        access.object_identifier()
        if access.peek(_URI):
            access.any()
    return True


_EMAIL, _DNS, _URI, _IP = (der.CONTEXT | tag for tag in (1, 2, 6, 7))
"""GeneralName's tags."""
_SUBJECT_KEY, _AUTHORITY_KEY = b"\x55\x1d\x0e", b"\x55\x1d\x23"
_AUTHORITY_INFORMATION = bytes.fromhex("2b06010505070101")
_POLICY = re.compile(rb"(?:(?:[\x81-\xff][\x80-\xff]*)?[\x00-\x7f])+")
"""An object identifier with numbers of any size."""
_NEVER_CRITICAL = {_SUBJECT_KEY, _AUTHORITY_KEY, _AUTHORITY_INFORMATION}
_EXTENSIONS: Mapping[bytes, Callable[[Extensions, Reader], bool]] = {
    _SUBJECT_KEY: _subject_key,
    b"\x55\x1d\x0f": _key_usage,
    b"\x55\x1d\x11": _subject_alternative_names,
    b"\x55\x1d\x13": _basic_constraints,
    b"\x55\x1d\x1e": _name_constraints,
    b"\x55\x1d\x1f": _crl_distribution_points,
    b"\x55\x1d\x20": _policies,
    b"\x55\x1d\x21": _policy_mappings,
    _AUTHORITY_KEY: _authority_key,
    b"\x55\x1d\x24": _policy_constraints,
    b"\x55\x1d\x25": _extended_key_usage,
    b"\x55\x1d\x36": _inhibit_any_policy,
    _AUTHORITY_INFORMATION: _authority_information,
}
