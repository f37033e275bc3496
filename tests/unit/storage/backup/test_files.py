"""A file has its name only when it is complete, and replaces no other; a pipe is read from any position."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from apiserver.storage.backup.files import destination, source


def names(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


def test_file_appears_complete_and_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "b"
    with destination(str(file)) as out:
        out.write(b"text")
        assert not file.exists()
    assert file.read_bytes() == b"text"
    assert file.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["b"]


def test_failed_backup_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the test"), destination(str(tmp_path / "b")):
        raise ValueError("the test")
    assert names(tmp_path) == []


def write_while_another_comes(file: Path) -> None:
    with destination(str(file)) as out:
        out.write(b"new")
        file.write_bytes(b"came meanwhile")


def test_existing_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "b"
    file.write_bytes(b"old")
    with pytest.raises(FileExistsError, match="name another file"), destination(str(file)):
        pass
    file.unlink()
    with pytest.raises(FileExistsError):
        write_while_another_comes(file)
    assert file.read_bytes() == b"came meanwhile"
    assert names(tmp_path) == ["b"]


def test_file_system_without_links_gets_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with destination(str(tmp_path / "b")) as out:
        out.write(b"text")
    assert (tmp_path / "b").read_bytes() == b"text"
    assert names(tmp_path) == ["b"]


def test_pipe_is_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text")))
    with source("-") as file:
        assert file.read() == b"text"
        file.seek(0)
        assert file.read() == b"text"


def test_pipe_that_ends_early_is_one_error() -> None:
    program = (
        "from apiserver.storage.backup.files import destination\n"
        "try:\n"
        "    with destination('-') as out:\n"
        "        out.write(bytes(1 << 20))\n"
        "except BrokenPipeError:\n"
        "    raise SystemExit(7)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 7
