"""Servers of end-to-end tests: one `sluice dev`, and one cluster with Sluice behind its kube-apiserver, each for all tests that do
not stop it; and the real kubectl."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import subprocess
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import pytest

from tests.e2e import objects
from tests.e2e.controlplane import binaries
from tests.e2e.controlplane import kubectl as real_kubectl
from tests.e2e.controlplane.bed import Bed
from tests.e2e.controlplane.connection import Stream
from tests.e2e.controlplane.external import Cluster, External
from tests.fixtures.server import DevServer, dev_server

Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
EXTERNAL = "SLUICE_E2E_KUBECONFIG"
"""Names the administrator's kubeconfig of a cluster that runs already, with Sluice behind it (`make e2e-kind`)."""
OURS = re.compile(rf"(?:of-)?(?:e2e|gc|id|inf)-{os.getpid()}-\d+(?:-[a-z]+)*")
"""Names of the namespaces of tests, and of the objects that tests make outside of them."""
COMPLAINTS, COMPLAINT = 20, 500
"""Lines of a log that a failed test shows, and characters of one."""
_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A development server without samples."""
    with dev_server(tmp_path_factory.mktemp("dev")) as server:
        yield server


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The bed, or the cluster that the environment names, which is left as it was."""
    if kubeconfig := os.environ.get(EXTERNAL):
        external = External(pathlib.Path(kubeconfig), tmp_path_factory.mktemp("external"))
        yield external
        external.clean(OURS)
    else:
        yield request.getfixturevalue("bed")


@pytest.fixture(scope="session")
def our_own() -> None:
    """For tests that start a control plane themselves, to look into its processes or to stop them."""
    if os.environ.get(EXTERNAL):
        pytest.skip(f"needs processes of its own, and {EXTERNAL} names a cluster of somebody else")


@pytest.fixture(scope="session")
def bed(our_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster of our own with Sluice behind it. Its requests are logged."""
    with Bed(tmp_path_factory.mktemp("bed"), controllers=True, serve_flags=["-v=3"]) as bed:
        yield bed


@dataclass
class Idle:
    """A watch through kube-apiserver, opened when the cluster came up, of a namespace that nobody touches."""

    namespace: str
    stream: Stream
    since: float


@pytest.fixture(scope="session")
def idle(bed: Bed) -> Iterator[Idle]:
    namespace = "silence"
    with bed.connect() as admin:
        assert admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}).status == 201
        with Stream(admin, f"{objects.claims(namespace)}?watch=1&timeoutSeconds=3000", seconds=300) as stream:
            yield Idle(namespace, stream, time.monotonic())


@pytest.fixture(autouse=True)
def _the_silence_begins_with_the_cluster(request: pytest.FixtureRequest) -> None:
    """So that the test which waits for the end of it need not wait for all of it."""
    if ("bed" in request.fixturenames or "cluster" in request.fixturenames) and not os.environ.get(EXTERNAL):
        request.getfixturevalue("idle")


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A fresh one in the cluster."""
    name = f"e2e-{os.getpid()}-{next(_NUMBERS)}"
    with cluster.connect() as admin:
        assert admin.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    return name


@pytest.fixture(scope="session")
def kubectl_binary() -> pathlib.Path:
    """kubectl of the chosen Kubernetes."""
    return binaries.kubectl()


@pytest.fixture
def kubectl(dev: DevServer, tmp_path: pathlib.Path) -> Kubectl:
    """Runs kubectl against the development server; fails the test when kubectl fails, unless `check=False`."""

    def run(*words: str, stdin: str = "", check: bool = True, **environ: str) -> subprocess.CompletedProcess[str]:
        return real_kubectl.run(*words, kubeconfig=dev.kubeconfig, home=tmp_path, stdin=stdin, check=check, **environ)

    return run


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test says where the logs of its clusters are, and what our servers complained about last; pytest keeps the folders of the
    last three runs."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        clusters = [value for value in item.funcargs.values() if isinstance(value, Bed)]
        logs = [str(log) for cluster in clusters for log in sorted(cluster.folder.rglob("*log"))]
        if logs:
            report.sections.append(("logs of the cluster", "\n".join(logs)))
        for log in (log for cluster in clusters for log in sorted(cluster.folder.glob("sluice-*.log"))):
            complaints = [line for line in log.read_text(errors="replace").splitlines() if '"level":"info"' not in line]
            report.sections.append((log.name, "\n".join(line[:COMPLAINT] for line in complaints[-COMPLAINTS:])))
    return report
