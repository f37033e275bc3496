"""Namespaces in which a node changes nothing of the machine, and from which nothing is left behind.

Their resources have fixed names, so that the next run finds those that a killed one left: one folder of state, one parent in each hierarchy
of control groups, one pair of network interfaces. The kernel kills all processes in them with their first process, and that one with
its parent.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from tests.e2e.controlplane.plane import SERVICES
from tests.e2e.node.programs import program
from tests.fixtures.processes import Died, Process, start

NUMBER = int(os.environ.get("SLUICE_NODE_NUMBER") or 0)
"""The number of this process's node on the machine. Each has names and addresses of its own."""
NAME = f"sluice-n{NUMBER}" if NUMBER else "sluice-node"
STATE = pathlib.Path("/var/tmp", NAME)
"""On a disk, not in memory, and on no overlay: images are unpacked in it."""
KUBELET = pathlib.Path("/var/lib/kubelet")
"""The kubelet's folder on the node, a part of `STATE`."""
LOCK = pathlib.Path("/run/lock", f"{NAME}.lock")
CGROUPS = pathlib.Path("/sys/fs/cgroup")
HOST, NODE, PREFIX = f"198.18.77.{4 * NUMBER + 1}", f"198.18.77.{4 * NUMBER + 2}", 30
"""The two ends of the only wire between the machine and the node (addresses for tests of networks, RFC 2544)."""
INTERFACE = NAME
SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Settings that the kubelet changes for the whole machine."""
GONE_SECONDS = 30.0
BOOT = pathlib.Path(__file__).with_name("boot.sh")


class Busy(Exception):
    """Another one runs on this machine under the same names."""


@contextlib.contextmanager
def alone(*, wait: float = 0.0) -> Iterator[None]:
    """Two of one number would have the same names and addresses. The kernel drops the lock with its holder."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+") as handle:
        end, told = time.monotonic() + wait, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                handle.seek(0)
                busy = Busy(f"another node runs on this machine ({handle.read().strip()}); only one can at a time")
                if time.monotonic() > end:
                    raise busy from None
                if not told:
                    sys.stderr.write(f"node: {busy}; waiting for its end\n")
                    told = True
                time.sleep(0.2)
        handle.truncate(0)
        handle.write(f"process {os.getpid()}, {pathlib.Path.cwd()}\n")
        handle.flush()
        yield


