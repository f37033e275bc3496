"""Requests straight to Sluice's port that claim to be somebody: only the front proxy's certificate makes the identity headers count."""

from __future__ import annotations

import http.client
import pathlib
import socket
import ssl
from collections.abc import Mapping

import pytest

from tests.e2e.controlplane import pki
from tests.e2e.controlplane.bed import Bed

SLICES = "/apis/resource.sluice.dev/v1/resourceslices"
FORGED = {"X-Remote-User": "mallory", "X-Remote-Group": "system:masters"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("forged")


def context(bed: Bed, pair: pki.Pair | None = None) -> ssl.SSLContext:
    settings = ssl.create_default_context(cadata=bed.plane.pki.sluice.pem.decode())
    if pair is not None:
        settings.load_cert_chain(pair.cert, pair.key)
    return settings


def ask(bed: Bed, settings: ssl.SSLContext, headers: Mapping[str, str], path: str = SLICES) -> tuple[int, str]:
    connection = http.client.HTTPSConnection("localhost", bed.replicas[0].port, context=settings, timeout=60)
    try:
        connection.request("GET", path, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_front_proxy_is_believed(bed: Bed) -> None:
    code, _ = ask(bed, context(bed, bed.plane.pki.proxy_client), FORGED)
    assert code == 200


def test_front_proxy_without_headers_is_no_user(bed: Bed) -> None:
    code, text = ask(bed, context(bed, bed.plane.pki.proxy_client), {})
    assert (code, "Unauthorized" in text) == (401, True)


def test_a_certificate_of_the_cluster_counts_as_itself_only(bed: Bed) -> None:
    code, text = ask(bed, context(bed, bed.plane.pki.cluster.client("eve", ["devs"])), FORGED)
    assert code == 403
    assert 'User \\"eve\\" cannot list' in text
    assert "mallory" not in text


def test_cluster_certificate_with_the_front_proxys_name_is_only_itself(bed: Bed) -> None:
    code, text = ask(bed, context(bed, bed.plane.pki.cluster.client(pki.PROXY)), FORGED)
    assert code == 403
    assert f'User \\"{pki.PROXY}\\" cannot list' in text


def test_another_name_signed_by_the_front_proxys_authority_is_401(bed: Bed) -> None:
    code, text = ask(bed, context(bed, bed.plane.pki.proxy.client("impostor")), FORGED)
    assert (code, "mallory" in text) == (401, False)


def test_certificate_of_an_unknown_authority_gets_401(bed: Bed, folder: pathlib.Path) -> None:
    stranger = pki.Authority(folder, "stranger-ca").client(pki.PROXY, ["system:masters"])
    code, text = ask(bed, context(bed, stranger), FORGED)
    assert (code, "mallory" in text) == (401, False)


@pytest.mark.parametrize("authority", ["cluster", "proxy"])
def test_server_only_certificate_authenticates_no_user(bed: Bed, authority: str) -> None:
    signer: pki.Authority = getattr(bed.plane.pki, authority)
    serving = signer.serving(pki.PROXY, ["localhost"], file="serving-only")
    code, text = ask(bed, context(bed, serving), FORGED)
    assert (code, "mallory" in text) == (401, False)


def test_without_any_certificate_one_is_anonymous(bed: Bed) -> None:
    code, text = ask(bed, context(bed), FORGED)
    assert code == 403
    assert 'User \\"system:anonymous\\" cannot list' in text


def test_a_token_with_forged_headers_is_the_tokens_user(bed: Bed, namespace: str) -> None:
    bed.kubectl("create", "serviceaccount", "robot", "-n", namespace)
    with bed.connect(bed.straight(bed.service_account(namespace, "robot"))) as robot:
        reply = robot.ask("GET", SLICES, headers=FORGED)
    assert reply.status == 403
    assert f'User "system:serviceaccount:{namespace}:robot" cannot list' in reply.json["message"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_resumed_session_proves_no_more_than_its_own_certificate(bed: Bed, version: ssl.TLSVersion) -> None:
    """Whether the server lets a session be resumed or not: on the second connection the headers count as little as on the first."""
    settings = context(bed, bed.plane.pki.cluster.client("frank"))
    settings.maximum_version = version
    session: ssl.SSLSession | None = None
    for _ in range(3):
        with settings.wrap_socket(_dial(bed), server_hostname="localhost", session=session) as sock:
            head = "".join(f"{name}: {value}\r\n" for name, value in FORGED.items())
            sock.sendall(f"GET {SLICES} HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda sock=sock: sock.recv(65536), b"")).decode()  # type: ignore[misc]
            session = sock.session
        assert answer.startswith("HTTP/1.1 403 ")
        assert 'User \\"frank\\" cannot list' in answer


def _dial(bed: Bed) -> socket.socket:
    return socket.create_connection(("localhost", bed.replicas[0].port), timeout=60)


@pytest.mark.parametrize(
    "headers",
    [
        {"x-remote-user": "mallory", "x-remote-group": "system:masters"},
        {"X-Remote-User": "", "X-Remote-Group": "system:masters"},
        {"X-Remote-User": "mallory", "X-Remote-Extra-Scopes": "admin", "X-Remote-Uid": "0"},
        {"X_Remote_User": "mallory", "X_Remote_Group": "system:masters"},
        {"Impersonate-User": "system:admin", "X-Remote-User": "mallory", "X-Remote-Group": "system:masters"},
    ],
)
def test_no_spelling_of_the_headers_makes_a_user(bed: Bed, headers: Mapping[str, str]) -> None:
    code, text = ask(bed, context(bed), headers)
    assert code == 403
    assert 'User \\"system:anonymous\\" cannot ' in text
