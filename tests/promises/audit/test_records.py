"""Contents and time of audit events that `tests/e2e/test_audit.py` does not compare with kube-apiserver's."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from apiserver import metrics
from apiserver.audit.event import Event
from apiserver.audit.policy import Policy
from apiserver.audit.record import Auditor
from apiserver.verbs import read, rendering
from tests.fixtures.composed import JANE, Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server, eventually

WHOLE = {"rules": [{"level": "RequestResponse"}]}
ALLOWED = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
APPLY = "application/apply-patch+yaml"
YAML = b"apiVersion: %s/v1\nkind: DeviceClass\nmetadata:\n  name: a\n  labels: {l: '<m>'}\n"


class Kept:
    """A backend that keeps events as they are written. `failing`: from that event on they are lost."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.failing = False
        self.waiting: asyncio.Event | None = None

    async def process(self, events: Sequence[Event]) -> bool:
        if self.waiting is not None:
            await self.waiting.wait()
        if self.failing:
            return False
        self.events += [json.loads(b"".join(event.line())) for event in events]
        return True

    def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None

    @property
    def stages(self) -> list[str]:
        return [event["stage"] for event in self.events]

    @property
    def last(self) -> dict[str, Any]:
        return self.events[-1]


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def policy() -> dict[str, Any]:
    return WHOLE


@pytest.fixture
def auditor(kept: Kept, policy: dict[str, Any]) -> Auditor:
    clock = itertools.count(1_700_000_000_000_000, 1_000_000)
    return Auditor(Policy(policy), kept, now=lambda: next(clock))


@pytest_asyncio.fixture
async def server(shared_server: Server, auditor: Auditor) -> AsyncIterator[Composed]:
    async with composed(shared_server, auditor=auditor) as made:
        yield made


def completed(kept: Kept, before: int) -> bool:
    return kept.stages.count("ResponseComplete") > before


def sent(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {}}


async def test_a_stage_has_the_time_at_which_it_was_reached(server: Composed, kept: Kept) -> None:
    await server.ask("GET", server.classes)
    received, complete = kept.events
    assert received["requestReceivedTimestamp"] == received["stageTimestamp"] == "2023-11-14T22:13:20.000000Z"
    assert complete["requestReceivedTimestamp"] == "2023-11-14T22:13:20.000000Z"
    assert complete["stageTimestamp"] == "2023-11-14T22:13:21.000000Z"


async def test_record_holds_the_clients_answer_in_every_form(server: Composed, kept: Kept) -> None:
    for i in range(40):
        note = {"note": f"{i}" * 8000}
        await server.ask("POST", server.classes, sent(f"n{i}", annotations=note))
        assert kept.last["requestObject"]["metadata"]["annotations"] == note

    async def listed(query: str = "", **headers: str) -> tuple[Answer, Any]:
        """The answer, and what is recorded of it, which is complete once it has been sent."""
        before = kept.stages.count("ResponseComplete")
        answer = await server.ask("GET", server.classes + query, **headers)
        await eventually(partial(completed, kept, before))
        return answer, kept.last["responseObject"]

    plain, recorded = await listed()
    assert recorded == plain.json
    assert (await listed(Accept_Encoding="gzip", Accept="application/vnd.kubernetes.protobuf"))[1] == plain.json
    assert (await listed("?limit=7", Accept="application/yaml"))[1]["items"] == plain.json["items"][:7]
    table, recorded = await listed(Accept=TABLE)
    assert recorded == table.json


