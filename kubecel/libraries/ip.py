"""`ip("::1")`: addresses, without zones and without IPv4-mapped IPv6.

Upstream: kubernetes/apiserver `pkg/cel/library/ip.go`, `pkg/cel/ip.go`; Go `net/netip`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node
from kubecel.libraries.costs import (
    DEFAULT,
    NOMINAL,
    READING,
    TRAVERSAL,
    Cost,
    function,
    member,
    nominal_estimate,
    traversal,
)
from kubecel.values.errors import EvaluationError
from kubecel.values.quoting import quoted
from kubecel.values.types import BOOL, INT, STRING, opaque
from kubecel.values.values import Value, size

ADDRESS = opaque("net.IP")

_BROADCAST = (1 << 32) - 1
_MAPPED = 0xFFFF
_FIRST = re.compile("[.:%]")
_HEX = re.compile("[0-9A-Fa-f]*")


class IP:
    """An address: a number of 32 or 128 bits."""

    __slots__ = ("bits", "number")

    cel_type = ADDRESS
    go_type = "cel.IP"
    go_native = "netip.Addr"

    def __init__(self, number: int, bits: int) -> None:
        self.number = number
        self.bits = bits

    @property
    def cel_size(self) -> int:
        """Return the size for costs: the bytes of the address."""
        return self.bits // 8

    @property
    def unspecified(self) -> bool:
        """Return whether it is 0.0.0.0 or ::."""
        return self.number == 0

    @property
    def loopback(self) -> bool:
        """Return whether it is in 127.0.0.0/8 or ::1."""
        return self.number >> 24 == 127 if self.bits == 32 else self.number == 1

    @property
    def link_local_multicast(self) -> bool:
        """Return whether it is in 224.0.0.0/24 or ff02::/16, whatever the flags."""
        return self.number >> 8 == 0xE00000 if self.bits == 32 else (self.number >> 112) & 0xFF0F == 0xFF02

    @property
    def link_local_unicast(self) -> bool:
        """Return whether it is in 169.254.0.0/16 or fe80::/10."""
        return self.number >> 16 == 0xA9FE if self.bits == 32 else self.number >> 118 == 0xFE80 >> 6

    @property
    def global_unicast(self) -> bool:
        """Return whether it is neither unspecified, broadcast, loopback, multicast nor link-local."""
        multicast = self.number >> 28 == 0xE if self.bits == 32 else self.number >> 120 == 0xFF
        broadcast = self.bits == 32 and self.number == _BROADCAST
        return not (self.unspecified or broadcast or self.loopback or multicast or self.link_local_unicast)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IP):
            raise EvaluationError("no such overload")
        return self.number == other.number and self.bits == other.bits

    def __hash__(self) -> int:
        return hash((self.number, self.bits))

    def __str__(self) -> str:
        """Return the canonical form: lower case, without the first of the longest sequences of zero groups (two or
        more).
        """
        if self.bits == 32:
            return ".".join(str(byte) for byte in self.number.to_bytes(4, "big"))
        groups = [f"{self.number >> shift & 0xFFFF:x}" for shift in range(112, -1, -16)]
        start, length = max(((at, _zeros(groups, at)) for at in range(8)), key=lambda run: (run[1], -run[0]))
        if length < 2:
            return ":".join(groups)
        return f"{':'.join(groups[:start])}::{':'.join(groups[start + length :])}"


def _zeros(groups: Sequence[str], start: int) -> int:
    end = start
    while end < len(groups) and groups[end] == "0":
        end += 1
    return end - start


class AddressError(ValueError):
    """The text is not an address. The message is that of Go's netip."""

    def __init__(self, text: str, problem: str, at: str = "") -> None:
        where = f" (at {quoted(at)})" if at else ""
        super().__init__(f"ParseAddr({quoted(text)}): {problem}{where}")


def parse(text: str) -> tuple[IP, str]:
    """Parse an address and its zone. Raises AddressError."""
    first = _FIRST.search(text)
    if first is None:
        raise AddressError(text, "unable to parse IP")
    if first.group() == ".":
        return IP(_four(text, text), 32), ""
    if first.group() == "%":
        raise AddressError(text, "missing IPv6 address")
    address, percent, zone = text.partition("%")
    if percent and not zone:
        raise AddressError(text, "zone must be a non-empty string")
    return IP(_six(text, address), 128), zone


def is_mapped(address: IP) -> bool:
    """Return whether an IPv6 address is an IPv4-mapped one: ::ffff:1.2.3.4."""
    return address.bits == 128 and address.number >> 32 == _MAPPED


