"""Fixtures and settings that every room's tests share."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable, Generator, Mapping

import hypothesis
import pytest

from tests.fixtures import steps

PROJECT = pathlib.Path(__file__).resolve().parent.parent

# A loaded machine is slow, not wrong: the 60 s of a test are its only deadline.
hypothesis.settings.register_profile("sluice", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("sluice")


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of the reference cases: the one shared with other implementations when it stands beside the checkout,
    otherwise the project's own copy."""
    beside = PROJECT.parent / "shared" / "cases"
    return beside if beside.is_dir() else PROJECT / "tests" / "cases"


# ---------------------------------------------------------------------------------------------------------------- the detector


def pytest_sessionstart() -> None:
    steps.install()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"measured": steps.new_event_loop}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """No step of an event loop that a test causes is above the budget, whatever the test is about: its server's or this process's."""
    yield
    if found := steps.breaches():
        pytest.fail("steps of the event loop above the budget:\n" + "\n".join(found), pytrace=False)
