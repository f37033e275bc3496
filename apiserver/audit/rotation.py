"""Write and rotate log files. For threads: everything here may wait for a disk.

Upstream: natefinch/lumberjack `lumberjack.go` (v2), kubernetes/apiserver `pkg/server/options/audit.go` (getWriter, ensureLogFile).
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import re
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

logger = logging.getLogger(__name__)

STDOUT = 1
COMPRESSED = ".gz"
COPY_BYTES = 1 << 20
DAY_SECONDS = 24 * 3600
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3})")
_FORMAT = "%Y-%m-%dT%H-%M-%S.%f"


class FileError(Exception):
    """A file could not be written. The text is Go's."""


class Target(Protocol):
    """The destination of lines. Used by one thread."""

    name: str

    def descriptor(self, size: int) -> int:
        """Return the descriptor for a line of `size` bytes. Raises FileError; the next line tries again."""

    def left(self) -> float:
        """Return how many more bytes may be written to that descriptor."""

    def wrote(self, size: int) -> None:
        """Count written bytes."""

    @property
    def fresh(self) -> bool:
        """True only if it is certainly empty."""

    def close(self) -> None:
        """End writing."""


@contextlib.contextmanager
def _in_go_words(doing: str, before: str = "") -> Iterator[None]:
    """Turn an OSError into Go's words: `open /a/b: permission denied`."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{before}{doing}: {reason(error)}") from None


def reason(error: OSError) -> str:
    """Return the operating system's message in Go's spelling."""
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def ensure(path: Path) -> None:
    """Create a missing log file, private to its owner. Raises FileError if it cannot be written."""
    _make_folder(path.parent, 0o700)
    with _in_go_words(f"open {path}"):
        os.close(os.open(path, os.O_CREAT | os.O_APPEND | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _make_folder(folder: Path, mode: int) -> None:
    """Create a folder and its missing parents with the same mode (os.makedirs gives it to the last one only)."""
    with _in_go_words(f"mkdir {folder}"):
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with _in_go_words(f"mkdir {each}"):
            each.mkdir(mode, exist_ok=True)
    if not folder.is_dir():
        raise FileError(f"mkdir {folder}: not a directory")


class Stdout:
    """Standard output, whatever it is."""

    name = "/dev/stdout"

    def descriptor(self, _size: int) -> int:
        return STDOUT

    def left(self) -> float:
        return sys.maxsize

    def wrote(self, size: int) -> None:
        """Count nothing."""

    @property
    def fresh(self) -> bool:
        return False

    def close(self) -> None:
        """Leave it open."""


class Plain:
    """A file that only grows."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._fd: int | None = None

    def descriptor(self, _size: int) -> int:
        if self._fd is None:
            with _in_go_words(f"open {self._path}"):
                self._fd = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        return self._fd

    def left(self) -> float:
        return sys.maxsize

    def wrote(self, size: int) -> None:
        """Count nothing."""

    @property
    def fresh(self) -> bool:
        return False

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """`size`: the most bytes of one file. 0 days and 0 backups are no limit."""

    size: int
    days: int
    backups: int
    compress: bool


