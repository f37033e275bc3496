"""Find the process that listens on a port of this machine, as far as /proc shows it."""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
LISTEN = "0A"
"""The state of a listening socket in /proc/net/tcp (torvalds/linux `include/net/tcp_states.h`)."""


def holder(port: int, *, proc: Path = PROC) -> str:
    """Name the process that listens on a TCP port, as `nginx (pid 12)`; its user if the process is hidden; "" if nothing is known."""
    sockets = dict(_listening(port, proc))
    if not sockets:
        return ""
    for process in proc.glob("[0-9]*"):
        if sockets.keys() & set(_sockets(process)):
            with contextlib.suppress(OSError):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    users = sorted({_user(uid) for uid in sockets.values()})
    return f"a process of user {' or '.join(users)}"


def _listening(port: int, proc: Path) -> Iterator[tuple[str, int]]:
    """Yield the inodes of the listening sockets, with the uid of each."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    yield words[9], int(words[7])


def _sockets(process: Path) -> Iterator[str]:
    """Yield the inodes of a process's sockets; nothing for a process that hides them."""
    with contextlib.suppress(OSError):
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, inode = str(descriptor.readlink()).partition(":")
                if kind == "socket":
                    yield inode.strip("[]")


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
