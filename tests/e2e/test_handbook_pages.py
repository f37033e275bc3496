"""Commands of pages of the handbook, run on the servers that all tests share. Pages with a story of their own have their own tests."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

from tests.e2e.controlplane.bed import Bed
from tests.fixtures.pages import Reader
from tests.fixtures.server import DevServer


def read(page: str, folder: pathlib.Path, kubectl: pathlib.Path, **environ: str) -> None:
    """Run all commands of a page in a folder."""
    (folder / "kubectl").symlink_to(kubectl)
    path = f"{folder}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    reader = Reader(page, folder, {"PATH": path, "HOME": str(folder), **environ})
    assert reader.left != []
    for command in reader.left:
        reader.run(command)


@pytest.mark.parametrize("page", ["resource-versions.md", "watches.md"])
def test_commands_of_a_concept_do_what_the_page_says(
    page: str, dev: DevServer, kubectl_binary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    read(page, tmp_path, kubectl_binary, KUBECONFIG=str(dev.kubeconfig))


@pytest.mark.parametrize("page", ["tls.md", "troubleshooting.md", "upgrade.md"])
def test_commands_of_an_operator_do_what_the_page_says(
    page: str, bed: Bed, kubectl_binary: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    read(page, tmp_path, kubectl_binary, KUBECONFIG=str(bed.admin), ADMIN_REDIS_URL=bed.store.url)
