"""Files of a log, and what becomes of old ones: names, modes, numbers and ages as log collectors know them."""

from __future__ import annotations

import gzip
import os
import re
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from apiserver.audit.rotation import FileError, Keeping, Mill, Plain, Rotated, Stdout, Target, backup, ensure

NOON = datetime(2026, 11, 26, 12, 0, 0, 250_000, UTC)


def keeping(size: int = 100, *, days: int = 0, backups: int = 0, compress: bool = False) -> Keeping:
    return Keeping(size=size, days=days, backups=backups, compress=compress)


def write(target: Target, text: bytes) -> None:
    os.write(target.descriptor(len(text)), text)
    target.wrote(len(text))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def aged(path: Path, days: float) -> Path:
    old = backup(path, NOON - timedelta(days=days))
    old.write_text(f"{days} days old\n")
    return old


def test_a_log_file_and_its_folders_are_made_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "var" / "log" / "audit.log"
    ensure(path)
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o600, 0o700, 0o700)


def test_a_log_file_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("before\n")
    path.chmod(0o644)
    ensure(path)
    assert (path.read_text(), mode(path)) == ("before\n", 0o644)


def test_path_that_cannot_be_a_log_file_gets_gos_message(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=re.escape(f"open {tmp_path}: is a directory")):
        ensure(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match=r"file/sub: not a directory$"):
        ensure(tmp_path / "file" / "sub" / "audit.log")