@pytest.mark.parametrize("policy", [{"omitManagedFields": True, **WHOLE}])
@pytest.mark.parametrize("version", ["v1", "v1beta2"])
async def test_managed_fields_can_be_left_out_of_everything_but_patches(
    shared_server: Server, auditor: Auditor, kept: Kept, version: str
) -> None:
    async with composed(shared_server, "--runtime-config=api/all=true", auditor=auditor) as server:
        classes = f"/apis/{server.group}/{version}/deviceclasses"
        made = (await server.ask("POST", classes, sent("a", labels={"x": "y"}), User_Agent="me")).json
        expected = {name: value for name, value in made["metadata"].items() if name != "managedFields"}
        assert expected != made["metadata"]
        assert kept.last["responseObject"]["metadata"] == expected
        await server.ask("PUT", f"{classes}/a", made)
        assert kept.last["requestObject"]["metadata"] == kept.last["responseObject"]["metadata"] == expected
        for accept in ("application/json", "application/vnd.kubernetes.protobuf", TABLE):
            before = kept.stages.count("ResponseComplete")
            await server.ask("GET", classes, Accept=accept)
            await eventually(partial(completed, kept, before))
            answer = kept.last["responseObject"]
            rows = [row["object"] for row in answer.get("rows", ())] or answer["items"]
            assert [row["metadata"] for row in rows] == [expected]
            await server.ask("GET", f"{classes}/a", Accept=accept)
            assert "managedFields" not in json.dumps(kept.last["responseObject"])
        patch: dict[str, Any] = {"metadata": {"managedFields": [{}]}}
        await server.ask("PATCH", f"{classes}/a", patch, kind="application/merge-patch+json")
        assert kept.last["requestObject"] == patch


async def test_a_configuration_that_is_applied_as_yaml_is_recorded_as_json(server: Composed, kept: Kept) -> None:
    raw = YAML % server.group.encode()
    await server.ask("PATCH", f"{server.classes}/a?fieldManager=me", raw, kind=APPLY)
    assert kept.last["requestObject"]["metadata"] == {"name": "a", "labels": {"l": "<m>"}}
    assert kept.last["responseStatus"]["code"] == 422


@pytest.mark.parametrize("kind", [APPLY, "application/merge-patch+json"])
async def test_unreadable_patch_is_recorded_with_its_answer(server: Composed, kept: Kept, kind: str) -> None:
    await server.ask("POST", server.classes, sent("a"))
    await server.ask("PATCH", f"{server.classes}/a?fieldManager=me", b"{nope: [", kind=kind)
    assert "requestObject" not in kept.last
    assert kept.last["responseStatus"]["code"] == 400


@pytest.mark.parametrize("policy", [{"rules": [{"level": "Metadata"}]}, {"rules": [{"level": "Request"}]}])
async def test_lower_level_omits_objects_and_names_the_target(
    server: Composed, kept: Kept, policy: dict[str, Any]
) -> None:
    await server.ask("POST", server.classes, sent("a"))
    assert kept.last["objectRef"]["name"] == "a"
    assert ("requestObject" in kept.last) is (policy["rules"][0]["level"] == "Request")
    assert "responseObject" not in kept.last
    await server.ask("GET", f"{server.classes}/b")
    assert kept.last["responseStatus"]["reason"] == "NotFound"
    assert "responseObject" not in kept.last


@pytest.mark.parametrize(
    "policy",
    [{"omitStages": ["RequestReceived"], "rules": [{"level": "None", "users": ["jane"]}, {"level": "Metadata"}]}],
)
async def test_events_that_the_policy_leaves_out_are_counted_only(server: Composed, kept: Kept) -> None:
    levels = {name: metrics.AUDIT_LEVELS.labels(name) for name in ("None", "Metadata")}
    before = {name: level.value for name, level in levels.items()}
    events = metrics.AUDIT_EVENTS.only.value
    await server.ask("GET", server.classes)
    await server.ask("GET", server.classes, peer=JANE.peer)
    assert kept.stages == ["ResponseComplete"]
    assert {name: level.value - before[name] for name, level in levels.items()} == {"None": 1, "Metadata": 1}
    assert metrics.AUDIT_EVENTS.only.value - events == 1


async def test_request_that_cannot_be_recorded_first_is_not_served(server: Composed, kept: Kept) -> None:
    kept.failing = True
    before = metrics.AUDIT_REJECTIONS.only.value
    answer = await server.ask("POST", server.classes, sent("a"))
    assert (answer.status, answer.text) == (
        500,
        f'Internal Server Error: "{server.classes}": failed to store audit event\n',
    )
    assert metrics.AUDIT_REJECTIONS.only.value - before == 1
    kept.failing = False
    assert (await server.ask("GET", f"{server.classes}/a")).status == 404


async def test_a_request_waits_until_it_is_recorded(server: Composed, kept: Kept) -> None:
    kept.waiting = asyncio.Event()
    asking = asyncio.ensure_future(server.ask("POST", server.classes, sent("a")))
    await asyncio.sleep(0)
    kept.waiting.set()
    assert (await asking).status == 201
    assert kept.stages == ["RequestReceived", "ResponseComplete"]


