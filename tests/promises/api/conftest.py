"""The targets of a run, the promises that do not hold on all of them, and a namespace for each test."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator

import pytest

from apiserver.apimachinery.releases import Release, nearest
from tests.promises.api import differences
from tests.promises.api.client import Client
from tests.promises.api.target import TARGETS, Target

DEFAULT = "all"
"""The target of a run without `--target`."""
_NUMBERS = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{differences.ONLY}(*targets, reason): a promise that other targets cannot be asked about"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        # The option is unknown when pytest was not started on this folder, for it reads this file too late then.
        wanted = metafunc.config.getoption("--target", DEFAULT)
        names = list(TARGETS) if wanted == "all" else wanted.split(",")
        if unknown := set(names) - TARGETS.keys():
            raise pytest.UsageError(f"--target: unknown: {', '.join(unknown)}")
        metafunc.parametrize("target", names, indirect=True, scope="package")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = pathlib.Path(__file__).parent
    differences.mark([item for item in items if isinstance(item, pytest.Function) and item.path.parent == here])


@pytest.fixture(scope="package")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server of this run. pytest orders the tests so that there is one at a time."""
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
def _no_unhandled_error_is_logged(target: Target) -> Iterator[None]:
    """Invariant 16: whatever a test sends, no process of the target logs a stack trace."""
    before = {log: log.stat().st_size for log in target.logs}
    yield
    for log, trace in target.logs.items():
        with log.open("rb") as written:
            written.seek(before[log])
            text = written.read()
        assert trace not in text, text.decode(errors="replace")


@pytest.fixture
def mine(api: Client) -> Iterator[str]:
    """A text that no other test has: a namespace that is there, a prefix of names, a label's value."""
    yield api.namespace(f"t{next(_NUMBERS)}")
    api.leave()
