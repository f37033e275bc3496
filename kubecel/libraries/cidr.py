"""`cidr("10.0.0.0/8")`: networks.

Upstream: kubernetes/apiserver `pkg/cel/library/cidr.go`, `pkg/cel/cidr.go`; Go `net/netip`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubecel.check.declarations import CallEstimate, Charge, Estimate, Estimator, Function, Library, Node, Range
from kubecel.libraries import ip
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

NETWORK = opaque("net.CIDR")

_LENGTH = re.compile("0|[1-9][0-9]*")


class CIDR:
    """An address and the length of its prefix. The other bits of the address are kept."""

    __slots__ = ("address", "length")

    cel_type = NETWORK
    go_type = "cel.CIDR"
    go_native = "netip.Prefix"

    def __init__(self, address: ip.IP, length: int) -> None:
        self.address = address
        self.length = length

    @property
    def cel_size(self) -> int:
        """Return the size for costs: the bytes of the prefix."""
        return -(-self.length // 8)

    @property
    def masked(self) -> CIDR:
        """Return the network with its other bits 0."""
        free = self.address.bits - self.length
        return CIDR(ip.IP(self.address.number >> free << free, self.address.bits), self.length)

    def contains_address(self, other: ip.IP) -> bool:
        """Return whether an address is in the network."""
        return self.address.bits == other.bits and _prefix(self.address, self.length) == _prefix(other, self.length)

    def contains(self, other: CIDR) -> bool:
        """Return whether the whole other network is in this one."""
        return self.length <= other.length and self.contains_address(other.address)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CIDR):
            raise EvaluationError("no such overload")
        return self.address == other.address and self.length == other.length

    def __hash__(self) -> int:
        return hash((self.address, self.length))

    def __str__(self) -> str:
        return f"{self.address}/{self.length}"


def _prefix(address: ip.IP, length: int) -> int:
    return address.number >> (address.bits - length)


def _parse(text: str) -> CIDR:
    address_text, slash, length_text = text.rpartition("/")
    if not slash:
        raise _wrong(text, "no '/'")
    try:
        address, zone = ip.parse(address_text)
    except ip.AddressError as error:
        raise _wrong(text, str(error)) from None
    if zone:
        raise _wrong(text, "IPv6 zones cannot be present in a prefix")
    # ASCII digits only. Go refuses a number that is longer than any int64.
    if _LENGTH.fullmatch(length_text) is None or len(length_text) > 19 or int(length_text) >= 1 << 63:
        raise _wrong(text, f"bad bits after slash: {quoted(length_text)}")
    if int(length_text) > address.bits:
        raise _wrong(text, "prefix length out of range")
    if ip.is_mapped(address):
        raise EvaluationError(f"IPv4-mapped IPv6 address {quoted(text)} is not allowed")
    return CIDR(address, int(length_text))


def _wrong(text: str, problem: str) -> EvaluationError:
    return EvaluationError(
        f"network address parse error during conversion from string: netip.ParsePrefix({quoted(text)}): {problem}"
    )


def _cidr(text: str) -> CIDR:
    try:
        return _parse(text)
    except EvaluationError as error:
        message = f"network address parse error during conversion from string: {error}"
        raise EvaluationError(message) from None


def _is_cidr(text: str) -> bool:
    try:
        _parse(text)
    except EvaluationError:
        return False
    return True


def _contains_text(cidr: CIDR, text: str) -> bool:
    try:
        return cidr.contains_address(ip.address(text))
    except EvaluationError:
        # Upstream takes the error from the wrong value.
        raise EvaluationError("no such overload") from None


# Two addresses of 4 or 16 bytes are compared.
_BYTES = Range(4, 16)
_COMPARISON = _BYTES.plus(_BYTES).scaled(TRAVERSAL)


def _containing_estimate(*, network: bool, text: bool) -> Estimate:
    def estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
        cost = _COMPARISON
        if network:
            # One address is masked, and the lengths are compared.
            cost = cost.plus(_BYTES.scaled(TRAVERSAL)).plus(Range(1, 1))
        if text:
            cost = cost.plus(estimator.size(arguments[0]).scaled(TRAVERSAL))
        return CallEstimate(cost)

    return estimate


def _containing_charge(*, network: bool, text: bool) -> Charge:
    def charge(values: Sequence[Value], _result: Value) -> int:
        prefix = size(values[0])
        cost = traversal(prefix + prefix)
        if network:
            cost += traversal(prefix) + 1
        if text:
            cost += traversal(size(values[1]))
        return cost

    return charge


def _containing(*, network: bool, text: bool) -> Cost:
    return Cost(_containing_estimate(network=network, text=text), _containing_charge(network=network, text=text))


LIBRARY = Library(
    name="kubernetes.net.cidr",
    types=(NETWORK,),
    equality={NETWORK: nominal_estimate},
    functions=(
        Function("cidr", (function("string_to_cidr", (STRING,), NETWORK, _cidr, cost=READING),)),
        Function(
            "containsIP",
            (
                member(
                    "cidr_contains_ip_string",
                    (NETWORK, STRING),
                    BOOL,
                    _contains_text,
                    cost=_containing(network=False, text=True),
                ),
                member(
                    "cidr_contains_ip_ip",
                    (NETWORK, ip.ADDRESS),
                    BOOL,
                    CIDR.contains_address,
                    cost=_containing(network=False, text=False),
                ),
            ),
            charge=_containing_charge(network=False, text=False),
        ),
        Function(
            "containsCIDR",
            (
                member(
                    "cidr_contains_cidr_string",
                    (NETWORK, STRING),
                    BOOL,
                    lambda cidr, text: cidr.contains(_cidr(text)),
                    cost=_containing(network=True, text=True),
                ),
                member(
                    "cidr_contains_cidr",
                    (NETWORK, NETWORK),
                    BOOL,
                    CIDR.contains,
                    cost=_containing(network=True, text=False),
                ),
            ),
            charge=_containing_charge(network=True, text=False),
        ),
        Function("ip", (member("cidr_ip", (NETWORK,), ip.ADDRESS, lambda cidr: cidr.address, cost=NOMINAL),)),
        Function(
            "prefixLength", (member("cidr_prefix_length", (NETWORK,), INT, lambda cidr: cidr.length, cost=NOMINAL),)
        ),
        Function("masked", (member("cidr_masked", (NETWORK,), NETWORK, lambda cidr: cidr.masked, cost=NOMINAL),)),
        Function("isCIDR", (function("is_cidr", (STRING,), BOOL, _is_cidr, cost=READING),)),
        Function("string", (function("cidr_to_string", (NETWORK,), STRING, str, cost=DEFAULT),)),
    ),
)
