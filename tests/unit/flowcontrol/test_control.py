"""Flow control of a process: its levels, their seats, and changes of the configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver import metrics
from apiserver.apimachinery.request import User
from apiserver.filters.request_info import parse
from apiserver.flowcontrol import bootstrap, dumps
from apiserver.flowcontrol.control import PERIOD_SECONDS, REMEMBERED_FLOWS, FlowControl
from apiserver.flowcontrol.estimates import ONE, Estimate
from apiserver.flowcontrol.following import Following
from apiserver.flowcontrol.queueset import Ticket, Verdict
from apiserver.flowcontrol.types import PriorityLevel, Queuing, path_rule
from tests.unit.cluster.plane import until
from tests.unit.flowcontrol.levels import GET, Clock

JANE = User("jane", groups=("system:authenticated",))
ADMIN = User("root", groups=("system:masters", "system:authenticated"))
KIM = User("system:serviceaccount:a:kim", groups=("system:serviceaccounts", "system:authenticated"))
SECOND = 10**9


class Rig:
    def __init__(self, seats: int = 600) -> None:
        self.clock, self.seats = Clock(), seats
        self.control = FlowControl(lambda: self.seats, clock=self.clock, later=self.clock.call_later)

    def ask(self, user: User, estimate: Estimate = ONE) -> Ticket:
        return self.control.start(self.control.flow_of(user, GET), estimate, user, GET)

    def limits(self) -> dict[str, int]:
        return {name: level.current for name, level in self.control.levels.items()}


def test_default_levels_have_the_seats_of_a_live_kube_apiserver() -> None:
    control = Rig().control
    seats = {name: (one.nominal, one.lower, one.upper, one.current) for name, one in control.levels.items()}
    assert seats == {
        "exempt": (0, 0, 600, 0),
        "catch-all": (13, 13, 613, 30),
        "system": (74, 50, 674, 117),
        "node-high": (98, 73, 698, 170),
        "leader-election": (25, 25, 625, 58),
        "workload-high": (98, 49, 698, 114),
        "workload-low": (245, 24, 845, 56),
        "global-default": (49, 24, 649, 56),
    }
    assert {name: one.queues.most_of_request for name, one in control.levels.items() if one.queues.most_of_request} == {
        "system": 12, "node-high": 15, "leader-election": 4, "workload-high": 15, "workload-low": 37, "global-default": 8,
    }  # fmt: skip
    assert metrics.LEVEL_CURRENT_SEATS.labels("system").value == 117


def test_busy_level_borrows_seats_that_others_do_not_use() -> None:
    rig = Rig()
    tickets = [rig.ask(KIM) for _ in range(300)]
    assert rig.control.levels["workload-low"].queues.executing == 56
    rig.clock.pass_by(round(PERIOD_SECONDS * SECOND))
    assert rig.limits()["workload-low"] > 245
    assert sum(ticket.verdict is Verdict.SERVED for ticket in tickets) == min(300, rig.limits()["workload-low"])
    for ticket in tickets:
        ticket.flow.queues.leave(ticket)
        ticket.flow.queues.finish(ticket)
    before = rig.limits()["workload-low"]
    rig.clock.pass_by(600 * SECOND)
    assert rig.limits()["workload-low"] < before


def test_requests_of_administrators_never_wait() -> None:
    rig = Rig(seats=1)
    assert {rig.ask(ADMIN).verdict for _ in range(1000)} == {Verdict.SERVED}


def test_exempt_requests_take_seats_from_the_others() -> None:
    rig = Rig(seats=600)
    for _ in range(500):
        rig.ask(ADMIN)
    rig.clock.pass_by(round(PERIOD_SECONDS * SECOND))
    limits = rig.limits()
    assert limits["exempt"] == 500
    assert limits["workload-low"] == rig.control.levels["workload-low"].lower


def level(name: str, shares: int, queuing: Queuing | None = None, **others: Any) -> PriorityLevel:
    return PriorityLevel(name=name, shares=shares, queuing=queuing, **others)


def test_level_that_is_configured_no_longer_serves_what_it_has() -> None:
    rig = Rig()
    ticket = rig.ask(JANE)
    rig.control.configure((), ())
    assert {name: one.quiescing for name, one in rig.control.levels.items()} == {
        "exempt": False, "catch-all": False, "global-default": True,
    }  # fmt: skip
    assert rig.ask(JANE).flow.level.name == "catch-all"
    ticket.flow.queues.finish(ticket)
    rig.clock.pass_by(round(PERIOD_SECONDS * SECOND))
    assert set(rig.control.levels) == {"exempt", "catch-all"}
    assert ("system",) not in dict(metrics.LEVEL_NOMINAL_SEATS.children())


def test_configuration_takes_effect_for_waiting_requests() -> None:
    rig = Rig(seats=1)
    rule = bootstrap.CATCH_ALL_SCHEMA
    rig.control.configure([rule], [level("catch-all", 1, Queuing(16, 4, 50), borrowing=0)])
    tickets = [rig.ask(JANE) for _ in range(3)]
    assert [ticket.verdict for ticket in tickets] == [Verdict.SERVED, Verdict.WAITS, Verdict.WAITS]
    rig.seats = 2
    rig.control.configure([rule], [level("catch-all", 1, Queuing(64, 4, 50), borrowing=0)])
    assert [ticket.verdict for ticket in tickets] == [Verdict.SERVED, Verdict.SERVED, Verdict.WAITS]


def test_changed_number_of_seats_takes_effect_within_a_period() -> None:
    rig = Rig()
    rig.ask(ADMIN)
    rig.seats = 1200
    rig.clock.pass_by(round(PERIOD_SECONDS * SECOND))
    assert rig.control.levels["workload-low"].nominal == 490


def test_level_whose_hands_cannot_be_dealt_is_ignored() -> None:
    rig = Rig()
    rig.control.configure(bootstrap.SCHEMAS, [level("global-default", 5, Queuing(1024, 7, 50))])
    assert set(rig.control.levels) == {"exempt", "catch-all"}


def test_metrics_of_removed_schemas_are_removed() -> None:
    rig = Rig()
    ticket = rig.ask(JANE)
    labels = ("global-default", "global-default")
    ticket.flow.queues.finish(ticket)
    assert labels in dict(metrics.FLOW_DISPATCHED.children())
    rig.control.configure((), ())
    assert labels not in dict(metrics.FLOW_DISPATCHED.children())


def test_equal_requests_share_a_flow_until_the_configuration_changes() -> None:
    control = Rig().control
    first = control.flow_of(JANE, GET)
    assert control.flow_of(User("jane", groups=("system:authenticated",)), GET) is first
    assert control.flow_of(User("jim", groups=("system:authenticated",)), GET) is not first
    control.configure(bootstrap.SCHEMAS, bootstrap.LEVELS)
    assert control.flow_of(JANE, GET) is not first


@pytest.mark.parametrize("name", ["u" * 100_000, "u"])
def test_cache_of_flows_is_bounded(name: str) -> None:
    control = Rig().control
    for number in range(REMEMBERED_FLOWS + 100 if len(name) == 1 else 10):
        control.flow_of(User(f"{name}{number}", groups=("system:authenticated",)), GET)
    assert len(control._flows) <= (REMEMBERED_FLOWS if len(name) == 1 else 0)


def test_any_path_and_verb_has_a_flow() -> None:
    control = Rig().control
    for target in ("/", "*", "/apis/" + "x/" * 1000, "/%00"):
        assert control.flow_of(JANE, parse("BREW", target)).schema.name == "global-default"
    assert path_rule(("get",), ("*",)).prefixes == ("",)


class Copy:
    """A copy of a collection of the cluster."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.ready = asyncio.Event()
        self.items: Mapping[str, dict[str, Any]] = {one["metadata"]["name"]: one for one in objects}


