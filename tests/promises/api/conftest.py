"""One `sluice dev` for all promises of the API: each test works in names of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.fixtures.server import DevServer, dev_server
from tests.promises.api.client import Client

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevServer]:
    """A development server without samples."""
    with dev_server(tmp_path_factory.mktemp("dev")) as server:
        yield server


@pytest.fixture(scope="session")
def api(dev: DevServer) -> Iterator[Client]:
    """The administrator."""
    client = Client(dev)
    yield client
    client.close()


@pytest.fixture(autouse=True)
def _no_unhandled_error_is_logged(dev: DevServer) -> Iterator[None]:
    """Invariant 16: whatever a test sends, the server's log shows no stack trace."""
    before = dev.log.stat().st_size
    yield
    with dev.log.open("rb") as log:
        log.seek(before)
        written = log.read()
    assert b"Traceback" not in written, written.decode()


@pytest.fixture
def mine() -> str:
    """A text that no other test has: a namespace, a prefix of names, a label's value."""
    return f"t{next(_NUMBERS)}"
