"""`sluice serve` and `sluice store` as processes, on a Valkey that somebody else runs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

from apiserver.storage import embedded
from tests.fixtures.authorities import SERVER, Holder, issue
from tests.fixtures.server import Reply

GROUP = "resource.sluice.dev"
V1 = f"/apis/{GROUP}/v1"
SECONDS = 30.0
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_FDS"] = "1"
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Starts a command with a socket as a service manager passes it."""


def until(happens: Callable[[], bool], what: str) -> None:
    """Polls another process, which cannot be waited for otherwise."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)


def sluice(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "apiserver", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environ}, check=False
    )


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[str]:
    """The URL of an empty Valkey as an administrator would set it up."""
    path = tmp_path / "valkey.sock"
    words = [
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--dir",
        str(tmp_path),
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]
    words += ["--save", "", "--maxmemory-policy", "noeviction", "--requirepass", "hunter2", "--daemonize", "no"]
    process = subprocess.Popen([str(embedded.binary()), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(path.exists, "the store's start")
        yield f"unix://{path}?password=hunter2"
    finally:
        process.terminate()
        process.wait(SECONDS)


class Cluster:
    """The certificates of a cluster, in files."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.users, self.proxies, self.servers = (
            issue(f"{name} ca", ca=True) for name in ("users", "proxies", "servers")
        )
        serving = issue("server", self.servers, usages=(SERVER,))
        for name, content in {
            "users.crt": self.users.pem, "proxies.crt": self.proxies.pem, "serving.crt": serving.pem, "serving.key": serving.key_pem,
        }.items():  # fmt: skip
            (folder / name).write_bytes(content)

    @property
    def flags(self) -> list[str]:
        at = self.folder
        return [
            "--tls-cert-file", f"{at}/serving.crt", "--tls-private-key-file", f"{at}/serving.key", "--client-ca-file", f"{at}/users.crt",
            "--requestheader-client-ca-file", f"{at}/proxies.crt", "--requestheader-allowed-names", "front-proxy",
        ]  # fmt: skip

    def context(self, holder: Holder | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=self.servers.pem.decode())
        if holder is not None:
            pair = self.folder / "pair.pem"
            pair.write_bytes(holder.pem + holder.key_pem)
            context.load_cert_chain(pair)
        return context


class Serve:
    """A running `sluice serve`."""

    def __init__(self, cluster: Cluster, url: str, *flags: str, sock: socket.socket | None = None) -> None:
        self.cluster = cluster
        self.log = cluster.folder / "log"
        if sock is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
        else:
            self.port = sock.getsockname()[1]
        words = ["serve", "--bind-address", "127.0.0.1", "--secure-port", str(self.port), "--logging-format", "json"]
        words += [*cluster.flags, *flags]
        environ = {**os.environ, "SLUICE_REDIS_URL": url}
        command = [sys.executable, "-m", "apiserver", *words]
        if sock is not None:
            command = [sys.executable, "-c", HAND_OVER, str(sock.fileno()), *command]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, stderr=log, env=environ, pass_fds=[sock.fileno()] if sock is not None else []
            )
        try:
            until(self._listens, "listening")
        except BaseException:
            self.__exit__()
            raise

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError):
            return self.ask("/livez").status == 200
        return False

    def ask(
        self,
        path: str,
        holder: Holder | None = None,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: str | None = None,
    ) -> Reply:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self.cluster.context(holder), timeout=SECONDS
        )
        try:
            connection.request("GET", path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def ready(self) -> Serve:
        until(lambda: self.ask("/readyz").status == 200, "readiness")
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def __enter__(self) -> Serve:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(SECONDS)


@pytest.fixture
def cluster(tmp_path: pathlib.Path) -> Cluster:
    return Cluster(tmp_path / "cluster")


@pytest.fixture
def serving(cluster: Cluster, store: str) -> Iterator[Serve]:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    with Serve(
        cluster, store, "--shutdown-delay-duration", "0", "--shutdown-watch-termination-grace-period", "0"
    ) as server:
        yield server.ready()


def test_a_store_that_was_never_initialised_is_refused_until_it_is(cluster: Cluster, store: str) -> None:
    admin = issue("admin", cluster.users, groups=("system:masters",))
    with Serve(cluster, store) as server:
        assert server.ask("/readyz").status == 500
        assert "[-]caches failed: reason withheld\n" in server.ask("/readyz").text
        until(lambda: "sluice store init" in server.ask("/readyz/caches", admin).text, "the reason")
        assert server.ask(V1, admin).status == 200
        assert server.ask(f"{V1}/deviceclasses", admin).status in (429, 503)
        assert server.ask(f"{V1}/deviceclasses?watch=1", admin).status == 429
        assert sluice("store", "check", SLUICE_REDIS_URL=store).returncode == 1
        assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
        server.ready()
        assert server.ask(f"{V1}/deviceclasses", admin).json["items"] == []
    again = sluice("store", "init", SLUICE_REDIS_URL=store)
    assert "already there" in again.stdout
    checked = sluice("store", "check", SLUICE_REDIS_URL=store)
    assert (checked.returncode, [line for line in checked.stdout.splitlines() if not line.startswith("warning")]) in (
        (0, []), (0, ["nothing is wrong"]),
    )  # fmt: skip
    assert f"{GROUP}/resourceslices: epoch" in sluice("store", "info", SLUICE_REDIS_URL=store).stdout


def test_identity_comes_from_certificates_and_from_the_front_proxy_alone(serving: Serve, cluster: Cluster) -> None:
    path, root = f"{V1}/deviceclasses", {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    admin = issue("admin", cluster.users, groups=("system:masters",))
    jane, proxy = issue("jane", cluster.users), issue("front-proxy", cluster.proxies)
    assert serving.ask(path, admin).status == 200
    assert serving.ask(path, proxy, root).status == 200
    for holder, name in (
        (None, "system:anonymous"),
        (jane, "jane"),
        (issue("front-proxy", cluster.users), "front-proxy"),
    ):
        answer = serving.ask(path, holder, root)
        assert answer.status == 403
        assert f'User "{name}" cannot list' in answer.json["message"]
    assert serving.ask(path, proxy, {"X-Remote-User": "joe"}).status == 403
    for holder in (issue("other-proxy", cluster.proxies), proxy):
        answer = serving.ask(path, holder, root if holder is not proxy else {})
        assert (answer.status, answer.json["message"]) == (401, "Unauthorized")
    assert serving.ask(path, None, {"Authorization": "Bearer x"}).status == 401
    assert serving.ask(path, None, {"Authorization": "Bearer x", **root}).status == 401


def test_plain_http_on_the_tls_port_is_told_so(serving: Serve) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=SECONDS) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        while part := connection.recv(4096):
            said += part
    assert said == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def test_a_connection_that_is_neither_is_closed_and_counted(serving: Serve, cluster: Cluster) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=SECONDS) as connection:
        connection.sendall(b"\x00\x01\x02")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    admin = issue("admin", cluster.users, groups=("system:masters",))
    [line] = [
        x
        for x in serving.ask("/metrics", admin).text.splitlines()
        if x.startswith("apiserver_tls_handshake_errors_total ")
    ]
    assert float(line.split()[1]) >= 1


