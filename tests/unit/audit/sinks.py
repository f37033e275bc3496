"""Events, a backend that remembers what it got, and what was counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apiserver import metrics
from apiserver.apimachinery.request import Level, User
from apiserver.audit.event import Event, Stage

JANE = User("jane", groups=("devs", "system:authenticated"))


def event(
    audit_id: str = "id",
    *,
    uri: str = "/apis/things.example.com/v1/things",
    level: Level = Level.REQUEST_RESPONSE,
    request: Sequence[bytes] = (),
    response: Sequence[bytes] = (),
    annotations: Mapping[str, str] | None = None,
) -> Event:
    return Event(
        level=level,
        audit_id=audit_id,
        stage=Stage.RESPONSE_COMPLETE,
        request_uri=uri,
        verb="list",
        user=JANE,
        acting=None,
        constraint="",
        source_ips=("10.0.0.1",),
        user_agent="kubectl",
        object_ref={"resource": "things", "apiGroup": "things.example.com", "apiVersion": "v1"},
        status={"code": 200},
        request_object=request,
        response_object=response,
        received=1_700_000_000_000_000,
        at=1_700_000_000_000_500,
        annotations=annotations or {},
    )


def events(*ids: object) -> list[Event]:
    return [event(str(audit_id)) for audit_id in ids]


def ids(batch: Sequence[Event]) -> list[str]:
    return [each.audit_id for each in batch]


def lost(plugin: str) -> float:
    return metrics.AUDIT_ERRORS.labels(plugin).value


class Recording:
    """A backend. While it is `closed`, callers wait; it answers `answer`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.calls: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.answer = True
        self.inside = 0

    async def process(self, events: Sequence[Event]) -> bool:
        self.batches.append(ids(events))
        self.inside += 1
        try:
            await self.open.wait()
        finally:
            self.inside -= 1
        return self.answer

    def start(self) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")


async def until(condition: Callable[[], Any]) -> None:
    """Lets everything else run until `condition` holds; the test's own timeout is the deadline."""
    while not condition():  # noqa: ASYNC110 - what is waited for is state, not an event
        await asyncio.sleep(0.001)
