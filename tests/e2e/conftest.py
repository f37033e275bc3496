"""One `sluice dev` for all end-to-end tests that do not stop it, and the real kubectl."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests.e2e.controlplane import binaries
from tests.fixtures.server import DevServer, dev_server

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A development server without samples."""
    with dev_server(tmp_path_factory.mktemp("dev")) as server:
        yield server


@pytest.fixture(scope="session")
def kubectl_binary() -> pathlib.Path:
    """kubectl 1.36."""
    return binaries.kubectl()


@pytest.fixture
def kubectl(dev: DevServer, kubectl_binary: pathlib.Path, tmp_path: pathlib.Path) -> Kubectl:
    """Runs kubectl against the development server; fails the test when kubectl fails, unless `check=False`."""

    def run(*arguments: str, stdin: str = "", check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [str(kubectl_binary), *arguments],
            input=stdin,
            text=True,
            capture_output=True,
            check=False,
            timeout=50,
            env={"KUBECONFIG": str(dev.kubeconfig), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin", **environ},
        )
        if check and done.returncode != 0:
            pytest.fail(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    return run
