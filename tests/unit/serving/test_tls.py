"""Trust in bundles, and certificates that are made, kept and read again."""

from __future__ import annotations

import datetime as dt
import os
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from apiserver import metrics
from apiserver.cluster.requestheader import ClusterTrust
from apiserver.config import config
from apiserver.config.config import RequestHeader
from apiserver.filters.authenticate import NO_HEADERS, NotAuthentic, Trust, Verifier
from apiserver.filters.state import Peer
from apiserver.serving import dynamiccertificates, pki
from apiserver.serving.sessions import ServerSession
from apiserver.serving.x509 import chains
from tests.fixtures.authorities import ANY, CLIENT, NOW, SERVER, Holder, issue
from tests.fixtures.cpu import Spent
from tests.fixtures.handshakes import shake_hands

AT = NOW.timestamp()


def accepted(peer: Peer, *roots: Holder, at: float = AT) -> bool:
    try:
        chains.verifier(b"".join(root.pem for root in roots))(peer, at)
    except NotAuthentic:
        return False
    return True


@pytest.fixture(scope="module")
def root() -> Holder:
    return issue("root", ca=True)


def test_a_client_of_the_bundles_ca_is_vouched_for_until_the_chain_ends(root: Holder) -> None:
    jane = issue("jane", root, ends=3)
    verified = chains.verifier(root.pem)(jane.peer, AT)
    assert verified.subject.common_name == "jane"
    assert verified.subject.fingerprint == jane.certificate.fingerprint(hashes.SHA256()).hex()
    assert verified.until == jane.certificate.not_valid_after_utc.timestamp()


def test_a_bundle_may_hold_many_cas(root: Holder) -> None:
    other = issue("other", ca=True)
    assert accepted(issue("a", root).peer, root, other)
    assert accepted(issue("b", other).peer, root, other)


@pytest.mark.parametrize("usages", [(CLIENT,), (ANY,), (CLIENT, SERVER), ()])
def test_a_certificate_for_clients_or_for_any_use_is_good(
    root: Holder, usages: tuple[x509.ObjectIdentifier, ...]
) -> None:
    assert accepted(issue("jane", root, usages=usages).peer, root)


REFUSED: dict[str, Callable[[Holder], Peer]] = {
    "another CA's": lambda root: issue("jane", issue("stranger", ca=True)).peer,
    "of a CA with the same name": lambda root: issue("jane", issue("root", ca=True)).peer,
    "a server's": lambda root: issue("jane", root, usages=(SERVER,)).peer,
    "expired": lambda root: issue("jane", root, ends=-0.5).peer,
    "not valid yet": lambda root: issue("jane", root, starts=0.5).peer,
    "self-signed": lambda root: issue("jane").peer,
    "signed by a client": lambda root: issue("jane", issue("joe", root)).peer,
    "without its intermediate": lambda root: Peer.of(issue("jane", issue("between", root, ca=True)).der, ()),
    "below an intermediate for servers": lambda root: issue("jane", intermediate_for_servers(root)).peer,
    "below a path that is too long": lambda root: (
        issue("jane", issue("b", issue("a", root, ca=True, path_length=0), ca=True)).peer
    ),
    "with a critical extension that nobody knows": lambda root: issue("jane", root, critical_nonsense=True).peer,
    "no certificate": lambda root: Peer.of(b"garbage", ()),
    "with garbage as intermediate": lambda root: Peer.of(issue("jane", root).der, (b"garbage",)),
}


def intermediate_for_servers(root: Holder) -> Holder:
    """A CA that says that it signs servers only."""
    made = issue("between", root, ca=True)
    builder = (
        x509.CertificateBuilder()
        .subject_name(made.certificate.subject)
        .issuer_name(root.certificate.subject)
        .public_key(made.key.public_key())
        .serial_number(7)
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([SERVER]), critical=False)
    )
    signature = root.certificate.signature_hash_algorithm
    return Holder(builder.sign(root.key, signature), made.key, ())  # type: ignore[arg-type]


@pytest.mark.parametrize("why", REFUSED)
def test_a_certificate_is_refused_that_is(root: Holder, why: str) -> None:
    assert not accepted(REFUSED[why](root), root)