class Rotated:
    """A file that is renamed when it is full; the new name holds the time.

    If another program moves the file, writing goes on to the moved file until it is full. Such programs should leave rotation to
    Sluice, or move a copy (logrotate's `copytruncate`; Sluice appends).
    """

    def __init__(self, path: Path, keeping: Keeping, *, now: Callable[[], datetime] = _now) -> None:
        self.name = str(path)
        self._path = path
        self._most = keeping.size
        self._now = now
        self._mill = Mill(path, keeping, now=now)
        self._fd: int | None = None
        self._size = 0

    def descriptor(self, size: int) -> int:
        if size > self._most:
            raise FileError(f"write length {size} exceeds maximum file size {self._most}")
        fd = self._fd
        if fd is None:
            fd = self._open(size)
        elif self._size + size > self._most:
            fd = self._rotate()
        self._fd = fd
        return fd

    def left(self) -> float:
        return self._most - self._size

    def wrote(self, size: int) -> None:
        self._size += size

    @property
    def fresh(self) -> bool:
        return self._size == 0

    def close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)

    def _open(self, size: int) -> int:
        self._mill.run()
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return self._begin()
        except OSError as error:
            raise FileError(f"error getting log file info: stat {self._path}: {reason(error)}") from None
        if found.st_size + size >= self._most:
            return self._rotate()
        try:
            fd = os.open(self._path, os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return self._begin()
        self._size = found.st_size
        return fd

    def _rotate(self) -> int:
        with _in_go_words(f"close {self._path}"):
            self.close()
        fd = self._begin()
        self._mill.run()
        return fd

    def _begin(self) -> int:
        """Begin a new file, with the mode and the owner of the one that it replaces."""
        try:
            _make_folder(self._path.parent, 0o755)
        except FileError as error:
            raise FileError(f"can't make directories for new logfile: {error}") from None
        mode, owner = 0o600, None
        with contextlib.suppress(OSError):
            found = self._path.stat()
            mode, owner = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
        if owner is not None:
            aside = self._aside()
            with _in_go_words(f"rename {self._path} {aside}", "can't rename log file: "):
                self._path.rename(aside)
        with _in_go_words(f"open {self._path}", "can't open new logfile: "):
            fd = os.open(self._path, os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, mode)
        if owner is not None:
            _give(fd, *owner)
        self._size = 0
        return fd

    def _aside(self) -> Path:
        """Return a free name: two files that fill up within a millisecond are both kept."""
        at = self._now()
        while (aside := backup(self._path, at)).exists() or aside.with_name(aside.name + COMPRESSED).exists():
            at += timedelta(milliseconds=1)
        return aside


def _give(fd: int, uid: int, gid: int) -> None:
    with contextlib.suppress(PermissionError):  # usually a caller without this right is the owner
        os.fchown(fd, uid, gid)


def _parts(path: Path) -> tuple[str, str]:
    """Divide a file's name before its last dot, as Go's `filepath.Ext` does."""
    at = path.name.rfind(".")
    return (path.name[:at], path.name[at:]) if at >= 0 else (path.name, "")


def backup(path: Path, at: datetime) -> Path:
    """Return the name of a rotated file: `audit-2006-01-02T15-04-05.000.log` for `audit.log`."""
    begin, end = _parts(path)
    return path.with_name(f"{begin}-{at.astimezone(UTC).strftime(_FORMAT)[:-3]}{end}")


# ---------------------------------------------------------------------------------------------------------------- old files


class _Old(NamedTuple):
    at: float
    """Seconds since the epoch."""
    name: str

    @property
    def whole(self) -> str:
        """The name that it has, or had, uncompressed."""
        return self.name.removesuffix(COMPRESSED)


class Mill:
    """Compresses and removes old files, in a thread that ends when the work is done. Only files with names from a rotation are touched."""

    def __init__(self, path: Path, keeping: Keeping, *, now: Callable[[], datetime] = _now) -> None:
        self._path = path
        self._keeping = keeping
        self._now = now
        self._lock = threading.Lock()
        self._running = self._again = False

    def run(self) -> None:
        """Start the thread, or make the running one check again."""
        with self._lock:
            self._again = True
            if self._running:
                return
            self._running = True
        threading.Thread(target=self._work, name="audit-mill", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._again:
                    self._running = False
                    return
                self._again = False
            try:
                self.once()
            except Exception as error:  # noqa: BLE001 - the next rotation tries again, and a log goes on without
                logger.warning("old audit log files are left as they are", extra={"error": str(error)})

    def once(self) -> None:
        """Do all that is due. Raises the first error after everything else is done."""
        keeping = self._keeping
        if not (keeping.backups or keeping.days or keeping.compress):
            return
        wanted, gone = self._sorted(self._old())
        problems: list[OSError] = []
        for old in gone:
            _try(problems, self._path.with_name(old.name).unlink)
        for old in wanted if keeping.compress else ():
            if old.name == old.whole:
                _try(problems, partial(_compress, self._path.with_name(old.name)))
        if problems:
            raise problems[0]

    def _sorted(self, found: list[_Old]) -> tuple[list[_Old], list[_Old]]:
        """Return the files to keep and the files to remove. `found` is sorted, newest first."""
        keeping, names = self._keeping, set[str]()
        oldest = self._now().timestamp() - keeping.days * DAY_SECONDS if keeping.days else -sys.maxsize
        wanted: list[_Old] = []
        gone: list[_Old] = []
        for old in found:
            names.add(old.whole)
            many = keeping.backups > 0 and len(names) > keeping.backups
            (gone if many or old.at < oldest else wanted).append(old)
        return wanted, gone

    def _old(self) -> list[_Old]:
        begin, end = _parts(self._path)
        named = re.compile(re.escape(f"{begin}-") + _TIME.pattern + re.escape(end) + f"({re.escape(COMPRESSED)})?")
        found = []
        with os.scandir(self._path.parent) as entries:
            for entry in entries:
                match = named.fullmatch(entry.name)
                with contextlib.suppress(ValueError):  # digits that are not a date
                    if match is not None and not entry.is_dir():
                        at = datetime.strptime(match[1], _FORMAT).replace(tzinfo=UTC)
                        found.append(_Old(at.timestamp(), entry.name))
        return sorted(found, key=lambda old: -old.at)


def _try(problems: list[OSError], action: Callable[[], object]) -> None:
    try:
        action()
    except OSError as error:
        problems.append(error)


def _compress(path: Path) -> None:
    """Compress into a file beside it, which replaces it. The remains of an earlier attempt are overwritten."""
    target = path.with_name(path.name + COMPRESSED)
    with path.open("rb") as source:
        found = os.fstat(source.fileno())
        fd = os.open(target, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC, stat.S_IMODE(found.st_mode))
        try:
            with os.fdopen(fd, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed:
                _give(raw.fileno(), found.st_uid, found.st_gid)
                shutil.copyfileobj(source, packed, COPY_BYTES)
        except OSError:
            target.unlink()
            raise
    path.unlink()
