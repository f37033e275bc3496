"""Fixtures and settings that the tests of all packages share."""

from __future__ import annotations

import asyncio
import gc
import io
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Generator, Iterator, Mapping

import hypothesis
import pytest
from _pytest.runner import runtestprotocol

from apiserver.apimachinery import releases
from apiserver.config import logs
from apiserver.runtime import garbage
from tests.e2e.controlplane import binaries
from tests.fixtures import cases, cpu, steps

PROJECT = pathlib.Path(__file__).resolve().parent.parent

# A loaded machine is slow, not wrong: the 600 s of a test are its only deadline. Each run draws other examples. `thorough` is for nights:
# make test-unit ARGS=--hypothesis-profile=thorough
hypothesis.settings.register_profile(
    "sluice", deadline=None, max_examples=50, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("thorough", hypothesis.settings.get_profile("sluice"), max_examples=500)
hypothesis.settings.load_profile("sluice")
# For tests that run tests: --hypothesis-profile=brief.
hypothesis.settings.register_profile("brief", hypothesis.settings.get_profile("sluice"), max_examples=10)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(cases.OPTION, default="", help="run only recorded cases whose id contains this text")


RELEASES = "releases"
"""The marker of tests that depend on the Kubernetes release: CI runs them on every one. Arguments name the releases that it holds for."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{RELEASES}(*minors): depends on the Kubernetes release, as in 1.37; holds for these"
    )
    if os.environ.get(binaries.CHOICE):
        # Sluice is the release that it is compared with, or the nearest that it can be.
        major, minor = map(int, binaries.minor().split("."))
        os.environ["SLUICE_EMULATED_VERSION"] = str(releases.nearest(releases.Release(major, minor)))
    cases.select(config.getoption(cases.OPTION))


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of the reference cases: the one shared with other implementations when it stands beside the checkout,
    otherwise the project's own copy."""
    beside = PROJECT.parent / "shared" / "cases"
    return beside if beside.is_dir() else PROJECT / "tests" / "cases"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark promises that ask which release answers, and skip tests of other releases."""
    for item in items:
        if "release" in getattr(item, "fixturenames", ()) and item.path.is_relative_to(PROJECT / "tests" / "promises"):
            item.add_marker(RELEASES)
        for marker in item.iter_markers(RELEASES):
            if marker.args and binaries.minor() not in marker.args:
                item.add_marker(pytest.mark.skip(reason=f"is true of Kubernetes {' and '.join(marker.args)} only"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable the garbage collector during collection: collected tests stay until the end, so it never finds garbage in them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# ---------------------------------------------------------------------------------------------------------------- the detector


def pytest_sessionstart() -> None:
    steps.install()


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"measured": steps.new_event_loop}


LONG_STEPS = pytest.StashKey[list[list[str]]]()
"""The long steps of a test, for each run that had some."""
REPEATS = 2
"""A test with long steps runs again so often. Those that the test causes come each time; those that the machine causes do not."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail each test that causes a step of an event loop above the budget, in its server or in this process."""
    yield
    if not (found := steps.breaches()):
        return
    if item.stash.get(FAILED, False) or not _runs_again(item, found):
        pytest.fail("steps of the event loop above the budget:\n" + "\n".join(found), pytrace=False)


def _runs_again(item: pytest.Item, found: list[str]) -> bool:
    """Note the long steps of this run. Return whether the test runs once more, and this run does not count."""
    noted = item.stash.setdefault(LONG_STEPS, [])
    noted.append(found)
    return len(noted) <= REPEATS


def _repeat(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Run a test again for as long as its last run had long steps and does not count."""
    noted, runs = item.stash.get(LONG_STEPS, []), 0
    while runs < len(noted) and not item.stash.get(FAILED, False):
        runs = len(noted)
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.failed:
                told = "\n".join(step for steps_of_a_run in noted[:runs] for step in steps_of_a_run)
                report.sections.append(("Steps above the budget in earlier runs", told))
                item.ihook.pytest_runtest_logreport(report=report)


# ------------------------------------------------------------------------------------------------------------ failed tests


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (found := cpu.above()) and report.failed and not item.stash.get(FAILED, False) and _runs_again(item, found):
        report.outcome, report.longrepr = "passed", None
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    counted = getattr(getattr(item, "function", None), cases.COUNTED, None)
    if counted and report.when == "call":
        report.user_properties.append((cases.COUNTED, counted))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many recorded cases the tests over tables have."""
    ended = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    counts = [count for report in ended for name, count in report.user_properties if name == cases.COUNTED]
    if counts:
        terminalreporter.write_line(f"{sum(counts):,} recorded cases in {len(counts)} of the tests")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """A failed test has left open whatever it had in hand, and its traceback keeps all of that alive until the next test runs. It is let
    go of here, outside of any test, or what is said about it (a subprocess that still runs, a socket) would fail the next one."""
    outcome = yield
    _repeat(item, nextitem)
    if item.stash.get(FAILED, False):
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        hook, sys.unraisablehook = sys.unraisablehook, sys.__unraisablehook__
        gc.collect()
        sys.unraisablehook = hook
    return outcome


@pytest.fixture
def configured_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore what a start of the program sets for its process: the log, the hook for unraisable errors, how often threads change."""
    # Its thread would never end.
    monkeypatch.setattr(garbage, "collect_elsewhere", lambda afterwards, *, busy: None)
    root, ours = logging.getLogger(), logging.getLogger("apiserver")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    hook, interval = sys.unraisablehook, sys.getswitchinterval()
    yield
    for handler in root.handlers:
        if isinstance(handler, logs.LimitedHandler):
            # The test's standard error is closed: its last lines go nowhere.
            handler.stream = io.StringIO()
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    sys.unraisablehook = hook
    sys.setswitchinterval(interval)
