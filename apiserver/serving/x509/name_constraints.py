"""Check names against the name constraints of CAs.

Upstream: golang/go `src/crypto/x509/constraints.go`, and parseRFC2821Mailbox in `src/crypto/x509/verify.go`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

_LABELS = r"[\x21-\x2d\x2f-\x7e]+(?:\.[\x21-\x2d\x2f-\x7e]+)*"
_DOMAIN, _SUBTREE = re.compile(_LABELS), re.compile(rf"\.?{_LABELS}")
_MAILBOX = re.compile(
    r"""(?:"((?:[\x01-\x08\x0b\x0c\x0e-\x21\x23-\x5b\x5d-\x7f]|\\[\x01-\x09\x0b\x0c\x0e-\x7f])*)\""""
    r"""|((?:\\.|[0-9A-Za-z!#$%&'*+\-/=?^_`{|}~.])+))@(.*)""",
    re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class Forbidden(Exception):
    """A certificate holds a name that a CA above it may not certify. The text is Go's."""


@dataclass(slots=True)
class Names:
    """Names of a certificate by their type, or subtrees of such names. `hosts` are those of URIs.

    Addresses have 4 or 16 bytes; as subtrees their mask follows them.
    """

    dns: list[str] = field(default_factory=list)
    emails: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    addresses: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.dns or self.emails or self.hosts or self.addresses)


@dataclass(slots=True)
class Constraints:
    """The subtrees of one CA. A type without permitted subtrees is not limited; subtrees that Go does not know are left out."""

    permitted: Names = field(default_factory=Names)
    excluded: Names = field(default_factory=Names)


def is_domain(text: str, *, constraint: bool = False) -> bool:
    """Return whether Go accepts it as a domain. A constraint may begin with a dot, and the empty one contains everything."""
    return not text or (_SUBTREE if constraint else _DOMAIN).fullmatch(text) is not None


def is_mask(mask: bytes) -> bool:
    """Return whether ones come first, then zeros."""
    inverted = int.from_bytes(mask, "big") ^ ((1 << 8 * len(mask)) - 1)
    return inverted & (inverted + 1) == 0


def mailbox(text: str) -> tuple[str, str] | None:
    """Return local part and domain of an address, None for an invalid one."""
    match = _MAILBOX.fullmatch(text)
    if match is None or not is_domain(match[3]):
        return None
    if match[1] is not None:
        return _ESCAPED.sub(r"\1", match[1]), match[3]
    local = _ESCAPED.sub(r"\1", match[2])
    if local.startswith(".") or local.endswith(".") or ".." in local:
        return None
    return local, match[3]


def check(chain: Sequence[tuple[Names | None, Constraints | None]]) -> None:
    """Raise Forbidden if a certificate of a chain, leaf first, holds a name that one above it does not allow.

    Without subjectAltName a certificate has no names.
    """
    limits = [(at, _Limits(said)) for at, (_, said) in enumerate(chain) if said is not None]
    for at, (names, _) in enumerate(chain):
        above = [limit for where, limit in limits if where > at]
        if names is None or not above:
            continue
        hosts = [_plain_host(host) for host in names.hosts]
        mailboxes = [_mailbox(email) for email in names.emails]
        for limit in above:
            limit.check(names, hosts, mailboxes)


def _mailbox(email: str) -> tuple[str, str]:
    found = mailbox(email)
    if found is None:
        raise Forbidden(f'cannot parse rfc822Name "{email[:256]}"')
    return found[0], found[1].lower()


def _plain_host(host: str) -> str:
    """Return the host of a URI without its port. Raises Forbidden for an address, which is in no domain."""
    if not host:
        raise Forbidden("URI with empty host cannot be matched against constraints")
    name = host.lower()
    if ":" in name and not name.endswith("]"):
        name, _, _ = name.rpartition(":")
        if ":" in name and not (name.startswith("[") and name.endswith("]")):
            raise Forbidden(f'cannot parse URI host "{host[:256]}"')
        name = name.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if not (name.startswith("[") and name.endswith("]")):
            return name
    raise Forbidden(f'URI with IP ("{host[:256]}") cannot be matched against constraints')


