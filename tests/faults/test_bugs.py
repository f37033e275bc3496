"""The planted bugs fit the code: `python -m tests.faults.bugs` needs them, and runs for longer than a test may."""

from __future__ import annotations

import pytest

from tests.faults import injection
from tests.faults.bugs import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_bug_can_be_planted(bug: Bug) -> None:
    source = bug.source()
    if bug.file.endswith(".py"):
        compile(source, bug.file, "exec")
    faults = [
        *injection.SERVER_FAULTS,
        *injection.CONNECTION_FAULTS,
        *injection.NODE_FAULTS,
        *injection.SENTINEL_FAULTS,
        *injection.CLUSTER_FAULTS,
    ]
    assert set(bug.faults) <= {fault.name for fault in faults}


def test_names_of_bugs_are_unique() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 20
