"""The programs of a soak: one Valkey, and two `sluice serve` on sockets that outlive their processes."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence

from bench.client import Target
from tests.faults.pair import GROUP, Authorities
from tests.fixtures import steps
from tests.fixtures.processes import Process, free_port, handed
from tests.fixtures.valkey import Server

READY = '"msg":"ready"'
STOP_SECONDS = 120.0


class Place:
    """One address where a server listens. A successor takes the socket over (docs/restarts.md)."""

    def __init__(self, name: str, authorities: Authorities, url: str, grace_seconds: float) -> None:
        self.name = name
        self.restarts = 0
        self._folder = authorities.folder
        self._socket = socket.create_server(("127.0.0.1", free_port()), backlog=4096)
        port = self._socket.getsockname()[1]
        self.target = Target("127.0.0.1", port, GROUP, authorities.admin())
        self._environ = {"SLUICE_REDIS_URL": url}
        self._command = [sys.executable, "-m", "apiserver", "serve", "--standalone", "--logging-format=json"]
        self._command += ["--bind-address=127.0.0.1", f"--secure-port={port}", *authorities.flags]
        self._command += [
            "--shutdown-delay-duration=0s",
            f"--shutdown-watch-termination-grace-period={grace_seconds:g}s",
        ]
        self._process = self._start()

    @property
    def pid(self) -> int:
        return self._process.popen.pid

    def _start(self) -> Process:
        """Returns when the new process is ready."""
        log = self._folder / f"{self.name}-{self.restarts}.log"
        steps.watch(log)
        process = Process(
            handed(self._socket, self._command), log=log, environ=self._environ, pass_fds=[self._socket.fileno()]
        )
        process.until(lambda: READY in log.read_text(), "readiness")
        return process

    def replace(self) -> None:
        """Hand the socket over to a successor; returns when the old process has ended."""
        old = self._process
        self.restarts += 1
        self._process = self._start()
        code = old.stop(seconds=STOP_SECONDS)
        if code:
            raise RuntimeError(f"{self.name} ended with {code}: {old.tail()}")

    def close(self) -> None:
        self._process.stop()
        self._socket.close()


@contextlib.contextmanager
def store(folder: pathlib.Path) -> Iterator[Server]:
    """A running Valkey, made as an administrator does."""
    server = Server(folder / "v")
    server.start()
    try:
        command = [sys.executable, "-m", "apiserver", "store", "init"]
        environ = {**os.environ, "SLUICE_REDIS_URL": server.url}
        subprocess.run(command, env=environ, check=True, capture_output=True, timeout=STOP_SECONDS)
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def places(folder: pathlib.Path, store: Server, names: Sequence[str], grace_seconds: float) -> Iterator[list[Place]]:
    """Servers on an initialised store, all ready."""
    authorities = Authorities(folder / "servers")
    with contextlib.ExitStack() as stack:
        found = []
        for name in names:
            place = Place(name, authorities, store.url, grace_seconds)
            stack.callback(place.close)
            found.append(place)
        yield found