def object_of(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid of {name}"}, "spec": spec}


async def test_configuration_of_the_cluster_is_in_force_once_it_is_read() -> None:
    control, changed = Rig().control, asyncio.Event()
    limited = {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}
    broken = object_of("broken", type="Limited")
    levels = Copy(object_of("mine", type="Limited", limited=limited), broken)
    rules = [
        {
            "subjects": [{"kind": "User", "user": {"name": "jane"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}],
        }
    ]  # fmt: skip
    schemas = Copy(object_of("janes", priorityLevelConfiguration={"name": "mine"}, rules=rules))
    running = asyncio.ensure_future(Following(control, schemas=schemas, levels=levels, changed=changed).run())
    try:
        await asyncio.sleep(0)
        assert control.flow_of(JANE, GET).schema.name == "global-default"
        levels.ready.set()
        schemas.ready.set()
        await until(lambda: control.flow_of(JANE, GET).schema.name == "janes")
        assert control.flow_of(JANE, GET).schema.uid == "uid of janes"
        assert set(control.levels) == {"mine", "exempt", "catch-all"}
        schemas.items = {}
        changed.set()
        await until(lambda: control.flow_of(JANE, GET).schema.name == "catch-all")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# ---------------------------------------------------------------------------------------------------------------- tables


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]


def test_table_of_levels_has_upstreams_columns() -> None:
    rig = Rig()
    rig.ask(JANE)
    for _ in range(60):
        rig.ask(KIM)
    text = dumps.priority_levels(rig.control)()
    head, *rows = cells(text)
    assert head == [
        "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests", "DispatchedRequests",
        "RejectedRequests", "TimedoutRequests", "CancelledRequests",
    ]  # fmt: skip
    assert rows[0] == ["catch-all", "0", "true", "false", "0", "0", "0", "0", "0", "0"]
    found = {row[0]: row[1:] for row in rows}
    assert found["global-default"] == ["0", "false", "false", "0", "1", "1", "0", "0", "0"]
    assert found["workload-low"] == ["4", "false", "false", "4", "56", "56", "0", "0", "0"]
    assert text.splitlines()[1].startswith("catch-all,         0,            true,   false,       0,")


def test_table_of_queues_names_each_queue() -> None:
    rig = Rig()
    rig.ask(JANE)
    head, *rows = cells(dumps.queues(rig.control)())
    assert head[:3] == ["PriorityLevelName", "Index", "PendingRequests"]
    assert len(rows) == 64 + 64 + 16 + 128 * 3
    assert [row[3:5] for row in rows if row[3] != "0"] == [["1", "1"]]
    rig.control.configure((), [level("huge", 5, Queuing(10_000_000, 2, 50))])
    rows = cells(dumps.queues(rig.control)())
    assert [row[0] for row in rows[1:] if row[0] == "huge"] == []


def test_table_of_requests_tells_who_waits_for_what() -> None:
    rig = Rig()
    rig.ask(ADMIN)
    for _ in range(57):
        rig.ask(KIM, Estimate(1, 1, 2_500_000))
    head, *rows = cells(dumps.requests(rig.control, details=True)())
    assert head[:3] + head[10:12] == ["PriorityLevelName", "FlowSchemaName", "QueueIndex", "UserName", "Verb"]
    assert rows[0][:5] == ["exempt", "exempt", "-1", "-1", ""]
    waiting = [row for row in rows if row[3] == "0"]
    assert [[row[1], row[4], row[8], row[9], row[10], row[11], row[14], row[15], row[16]] for row in waiting] == [
        ["service-accounts", KIM.name, "2.5ms", dumps.NEVER, KIM.name, "get", "a", "things.example.com/v1", "nodes"]
    ]
    assert cells(dumps.requests(rig.control, details=False)())[0] == head[:10]


def test_table_stays_small_whatever_clients_are_called() -> None:
    rig = Rig()
    hostile = User("x" * 1_000_000 + "\n\t", groups=("system:authenticated",))
    for _ in range(50):
        rig.ask(hostile)
    rig.ask(User("a\nb\tc", groups=("system:authenticated",)))
    text = dumps.requests(rig.control, details=True)()
    assert len(text) < 100_000
    assert len(text.splitlines()) == 52
    assert "a\\nb\\tc" in text


@pytest.mark.parametrize(
    ("nanoseconds", "expected"),
    [
        (0, "0s"),
        (5_000_000, "5ms"),
        (1_500, "1.5µs"),
        (2_500_000_000, "2.5s"),
        (65 * SECOND, "1m5s"),
        (3600 * SECOND, "1h0m0s"),
    ],
)
def test_durations_are_printed_as_go_prints_them(nanoseconds: int, expected: str) -> None:
    assert dumps._duration(nanoseconds) == expected