def test_presented_intermediates_complete_a_chain_and_bound_its_end(root: Holder) -> None:
    between = issue("between", root, ca=True, ends=2)
    verified = chains.verifier(root.pem)(issue("jane", between, ends=9).peer, AT)
    assert verified.until == between.certificate.not_valid_after_utc.timestamp()


def test_a_ca_without_key_usage_is_a_ca_as_go_sees_it() -> None:
    plain = issue("plain", ca=True, key_usage=False)
    assert accepted(issue("jane", plain).peer, plain)


def test_time_passes(root: Holder) -> None:
    jane = issue("jane", root, ends=1)
    assert accepted(jane.peer, root, at=AT + 0.9 * 86400)
    assert not accepted(jane.peer, root, at=AT + 1.1 * 86400)


def forged(name: x509.Name, *, issuer: x509.Name, key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey) -> bytes:
    """A CA's certificate that nobody signed whom it names."""
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - dt.timedelta(days=1))
        .not_valid_after(NOW + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        .public_bytes(serialization.Encoding.DER)
    )


@pytest.mark.parametrize("many", [3, 120])
@pytest.mark.parametrize("kind", ["a public exponent as long as the modulus", "a curve that takes long"])
def test_forged_intermediates_with_keys_that_take_long_are_no_work(root: Holder, kind: str, many: int) -> None:
    clients = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clients")])
    if kind.startswith("a curve"):
        key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey = ec.generate_private_key(ec.SECP384R1()).public_key()
        authority = issue("clients", ca=True)
    else:
        authority = issue("clients", ca=True, key=clients)
        key = rsa.RSAPublicNumbers((1 << 2047) - 1, clients.public_key().public_numbers().n).public_key()
    jane = issue("jane", authority)
    junk = [forged(name, issuer=root.certificate.subject, key=key) for _ in range(many)]
    peer = Peer.of(jane.der, (authority.der, *junk))
    verify = chains.verifier(root.pem)
    with Spent() as spent, pytest.raises(NotAuthentic):
        verify(peer, AT)
    assert spent.below(0.012)
    # Go cannot parse an exponent above 2^63, and then reads no chain at all.
    assert accepted(peer, authority) is kind.startswith("a curve")


def test_a_bundle_that_is_no_pem_is_an_error() -> None:
    with pytest.raises(chains.BadCertificates):
        chains.verifier(b"nonsense")


# ---------------------------------------------------------------------------------------------------------------- the dev kit


def make_kit(folder: Path, *, hosts: tuple[str, ...] = ("localhost", "127.0.0.1"), now: dt.datetime = NOW) -> pki.Kit:
    return pki.kit(folder, hosts=hosts, user="admin", groups=["system:masters"], now=now)


def test_a_kit_has_a_server_that_its_ca_signed_and_a_client_in_its_groups(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    subject = kit.client.certificate.subject.rfc4514_string()
    assert "CN=admin" in subject
    assert "O=system:masters" in subject
    chains.verifier(kit.ca_pem)(Peer.of(der(kit.client.certificate), ()), AT)
    serving = x509.load_pem_x509_certificate(kit.files.cert.read_bytes())
    names = serving.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    with pytest.raises(NotAuthentic):
        chains.verifier(kit.ca_pem)(Peer.of(der(serving), ()), AT)


def der(certificate: x509.Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pki.Pair(certificate, None).cert_pem.decode())  # type: ignore[arg-type]


def test_a_second_kit_in_the_folder_is_the_first(tmp_path: Path) -> None:
    first, second = make_kit(tmp_path), make_kit(tmp_path)
    assert (first.ca_pem, first.client.cert_pem) == (second.ca_pem, second.client.cert_pem)
    assert first.files == second.files


def test_only_the_owner_can_read_what_is_kept(tmp_path: Path) -> None:
    make_kit(tmp_path / "certs")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "certs").iterdir()}
    assert modes == {f"{name}.{part}": 0o600 for name in ("ca", "serving", "client") for part in ("key", "crt")}
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700


def test_pairs_that_end_soon_are_made_anew_under_the_same_ca(tmp_path: Path) -> None:
    first = make_kit(tmp_path)
    later = make_kit(tmp_path, now=NOW + dt.timedelta(days=pki.LEAF_DAYS - pki.RENEW_DAYS + 1))
    assert later.ca_pem == first.ca_pem
    assert later.client.cert_pem != first.client.cert_pem


