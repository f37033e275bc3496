"""Kubeconfigs and service accounts, as the server sees who comes."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiserver.cluster.client import Client, ClusterError, in_pod
from apiserver.cluster.credentials import Kubeconfig, ServiceAccount, errors
from tests.unit.cluster.plane import Clock, Plane, answer, client_of, encoded, status

HERE = "/api/v1/things"


@contextlib.asynccontextmanager
async def connected(plane: Plane, clock: Clock, user: dict[str, Any], **cluster: Any) -> AsyncIterator[Client]:
    plane.on(HERE, answer({}))
    client = await plane.client(clock, user, **cluster)
    try:
        yield client
    finally:
        await client.close()


async def authorization(plane: Plane, client: Client) -> str | None:
    await client.ask("GET", HERE)
    return plane.seen[-1].headers.get("Authorization")


async def test_embedded_client_certificate_identifies_the_client(plane: Plane, clock: Clock) -> None:
    pair = plane.client_pair("jane")
    user = {"client-certificate-data": encoded(pair.cert_pem), "client-key-data": encoded(pair.key_pem)}
    async with connected(plane, clock, user) as client:
        assert await authorization(plane, client) is None
    assert plane.seen[-1].subject == "jane"


async def test_files_are_found_beside_the_kubeconfig(plane: Plane, clock: Clock) -> None:
    pair = plane.client_pair("jane")
    for name, content in (("ca.crt", plane.ca.cert_pem), ("me.crt", pair.cert_pem), ("me.key", pair.key_pem)):
        (plane.folder / name).write_bytes(content)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    cluster = {"certificate-authority-data": None, "certificate-authority": "ca.crt"}
    async with connected(plane, clock, user, **cluster) as client:
        await client.ask("GET", HERE)
    assert plane.seen[-1].subject == "jane"


async def test_a_client_certificate_that_was_renewed_is_used_by_new_connections(plane: Plane, clock: Clock) -> None:
    def write(name: str) -> None:
        pair = plane.client_pair(name)
        (plane.folder / "me.pem").write_bytes(pair.cert_pem + pair.key_pem)

    write("old")
    user = {"client-certificate": "me.pem", "client-key": "me.pem"}
    async with connected(plane, clock, user) as client:
        for name, seconds in (("old", 0), ("new", 49), ("new", 1), ("new", 1)):
            write(name)
            clock.now += seconds
            await client.ask("GET", HERE)
    assert [seen.subject for seen in plane.seen] == ["old", "old", "new", "new"]
    assert len({seen.peer for seen in plane.seen}) == 2


async def test_embedded_keys_leave_no_files(
    plane: Plane, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    pair = plane.client_pair("jane")
    user = {"client-certificate-data": encoded(pair.cert_pem), "client-key-data": encoded(pair.key_pem)}
    async with connected(plane, clock, user) as client:
        await client.ask("GET", HERE)
        assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"token": " abc\n"}, "Bearer  abc"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        ({}, None),
    ],
)
async def test_static_credentials_are_sent(
    plane: Plane, clock: Clock, user: dict[str, Any], expected: str | None
) -> None:
    async with connected(plane, clock, user) as client:
        assert await authorization(plane, client) == expected


def of_nobody(plane: Plane, user: str) -> str:
    path = Path(plane.kubeconfig({"token": "abc"}))
    path.write_text(path.read_text().replace("user: me", user))
    return str(path)


async def test_context_without_a_user_asks_anonymously(plane: Plane, clock: Clock) -> None:
    plane.on(HERE, answer({}))
    for user in ("user: ''", ""):
        client = await client_of(of_nobody(plane, user), clock)
        assert await authorization(plane, client) is None
        await client.close()


async def test_the_query_and_the_last_slash_of_a_servers_address_are_not_sent(plane: Plane, clock: Clock) -> None:
    async with connected(plane, clock, {"token": "abc"}, server=f"{plane.url}/some/path//?x=y#z") as client:
        plane.on("/some/path", answer({}))
        await client.ask("GET", "")
    (seen,) = plane.seen
    assert (seen.path, seen.query) == ("/some/path", {})


async def test_a_token_file_is_read_again_when_it_may_have_been_renewed(
    plane: Plane, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    token = plane.folder / "token"
    token.write_text("one\n")
    # The token beside the file is what it was when the kubeconfig was written.
    async with connected(plane, clock, {"tokenFile": "token", "token": "stale"}) as client:
        assert await authorization(plane, client) == "Bearer one"
        token.write_text("two\n")
        assert await authorization(plane, client) == "Bearer one"
        clock.now += 50
        assert await authorization(plane, client) == "Bearer two"
        token.unlink()
        clock.now += 50
        assert await authorization(plane, client) == "Bearer two"
        assert "could not be renewed" in caplog.text
        token.write_text("three")
        clock.now += 5
        assert await authorization(plane, client) == "Bearer three"


async def test_a_refused_token_is_read_again_at_once(plane: Plane, clock: Clock) -> None:
    token = plane.folder / "token"
    token.write_text("one")
    async with connected(plane, clock, {"tokenFile": "token"}) as client:
        token.write_text("two")
        clock.now += 6
        plane.on(HERE, status(401, "Unauthorized"), answer({}))
        with pytest.raises(ClusterError, match="Unauthorized"):
            await client.ask("GET", HERE)
        assert await authorization(plane, client) == "Bearer two"


# ---------------------------------------------------------------------------------------------------------------- plugins


def plugin(folder: Path, **credential: Any) -> Path:
    """A program that tells its `credential`, and counts how often it ran."""
    told = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": credential}
    path = folder / "plugin"
    path.write_text(
        f"#!/bin/sh\necho run >> '{folder}/runs'\ncat <<'EOF' | sed \"s/RUN/$(wc -l < '{folder}/runs')/\"\n{json.dumps(told)}\nEOF\n"
    )
    path.chmod(0o700)
    return path


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


EXEC = {
    "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "args": [],
        "interactiveMode": "Never",
    }
}


async def test_a_plugin_is_asked_once_and_again_when_its_token_is_refused(plane: Plane, clock: Clock) -> None:
    plugin(plane.folder, token="fromRUN")
    async with connected(plane, clock, EXEC) as client:
        assert (await authorization(plane, client) or "").replace(" ", "") == "Bearerfrom1"
        clock.now += 200
        assert (await authorization(plane, client) or "").replace(" ", "") == "Bearerfrom1"
        clock.now += 6
        plane.on(HERE, status(401, "Unauthorized"), answer({}))
        with pytest.raises(ClusterError):
            await client.ask("GET", HERE)
        assert (await authorization(plane, client) or "").replace(" ", "") == "Bearerfrom2"
    assert runs(plane.folder) == 2


@pytest.mark.parametrize(("minutes", "expected"), [(60, 1), (1, 2)])
async def test_a_plugins_token_is_renewed_before_it_runs_out(
    plane: Plane, clock: Clock, minutes: int, expected: int
) -> None:
    ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
    plugin(plane.folder, token="t", expirationTimestamp=ends.strftime("%Y-%m-%dT%H:%M:%SZ"))
    async with connected(plane, clock, EXEC) as client:
        clock.now += 50
        await client.ask("GET", HERE)
        await client.ask("GET", HERE)
    assert runs(plane.folder) == expected


async def test_a_plugin_may_give_a_certificate(plane: Plane, clock: Clock) -> None:
    pair = plane.client_pair("plugged")
    plugin(plane.folder, clientCertificateData=pair.cert_pem.decode(), clientKeyData=pair.key_pem.decode())
    async with connected(plane, clock, EXEC) as client:
        await client.ask("GET", HERE)
    assert plane.seen[-1].subject == "plugged"


async def test_a_failing_plugin_is_an_error_that_says_why(plane: Plane, clock: Clock) -> None:
    path = plugin(plane.folder, token="t")
    path.write_text("#!/bin/sh\necho no such account >&2\nexit 3\n")
    with pytest.raises(ClusterError, match=r"yields no credentials: exec: process returned 3\. no such account"):
        await plane.client(clock, EXEC)
    path.unlink()
    with pytest.raises(ClusterError, match="yields no credentials"):
        await plane.client(clock, EXEC)


# ---------------------------------------------------------------------------------------------------------------- the server


async def test_the_server_may_be_known_by_another_name(tmp_path: Path, clock: Clock) -> None:
    plane = await Plane(tmp_path, hosts=("kubernetes.default.svc",)).start()
    async with connected(plane, clock, {"token": "t"}, **{"tls-server-name": "kubernetes.default.svc"}) as client:
        await client.ask("GET", HERE)
    async with connected(plane, clock, {"token": "t"}) as client:
        with pytest.raises(ClusterError, match="not accepted"):
            await client.ask("GET", HERE)
    insecure = {"insecure-skip-tls-verify": True, "certificate-authority-data": None}
    async with connected(plane, clock, {"token": "t"}, **insecure) as client:
        await client.ask("GET", HERE)
    await plane.stop()


async def test_a_ca_bundle_may_hold_comments_and_several_authorities(plane: Plane, clock: Clock) -> None:
    other = Plane(plane.folder)
    bundle = "# größte\n".encode("latin-1") + other.ca.cert_pem + b"\n# two\n" + plane.ca.cert_pem
    async with connected(plane, clock, {"token": "t"}, **{"certificate-authority-data": encoded(bundle)}) as client:
        await client.ask("GET", HERE)


async def test_the_way_may_lead_through_a_proxy(plane: Plane, clock: Clock) -> None:
    asked: list[bytes] = []

    async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0])
        up, down = await asyncio.open_connection("127.0.0.1", plane.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            with contextlib.suppress(ConnectionError):
                while raw := await source.read(65536):
                    target.write(raw)
            target.close()

        await asyncio.gather(copy(reader, down), copy(up, writer))

    proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
    address = f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}"
    async with connected(plane, clock, {"token": "t"}, **{"proxy-url": address}) as client:
        await client.ask("GET", HERE)
    assert asked == [b"CONNECT 127.0.0.1:%d HTTP/1.1" % plane.port]
    assert plane.seen[-1].headers["Authorization"] == "Bearer t"
    proxy.close()
    await proxy.wait_closed()


CONTEXT = "current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}]"
CLUSTER = "clusters: [{name: k, cluster: {server: x}}]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is no kubeconfig: it is no object$"),
        ("a: 1\n{", "is no kubeconfig: it is no YAML: line 2: [^:]*$"),
        ("a: \x07", "is no kubeconfig: it is no YAML: unacceptable character #x0007"),
        ("just text", "is no kubeconfig: it is no object$"),
        ("{}", "cannot be used: current-context is not set$"),
        ("current-context: here", "cannot be used: it has no context 'here'$"),
        ("{current-context: here, contexts: {}}", "it has no context 'here'$"),
        ("{current-context: here, contexts: {here: {}}}", "is no kubeconfig: contexts is no list$"),
        ("{current-context: c, contexts: [{name: c, context: 7}]}", "the context 'c' is no object$"),
        ("{current-context: c, contexts: [{name: c, context: {user: u}}]}", "the context 'c' names no cluster$"),
        (f"{{{CONTEXT}, clusters: [{{name: k}}], users: [{{name: u}}]}}", "the cluster 'k' has no server$"),
        ("{current-context: here, contexts: [], clusters: [], users: []}", "it has no context 'here'"),
        (f"{{{CONTEXT}, clusters: [], users: []}}", "no cluster 'k'"),
        (f"{{{CONTEXT}, {CLUSTER}, users: []}}", "it has no user 'u'"),
        (f"{{{CONTEXT}, {CLUSTER}, users: [{{name: u, user: {{}}}}]}}", "is no URL"),
    ],
)
async def test_a_bad_kubeconfig_is_an_error_that_names_it(
    tmp_path: Path, clock: Clock, text: str, problem: str
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ClusterError, match=problem) as raised:
        await client_of(str(path), clock)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    ("user", "cluster", "problem"),
    [
        ({"tokenFile": "missing"}, {}, "missing"),
        ({"client-certificate": "missing"}, {}, "missing cannot be read: No such file"),
        ({"client-certificate-data": "!"}, {}, "is no kubeconfig: client-certificate-data is not base64"),
        ({"client-certificate-data": "aGVsbG8="}, {}, "certificates for the API server cannot be used"),
        ({"token": "a\nb"}, {}, "fit no header"),
        ({"token": "t", "as": "admin"}, {}, "impersonation .* is not supported"),
        ({"token": "t", "as-groups": ["system:masters"]}, {}, "impersonation .* is not supported"),
        ({"token": "t"}, {"certificate-authority-data": "aGVsbG8="}, "holds no certificate"),
        ({"token": "t"}, {"server": "https://h:port"}, "is no kubeconfig"),
        ({"token": "t"}, {"proxy-url": "socks5://127.0.0.1:1"}, "speaks no HTTP"),
    ],
)
async def test_credentials_that_cannot_be_used_are_an_error(
    plane: Plane, clock: Clock, user: dict[str, Any], cluster: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ClusterError, match=problem):
        await plane.client(clock, user, **cluster)


@pytest.mark.parametrize(
    ("user", "cluster", "problem"),
    [
        ({"client-certificate": "missing"}, {}, "missing cannot be read: No such file"),
        ({"client-certificate-data": "aGVsbG8="}, {}, "certificates for the API server cannot be used"),
        ({"token": "t"}, {"certificate-authority-data": "aGVsbG8="}, "holds no certificate"),
        ({"token": "t"}, {"server": "https://h:port"}, "is no URL"),
    ],
)
def test_errors_in_files_are_reported_without_a_request(
    plane: Plane, user: dict[str, Any], cluster: dict[str, Any], problem: str
) -> None:
    path = plane.kubeconfig(user, **cluster)
    [told] = errors(["", path, path], {})
    assert problem in told


def test_a_plugin_is_not_asked_only_to_find_errors(plane: Plane) -> None:
    insecure = {"insecure-skip-tls-verify": True, "certificate-authority-data": "aGVsbG8="}
    assert list(errors([plane.kubeconfig(EXEC), plane.kubeconfig({"token": "t"}, **insecure)], {})) == []


async def test_a_missing_kubeconfig_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="No such file"):
        await Client.of_kubeconfig(str(tmp_path / "none"))


async def test_the_clients_own_door_reads_a_kubeconfig(plane: Plane) -> None:
    plane.on(HERE, answer({"ok": True}))
    client = await Client.of_kubeconfig(plane.kubeconfig({"token": "t"}))
    assert client.server == plane.url
    assert await client.ask("GET", HERE) == {"ok": True}
    await client.close()


async def test_the_environments_proxy_counts_unless_the_kubeconfig_names_one(plane: Plane) -> None:
    environ = {"HTTPS_PROXY": "proxy:3128", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    path = plane.kubeconfig({"token": "t"}, server="https://kube.example")
    assert (await Kubeconfig(path, environ).load(anew=False)).proxy == "http://proxy:3128"
    path = plane.kubeconfig({"token": "t"}, server="https://kube.example", **{"proxy-url": "http://own:1"})
    assert (await Kubeconfig(path, environ).load(anew=False)).proxy == "http://own:1"


# ---------------------------------------------------------------------------------------------------------------- pods


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False),
        ({"KUBERNETES_SERVICE_HOST": "", "KUBERNETES_SERVICE_PORT": "443"}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}, True),
    ],
)
def test_a_pod_is_known_by_its_environment(environ: dict[str, str], expected: bool) -> None:
    assert in_pod(environ) is expected


def account(plane: Plane) -> Path:
    folder = plane.folder / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("one")
    (folder / "ca.crt").write_bytes(plane.ca.cert_pem)
    return folder


async def test_service_account_of_the_pod_identifies_the_client(plane: Plane, clock: Clock) -> None:
    folder = account(plane)
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(plane.port)}
    client = await Client.of(ServiceAccount(environ, folder), clock=clock, sleep=clock.sleep)
    plane.on(HERE, answer({}))
    assert await authorization(plane, client) == "Bearer one"
    (folder / "token").write_text("two\n")
    clock.now += 50
    assert await authorization(plane, client) == "Bearer two"
    await client.close()


async def test_a_pods_address_may_be_ipv6(plane: Plane) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    assert (await ServiceAccount(environ, account(plane)).load(anew=False)).server == "https://[fd00::1]:443"


async def test_a_service_account_that_is_incomplete_is_an_error(plane: Plane) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    folder = account(plane)
    with pytest.raises(ClusterError, match="runs in no pod"):
        await ServiceAccount({}, folder).load(anew=False)
    with pytest.raises(ClusterError, match="runs in no pod"):
        await Client.in_cluster(environ={})
    (folder / "token").write_text("\n")
    with pytest.raises(ClusterError, match="token is empty"):
        await ServiceAccount(environ, folder).load(anew=False)
    (folder / "token").unlink()
    with pytest.raises(ClusterError, match=r"token cannot be read: No such file"):
        await ServiceAccount(environ, folder).load(anew=False)


def test_the_slow_library_is_imported_for_plugins_only(tmp_path: Path) -> None:
    story = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "import apiserver.cluster.access, apiserver.cluster.namespaces, apiserver.cluster.requestheader, apiserver.cluster.tokens\n"
        "from apiserver.cluster.credentials import Kubeconfig, ServiceAccount\n"
        "from apiserver.cluster.errors import ClusterError\n"
        "pod = {'KUBERNETES_SERVICE_HOST': 'h', 'KUBERNETES_SERVICE_PORT': '1'}\n"
        "try: asyncio.run(ServiceAccount(pod, Path('/none')).load(anew=False))\n"
        "except ClusterError: pass\n"
        "assert asyncio.run(Kubeconfig(sys.argv[1], {}).load(anew=False)).authorization == 'Bearer t'\n"
        "sys.exit('kubernetes_asyncio' in sys.modules)\n"
    )
    path = tmp_path / "kubeconfig"
    clusters, users = "clusters: [{name: k, cluster: {server: 'http://h'}}]", "users: [{name: u, user: {token: t}}]"
    path.write_text(f"{{{CONTEXT}, {clusters}, {users}}}")
    subprocess.run([sys.executable, "-c", story, path], check=True, cwd=Path(__file__).parents[3])
