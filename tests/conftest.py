"""Fixtures and settings that every room's tests share."""

from __future__ import annotations

import pathlib

import hypothesis
import pytest

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
