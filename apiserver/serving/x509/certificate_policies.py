"""Check that a chain has the certificate policies that it requires itself (RFC 5280 section 6.1, as RFC 9618 updates it).

Upstream: golang/go `src/crypto/x509/verify.go` policiesValid. The verifier requires no policy, so only the last level of the policy
graph matters: whether it is empty.
"""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.serving.x509.certificates import Certificate, Extensions

ANY_POLICY = b"\x55\x1d\x20\x00"

Level = dict[bytes, frozenset[bytes]]
"""The valid policies of a certificate, and the names of each in the certificates below."""


def are_valid(chain: Sequence[Certificate]) -> bool:
    """Check a chain. It begins with the leaf and ends with the root, whose own policies do not count."""
    if len(chain) == 1:
        return True
    explicit_after = no_mapping_after = no_any_after = len(chain)
    level: Level | None = {ANY_POLICY: frozenset((ANY_POLICY,))}
    for certificate in reversed(chain[:-1]):
        says, is_leaf = certificate.says, certificate is chain[0]
        self_issued = certificate.issuer == certificate.subject
        if not says.policies:
            level = None
        if level is None:
            if explicit_after == 0:
                return False
        else:
            level = _below(level, says, take_any=no_any_after > 0 or (self_issued and not is_leaf))
            if not is_leaf and not _map(level, says, allowed=no_mapping_after > 0):
                return False
        if is_leaf:
            break
        step = 0 if self_issued else 1
        explicit_after = _fewer(explicit_after - step, says.explicit_after)
        no_mapping_after = _fewer(no_mapping_after - step, says.no_mapping_after)
        no_any_after = _fewer(no_any_after - step, says.no_any_after)
    required = explicit_after <= 1 or chain[0].says.explicit_after == 0
    return bool(level) or not required


def _fewer(left: int, said: int | None) -> int:
    left = max(left, 0)
    return left if said is None else min(left, said)


def _below(level: Level, says: Extensions, *, take_any: bool) -> Level:
    """Return the valid policies of the next certificate."""
    expected = frozenset[bytes]().union(*level.values())
    found = {
        policy: frozenset((policy,))
        for policy in says.policies
        if policy != ANY_POLICY and (policy in expected or ANY_POLICY in level)
    }
    if take_any and ANY_POLICY in says.policies:
        for policy in expected:
            found.setdefault(policy, frozenset((policy,)))
    return found


def _map(level: Level, says: Extensions, *, allowed: bool) -> bool:
    """Rename policies for the certificates below. Return False if the mapping is invalid."""
    renamed: dict[bytes, set[bytes]] = {}
    for issuer, subject in says.mappings:
        if not allowed:
            level.pop(issuer, None)
        elif ANY_POLICY in (issuer, subject):
            return False
        else:
            renamed.setdefault(issuer, set()).add(subject)
    for issuer, subjects in renamed.items():
        if issuer in level or ANY_POLICY in level:
            level[issuer] = frozenset(subjects)
    return True