async def test_unexpected_failure_is_recorded_as_a_panic(
    server: Composed, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of order")

    monkeypatch.setattr(rendering, "negotiate", broken)
    assert (await server.ask("GET", server.classes)).status == 500
    assert kept.stages == ["RequestReceived", "Panic"]
    assert kept.last["responseStatus"] == {
        "metadata": {},
        "status": "Failure",
        "message": "APIServer panic'd: out of order",
        "reason": "InternalError",
        "code": 500,
    }


async def test_timed_out_request_is_recorded_with_its_clients_answer(
    server: Composed, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(read, "page", never)
    assert (await server.ask("GET", f"{server.classes}?timeout=10ms")).status == 504
    assert kept.stages == ["RequestReceived", "ResponseComplete"]
    assert kept.last["responseStatus"]["code"] == 504


async def test_one_too_many_is_recorded_with_its_429(
    shared_server: Server, auditor: Auditor, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on, as_it_is = asyncio.Event(), asyncio.Event(), read.page

    async def late(*args: Any, **more: Any) -> Any:
        reached.set()
        await go_on.wait()
        return await as_it_is(*args, **more)

    monkeypatch.setattr(read, "page", late)
    async with composed(
        shared_server, "--no-enable-priority-and-fairness", "--max-requests-inflight=1", auditor=auditor
    ) as server:
        first = asyncio.ensure_future(server.ask("GET", server.classes))
        await reached.wait()
        assert (await server.ask("GET", server.classes, peer=JANE.peer)).status == 429
        assert kept.last["user"]["username"] == "jane"
        assert kept.last["responseStatus"] == {"metadata": {}, "code": 429}
        go_on.set()
        assert (await first).status == 200


async def test_a_client_that_goes_before_it_is_answered_leaves_a_record(
    server: Composed, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = asyncio.Event()

    async def never(*_: Any, **__: Any) -> Any:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(read, "page", never)
    connection = server.connect()
    connection.feed(f"GET {server.classes} HTTP/1.1\r\nHost: server\r\n\r\n".encode())
    await reached.wait()
    connection.transport.close()
    await eventually(lambda: len(kept.events) == 2)
    assert kept.last["stage"] == "ResponseComplete"
    assert kept.last["responseStatus"] == {
        "metadata": {},
        "status": "Success",
        "message": "Connection closed early",
        "code": 200,
    }


async def test_a_watch_is_recorded_when_it_begins_and_when_its_client_leaves(server: Composed, kept: Kept) -> None:
    connection = server.connect()
    connection.feed(f"GET {server.classes}?watch=1 HTTP/1.1\r\nHost: server\r\n\r\n".encode())
    await eventually(lambda: b"\r\n\r\n" in connection.transport.sent)
    assert kept.stages == ["RequestReceived", "ResponseStarted"]
    await server.ask("POST", server.classes, sent("a"))
    connection.transport.close()
    await eventually(lambda: len(kept.events) == 5)
    assert kept.last["stage"] == "ResponseComplete"
    assert kept.last["verb"] == "watch"
    assert kept.last["responseStatus"] == {"metadata": {}, "code": 200}
    assert "responseObject" not in kept.last


async def test_an_attempt_to_delete_what_cannot_be_read_is_noted(
    shared_server: Server, auditor: Auditor, kept: Kept
) -> None:
    option = "ignoreStoreReadErrorWithClusterBreakingPotential"
    async with composed(
        shared_server, "--feature-gates=AllowUnsafeMalformedObjectDeletion=true", auditor=auditor
    ) as server:
        await server.ask("DELETE", f"{server.classes}/a", {option: True})
        assert kept.last["annotations"] == {**ALLOWED, "apiserver.k8s.io/unsafe-delete-ignore-read-error": ""}
        await server.ask("DELETE", f"{server.classes}/a", {option: False})
        assert kept.last["annotations"] == ALLOWED


async def test_addresses_in_a_header_are_read_as_far_as_they_are_near(server: Composed, kept: Kept) -> None:
    far = ", ".join(["10.0.0.1"] * 100_000)
    await server.ask("GET", server.classes, X_Forwarded_For=f"{far}, 10.0.0.2")
    addresses = kept.last["sourceIPs"]
    assert len(addresses) < 500
    assert addresses[-2:] == ["10.0.0.2", "192.0.2.7"]
