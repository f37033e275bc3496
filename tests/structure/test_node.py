"""Checks of the files that `make e2e-node` uses, where it cannot run."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

import pytest

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.bed import PROJECT
from tests.e2e.dra import specs
from tests.e2e.node import __main__ as commands
from tests.e2e.node import images, isolation, machine, programs
from tests.e2e.node.programs import KUBERNETES


@pytest.mark.parametrize("module", [KUBERNETES, specs.MODULE], ids=["node", "specs"])
@pytest.mark.parametrize("version", binaries.versions())
def test_node_and_specs_have_the_versions_of_the_control_plane(
    monkeypatch: pytest.MonkeyPatch, module: binaries.Module, version: str
) -> None:
    monkeypatch.setenv(binaries.CHOICE, version)

    def staging(module: binaries.Module) -> set[str]:
        return set(re.findall(r"k8s\.io/\S+ => k8s\.io/\S+ v\S+", module.modfile.read_text()))

    pinned = re.findall(r"k8s\.io/kubernetes (v\S+)", module.modfile.read_text())
    assert pinned == [binaries.version()] == [f"v{version}"]
    assert staging(module) == staging(binaries.MODULE) != set()


def test_every_base_image_of_the_dockerfile_can_be_made_offline() -> None:
    assert set(images.debians(PROJECT / "Dockerfile").values()) == {"trixie"}


def test_an_image_that_cannot_be_made_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch AS a\nFROM a\nFROM docker.io/library/python:3.13\n")
    with pytest.raises(images.ImageError, match=r"begins with docker\.io/library/python:3\.13"):
        images.debians(tmp_path / "Dockerfile")


def test_the_first_process_of_a_node_is_a_valid_script() -> None:
    subprocess.run(["sh", "-n", isolation.BOOT], check=True)
    assert os.access(isolation.BOOT, os.X_OK)


def test_second_node_is_refused_with_the_owner_of_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(isolation, "LOCK", tmp_path / "lock")
    with isolation.alone(), pytest.raises(isolation.Busy, match=rf"process {os.getpid()}\b"), isolation.alone():
        pass
    with isolation.alone():
        pass


def test_a_machine_that_is_not_fit_says_all_that_is_missing_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(machine.Unable, match=r"apt-get install.* buildah .*debootstrap .*runc") as unable:
        machine.check(tmp_path / "state", tmp_path / "cache")
    assert "\n" not in str(unable.value)


def test_node_that_runs_only_if_built_names_missing_binaries(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "check", lambda *_: None)
    monkeypatch.setattr(commands, "SIGNALS", ())
    for variable in binaries.FOLDERS:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert set(programs.not_built()) >= {"kubelet", "coredns", "containerd"}
    assert commands.main(["if-built"]) == machine.UNABLE
    told = capfd.readouterr()
    assert "kubelet" in told.out + told.err
