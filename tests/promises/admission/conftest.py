"""The cluster of all promises of admission, and each test's part of it on each target."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator

import pytest

from tests.promises.admission import differences
from tests.promises.admission.cluster import Cluster, started
from tests.promises.admission.rig import Rig
from tests.promises.api.client import Client
from tests.promises.api.target import Target

TARGETS = ("upstream", "aggregated")
_NUMBERS = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        metafunc.parametrize("target", TARGETS, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    differences.mark([item for item in items if isinstance(item, pytest.Function) and item.path.parent == here])


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with started(tmp_path_factory.mktemp("admission")) as made:
        yield made


@pytest.fixture
def target(cluster: Cluster, request: pytest.FixtureRequest) -> Target:
    """The server of the kinds: kube-apiserver itself, or Sluice behind it."""
    return cluster.targets[request.param]


@pytest.fixture(scope="package")
def _clients(cluster: Cluster) -> Iterator[dict[str, Client]]:
    clients = {name: Client(target) for name, target in cluster.targets.items()}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture
def api(target: Target, _clients: dict[str, Client]) -> Client:
    """The administrator."""
    return _clients[target.name]


@pytest.fixture
def mine(api: Client) -> Iterator[str]:
    """A text that no other test has: a namespace that is there, a prefix of names, a label's value."""
    yield api.namespace(f"t{next(_NUMBERS)}")
    api.leave()


@pytest.fixture
def rig(cluster: Cluster, target: Target, api: Client, mine: str) -> Iterator[Rig]:
    made = Rig(cluster, target, api, mine)
    try:
        yield made
    finally:
        made.leave()


@pytest.fixture(autouse=True)
def _no_unhandled_error_is_logged(cluster: Cluster) -> Iterator[None]:
    """Fail a test after which any process of the cluster has logged a stack trace."""
    logs = next(iter(cluster.targets.values())).logs
    before = {log: log.stat().st_size for log in logs}
    yield
    for log, trace in logs.items():
        with log.open("rb") as written:
            written.seek(before[log])
            text = written.read()
        assert trace not in text, text.decode(errors="replace")
