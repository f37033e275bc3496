"""The file of a backup, or a pipe instead of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PIPE = "-"
"""Names standard input or output."""


@contextlib.contextmanager
def destination(name: str) -> Iterator[BinaryIO]:
    """Open the file to write. It appears under its name when it is complete, and replaces none. Raises OSError."""
    if name == PIPE:
        if sys.stdout.isatty():
            raise OSError("a terminal cannot hold a backup: redirect standard output")
        # A file of its own: an end of the pipe is then reported here, and not again when the program ends.
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as pipe:
            yield pipe
        return
    path = Path(name)
    if path.exists():
        raise FileExistsError(f"{path} exists already: name another file")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _give_name(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _give_name(partial: Path, path: Path) -> None:
    """Raises FileExistsError for a file that has come meanwhile, which a rename would replace."""
    try:
        os.link(partial, path)
    except FileExistsError:
        raise
    except OSError:  # some file systems of volumes have no links
        if path.exists():
            raise
        partial.rename(path)


@contextlib.contextmanager
def source(name: str) -> Iterator[BinaryIO]:
    """Open a backup to read, from any position. The content of a pipe is kept in the folder of temporary files. Raises OSError."""
    if name == PIPE:
        with tempfile.TemporaryFile() as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
            file.seek(0)
            yield file
        return
    with Path(name).open("rb") as opened:
        yield opened
