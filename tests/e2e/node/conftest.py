"""One node for all tests of this folder, which only `make e2e-node` collects."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Generator, Iterator

import pytest

from tests.e2e.node.cluster import RUNS, Node
from tests.e2e.node.deployment import STORE, Deployment

LINES = 60
"""Lines of a pod's log that a failed test shows."""

collect_ignore_glob = [] if os.environ.get(RUNS) else ["test_*.py"]


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    # As Ctrl-C, which pytest knows.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    with Node(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture(scope="session")
def sluice(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Ready to be deployed, with a certificate and passwords of its own."""
    deployment = Deployment(node, tmp_path_factory.mktemp("deployment"))
    deployment.load_images()
    return deployment


@pytest.fixture(scope="session")
def deployment(sluice: Deployment) -> Deployment:
    """Sluice with a store that forgets with its pod."""
    sluice.deploy("test")
    return sluice


@pytest.fixture(scope="session")
def durable(deployment: Deployment) -> Deployment:
    """The same with the overlay `dev`: a store on a volume."""
    deployment.kubectl("delete", "statefulset", STORE, "--wait")
    deployment.deploy("dev")
    return deployment


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print figures to the terminal of the run."""

    def tell(text: str) -> None:
        with capsys.disabled():
            print(f"\n    {text}", flush=True)

    return tell


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the last lines of the pods' logs after a failed test: the pods are deleted soon, and with the last test the node."""
    report = yield
    if report.failed and report.when != "teardown" and isinstance(item, pytest.Function):
        for deployment in {value for value in item.funcargs.values() if isinstance(value, Deployment)}:
            for pod in deployment.names() + deployment.names("store"):
                said = deployment.kubectl("logs", pod, "--all-containers", f"--tail={LINES}", check=False)
                report.sections.append((f"log of {pod}", said.stdout + said.stderr))
    return report
