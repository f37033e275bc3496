"""The targets of promises of custom resources, and a namespace for each test."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator, Mapping

import pytest

from apiserver.apimachinery.releases import Release, nearest
from tests.fixtures.valkey import shared_server
from tests.promises.api.client import Client
from tests.promises.api.target import Target
from tests.promises.custom.target import TARGETS

__all__ = ["shared_server"]

DEFAULT = "all"
_NUMBERS = itertools.count()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "api" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--target", DEFAULT)
        names = list(TARGETS) if wanted == "all" else wanted.split(",")
        if unknown := set(names) - TARGETS.keys():
            raise pytest.UsageError(f"--target: unknown: {', '.join(unknown)}")
        metafunc.parametrize("target", names, indirect=True, scope="package")


@pytest.fixture(scope="package")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server of this run, with the definitions of `crds/`."""
    with TARGETS[request.param](tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture(scope="package")
def api(target: Target) -> Iterator[Client]:
    """The administrator."""
    client = Client(target)
    yield client
    client.leave()
    client.close()


@pytest.fixture(scope="package")
def release(api: Client) -> Release:
    """The release of Kubernetes that answers, or the nearest one that has promises."""
    found = api.get("/version")
    return nearest(Release(int(found["major"]), int(found["minor"])))


@pytest.fixture(autouse=True)
def _no_unhandled_error_is_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """No process of the target logs a stack trace in any scenario."""
    logs: Mapping[pathlib.Path, bytes] = (
        request.getfixturevalue("target").logs if "target" in request.fixturenames else {}
    )
    before = {log: log.stat().st_size for log in logs}
    yield
    for log, trace in logs.items():
        with log.open("rb") as written:
            written.seek(before[log])
            text = written.read()
        assert trace not in text, text.decode(errors="replace")


@pytest.fixture
def mine(api: Client) -> Iterator[str]:
    """A namespace that no other test has."""
    yield api.namespace(f"promise-{next(_NUMBERS)}")
    api.leave()
