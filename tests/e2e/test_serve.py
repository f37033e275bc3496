"""`sluice serve` and `sluice store` as processes, on a Valkey that somebody else runs."""

from __future__ import annotations

import configparser
import contextlib
import http.client
import json
import os
import pathlib
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Self

import pytest

from apiserver.storage.operations import embedded
from tests.fixtures.authorities import SERVER, Holder, issue
from tests.fixtures.processes import free_port, handed
from tests.fixtures.server import Reply

GROUP = "resource.sluice.dev"
V1 = f"/apis/{GROUP}/v1"
SECONDS = 120.0


def until(happens: Callable[[], bool], what: str) -> None:
    """Polls another process, which cannot be waited for otherwise."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.02)


def until_log(authorities: Authorities, text: str, times: int) -> None:
    until(lambda: authorities.log().count(text) == times, f"{text} for the {times}. time")


def sluice(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "apiserver", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env={**os.environ, **environ}, check=False
    )


@contextlib.contextmanager
def empty_store(folder: pathlib.Path) -> Iterator[str]:
    """The URL of an empty Valkey as an administrator would set it up."""
    path = folder / "valkey.sock"
    words = [
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--dir",
        str(folder),
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
        process.kill()
        process.wait()


@pytest.fixture
def store(tmp_path: pathlib.Path) -> Iterator[str]:
    with empty_store(tmp_path) as url:
        yield url


class Authorities:
    """The certificates of everybody, in files."""

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

    def log(self) -> str:
        return (self.folder / "log").read_text()

    @property
    def flags(self) -> list[str]:
        at = self.folder
        return [
            "--standalone",
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

    def __init__(self, authorities: Authorities, url: str, *flags: str, sock: socket.socket | None = None) -> None:
        self.authorities = authorities
        self.log = authorities.folder / "log"
        if sock is None:
            self.port = free_port()
        else:
            self.port = sock.getsockname()[1]
        words = ["serve", "--bind-address", "127.0.0.1", "--secure-port", str(self.port), "--logging-format", "json"]
        words += [*authorities.flags, *flags]
        environ = {**os.environ, "SLUICE_REDIS_URL": url}
        command = [sys.executable, "-m", "apiserver", *words]
        if sock is not None:
            command = handed(sock, command)
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
            "127.0.0.1", self.port, context=self.authorities.context(holder), timeout=SECONDS
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
        self.process.wait()


@pytest.fixture
def authorities(tmp_path: pathlib.Path) -> Authorities:
    return Authorities(tmp_path / "authorities")


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """One for the tests that leave it as it is."""
    folder = tmp_path_factory.mktemp("serving")
    authorities = Authorities(folder / "authorities")
    with empty_store(folder) as store:
        assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
        with Serve(
            authorities, store, "--shutdown-delay-duration", "0", "--shutdown-watch-termination-grace-period", "0"
        ) as server:
            yield server.ready()


def test_a_store_that_was_never_initialised_is_refused_until_it_is(authorities: Authorities, store: str) -> None:
    admin = issue("admin", authorities.users, groups=("system:masters",))
    with Serve(authorities, store) as server:
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
    assert f"{GROUP}/resourceslices: schema 2, epoch" in sluice("store", "info", SLUICE_REDIS_URL=store).stdout


def test_identity_comes_from_certificates_and_from_the_front_proxy_alone(serving: Serve) -> None:
    authorities = serving.authorities
    path, root = f"{V1}/deviceclasses", {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}
    admin = issue("admin", authorities.users, groups=("system:masters",))
    jane, proxy = issue("jane", authorities.users), issue("front-proxy", authorities.proxies)
    assert serving.ask(path, admin).status == 200
    assert serving.ask(path, proxy, root).status == 200
    for holder, name in (
        (None, "system:anonymous"),
        (jane, "jane"),
        (issue("front-proxy", authorities.users), "front-proxy"),
    ):
        answer = serving.ask(path, holder, root)
        assert answer.status == 403
        assert f'User "{name}" cannot list' in answer.json["message"]
    assert serving.ask(path, proxy, {"X-Remote-User": "joe"}).status == 403
    for holder in (issue("other-proxy", authorities.proxies), proxy):
        answer = serving.ask(path, holder, root if holder is not proxy else {})
        assert (answer.status, answer.json["message"]) == (401, "Unauthorized")
    assert serving.ask(path, None, {"Authorization": "Bearer x"}).status == 401
    assert serving.ask(path, None, {"Authorization": "Bearer x", **root}).status == 401


def test_plain_http_on_the_tls_port_gets_gos_400(serving: Serve) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=SECONDS) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        said = b""
        while part := connection.recv(4096):
            said += part
    assert said == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def test_a_connection_that_is_neither_is_closed_and_counted(serving: Serve) -> None:
    with socket.create_connection(("127.0.0.1", serving.port), timeout=SECONDS) as connection:
        connection.sendall(b"\x00\x01\x02")
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    admin = issue("admin", serving.authorities.users, groups=("system:masters",))
    [line] = [
        x
        for x in serving.ask("/metrics", admin).text.splitlines()
        if x.startswith("apiserver_tls_handshake_errors_total ")
    ]
    assert float(line.split()[1]) >= 1


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_server_offers_only_http_one_and_resumes_no_session(serving: Serve, newest: ssl.TLSVersion) -> None:
    context = serving.authorities.context(None)
    context.set_alpn_protocols(["h2", "http/1.1"])
    context.maximum_version = newest
    session: ssl.SSLSession | None = None
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", serving.port), timeout=SECONDS) as plain,
            context.wrap_socket(plain, session=session) as connection,
        ):
            assert connection.selected_alpn_protocol() == "http/1.1"
            assert not connection.session_reused
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")
            session = connection.session


def test_a_stop_is_announced_then_served_then_ends_watches_cleanly(authorities: Authorities, store: str) -> None:
    admin = issue("admin", authorities.users, groups=("system:masters",))
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    flags = ["--shutdown-delay-duration", "2s", "--shutdown-watch-termination-grace-period", "1s"]
    with Serve(authorities, store, *flags) as server:
        server.ready()
        connection = http.client.HTTPSConnection(
            "127.0.0.1", server.port, context=authorities.context(admin), timeout=SECONDS
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


def test_a_second_signal_does_not_wait(authorities: Authorities, store: str) -> None:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    with Serve(authorities, store, "--shutdown-delay-duration", "1h") as server:
        server.ready()
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.ask("/readyz").status == 500, "unreadiness")
        assert server.stop() == 0


def test_a_listening_socket_is_taken_over(authorities: Authorities, store: str) -> None:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as sock, Serve(authorities, store, sock=sock) as server:
        server.ready()
        assert server.port == sock.getsockname()[1]


def test_service_of_the_systemd_example_restarts_without_a_refused_client(
    authorities: Authorities, store: str, tmp_path: pathlib.Path
) -> None:
    """The test keeps the socket as systemd does. A client that connects between two processes gets its answer from the second one."""
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.read(pathlib.Path(__file__).resolve().parents[2] / "examples" / "systemd" / "sluice.service")
    program, *words = unit["Service"]["ExecStart"].split()
    assert program == "/opt/sluice/bin/sluice"
    for name, file in (("tls.crt", "serving.crt"), ("tls.key", "serving.key"), ("clients.crt", "users.crt")):
        (tmp_path / name).write_bytes((authorities.folder / file).read_bytes())
    command = [sys.executable, "-m", "apiserver", *(word.replace("%d", str(tmp_path)) for word in words)]

    with socket.create_server(("127.0.0.1", 0), backlog=64) as sock:
        port = sock.getsockname()[1]
        started = handed(sock, command)

        def start() -> subprocess.Popen[bytes]:
            environ = {**os.environ, "SLUICE_REDIS_URL": store}
            return subprocess.Popen(started, env=environ, pass_fds=[sock.fileno()], stderr=subprocess.DEVNULL)

        def answer(connection: socket.socket) -> bytes:
            with authorities.context(None).wrap_socket(connection) as secure:
                secure.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                return secure.recv(15)

        first = start()
        try:
            assert answer(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)) == b"HTTP/1.1 200 OK"
        finally:
            first.terminate()
            assert first.wait(SECONDS) == 0
        between = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        second = start()
        try:
            assert answer(between) == b"HTTP/1.1 200 OK"
        finally:
            second.terminate()
            assert second.wait(SECONDS) == 0


class Client:
    """Does one thing over and over until it is stopped, and keeps what went wrong."""

    def __init__(self, server: Serve, holder: Holder) -> None:
        self._server = server
        self._context = server.authorities.context(holder)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.failures: list[str] = []
        self.rounds = 0

    def _run(self) -> None:
        try:
            while not self._done.is_set():
                self._round()
                self.rounds += 1
        except Exception as e:  # noqa: BLE001 - whatever it is, the test is to fail with it
            self.failures.append(repr(e))

    def _round(self) -> None:
        raise NotImplementedError

    def goes_on(self) -> None:
        """Waits until it has done some more, or has failed."""
        rounds = self.rounds + 20
        until(lambda: self.rounds > rounds or bool(self.failures), "more of the same")

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._server.port, context=self._context, timeout=SECONDS)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def finish(self) -> None:
        """After the round that it is in."""
        self._done.set()

    def __exit__(self, *_: object) -> None:
        self.finish()
        self._thread.join()


class Writer(Client):
    """Creates objects, on one connection for as long as the server allows, and never repeats a request."""

    def __init__(self, server: Serve, holder: Holder, prefix: str) -> None:
        super().__init__(server, holder)
        self._prefix = prefix
        self._connection = self._connect()
        self.created: list[str] = []

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._connection.close()

    def _round(self) -> None:
        name = f"{self._prefix}-{self.rounds}"
        body = json.dumps({"metadata": {"name": name}, "spec": {}})
        self._connection.request("POST", f"{V1}/deviceclasses", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        answer.read()
        assert answer.status == 201, f"{answer.status} for {name}"
        self.created.append(name)
        time.sleep(0.005)


class Visitor(Client):
    """Reads, on a new connection each time."""

    def _round(self) -> None:
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", f"{V1}/deviceclasses?resourceVersion=0&limit=1")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status


class Informer(Client):
    """Watches, and resumes where a watch ended, as client-go does: only 429 is waited out, and nothing is listed a second time."""

    def __init__(self, server: Serve, holder: Holder) -> None:
        super().__init__(server, holder)
        with contextlib.closing(self._connect()) as connection:
            connection.request("GET", f"{V1}/deviceclasses")
            self._version = json.loads(connection.getresponse().read())["metadata"]["resourceVersion"]
        self.seen: list[str] = []
        self.refused = 0

    def _round(self) -> None:
        with contextlib.closing(self._connect()) as connection:
            path = f"{V1}/deviceclasses?watch=1&timeoutSeconds=600&resourceVersion={self._version}"
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status == 429:
                self.refused += 1
                assert answer.headers["Retry-After"] == "1"
                self._done.wait(1)
                return
            assert answer.status == 200, answer.status
            while line := answer.readline():  # IncompleteRead without the terminating chunk
                event = json.loads(line)
                assert event["type"] == "ADDED", event
                self._version = event["object"]["metadata"]["resourceVersion"]
                self.seen.append(event["object"]["metadata"]["name"])


@pytest.mark.parametrize("delay", ["0", "1s"])
def test_successor_on_the_same_socket_goes_unnoticed(authorities: Authorities, store: str, delay: str) -> None:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    admin = issue("admin", authorities.users, groups=("system:masters",))
    flags = ["--shutdown-delay-duration", delay, "--shutdown-watch-termination-grace-period", "300ms"]
    with contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096))
        servers = [stack.enter_context(Serve(authorities, store, *flags, sock=sock)).ready()]
        readers = [stack.enter_context(Informer(servers[0], admin)) for _ in range(3)]
        visitors = [stack.enter_context(Visitor(servers[0], admin)) for _ in range(2)]
        writers = [stack.enter_context(Writer(servers[0], admin, f"w{n}")) for n in range(3)]
        clients: list[Client] = [*readers, *visitors, *writers]
        for generation in (2, 3):
            successor = stack.enter_context(Serve(authorities, store, *flags, sock=sock))
            until_log(authorities, '"msg":"ready"', generation)
            assert servers[-1].stop() == 0
            servers.append(successor)
            for client in (*visitors, *writers):
                client.goes_on()
        for client in (*visitors, *writers):
            client.__exit__()
        created = sorted(name for writer in writers for name in writer.created)
        assert [client.failures for client in clients if client.failures] == []
        until(lambda: all(len(reader.seen) >= len(created) for reader in readers), "the last events")
        for reader in readers:
            assert sorted(reader.seen) == created
        for reader in readers:
            reader.finish()
        assert servers[-1].stop() == 0  # ends the watches
        for reader in readers:
            reader.__exit__()
        assert [client.failures for client in clients if client.failures] == []


def test_open_connection_ends_with_its_next_answer_after_a_sigterm(authorities: Authorities, store: str) -> None:
    assert sluice("store", "init", SLUICE_REDIS_URL=store).returncode == 0
    admin = issue("admin", authorities.users, groups=("system:masters",))
    path = f"{V1}/deviceclasses"

    def told(connection: http.client.HTTPSConnection) -> tuple[int, str | None]:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.headers["Connection"]

    def ended(connection: http.client.HTTPSConnection) -> bool:
        """Whether there is something to read: only the end can be."""
        return bool(select.select([connection.sock], [], [], 0)[0])

    with Serve(authorities, store, "--shutdown-delay-duration", "600s") as server, contextlib.ExitStack() as stack:
        server.ready()

        def connect() -> http.client.HTTPSConnection:
            context = authorities.context(admin)
            made = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=SECONDS)
            return stack.enter_context(contextlib.closing(made))

        busy, idle = connect(), connect()
        assert [told(busy), told(busy), told(idle)] == [(200, None)] * 3
        server.process.send_signal(signal.SIGTERM)
        until(lambda: server.ask("/readyz").status == 500, "the stop")
        assert told(busy) == (200, "close")
        later = connect()
        assert [told(later), told(later)] == [(200, None)] * 2
        assert not ended(idle)
        assert server.stop() == 0  # the second signal ends the delay
        assert idle.sock.recv(1) == b""


def test_errors_of_flags_are_reported_at_once_with_exit_code_two() -> None:
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


def test_failures_are_reported_in_one_line(tmp_path: pathlib.Path) -> None:
    gone = sluice("store", "info", "--redis-url", f"unix://{tmp_path}/gone")
    assert gone.returncode == 1
    assert gone.stderr.startswith("sluice: ")
    assert len(gone.stderr.splitlines()) == 1
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{}")
    pair = ["--tls-cert-file", str(kubeconfig), "--tls-private-key-file", str(kubeconfig), "--redis-url", "redis://h"]
    unusable = sluice("serve", "--authentication-kubeconfig", str(kubeconfig), *pair)
    assert unusable.returncode == 2
    pair_told, *told = unusable.stderr.splitlines()
    assert pair_told.startswith(f"sluice: {kubeconfig} and {kubeconfig} are no certificate with its key: ")
    assert told[0] == f"sluice: {kubeconfig} cannot be used: current-context is not set"
    assert [line.startswith("sluice: use ") for line in told[1:]] == [True, True, False]
    assert told[-1] == "sluice: see `sluice serve --help`"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        busy = sluice("dev", "--data-dir", str(tmp_path / "data"), "--secure-port", port)
    assert busy.returncode == 1
    assert busy.stderr.splitlines()[-1].startswith(f"sluice: cannot listen: port {port} of 127.0.0.1 is in use by ")
