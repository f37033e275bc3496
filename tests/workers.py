"""Distribute the tests of `make test` to workers: tests that share a server are one group for one worker; each other file is a group.
Tests that wait for time to pass in a cluster come last in their group, behind tests that need another cluster or no cluster. Promises that
kube-apiserver keeps and that are unchanged are not run against it again (tests/promises/oracle.py).

`pytest -n 4 -p tests.workers`. Names of tests alone determine groups, because the controller that distributes them has collected no test.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.promises import oracle

CLUSTER = "cluster"
"""The group of the end-to-end tests that share a cluster, and of those that run meanwhile."""
SHARE_IT = re.compile(
    r"tests/e2e/controlplane/test_external\.py"
    r"|tests/e2e/test_(controllers|deployment|doctor|flows|forged_headers|handbook_pages|identities|informers|kubectl_apply|openapi"
    r"|watch_survival)\.py"
    r"|tests/e2e/test_first_minute\.py::\w+\[cluster"
)
MEANWHILE = tuple(f"tests/e2e/test_{name}.py" for name in ("outages", "replicas", "cluster_command", "quota"))
"""While the shared cluster's idle watch is silent for three minutes and its controllers, which look for kinds every 30 s, find ours."""
WAIT_FOR_IT = ("tests/e2e/test_controllers.py", "tests/e2e/test_watch_survival.py")
CORES = 2
"""The cores of the machines that this order is made for."""
WAITING = "tests/unit/storage/"
"""Files whose tests wait for failovers and timeouts of Valkey servers: ten seconds for each second of CPU."""
ADMISSION = "admission"
"""The group of the promises that share the cluster of tests/promises/admission."""
TARGETS = re.compile(r"tests/promises/api/\w+\.py::\w+\[(aggregated|upstream|dev)\b")
LONG = (
    CLUSTER,
    "aggregated",
    "upstream",
    "dev",
    ADMISSION,
    "tests/faults/test_storage_faults.py",
    "tests/faults/test_lineage_faults.py",
    "tests/e2e/test_serve.py",
    WAITING,
    "tests/e2e/",
    "tests/faults/",
)
"""Groups in the order in which workers take them, long ones first; a text that ends in `/` means all that is left of that folder."""


def group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    if SHARE_IT.match(nodeid) or file in MEANWHILE:
        return CLUSTER
    if file.startswith("tests/promises/admission/"):
        return ADMISSION
    target = TARGETS.match(nodeid)
    return target[1] if target else file


def rank(nodeid: str) -> tuple[int, int]:
    """The rank of a test's group, then its rank in the group. Other tests stay in the order of collection."""
    name, file = group(nodeid), nodeid.partition("::")[0]
    places = (at for at, long in enumerate(LONG) if name == long or (long.endswith("/") and name.startswith(long)))
    late = [*MEANWHILE, *WAIT_FOR_IT]
    return next(places, len(LONG)), late.index(file) + 1 if file in late else 0


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Deals out whole groups."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Assign the next group. Two workers are left to files that compute, and use the cores while the others wait."""
        held = self.assigned_work[node]
        # xdist counts what is left in all groups that a worker ever had, after each test.
        self.assigned_work[node] = {name: tests for name, tests in held.items() if not all(tests.values())}
        waiting = sum(
            any(map(waits, groups.values())) for other, groups in self.assigned_work.items() if other is not node
        )
        if waiting >= max(1, len(self.assigned_work) - CORES):
            computes = (name for name, tests in self.workqueue.items() if not waits(tests))
            if (name := next(computes, None)) is not None:
                self.workqueue.move_to_end(name, last=False)
        super()._assign_work_unit(node)


def waits(tests: Mapping[str, bool]) -> bool:
    """Whether a group, as the tests that say whether they have ended, has files that wait."""
    return any(nodeid.startswith(WAITING) and not ended for nodeid, ended in tests.items())


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Groups:
    config.option.loadscopereorder = False  # it would put those of many tests first, not the long ones
    return Groups(config, log)


def pytest_report_header() -> str:
    changed = oracle.Oracle().unknown()
    asked = ", ".join(file.stem for file in changed) if changed else "no promise, for it keeps all as they are"
    return f"upstream is asked about: {asked}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    known = oracle.Oracle()
    kept = {file for file in {item.path for item in items if oracle.asks(item)} if known.knows(file)}
    config.hook.pytest_deselected(items=[item for item in items if item.path in kept and oracle.asks(item)])
    items[:] = [item for item in items if item.path not in kept or not oracle.asks(item)]
    items.sort(key=lambda item: rank(item.nodeid))
    strays = [
        item.nodeid
        for item in items
        if isinstance(item, pytest.Function)
        and item.nodeid.startswith("tests/e2e/")
        and {"bed", "cluster"} & set(item.fixturenames)
        and group(item.nodeid) != CLUSTER
    ]
    if strays:
        raise RuntimeError(f"these share the cluster, and tests/workers.py does not say so: {strays}")
