"""docs/tutorial.md, command by command, up to its cluster. `test_take_over.py` has a cluster, and runs the rest on it."""

from __future__ import annotations

import os
import pathlib

import pytest

from tests.e2e.controlplane import binaries
from tests.fixtures.pages import Command, Reader
from tests.fixtures.server import DevServer

PROJECT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def reader(tmp_path: pathlib.Path, kubectl_binary: pathlib.Path) -> Reader:
    """A reader in the checkout, whose home is a temporary folder."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "kubectl").symlink_to(kubectl_binary)
    (checkout := tmp_path / "checkout").mkdir()
    for name in ("examples", "apiserver", "kubecel", "kubetext", "sluice", "structuredmerge", "tests", ".venv"):
        (checkout / name).symlink_to(PROJECT / name)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environ = {
        "PATH": path,
        "HOME": str(tmp_path),
        "KUBECONFIG": str(checkout / ".sluice" / "kubeconfig"),
        "XDG_CACHE_HOME": str(binaries.cache_folder().parent),
    }
    return Reader("tutorial.md", checkout, environ)


def test_tutorial_serves_slices_a_kind_and_a_definition(reader: Reader, tmp_path: pathlib.Path) -> None:
    def serve() -> DevServer:
        words = reader.take("make run ARGS=").make
        return DevServer(reader.folder / ".sluice", *words, environ={"PYTHONPATH": str(tmp_path / "sluice-tutorial")})

    reader.take("make binaries")
    found = Command(f"{reader.take('export PATH').text} && command -v kubectl", (str(binaries.kubectl()),))
    reader.run(found)
    (reader.folder / ".sluice").mkdir()
    reader.run_to("make run")
    assert not (reader.folder / ".sluice").exists()
    with serve():
        assert reader.take("export KUBECONFIG").text == 'export KUBECONFIG="$PWD/.sluice/kubeconfig"'
        reader.run_to("make run")
    with serve():
        reader.run_to("make run")
    with serve():
        reader.run_to("make cluster")
