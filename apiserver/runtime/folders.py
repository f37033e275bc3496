"""Check a folder whose files only one user may change: its owner, who may write to it, and the free space of its disk.

Keys and a log are read from such a folder as the truth. Somebody else who can put files there can sign certificates and forge objects.
"""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import stat
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOM_BYTES = 4 << 20
"""A disk with less than this is full: an object of the largest size, in the log with its old value, takes 3 MiB."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def distrust(folder: Path, names: Iterable[str]) -> str:
    """Say why the content of a folder cannot be trusted and what to do; "" if it can. `names` are the entries that are used.

    Everything must belong to the user of this process, root included: the folder, the entries, all below them, and the links that lead
    there. Nobody else may write to any of it. A folder that all users share (`/tmp`, with the sticky bit) may belong to root, because
    only its owner can replace the files of another user in it.
    """
    entries = [folder / name for name in names]
    try:
        return next(filter(None, _faults(folder, [path for path in entries if os.path.lexists(path)])), "")
    except OSError as error:
        return f"{error.filename} cannot be read: {error.strerror}"


def _faults(folder: Path, entries: list[Path]) -> Iterator[str]:
    """Each is "" or what is wrong."""
    if not folder.exists():
        return
    yield _foreign(folder, folder.lstat()) if folder.is_symlink() else ""
    there = folder.stat()
    shared = bool(there.st_mode & stat.S_ISVTX)
    if not (shared and there.st_uid == 0):
        yield _foreign(folder, there)
    if not shared:
        yield _writable(folder, there) if entries else ""  # an empty one is about to be made private
    for path in entries:
        yield from _faults_of(path)
        for parent, folders, files in os.walk(path):
            for name in folders + files:
                yield from _faults_of(Path(parent, name))


def _faults_of(path: Path) -> Iterator[str]:
    """Yield the faults of an entry, and of its target if it is a link."""
    try:
        found = path.lstat()
        yield _foreign(path, found)
        if stat.S_ISLNK(found.st_mode):
            found = path.stat()
            yield _foreign(path, found)
    except FileNotFoundError:  # a link to nothing, or a process ends and removes its files
        return
    yield _writable(path, found)


def _foreign(path: Path, found: os.stat_result) -> str:
    me, owner = os.geteuid(), found.st_uid
    if owner == me:
        return ""
    said = f"{path} belongs to {_user(owner)}, and this process runs as {_user(me)}"
    if owner == 0:
        # Root can do anything already, so its files are as trustworthy as this user's own.
        return f"{said}: take it over with `sudo chown -R {me} {quoted(path)}`, or choose another folder with --data-dir DIR"
    return f"{said}: run this as {_user(owner)}, or choose another folder with --data-dir DIR"


def _writable(path: Path, found: os.stat_result) -> str:
    if not found.st_mode & _OTHERS_WRITE or stat.S_ISSOCK(found.st_mode):
        return ""
    return (
        f"other users may write to {path} (mode {stat.S_IMODE(found.st_mode):04o}): if you trust what is in it, "
        f"run `chmod -R go-w {quoted(path)}`, else choose another folder with --data-dir DIR"
    )


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def quoted(path: Path) -> str:
    """A path as a shell reads it."""
    return shlex.quote(str(path))


def why_full(folder: Path) -> str:
    """Say that a folder's disk or quota is full, and what to do; "" if it is not. Writes `ROOM_BYTES` for a moment."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            left = memoryview(bytes(ROOM_BYTES))
            while left:
                left = left[probe.write(left) :]
    except OSError as error:
        if error.errno in FULL:
            return full(folder)
    return ""


def full(folder: Path) -> str:
    """The message about a full disk."""
    return (
        f"the disk of {folder} is full: free at least {ROOM_BYTES >> 20} MiB there (`df -h {quoted(folder)}` shows its state), "
        "or choose a folder on another disk"
    )
