"""When the times of managers move, on a clock that tests turn."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver import app, metrics
from apiserver.apimachinery import meta
from apiserver.schema.resource import Object
from apiserver.verbs.context import Services
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server

APPLY = "application/apply-patch+yaml"
START = 1_800_000_000.0


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """That of the server, in place of its own."""
    clock = Clock()
    monkeypatch.setattr(app, "Services", lambda **parts: Services(**{**parts, "now": clock}))
    return clock


@pytest_asyncio.fixture
async def server(shared_server: Server, clock: Clock) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


def claim(server: Composed, **labels: str) -> Object:
    """A claim whose requests get defaults, so that the applied value is never the stored one."""
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    metadata = {"name": "c", "labels": labels}
    head = {"apiVersion": f"{server.group}/v1", "kind": "ResourceClaim"}
    return {**head, "metadata": metadata, "spec": {"devices": {"requests": requests}}}


async def apply(server: Composed, obj: Object) -> Answer:
    answer = await server.ask("PATCH", f"{server.claims}/c?fieldManager=me", obj, kind=APPLY)
    assert answer.status in (200, 201), answer.text
    return answer


def times(answer: Answer) -> dict[str, Any]:
    return {entry["manager"]: entry.get("time") for entry in answer.json["metadata"]["managedFields"]}


def compared() -> dict[str, int]:
    """How often, by the way it went."""
    return {values[0]: child.count for values, child in metrics.TIMESTAMP_COMPARISON_SECONDS.children()}


async def test_apply_that_changes_nothing_keeps_its_time_and_is_not_written(server: Composed, clock: Clock) -> None:
    made = await apply(server, claim(server, a="1"))
    before = compared().get("equal_objects", 0)
    clock.time += 60

    again = await apply(server, claim(server, a="1"))

    assert again.json == made.json
    assert compared()["equal_objects"] == before + 1


async def test_apply_that_changes_a_value_gets_the_time_of_its_write(server: Composed, clock: Clock) -> None:
    await apply(server, claim(server, a="1"))
    before = compared().get("unequal_objects_slow", 0)
    clock.time += 60

    changed = await apply(server, claim(server, a="2"))

    assert times(changed) == {"me": meta.rfc3339(START + 60)}
    assert compared()["unequal_objects_slow"] == before + 1


async def test_the_times_of_other_managers_stay_also_when_they_lose_something(server: Composed, clock: Clock) -> None:
    await apply(server, claim(server, a="1", b="1"))
    before = compared().get("unequal_objects_fast", 0)
    clock.time += 60
    path = f"{server.claims}/c?fieldManager=other"

    taken = await server.ask("PATCH", path, {"metadata": {"labels": {"b": "2"}}}, kind=MERGE_PATCH)

    assert times(taken) == {"me": meta.rfc3339(START), "other": meta.rfc3339(START + 60)}
    assert compared()["unequal_objects_fast"] == before + 1


@pytest.mark.parametrize(
    ("agent", "manager"),
    [
        ("caf\udce9/1", "caf\ufffd"),
        ("\udcff\udcfe", "\ufffd\ufffd"),
        ("grün/1", "grün"),
        ("a\udc80" * 200, "a\ufffd" * 32),
        ("\u00ad\u2028", "unknown"),
    ],
)
async def test_unreadable_user_agent_is_named_by_its_printable_part(server: Composed, agent: str, manager: str) -> None:
    """Surrogates stand for bytes that are no UTF-8."""
    made = await server.ask("POST", server.claims, claim(server, a="1"), User_Agent=agent)

    assert list(times(made)) == [manager]


async def test_apply_with_unreadable_managers_reports_which(server: Composed) -> None:
    """Named managers are an error; so is a malformed time of an applier, unless there is a conflict first."""
    odd = claim(server, a="1")
    odd["metadata"]["managedFields"] = [{"manager": "x", "time": "soon"}]
    path = f"{server.claims}/c?fieldManager=me"
    kind = f"{server.group}/v1, Kind=ResourceClaim"
    told = (
        f"failed to convert new object (/c; {kind}) to proper version: unable to convert unstructured object to {kind}: "
        'parsing time "soon" as "2006-01-02T15:04:05Z07:00": cannot parse "soon" as "2006"'
    )
    for _ in range(2):
        refused = await server.ask("PATCH", path, odd, kind=APPLY)
        assert (refused.status, refused.json["message"]) == (500, told)
        await apply(server, claim(server, a="1"))
    other = {**odd, "metadata": {**odd["metadata"], "labels": {"a": "2"}}}
    conflict = await server.ask("PATCH", path.replace("=me", "=you"), other, kind=APPLY)
    assert conflict.status == 409
