"""Owners and permissions of folders, and free space of their disks."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from apiserver.runtime import folders
from tests.fixtures.disks import small_disk

NAMES = ("store", "certs", "kubeconfig")
NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As `sluice dev` leaves it."""
    data = tmp_path / "data"
    for path in (data, data / "store", data / "certs", data / "store" / "appendonlydir"):
        path.mkdir(mode=0o700)
    for path in (data / "kubeconfig", data / "certs" / "ca.key", data / "store" / "appendonlydir" / "log"):
        path.touch(mode=0o600)
    return data


def distrust(folder: Path) -> str:
    return folders.distrust(folder, NAMES)


def test_a_folder_of_this_user_alone_is_trusted(folder: Path, tmp_path: Path) -> None:
    assert distrust(folder) == ""
    assert distrust(tmp_path / "missing") == ""


@needs_root
@pytest.mark.parametrize(
    "foreign", ["", "store", "certs", "kubeconfig", "certs/ca.key", "store/appendonlydir", "store/appendonlydir/log"]
)
def test_a_part_of_another_user_is_distrusted_also_by_root(folder: Path, foreign: str) -> None:
    os.chown(folder / foreign, NOBODY, -1)

    said = distrust(folder)

    assert said.startswith(f"{folder / foreign} belongs to ")
    assert f"(uid {NOBODY}), and this process runs as " in said
    assert "choose another folder with --data-dir DIR" in said
    assert "chown" not in said  # it would make the other user's files trusted


def test_a_folder_of_root_may_be_taken_over_by_the_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `sudo make run`."""
    if folder.stat().st_uid != 0:
        pytest.skip("makes files of root")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert f"take it over with `sudo chown -R 1234 {shlex.quote(str(folder))}`" in distrust(folder)


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o722])
@pytest.mark.parametrize("place", ["", "store", "certs", "certs/ca.key"])
def test_folder_that_others_may_write_to_is_distrusted(folder: Path, place: str, mode: int) -> None:
    (folder / place).chmod(mode)

    said = distrust(folder)

    assert said.startswith(f"other users may write to {folder / place} (mode {mode:04o}): ")
    assert f"`chmod -R go-w {shlex.quote(str(folder / place))}`" in said


def test_a_folder_that_others_may_read_is_trusted(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    assert distrust(folder) == ""


def test_a_writable_folder_without_anything_of_ours_is_trusted(tmp_path: Path) -> None:
    """`mkdir data` with the umask 002. It is made private before anything is put there."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o775)
    assert distrust(tmp_path / "data") == ""


@needs_root
def test_a_shared_folder_of_root_is_trusted_while_its_entries_are_ours(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /tmp: nobody else can replace them there, but the owner of the folder can."""
    for path in folder.rglob("*"):
        os.chown(path, 1234, -1)
    folder.chmod(0o1777)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert distrust(folder) == ""
    os.chown(folder / "store", NOBODY, -1)
    assert distrust(folder).startswith(f"{folder / 'store'} belongs to ")
    os.chown(folder / "store", 1234, -1)
    os.chown(folder, NOBODY, -1)
    assert distrust(folder).startswith(f"{folder} belongs to ")


def test_a_link_to_a_folder_of_this_user_is_trusted(folder: Path, tmp_path: Path) -> None:
    (folder / "store").rename(tmp_path / "elsewhere")
    (folder / "store").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(folder)
    (folder / "certs" / "loop").symlink_to(folder)
    (folder / "certs" / "nothing").symlink_to(tmp_path / "nothing")
    assert distrust(folder) == distrust(tmp_path / "link") == ""


@needs_root
@pytest.mark.parametrize("name", ["store", "certs", "kubeconfig"])
def test_a_link_into_a_folder_of_another_user_is_distrusted(folder: Path, tmp_path: Path, name: str) -> None:
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    os.chown(tmp_path / "elsewhere", NOBODY, -1)
    assert distrust(folder).startswith(f"{folder / name} belongs to ")


@needs_root
def test_a_link_that_another_user_made_is_distrusted(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    os.chown(link, NOBODY, -1, follow_symlinks=False)
    assert distrust(link).startswith(f"{link} belongs to ")


def test_a_full_disk_is_named_with_what_to_do(tmp_path: Path) -> None:
    place = tmp_path / "a disk"
    with small_disk(place, mebibytes=8) as disk:
        assert folders.why_full(place) == ""
        disk.fill()
        said = folders.why_full(place)
        assert said.startswith(f"the disk of {place} is full: free at least 4 MiB there")
        assert f"`df -h {shlex.quote(str(place))}`" in said
        disk.empty()
        assert folders.why_full(place) == ""
    assert not list(place.iterdir())
