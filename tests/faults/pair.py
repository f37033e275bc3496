"""Two `sluice serve` on one Valkey, each on a port of its own that it keeps when it starts again, and those who may ask them."""

from __future__ import annotations

import contextlib
import http.client
import pathlib
import signal
import ssl
import sys
import tempfile
from collections.abc import Iterator, Sequence

from tests.fixtures import steps
from tests.fixtures.authorities import SERVER, Holder, issue
from tests.fixtures.processes import Process, free_port
from tests.fixtures.valkey import Addressed

GROUP = "resource.sluice.dev"
AS_ADMIN = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
"""Headers of the front proxy that name the user."""


class Authorities:
    """Certificate authorities and their files."""

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir()
        self.folder = folder
        users, proxies, self._servers = (issue(name, ca=True) for name in ("users", "proxies", "servers"))
        serving = issue("server", self._servers, usages=(SERVER,))
        self._admin, self._proxy = issue("admin", users, groups=("system:masters",)), issue("front-proxy", proxies)
        for name, content in (
            ("users.crt", users.pem),
            ("proxies.crt", proxies.pem),
            ("serving.crt", serving.pem),
            ("serving.key", serving.key_pem),
        ):
            (folder / name).write_bytes(content)

    @property
    def flags(self) -> list[str]:
        at = self.folder
        files = {"tls-cert-file": "serving.crt", "tls-private-key-file": "serving.key", "client-ca-file": "users.crt"}
        flags = [f"--{flag}={at / name}" for flag, name in files.items()]
        return [*flags, f"--requestheader-client-ca-file={at}/proxies.crt"]

    def admin(self) -> ssl.SSLContext:
        """TLS settings of who may do everything."""
        return self._context(self._admin)

    def proxy(self) -> ssl.SSLContext:
        """TLS settings of an aggregator."""
        return self._context(self._proxy)

    def _context(self, holder: Holder) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self._servers.pem.decode())
        context.check_hostname = False
        with tempfile.NamedTemporaryFile() as pair:
            pair.write(holder.pem + holder.key_pem)
            pair.flush()
            context.load_cert_chain(pair.name)
        return context


class Replica:
    """One of them."""

    def __init__(
        self,
        name: str,
        authorities: Authorities,
        url: str,
        flags: Sequence[str],
        *,
        code: pathlib.Path | None = None,
    ) -> None:
        """`code`: the folder of another copy of the package `apiserver`."""
        self.name = name
        self.port = free_port()
        self.log = authorities.folder / f"{name}.log"
        self._context = authorities.admin()
        self._environ = {"SLUICE_REDIS_URL": url}
        if code is not None:
            self._environ |= {"PYTHONPATH": str(code), "PYTHONSAFEPATH": "1"}
        self._command = [sys.executable, "-m", "apiserver", "serve", "--standalone", "--logging-format=json"]
        self._command += ["--bind-address=127.0.0.1", f"--secure-port={self.port}", *authorities.flags, *flags]
        self._process: Process | None = None
        steps.watch(self.log)

    def start(self) -> None:
        """Returns when it is ready."""
        self.launch()
        self.until_ready()

    def launch(self) -> None:
        """Returns at once."""
        self._process = Process(self._command, log=self.log, environ=self._environ)

    def until_ready(self) -> None:
        assert self._process is not None
        self._process.until(self._ready, "readiness")

    @property
    def pid(self) -> int | None:
        """Its process, unless that has ended."""
        return self._process.popen.pid if self._process is not None and self._process.alive else None

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send(number)

    def _ready(self) -> bool:
        return self._status("/readyz") == 200

    def follows(self) -> bool:
        """Whether it has a session with each primary of the store, and all objects in memory."""
        return self._status("/readyz/store") == 200

    def answers(self) -> bool:
        """Whether it answers requests, which it does before it is ready."""
        return self._status("/livez") > 0

    def _status(self, path: str) -> int:
        """Return the status of an answer; 0 if none comes."""
        with contextlib.suppress(OSError), contextlib.closing(self._connection()) as connection:
            connection.request("GET", path)
            return connection.getresponse().status
        return 0

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self._context, timeout=60)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        return self._process.stop(number)


@contextlib.contextmanager
def pair(
    folder: pathlib.Path, store: Addressed, flags: Sequence[Sequence[str]]
) -> Iterator[tuple[Authorities, list[Replica]]]:
    """Both are ready, each with flags of its own. The store has to be installed."""
    authorities = Authorities(folder / "pair")
    quick = ["--shutdown-delay-duration=200ms", "--shutdown-watch-termination-grace-period=1s"]
    named = zip(("first", "second"), flags, strict=True)
    replicas = [Replica(name, authorities, store.url, [*quick, *more]) for name, more in named]
    try:
        for replica in replicas:
            replica.start()
        yield authorities, replicas
    finally:
        for replica in replicas:
            with contextlib.suppress(AssertionError):
                replica.stop(signal.SIGKILL)