class Namespaces:
    """Network, mounts, processes, IPC and host name of a node."""

    def __init__(self, folder: pathlib.Path) -> None:
        """`folder` is for logs, and for what programs inside read."""
        self.folder = folder
        self._unshare: subprocess.Popen[bytes] | None = None
        self._first = 0
        self._daemons: list[Daemon] = []
        self._sysctls = sysctls()

    def __enter__(self) -> Namespaces:
        clean()
        try:
            STATE.mkdir(mode=0o711)
            make_cgroups()
            self._boot()
            self._wire()
        except BaseException:
            self.__exit__()
            raise
        return self

    def kill(self) -> None:
        """Ends everything that has entered all of them."""
        if self._unshare is not None:
            self._unshare.kill()
            self._unshare.wait()
        for daemon in self._daemons:
            daemon.process.popen.wait(GONE_SECONDS)

    def __exit__(self, *_: object) -> None:
        self.kill()
        clean()
        changed = {name: value for name, value in sysctls().items() if value != self._sysctls[name]}
        assert not changed, f"settings of this machine have changed: {changed}, were {self._sysctls}"

    def _boot(self) -> None:
        command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--mount-proc"]
        command += ["--propagation", "private", str(BOOT), str(STATE), str(self.folder), str(program("pause"))]
        command += SYSCTLS
        log = self.folder / "boot.log"
        with log.open("ab") as output:
            self._unshare = start(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        booted = STATE / "booted"
        while not booted.exists():
            if self._unshare.poll() is not None:
                raise Died(f"the namespaces could not be made: {log.read_text()}")
            time.sleep(0.01)
        pid = self._unshare.pid
        self._first = int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text())

    def _wire(self) -> None:
        ip("link", "add", INTERFACE, "type", "veth", "peer", "name", "eth0", "netns", str(self._first))
        ip("address", "add", f"{HOST}/{PREFIX}", "dev", INTERFACE)
        ip("link", "set", INTERFACE, "up")
        for words in (
            ["address", "add", f"{NODE}/{PREFIX}", "dev", "eth0"],
            ["link", "set", "lo", "up"],
            ["link", "set", "eth0", "up"],
            # Addresses of Services are translated only after a route was found. Nothing else has one: the node reaches the machine alone.
            ["route", "add", SERVICES, "dev", "eth0"],
        ):
            self.run("ip", *words)

    # Processes in the namespaces

    @property
    def network(self) -> list[str]:
        """Puts a command into the network alone; the command replaces this one, so signals reach it."""
        return ["nsenter", f"--net=/proc/{self._first}/ns/net", "--"]

    @property
    def inside(self) -> list[str]:
        """Puts a command into all of it."""
        return ["nsenter", f"--target={self._first}", "--net", "--mount", "--pid", "--ipc", "--uts", "--"]

    def run(
        self, *words: str | pathlib.Path, stdin: str = "", check: bool = True, seconds: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Waits for a command inside; with `check`, an AssertionError shows why it failed."""
        command = [*self.inside, *map(str, words)]
        done = subprocess.run(command, input=stdin, text=True, capture_output=True, check=False, timeout=seconds)
        if check and done.returncode != 0:
            raise AssertionError(f"{words} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    def daemon(self, name: str, command: Sequence[str | pathlib.Path]) -> Daemon:
        daemon = Daemon(self, name, command)
        self._daemons.append(daemon)
        return daemon


class Daemon:
    """A program that goes on inside. Only a process inside can name it to the kernel, so it leaves its number there."""

    def __init__(self, namespaces: Namespaces, name: str, command: Sequence[str | pathlib.Path]) -> None:
        self._namespaces = namespaces
        self.name = name
        self._number = f"/run/{name}.pid"
        note = ["sh", "-c", f'echo $$ >{self._number}; exec "$@"', "sh"]
        self.process = Process([*namespaces.inside, *note, *command], log=namespaces.folder / f"{name}.log")

    def until(self, happens: Callable[[], object], what: str) -> None:
        self.process.until(happens, what)

    def stop(self, signal: str = "TERM") -> None:
        """Returns when it has gone."""
        self._namespaces.run("sh", "-c", f"kill -{signal} $(cat {self._number})")
        self.process.popen.wait(GONE_SECONDS)


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def sysctls() -> dict[str, str]:
    return {name: pathlib.Path("/proc/sys", name).read_text().strip() for name in SYSCTLS}


# Control groups


def unified() -> bool:
    """Whether the machine has the one hierarchy of version 2. One beside those of version 1 has no controllers."""
    return (CGROUPS / "cgroup.controllers").exists()


def make_cgroups() -> None:
    """The parent of all pods in each hierarchy."""
    if unified():
        controllers = (CGROUPS / "cgroup.controllers").read_text().split()
        wanted = " ".join(f"+{name}" for name in controllers)
        (CGROUPS / "cgroup.subtree_control").write_text(wanted)
        (CGROUPS / NAME).mkdir(exist_ok=True)
        (CGROUPS / NAME / "cgroup.subtree_control").write_text(wanted)
        return
    for hierarchy in CGROUPS.iterdir():
        if hierarchy.is_dir() and not hierarchy.is_symlink():
            (hierarchy / NAME).mkdir(exist_ok=True)
    # A new group may use no processor and no memory at all before this is filled in.
    for file in ("cpuset.cpus", "cpuset.mems"):
        source = CGROUPS / "cpuset" / file
        if source.exists():
            (CGROUPS / "cpuset" / NAME / file).write_text(source.read_text())


def cgroups() -> list[pathlib.Path]:
    """Ours, children before their parents."""
    parents = [CGROUPS / NAME, *(hierarchy / NAME for hierarchy in CGROUPS.iterdir() if hierarchy.is_dir())]
    return [pathlib.Path(folder) for parent in parents for folder, _, _ in os.walk(parent, topdown=False, onerror=None)]


# Cleaning up


def clean() -> None:
    """Remove the remains of a node; the caller is `alone`. The processes of a killed node have ended or end soon."""
    _until_gone(_no_process_is_left, "processes of an earlier node")
    subprocess.run(["ip", "link", "delete", INTERFACE], capture_output=True, check=False)
    _until_gone(_no_cgroup_is_left, "control groups of an earlier node")
    for mount in _mounts():
        subprocess.run(["umount", "--lazy", mount], check=True)
    if STATE.exists():
        _until_gone(_no_state_is_left, f"{STATE}")


def _until_gone(gone: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + GONE_SECONDS
    while not gone():
        if time.monotonic() > end:
            raise AssertionError(f"cannot remove {what}")
        time.sleep(0.02)


def _no_process_is_left() -> bool:
    """Whether no process is in our control groups or holds the namespaces."""
    left = [int(pid) for cgroup in cgroups() for pid in _read(cgroup / "cgroup.procs").split()]
    left += [int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and _holds(entry)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)
    return not left


def _holds(process: pathlib.Path) -> bool:
    """Only `unshare`: all others go with it."""
    words = _read_bytes(process / "cmdline").split(b"\0")
    return words[0] == b"unshare" and {str(BOOT).encode(), str(STATE).encode()} <= set(words)


def _no_cgroup_is_left() -> bool:
    for cgroup in cgroups():
        with contextlib.suppress(OSError):
            cgroup.rmdir()
    return not cgroups()


def _mounts() -> list[str]:
    """Mounts in the machine's own namespace, where none should be."""
    points = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
    return sorted((point for point in points if pathlib.Path(point).is_relative_to(STATE)), reverse=True)


def _no_state_is_left() -> bool:
    shutil.rmtree(STATE, ignore_errors=True)
    return not STATE.exists()


def _read(file: pathlib.Path) -> str:
    return _read_bytes(file).decode()


def _read_bytes(file: pathlib.Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