def _four(text: str, part: str) -> int:
    """Parse the IPv4 address at the end of a text into a number."""
    fields: list[int] = []
    value = digits = 0
    for at, character in enumerate(part):
        if "0" <= character <= "9":
            if digits == 1 and value == 0:
                raise AddressError(text, "IPv4 field has octet with leading zero")
            value = value * 10 + int(character)
            digits += 1
            if value > 255:
                raise AddressError(text, "IPv4 field has value >255")
        elif character == ".":
            if digits == 0 or at == len(part) - 1:
                raise AddressError(text, "IPv4 field must have at least one digit", part[at:])
            if len(fields) == 3:
                raise AddressError(text, "IPv4 address too long")
            fields.append(value)
            value = digits = 0
        else:
            raise AddressError(text, "unexpected character", part[at:])
    if len(fields) < 3:
        raise AddressError(text, "IPv4 address too short")
    return int.from_bytes(bytes((*fields, value)), "big")


def _six(text: str, part: str) -> int:
    """Parse an IPv6 address into a number."""
    groups: list[int] = []
    gap: int | None = None
    rest = part
    if rest.startswith("::"):
        gap, rest = 0, rest[2:]
    while len(groups) < 8 and (rest or gap is None or groups):
        digits = _digits(text, rest)
        following = rest[len(digits) :]
        if following.startswith("."):
            groups += _embedded(text, rest, before=len(groups), gap=gap)
            rest = ""
            break
        groups.append(int(digits, 16))
        rest = following
        if not rest:
            break
        if rest[0] != ":":
            raise AddressError(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise AddressError(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if gap is not None:
                raise AddressError(text, "multiple :: in address", rest)
            gap, rest = len(groups), rest[1:]
            if not rest:
                break
    if rest:
        raise AddressError(text, "trailing garbage after address", rest)
    return _filled(text, groups, gap)


def _digits(text: str, rest: str) -> str:
    match = _HEX.match(rest)
    assert match is not None
    if len(match.group()) > 4:
        raise AddressError(text, "each group must have 4 or less digits", rest)
    if not match.group():
        raise AddressError(text, "each colon-separated field must have at least one digit", rest)
    return match.group()


def _embedded(text: str, rest: str, *, before: int, gap: int | None) -> tuple[int, int]:
    """Parse the last two groups, written as an IPv4 address."""
    if gap is None and before != 6:
        raise AddressError(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
    if before > 6:
        raise AddressError(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    number = _four(text, rest)
    return number >> 16, number & 0xFFFF


def _filled(text: str, groups: list[int], gap: int | None) -> int:
    """Return the groups as a number, with zeros in the gap."""
    if len(groups) < 8:
        if gap is None:
            raise AddressError(text, "address string too short")
        groups = [*groups[:gap], *([0] * (8 - len(groups))), *groups[gap:]]
    elif gap is not None:
        raise AddressError(text, "the :: must expand to at least one field of zeros")
    number = 0
    for group in groups:
        number = number << 16 | group
    return number


def address(text: str) -> IP:
    """Parse an address. Raises EvaluationError, also for an address with a zone and for an IPv4-mapped one."""
    try:
        found, zone = parse(text)
    except AddressError as error:
        message = f"IP Address {quoted(text)} parse error during conversion from string: {error}"
        raise EvaluationError(message) from None
    if zone:
        raise EvaluationError(f"IP address {quoted(text)} with zone value is not allowed")
    if is_mapped(found):
        raise EvaluationError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return found


def _is_ip(text: str) -> bool:
    try:
        address(text)
    except EvaluationError:
        return False
    return True


def _twice_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(estimator.size(arguments[0]).scaled(2 * TRAVERSAL))


def _twice_charge(values: Sequence[Value], _result: Value) -> int:
    return traversal(size(values[0]), 2 * TRAVERSAL)


# The cost of parsing, printing and comparing the argument.
_TWICE = Cost(_twice_estimate, _twice_charge)


def _question(name: str, overload: str, attribute: str) -> Function:
    return Function(name, (member(overload, (ADDRESS,), BOOL, lambda ip: getattr(ip, attribute), cost=NOMINAL),))


LIBRARY = Library(
    name="kubernetes.net.ip",
    types=(ADDRESS,),
    equality={ADDRESS: nominal_estimate},
    functions=(
        Function("ip", (function("string_to_ip", (STRING,), ADDRESS, address, cost=READING),)),
        Function("family", (member("ip_family", (ADDRESS,), INT, lambda ip: 4 if ip.bits == 32 else 6, cost=NOMINAL),)),
        Function(
            "ip.isCanonical",
            (function("ip_is_canonical", (STRING,), BOOL, lambda s: str(address(s)) == s, cost=_TWICE),),
        ),
        _question("isUnspecified", "ip_is_unspecified", "unspecified"),
        _question("isLoopback", "ip_is_loopback", "loopback"),
        _question("isLinkLocalMulticast", "ip_is_link_local_multicast", "link_local_multicast"),
        _question("isLinkLocalUnicast", "ip_is_link_local_unicast", "link_local_unicast"),
        _question("isGlobalUnicast", "ip_is_global_unicast", "global_unicast"),
        Function("isIP", (function("is_ip", (STRING,), BOOL, _is_ip, cost=READING),)),
        Function("string", (function("ip_to_string", (ADDRESS,), STRING, str, cost=DEFAULT),)),
    ),
)