def test_a_ca_that_ends_soon_takes_its_pairs_with_it(tmp_path: Path) -> None:
    first = make_kit(tmp_path)
    later = make_kit(tmp_path, now=NOW + dt.timedelta(days=pki.CA_DAYS - pki.RENEW_DAYS + 1))
    assert later.ca_pem != first.ca_pem
    chains.verifier(later.ca_pem)(Peer.of(der(later.client.certificate), ()), AT + (pki.CA_DAYS - 20) * 86400)


def test_a_new_host_gets_a_new_serving_pair_and_leaves_the_client_alone(tmp_path: Path) -> None:
    first = make_kit(tmp_path)
    before = first.files.cert.read_bytes()
    second = make_kit(tmp_path, hosts=("localhost", "127.0.0.1", "10.0.0.1"))
    assert second.files.cert.read_bytes() != before
    assert second.client.cert_pem == first.client.cert_pem


@pytest.mark.parametrize("damaged", ["ca.key", "serving.crt", "client.key"])
def test_a_damaged_file_is_replaced(tmp_path: Path, damaged: str) -> None:
    make_kit(tmp_path)
    (tmp_path / damaged).write_text("garbage")
    kit = make_kit(tmp_path)
    chains.verifier(kit.ca_pem)(Peer.of(der(kit.client.certificate), ()), AT)
    dynamiccertificates.Certificates(kit.files)


# ---------------------------------------------------------------------------------------------------------------- files


def test_changed_files_are_read_again_and_bad_ones_change_nothing(tmp_path: Path) -> None:
    files = make_kit(tmp_path).files
    certificates = dynamiccertificates.Certificates(files)
    context, trust = certificates.context, certificates.trust
    assert not certificates.refresh()
    files.cert.write_text("garbage")
    with pytest.raises(chains.BadCertificates):
        certificates.refresh()
    assert certificates.context is context
    assert certificates.trust is trust
    make_kit(tmp_path)
    os.utime(files.cert, ns=(1, 1))
    assert certificates.refresh()
    assert certificates.context is not context
    assert certificates.trust is not trust


def shown_ends() -> dict[str, float]:
    return {name: value.value for (name,), value in metrics.CERTIFICATE_END.children()}


