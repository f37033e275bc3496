"""Client certificates are judged as Go judges them, and what strangers present costs little."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Sequence

import pytest
from cryptography.hazmat.primitives import serialization

from apiserver.filters.authenticate import NotAuthentic, Subject
from apiserver.filters.state import Peer
from apiserver.serving.x509 import chains
from tests.fixtures import certificate_table, forge
from tests.fixtures.cases import each_case
from tests.fixtures.certificate_table import TABLE, Case
from tests.fixtures.cpu import Spent
from tests.fixtures.forge import CLIENT, NOW, Forged, authority, key, usages

STEP_SECONDS = 0.02
"""Both bundles are judged in one step of the event loop."""


def pem(roots: Sequence[Forged]) -> bytes:
    frame = b"-----BEGIN CERTIFICATE-----\n%b-----END CERTIFICATE-----\n"
    return b"".join(frame % base64.encodebytes(root.der) for root in roots)


def peer(presented: Sequence[Forged]) -> Peer:
    return Peer.of(presented[0].der, tuple(each.der for each in presented[1:]))


def refusal(roots: Sequence[Forged], presented: Sequence[Forged]) -> str:
    """The log message, empty if the chain is good."""
    try:
        chains.verifier(pem(roots))(peer(presented), NOW.timestamp())
    except NotAuthentic as e:
        return str(e)
    except chains.BadCertificates as e:
        return str(e)
    return ""


@each_case("number", range(len(TABLE)), ids=[title for title, _, _ in TABLE])
def test_certificate_is_judged_as_by_go(number: int) -> None:
    case: Case = certificate_table.cases()[number]
    refused = refusal(case.roots, case.presented)
    assert (refused == "") is case.accepted, refused


def test_verdicts_do_not_change_when_all_roots_are_one_bundle() -> None:
    cases = certificate_table.cases()
    verify = chains.verifier(pem([root for case in cases for root in case.roots]))
    for case in cases:
        try:
            verify(peer(case.presented), NOW.timestamp())
            accepted = True
        except NotAuthentic:
            accepted = False
        assert accepted is case.accepted, case.title


def test_subject_is_read_as_go_reads_it() -> None:
    root = authority("root")
    attributes = [
        ("2.5.4.3", "first"),
        ("2.5.4.10", "devs"),
        ("2.5.4.3", "jane"),
        ("2.5.4.10", "ops"),
        ("1.3.6.1.4.1.57683.2", "u-1"),
    ]
    leaf = forge.forge(forge.name(*attributes), root, usages(CLIENT))
    subject = chains.verifier(pem([root]))(peer([leaf]), NOW.timestamp()).subject
    assert isinstance(subject, Subject)
    assert (subject.common_name, subject.organizations) == ("jane", ("devs", "ops"))
    assert subject.attributes == tuple(attributes)


def test_chain_ends_with_the_first_of_its_certificates() -> None:
    root = authority("root", ends=5)
    middle = authority("ca", root, private=key("p256", 2), ends=3)
    verified = chains.verifier(pem([root]))(peer([forge.forge("jane", middle, ends=9), middle]), NOW.timestamp())
    assert verified.until == (NOW + dt.timedelta(days=3)).timestamp()


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        (lambda root: forge.forge("a", root, ends=-1), "x509: certificate has expired or is not yet valid"),
        (lambda root: forge.forge("a", authority("other")), "x509: certificate signed by unknown authority"),
        (
            lambda root: forge.forge("a", root, broken=True),
            '(possibly because of "x509: invalid signature" while trying to verify candidate authority certificate "root")',
        ),
        (lambda root: forge.forge("a", root, usages()[:-2] + b"\x30\x00", serial=-1), "x509: negative serial number"),
        (
            lambda root: forge.forge("a", root, usages(forge.SERVER)),
            "x509: certificate specifies an incompatible key usage",
        ),
    ],
    ids=["expired", "unknown", "signature", "malformed", "usage"],
)
def test_log_says_what_go_says(leaf: Callable[[Forged], Forged], words: str) -> None:
    root = authority("root")
    assert refusal([root], [leaf(root)]).endswith(words)


def test_bundle_with_a_certificate_that_go_cannot_parse_is_refused() -> None:
    bad = authority("bad", None, forge.subject_names(forge.tlv(0x87, b"abc")))
    with pytest.raises(chains.BadCertificates, match="cannot parse IP address of length 3"):
        chains.verifier(pem([authority("good"), bad]))


# ---------------------------------------------------------------------------------------------------------------- what strangers send


def stranger(*extensions: bytes, subject: bytes | str = "a") -> list[Forged]:
    return [forge.forge(subject, authority("stranger"), *extensions)]


def junk(kind: str, **how: object) -> list[Forged]:
    """Many certificates that name the roots as their issuers, signed by somebody else."""
    others = [authority(name, private=key(kind, 7)) for name in ("root", "other root")]
    return [authority(f"x{n}", others[n % 2], private=key("p384", 5), **how) for n in range(40)]  # type: ignore[arg-type]


PRESENTED: dict[str, Callable[[], list[Forged]]] = {
    "empty names": lambda: stranger(forge.subject_names(*[forge.dns("")] * 15_000)),
    "short URIs": lambda: stranger(forge.subject_names(*[forge.uri("a:")] * 7_000)),
    "short URIs within the budget": lambda: stranger(forge.subject_names(*[forge.uri("a:")] * 500)),
    "usages": lambda: stranger(usages(*["1.2"] * 10_000)),
    "attributes": lambda: stranger(subject=forge.name(*[("1.2", "")] * 2_600)),
    "extensions": lambda: stranger(*[forge.extension(f"1.2.{n}", b"") for n in range(2_500)]),
    "constraints": lambda: stranger(forge.constraints(permit=[forge.dns("")] * 7_000)),
    "policies": lambda: stranger(forge.policies(*[f"1.2.{n}" for n in range(3_500)])),
    "one long name": lambda: stranger(forge.subject_names(forge.dns("a." * 15_000 + "a"))),
    "much of everything": lambda: stranger(forge.subject_names(*[forge.dns("x" * 120)] * 2_000)),
    "issuers of P-384": lambda: junk("p384"),
    "issuers of P-521": lambda: junk("p521"),
    "issuers of RSA-4096": lambda: junk("rsa4096"),
}  # fmt: skip


@pytest.mark.parametrize("what", PRESENTED)
def test_chain_of_a_stranger_is_judged_within_a_step(what: str) -> None:
    kind = {"issuers of P-521": "p521", "issuers of RSA-4096": "rsa4096"}.get(what, "p384")
    bundles = [chains.verifier(pem([authority(name, private=key(kind))])) for name in ("root", "other root")]
    presented = peer(PRESENTED[what]())
    with Spent() as spent:
        for verify in bundles:
            with pytest.raises(NotAuthentic):
                verify(presented, NOW.timestamp())
    assert spent.below(STEP_SECONDS)


def test_presented_keys_are_used_only_after_their_owner_is_vouched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    used = list[bytes]()
    load = serialization.load_der_public_key

    def noting(encoded: bytes) -> object:
        used.append(encoded)
        return load(encoded)

    root, fake = authority("root"), authority("root", private=key("p384", 3))
    middle = authority("ca", root, private=key("p256", 2))
    forged = authority("ca", fake, private=key("p384", 4))
    leaf = forge.forge("jane", middle)
    monkeypatch.setattr(serialization, "load_der_public_key", noting)
    assert refusal([root], [leaf, forged, fake, middle]) == ""
    assert set(used) == {forge.public(root.key), forge.public(middle.key)}


def test_many_good_certificates_make_one_chain_only() -> None:
    """All of one name, so that each could be above each other."""
    root = authority("ca")
    crowd = [authority("ca", root, private=key("p256", 10 + n)) for n in range(30)]
    leaf = forge.forge("jane", crowd[-1])
    with Spent() as spent:
        refusal([root], [leaf, *crowd])
    assert spent.below(0.5)
    assert refusal([root], [leaf, crowd[-1]]) == ""