class _Limits:
    """The constraints of one CA, indexed: the cost of a name does not grow with their number."""

    def __init__(self, said: Constraints) -> None:
        permitted, excluded = said.permitted, said.excluded
        self._dns = _Domains(permitted.dns, excluded.dns)
        self._hosts = _Domains(permitted.hosts, excluded.hosts)
        self._emails = _Emails(permitted.emails, excluded.emails)
        self._networks = _Networks(permitted.addresses), _Networks(excluded.addresses)

    def check(self, names: Names, hosts: Iterable[str], mailboxes: Iterable[tuple[str, str]]) -> None:
        permitted, excluded = self._networks
        for address in names.addresses:
            if permitted and address not in permitted:
                raise _not_permitted("IP address", str(ipaddress.ip_address(address)))
            if address in excluded:
                raise _excluded("IP address", str(ipaddress.ip_address(address)))
        for name in names.dns:
            if not is_domain(name):
                raise Forbidden(f'x509: cannot parse dnsName "{name[:256]}"')
            self._dns.check("DNS name", name)
        for host in hosts:
            if not is_domain(host):
                raise Forbidden(f'URI SAN "{host[:256]}" failed to parse')
            self._hosts.check("URI", host)
        for box in mailboxes:
            self._emails.check(box)


def _not_permitted(sort: str, name: str) -> Forbidden:
    return Forbidden(f'{sort} "{name[:256]}" is not permitted by any constraint')


def _excluded(sort: str, name: str) -> Forbidden:
    return Forbidden(f'{sort} "{name[:256]}" is excluded by a constraint')


class _Subtrees:
    """Domains with all their subdomains; one that begins with a dot does not contain itself."""

    def __init__(self, domains: Iterable[str]) -> None:
        self._domains = frozenset(map(str.lower, domains))
        self._longest = max(map(len, self._domains), default=0)

    def __bool__(self) -> bool:
        return bool(self._domains)

    def __contains__(self, name: str) -> bool:
        domains = self._domains
        if not domains:
            return False
        name = name.lower()
        if "" in domains or name in domains:
            return True
        at = name.find(".", max(0, len(name) - self._longest - 1))
        while at >= 0:
            if name[at:] in domains or name[at + 1 :] in domains:
                return True
            at = name.find(".", at + 1)
        return False


class _Domains:
    def __init__(self, permitted: Iterable[str], excluded: Sequence[str]) -> None:
        self._permitted, self._excluded = _Subtrees(permitted), _Subtrees(excluded)
        # `*.example.com` could be `secret.example.com`.
        self._parents = frozenset(name[name.index(".") :].lower() for name in excluded if "." in name)

    def check(self, sort: str, name: str) -> None:
        if self._permitted and name not in self._permitted:
            raise _not_permitted(sort, name)
        if name in self._excluded:
            raise _excluded(sort, name)
        if self._parents and name.startswith("*") and "." in name and name[name.index(".") :].lower() in self._parents:
            raise _excluded(sort, name)


class _Emails:
    """Whole addresses, or domains of addresses."""

    def __init__(self, permitted: Sequence[str], excluded: Sequence[str]) -> None:
        self._limited = bool(permitted)
        self._permitted, self._excluded = self._boxes(permitted), self._boxes(excluded)
        self._permitted_domains = _Subtrees(name for name in permitted if "@" not in name)
        self._excluded_domains = _Domains((), [name for name in excluded if "@" not in name])

    @staticmethod
    def _boxes(names: Iterable[str]) -> frozenset[tuple[str, str]]:
        found = (mailbox(name) for name in names if "@" in name)
        return frozenset((box[0], box[1].lower()) for box in found if box is not None)

    def check(self, box: tuple[str, str]) -> None:
        whole = "@".join(box)
        if self._limited and box not in self._permitted and box[1] not in self._permitted_domains:
            raise _not_permitted("email address", whole)
        if box in self._excluded:
            raise _excluded("email address", whole)
        self._excluded_domains.check("email address", box[1])


class _Networks:
    """Addresses by mask; there are few masks."""

    def __init__(self, networks: Iterable[bytes]) -> None:
        self._masked: dict[tuple[int, int], set[int]] = {}
        for network in networks:
            half = len(network) // 2
            address, mask = int.from_bytes(network[:half], "big"), int.from_bytes(network[half:], "big")
            self._masked.setdefault((half, mask), set()).add(address & mask)

    def __bool__(self) -> bool:
        return bool(self._masked)

    def __contains__(self, address: bytes) -> bool:
        number = int.from_bytes(address, "big")
        return any(number & mask in known for (size, mask), known in self._masked.items() if size == len(address))
