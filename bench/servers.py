"""The measured servers: a `sluice dev` that can be started again on its folder, and a kube-apiserver with etcd."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import accounting, client
from bench.workloads import Bench
from tests.e2e.controlplane.bed import DRA_GROUP, Bed
from tests.e2e.controlplane.plane import ControlPlane

STOP_SECONDS = 60.0
IDLE_SECONDS, MOST_IDLE_SECONDS = 0.3, 10.0
IDLE_SHARE = 0.02


class Sluice:
    """A server on a folder of its own. `bench` is what measures it, across restarts."""

    def __init__(self, data: Path, group: str, flags: Sequence[str] = ()) -> None:
        self.data = data
        self._group = group
        self._log = data.parent / f"{data.name}.log"
        self._command = [
            sys.executable,
            "-m",
            "apiserver",
            "dev",
            "--data-dir",
            str(data),
            "--secure-port",
            "0",
            "--no-samples",
        ]
        self._command += flags
        self._process: subprocess.Popen[str] | None = None
        self.start_seconds = 0.0
        self.start()
        self.bench = Bench(self._target(), {"sluice": self._pids()}, restart=self.restart)

    def _target(self) -> client.Target:
        return client.Target.of(self.data / "kubeconfig", self._group)

    def start(self) -> None:
        began = time.perf_counter()
        with self._log.open("a") as log:
            process = self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("ready:"):
                break
        else:
            raise RuntimeError(f"the server ended with {process.wait()}: {self._log.read_text()[-2000:]}")
        self.start_seconds = time.perf_counter() - began

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(STOP_SECONDS)
            self._process = None

    def restart(self) -> None:
        """On the same folder; returns when the server has nothing left to do."""
        self.stop()
        self.start()
        self.bench.target, self.bench.processes = self._target(), {"sluice": self._pids()}
        rest(self.bench.pids)

    def _pids(self) -> list[int]:
        """The server and its Valkey, which may have been started as a process of its own."""
        assert self._process is not None
        found = set(accounting.children(self._process.pid))
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and _works_in(entry, self.data):
                found.add(int(entry.name))
        return sorted(found)


def rest(pids: list[int]) -> None:
    """Waits until the processes take next to no CPU."""
    end = time.perf_counter() + MOST_IDLE_SECONDS
    while time.perf_counter() < end:
        before = accounting.cpu_seconds(pids)
        time.sleep(IDLE_SECONDS)
        if accounting.cpu_seconds(pids) - before < IDLE_SHARE * IDLE_SECONDS:
            return


def _works_in(entry: Path, data: Path) -> bool:
    try:
        return b"valkey-server" in (entry / "cmdline").read_bytes() and data in (entry / "cwd").readlink().parents
    except OSError:
        return False


@contextlib.contextmanager
def sluice(data: Path, group: str, flags: Sequence[str] = ()) -> Iterator[Sluice]:
    server = Sluice(data, group, flags)
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def upstream(folder: Path) -> Iterator[Bench]:
    """kube-apiserver, with a store as durable as ours."""
    with ControlPlane(folder, durable=True) as plane:
        yield Bench(client.Target.of(plane.admin, DRA_GROUP), plane_processes(plane))


def plane_processes(plane: ControlPlane) -> accounting.Processes:
    return {name: [process.popen.pid] for name, process in plane.processes.items()}


def bed_processes(bed: Bed) -> accounting.Processes:
    """Return the processes of a control plane with Sluice behind it."""
    [replica] = bed.replicas
    assert replica.process is not None
    assert bed.store.process is not None
    sluice = accounting.children(replica.process.popen.pid)
    return {**plane_processes(bed.plane), "sluice": sluice, "valkey": [bed.store.process.pid]}