def test_a_full_file_is_put_aside_under_the_time_and_a_new_one_begun(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.touch(0o640)
    log = Rotated(path, keeping(100), now=lambda: NOON)
    for line in (b"a" * 60, b"b" * 30, b"c" * 20):
        write(log, line)
    log.close()
    assert names(tmp_path) == ["audit-2026-11-26T12-00-00.250.log", "audit.log"]
    assert (tmp_path / "audit-2026-11-26T12-00-00.250.log").read_bytes() == b"a" * 60 + b"b" * 30
    assert path.read_bytes() == b"c" * 20
    assert mode(path) == 0o640


@pytest.mark.parametrize(
    ("name", "aside"),
    [
        ("audit.log", "audit-2026-11-26T12-00-00.250.log"),
        ("audit", "audit-2026-11-26T12-00-00.250"),
        ("kube.audit.json", "kube.audit-2026-11-26T12-00-00.250.json"),
        (".audit", "-2026-11-26T12-00-00.250.audit"),
    ],
)
def test_the_time_stands_before_the_last_dot(name: str, aside: str) -> None:
    assert backup(Path("/x", name), NOON) == Path("/x", aside)


def test_log_file_is_continued_after_a_restart_within_its_size(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for _ in range(2):
        log = Rotated(path, keeping(100), now=lambda: NOON)
        write(log, b"x" * 40)
        log.close()
    assert names(tmp_path) == ["audit.log"]
    log = Rotated(path, keeping(100), now=lambda: NOON)
    write(log, b"x" * 20)  # upstream begins a new one when the first line would fill it to the last byte
    log.close()
    assert path.stat().st_size == 20
    assert len(names(tmp_path)) == 2


def test_a_line_longer_than_a_file_may_be_is_refused_in_upstreams_words(tmp_path: Path) -> None:
    log = Rotated(tmp_path / "audit.log", keeping(100))
    with pytest.raises(FileError, match=r"^write length 101 exceeds maximum file size 100$"):
        log.descriptor(101)
    write(log, b"x" * 100)
    log.close()


def test_files_that_are_full_within_one_millisecond_are_all_kept(tmp_path: Path) -> None:
    log = Rotated(tmp_path / "audit.log", keeping(10), now=lambda: NOON)
    for letter in b"abcd":
        write(log, bytes([letter]) * 10)
    log.close()
    assert len(names(tmp_path)) == 4
    assert sorted(path.read_bytes()[:1] for path in tmp_path.iterdir()) == [b"a", b"b", b"c", b"d"]


def test_log_file_that_was_moved_is_written_within_its_size(tmp_path: Path) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "elsewhere"
    log = Rotated(path, keeping(100))
    write(log, b"a" * 50)
    path.rename(moved)
    write(log, b"b" * 50)
    assert moved.read_bytes() == b"a" * 50 + b"b" * 50
    write(log, b"c" * 50)
    log.close()
    assert path.read_bytes() == b"c" * 50
    assert names(tmp_path) == ["audit.log", "elsewhere"]


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "log" / "audit.log"
    ensure(path)
    log = Rotated(path, keeping(100))
    path.unlink()
    path.parent.rmdir()
    write(log, b"a" * 50)
    log.close()
    assert path.read_bytes() == b"a" * 50


def test_log_without_a_size_grows_and_is_recreated_only_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = Plain(path)
    write(log, b"a")
    assert mode(path) == 0o600
    path.rename(tmp_path / "moved")
    write(log, b"b")
    log.close()
    assert (tmp_path / "moved").read_bytes() == b"ab"
    assert log.left() > 1 << 60 < Stdout().left()


def test_only_so_many_old_files_are_kept_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    old = [aged(path, days) for days in (1, 2, 3, 4)]
    Mill(path, keeping(backups=2), now=lambda: NOON).once()
    assert [each.exists() for each in old] == [True, True, False, False]


def test_a_compressed_file_and_what_it_was_made_of_count_as_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    newest, second = aged(path, 1), aged(path, 2)
    halfway = newest.with_name(newest.name + ".gz")
    halfway.touch()
    Mill(path, keeping(backups=2), now=lambda: NOON).once()
    assert newest.exists()
    assert halfway.exists()
    assert second.exists()


def test_files_older_than_so_many_days_go(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    young, old = aged(path, 6.9), aged(path, 7.1)
    Mill(path, keeping(days=7), now=lambda: NOON).once()
    assert (young.exists(), old.exists()) == (True, False)


def test_old_files_are_compressed_with_their_mode(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    old = aged(path, 1)
    old.chmod(0o640)
    packed = old.with_name(old.name + ".gz")
    packed.write_bytes(b"what a process left that ended meanwhile, which is longer than what it will be")
    Mill(path, keeping(compress=True), now=lambda: NOON).once()
    assert not old.exists()
    assert gzip.decompress(packed.read_bytes()) == b"1 days old\n"
    Mill(path, keeping(compress=True), now=lambda: NOON).once()
    assert names(tmp_path) == [packed.name]


def test_a_file_that_is_compressed_anew_has_the_mode_of_what_it_is_made_of(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    old = aged(path, 1)
    old.chmod(0o600)
    Mill(path, keeping(compress=True), now=lambda: NOON).once()
    assert mode(old.with_name(old.name + ".gz")) == 0o600


def test_files_not_named_by_a_rotation_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    others = (
        "audit.log", "audit-2026.log", "audit-2020-13-01T00-00-00.000.log", "other-2020-01-01T00-00-00.000.log",
        "audit-2020-01-01T00-00-00.000.txt", "audit-2020-01-01T00-00-00.000.log.bz2", "audit-2020-01-01T00-00-00.00.log",
    )  # fmt: skip
    for other in others:
        (tmp_path / other).touch()
    (tmp_path / "audit-2020-01-01T00-00-00.000.log").mkdir()
    Mill(path, keeping(days=1, backups=1, compress=True), now=lambda: NOON).once()
    assert names(tmp_path) == sorted((*others, "audit-2020-01-01T00-00-00.000.log"))


def test_one_old_file_that_cannot_be_compressed_keeps_no_other_from_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    bad, good = aged(path, 1), aged(path, 2)
    bad.with_name(bad.name + ".gz").mkdir()
    with pytest.raises(IsADirectoryError):
        Mill(path, keeping(compress=True), now=lambda: NOON).once()
    assert bad.exists()
    assert not good.exists()