def test_metrics_show_when_the_present_certificates_end(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    certificates = dynamiccertificates.Certificates(kit.files)
    [serving] = x509.load_pem_x509_certificates(kit.files.cert.read_bytes())
    [authority] = x509.load_pem_x509_certificates(kit.ca_pem)
    shown = shown_ends()
    assert shown["serving"] == serving.not_valid_after_utc.timestamp()
    assert shown["client-ca"] == authority.not_valid_after_utc.timestamp()
    assert kit.files.client_ca is not None
    kit.files.client_ca.write_bytes(issue("soon", ca=True).pem)
    assert certificates.refresh()
    assert shown_ends()["client-ca"] < shown["client-ca"]
    kit.files.client_ca.write_bytes(issue("soon", ca=True).pem + kit.ca_pem)
    assert certificates.refresh()
    assert shown_ends()["client-ca"] == shown["client-ca"], "during a rotation the last one counts"
    dynamiccertificates.Certificates(dynamiccertificates.Files(kit.files.cert, kit.files.key))
    assert "client-ca" not in shown_ends()


def test_without_ca_bundles_no_certificate_is_asked_for(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    certificates = dynamiccertificates.Certificates(dynamiccertificates.Files(kit.files.cert, kit.files.key))
    jane = client_context(tmp_path, kit.ca_pem, issue("jane"), version=ssl.TLSVersion.TLSv1_3)
    assert chains.peer(shake_hands(certificates.context, jane)[1]) is None
    assert (certificates.trust.client, certificates.trust.proxy) == (None, None)


def test_a_missing_bundle_is_an_error(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    with pytest.raises(chains.BadCertificates):
        dynamiccertificates.Certificates(
            dynamiccertificates.Files(kit.files.cert, kit.files.key, client_ca=tmp_path / "gone")
        )


@pytest.mark.parametrize("damage", [b"", b"garbage", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_a_bundle_that_turns_bad_changes_nothing(tmp_path: Path, damage: bytes) -> None:
    files = make_kit(tmp_path).files
    certificates = dynamiccertificates.Certificates(files)
    context, trust = certificates.context, certificates.trust
    assert files.client_ca is not None
    good = files.client_ca.read_bytes()
    files.client_ca.write_bytes(damage)
    for _ in range(2):
        with pytest.raises(chains.BadCertificates):
            certificates.refresh()
    assert (certificates.context, certificates.trust) == (context, trust)
    files.client_ca.write_bytes(good)
    assert certificates.refresh()


def test_comments_in_a_bundle_may_be_in_any_language(tmp_path: Path) -> None:
    kit = make_kit(tmp_path)
    bundle = tmp_path / "commented.crt"
    bundle.write_bytes("# Zertifizierungsstelle für Köche\n".encode() + kit.ca_pem)
    files = dynamiccertificates.Files(kit.files.cert, kit.files.key, client_ca=bundle)
    assert dynamiccertificates.Certificates(files).trust.client is not None


# ---------------------------------------------------------------------------------------------------------------- the cluster's

OWN = RequestHeader(
    ca_file="", allowed_names=("own",), username_headers=("x-own",), group_headers=(), uid_headers=(), extra_prefixes=()
)
THEIRS = RequestHeader(
    ca_file="", allowed_names=("front-proxy-client",), username_headers=("x-remote-user",), group_headers=(), uid_headers=(),
    extra_prefixes=(),
)  # fmt: skip
NOTHING = ClusterTrust(client_ca=None, proxy_ca=None, names=None)


class LookedUp:
    """Certificates of a server that asks its cluster for what no file says."""

    def __init__(
        self, folder: Path, *, now: ClusterTrust = NOTHING, own: tuple[Holder | None, Holder | None] = (None, None)
    ) -> None:
        self.now = now
        pair = make_kit(folder / "kit").files
        paths: list[Path | None] = []
        for holder, name in zip(own, ("clients.crt", "proxies.crt"), strict=True):
            if holder is not None:
                (folder / name).write_bytes(holder.pem)
            paths.append(folder / name if holder is not None else None)
        self.files = dynamiccertificates.Files(pair.cert, pair.key, client_ca=paths[0], proxy_ca=paths[1], names=OWN)
        self.certificates = dynamiccertificates.Certificates(self.files, lambda: self.now)

    @property
    def trust(self) -> Trust:
        return self.certificates.trust


def vouches(verifier: Verifier | None, root: Holder) -> bool:
    if verifier is None:
        return False
    try:
        verifier(issue("x", root).peer, AT)
    except NotAuthentic:
        return False
    return True


def test_trust_from_the_cluster_counts_at_once(tmp_path: Path, root: Holder) -> None:
    proxies = issue("proxies", ca=True)
    looked_up = LookedUp(tmp_path)
    assert looked_up.trust == Trust(client=None, proxy=None, names=NO_HEADERS)
    looked_up.now = ClusterTrust(client_ca=root.pem, proxy_ca=proxies.pem, names=THEIRS)
    trust, context = looked_up.trust, looked_up.certificates.context
    assert vouches(trust.client, root)
    assert vouches(trust.proxy, proxies)
    assert not vouches(trust.client, proxies)
    assert not vouches(trust.proxy, root)
    assert trust.names == THEIRS
    assert (looked_up.trust, looked_up.certificates.context) == (trust, context)


def test_trust_known_from_the_beginning_counts_from_the_beginning(tmp_path: Path, root: Holder) -> None:
    looked_up = LookedUp(tmp_path, now=ClusterTrust(client_ca=root.pem, proxy_ca=None, names=None))
    assert vouches(looked_up.trust.client, root)


@pytest.mark.parametrize("own", ["client", "proxy", "both"])
def test_a_file_overrides_the_cluster_item_by_item(tmp_path: Path, root: Holder, own: str) -> None:
    proxies, clients, others = (issue(name, ca=True) for name in ("proxies", "own clients", "own proxies"))
    files = (clients if own != "proxy" else None, others if own != "client" else None)
    looked_up = LookedUp(tmp_path, own=files)
    looked_up.now = ClusterTrust(client_ca=root.pem, proxy_ca=proxies.pem, names=THEIRS)
    trust = looked_up.trust
    assert vouches(trust.client, clients if own != "proxy" else root)
    assert vouches(trust.client, root) is (own == "proxy")
    assert vouches(trust.proxy, others if own != "client" else proxies)
    assert vouches(trust.proxy, proxies) is (own == "client")
    assert trust.names == (THEIRS if own == "client" else OWN)


def test_proxy_bundle_without_names_trusts_no_proxy(tmp_path: Path) -> None:
    proxies = issue("proxies", ca=True)
    looked_up = LookedUp(tmp_path, now=ClusterTrust(client_ca=None, proxy_ca=proxies.pem, names=None))
    assert looked_up.trust == Trust(client=None, proxy=None, names=NO_HEADERS)


def test_a_bad_bundle_of_the_cluster_is_no_change(
    tmp_path: Path, root: Holder, caplog: pytest.LogCaptureFixture
) -> None:
    looked_up = LookedUp(tmp_path, now=ClusterTrust(client_ca=root.pem, proxy_ca=None, names=None))
    before = looked_up.trust, looked_up.certificates.context
    looked_up.now = ClusterTrust(client_ca=b"garbage", proxy_ca=issue("proxies", ca=True).pem, names=THEIRS)
    for _ in range(3):
        assert (looked_up.trust, looked_up.certificates.context) == before
    assert caplog.text.count("changed authorities of the cluster are not used") == 1
    next_ca = issue("next", ca=True)
    looked_up.now = ClusterTrust(client_ca=next_ca.pem, proxy_ca=None, names=None)
    assert vouches(looked_up.trust.client, next_ca)
    assert not vouches(looked_up.trust.client, root)


def test_a_good_file_is_read_while_the_clusters_bundle_is_bad(tmp_path: Path, root: Holder) -> None:
    looked_up = LookedUp(tmp_path, now=ClusterTrust(client_ca=root.pem, proxy_ca=None, names=None))
    assert vouches(looked_up.trust.client, root)
    looked_up.now = ClusterTrust(client_ca=b"garbage", proxy_ca=None, names=None)
    os.utime(looked_up.files.cert, ns=(1, 1))
    assert looked_up.certificates.refresh()
    assert vouches(looked_up.trust.client, root)


def test_rights_change_during_a_replacement_of_the_pair_and_tls_follows(tmp_path: Path, root: Holder) -> None:
    looked_up = LookedUp(tmp_path)
    ca = (tmp_path / "kit" / "ca.crt").read_bytes()
    jane = client_context(tmp_path, ca, issue("jane", root), version=ssl.TLSVersion.TLSv1_3)
    pair = looked_up.files.cert.read_bytes()
    looked_up.files.cert.write_text("half of it")
    looked_up.now = ClusterTrust(client_ca=root.pem, proxy_ca=None, names=None)
    assert vouches(looked_up.trust.client, root)
    assert not completes(looked_up.certificates.context, jane)
    looked_up.files.cert.write_bytes(pair)
    assert looked_up.certificates.refresh()
    assert completes(looked_up.certificates.context, jane)


def test_new_authorities_are_logged(tmp_path: Path, root: Holder, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    looked_up = LookedUp(tmp_path, now=ClusterTrust(client_ca=root.pem, proxy_ca=None, names=None))
    _ = looked_up.trust
    [record] = [record for record in caplog.records if record.message == "authorities changed"]
    until = f"{root.certificate.not_valid_after_utc:%Y-%m-%d}"
    assert (vars(record)["clients"], vars(record)["front_proxy"]) == (f"CN=root until {until}", "")


# ---------------------------------------------------------------------------------------------------------------- handshakes


def client_context(folder: Path, ca: bytes, holder: Holder | None, *, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca.decode())
    context.maximum_version = version
    if holder is not None:
        pair = folder / "pair.pem"
        pair.write_bytes(holder.pem + b"".join(above.pem for above in holder.above) + holder.key_pem)
        context.load_cert_chain(pair)
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_the_presented_chain_is_read_from_the_handshake(tmp_path: Path, version: ssl.TLSVersion) -> None:
    kit, root = make_kit(tmp_path), issue("root", ca=True)
    jane = issue("jane", issue("between", root, ca=True))
    (tmp_path / "clients.crt").write_bytes(root.pem)
    server = dynamiccertificates.Certificates(
        dynamiccertificates.Files(kit.files.cert, kit.files.key, client_ca=tmp_path / "clients.crt")
    ).context
    _, far = shake_hands(server, client_context(tmp_path, kit.ca_pem, jane, version=version))
    assert chains.peer(far) == jane.peer
    _, far = shake_hands(server, client_context(tmp_path, kit.ca_pem, None, version=version))
    assert chains.peer(far) is None


def asking(folder: Path, holder: Holder | None, *, version: ssl.TLSVersion) -> ServerSession:
    """The server's end of a handshake with a client that has this certificate."""
    kit = make_kit(folder)
    context = dynamiccertificates.server_context(
        cert_file=kit.files.cert, key_file=kit.files.key, asked=dynamiccertificates.Asked.ACCEPTED
    )
    return shake_hands(context, client_context(folder, kit.ca_pem, holder, version=version))[1]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_no_more_of_a_chain_is_read_than_a_real_one_has(tmp_path: Path, version: ssl.TLSVersion) -> None:
    jane, others = issue("jane"), [issue("other") for _ in range(chains.LONGEST + 2)]
    far = asking(tmp_path, Holder(jane.certificate, jane.key, tuple(others)), version=version)
    assert chains.peer(far) == Peer.of(jane.der, tuple(other.der for other in others[: chains.LONGEST]))


def test_writing_a_private_file_replaces_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    pki.write_private(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def completes(server: SSL.Context, client: ssl.SSLContext) -> bool:
    """Whether both ends completed the handshake, and the client has received no alert since."""
    try:
        near, _ = shake_hands(server, client)
        near.read(1)
    except ssl.SSLWantReadError:
        return True
    except ssl.SSLError:
        return False
    return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_certificate_before_the_first_lookup_is_refused_and_none_is_fine(
    tmp_path: Path, root: Holder, version: ssl.TLSVersion
) -> None:
    """A connection that was never asked would be anonymous for as long as kube-apiserver keeps it."""
    looked_up = LookedUp(tmp_path)
    ca = (tmp_path / "kit" / "ca.crt").read_bytes()
    nobody = client_context(tmp_path, ca, None, version=version)
    jane = client_context(tmp_path, ca, issue("jane", root), version=version)
    assert completes(looked_up.certificates.context, nobody)
    assert not completes(looked_up.certificates.context, jane)
    looked_up.now = ClusterTrust(client_ca=root.pem, proxy_ca=None, names=None)
    assert completes(looked_up.certificates.context, nobody)
    assert completes(looked_up.certificates.context, jane)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("days", [(-3, -0.5), (0.5, 3)], ids=["ended", "not begun"])
def test_expired_client_certificate_gets_an_answer_and_no_broken_handshake(
    tmp_path: Path, root: Holder, version: ssl.TLSVersion, days: tuple[float, float]
) -> None:
    kit = make_kit(tmp_path)
    (tmp_path / "clients.crt").write_bytes(root.pem)
    certificates = dynamiccertificates.Certificates(
        dynamiccertificates.Files(kit.files.cert, kit.files.key, client_ca=tmp_path / "clients.crt")
    )
    jane = issue("jane", root, starts=days[0], ends=days[1])
    client = client_context(tmp_path, kit.ca_pem, jane, version=version)
    assert completes(certificates.context, client)
    assert certificates.trust.client is not None
    with pytest.raises(NotAuthentic):
        certificates.trust.client(jane.peer, AT)


@pytest.mark.parametrize(("flag", "older"), [((), True), (("--tls-min-version", "VersionTLS13"), False)])
def test_clients_may_speak_no_older_tls_than_the_operator_says(
    tmp_path: Path, flag: tuple[str, ...], older: bool
) -> None:
    kit = make_kit(tmp_path)
    pair = ["--tls-cert-file", str(kit.files.cert), "--tls-private-key-file", str(kit.files.key)]
    wanted = config.parse(["serve", "--standalone", "--redis-url", "redis://h", *pair, *flag], {})
    files = dynamiccertificates.Files.of(wanted.serving, wanted.authentication)
    server = dynamiccertificates.Certificates(files).context
    for version, fine in ((ssl.TLSVersion.TLSv1_2, older), (ssl.TLSVersion.TLSv1_3, True)):
        client = client_context(tmp_path, kit.ca_pem, None, version=version)
        assert completes(server, client) is fine