def test_only_http_one_is_offered_and_sessions_are_not_resumed(serving: Serve, cluster: Cluster) -> None:
    context = cluster.context(None)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", serving.port), timeout=SECONDS) as plain,
        context.wrap_socket(plain) as connection,
    ):
        assert connection.selected_alpn_protocol() == "http/1.1"
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        assert connection.session is None or not connection.session.has_ticket


def test_a_stop_is_announced_then_served_then_ends_watches_cleanly(cluster: Cluster, store: str) -> None:
    admin = issue("admin", cluster.users, groups=("system:masters",))
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    flags = ["--shutdown-delay-duration", "2s", "--shutdown-watch-termination-grace-period", "1s"]
    with Serve(cluster, store, *flags) as server:
        server.ready()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, context=cluster.context(admin), timeout=SECONDS
        )
        connection.request("GET", f"{V1}/deviceclasses?watch=1")
        watch = connection.getresponse()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.ask("/readyz").status == 500, "unreadiness")
        assert "[-]shutdown failed: reason withheld\n" in server.ask("/readyz").text
        assert server.ask(f"{V1}/deviceclasses", admin).status == 200
        assert server.ask("/livez").status == 200
        assert watch.read() == b""  # the terminating chunk: IncompleteRead otherwise
        connection.close()
        assert server.process.wait(SECONDS) == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert all({"ts", "level", "caller", "msg"} <= line.keys() for line in lines)
    assert "hunter2" not in server.log.read_text()


def test_a_second_signal_does_not_wait(cluster: Cluster, store: str) -> None:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    with Serve(cluster, store, "--shutdown-delay-duration", "1h") as server:
        server.ready()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.ask("/readyz").status == 500, "unreadiness")
        assert server.stop() == 0


def test_a_listening_socket_is_taken_over(cluster: Cluster, store: str) -> None:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as sock, Serve(cluster, store, sock=sock) as server:
        server.ready()
        assert server.port == sock.getsockname()[1]


def test_mistakes_are_told_all_at_once_with_exit_code_two() -> None:
    told = sluice("serve", "--secure-port", "x", "--group", "x", "--frobnicate")
    assert told.returncode == 2
    for mistake in (
        "--secure-port",
        "--group",
        "--frobnicate",
        "--tls-cert-file",
        "--tls-private-key-file",
        "--redis-url",
    ):
        assert mistake in told.stderr
    assert "Traceback" not in told.stderr


def test_failures_are_told_in_one_line(tmp_path: pathlib.Path) -> None:
    gone = sluice("store", "info", "--redis-url", f"unix://{tmp_path}/gone")
    assert gone.returncode == 1
    assert gone.stderr.startswith("sluice: ")
    assert len(gone.stderr.splitlines()) == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        busy = sluice("dev", "--data-dir", str(tmp_path / "data"), "--secure-port", port)
    assert busy.returncode == 1
    assert busy.stderr.splitlines()[-1].startswith("sluice: cannot listen: Address already in use (")
