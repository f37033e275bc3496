"""Audit and tracing are filters: one file and one line of the composition, here a recorder of who did what, and of what passed."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from apiserver import app
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Decision, Level
from apiserver.filters import impersonate
from apiserver.filters.state import Filter, Handler, Request
from tests.fixtures.composed import JANE, Composed, composed
from tests.fixtures.valkey import Server, eventually


@dataclass
class Record:
    """One request, as an auditor sees it."""

    verb: str
    user: str
    impersonated: str = ""
    status: int = 0
    decision: Decision | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    request_body: bytes = b""
    pieces: list[bytes] = field(default_factory=list)

    def received(self, data: bytes) -> None:
        self.request_body += data

    def sent(self, data: bytes) -> None:
        self.pieces.append(data)

    @property
    def response(self) -> Any:
        return json.loads(b"".join(self.pieces))


def recorder(handler: Handler, *, records: list[Record]) -> Handler:
    """Stands between authentication and impersonation, as upstream's audit does."""

    async def recording(request: Request) -> web.StreamResponse:
        record = Record(request.info.verb, request.user.name)
        records.append(record)
        request.exchange.tap(record)
        try:
            response = await handler(request)
            record.status = response.status
            return response
        except StatusError as e:
            record.status = e.code
            raise
        finally:
            record.impersonated = request.user.name if request.impersonator is not None else ""
            assert request.impersonator is None or request.impersonator.name == record.user
            record.decision = request.decision
            record.annotations = request.exchange.annotations.seen_at(Level.METADATA)

    return recording


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """What the recorder saw; the composition has it as one more line."""
    found: list[Record] = []
    as_it_is = app.filters

    def with_one_more(*args: Any, **more: Any) -> list[Filter]:
        filters = as_it_is(*args, **more)
        before = next(i for i, f in enumerate(filters) if getattr(f, "func", f) is impersonate.impersonate)
        return [*filters[:before], lambda handler: recorder(handler, records=found), *filters[before:]]

    monkeypatch.setattr(app, "filters", with_one_more)
    return found


@pytest_asyncio.fixture
async def server(shared_server: Server, records: list[Record]) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


ALLOWED = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}


async def test_a_create_is_seen_with_both_bodies_and_what_was_decided(server: Composed, records: list[Record]) -> None:
    sent = {"metadata": {"name": "a"}, "spec": {}}
    answer = await server.ask("POST", server.classes, sent)
    (record,) = records
    assert (record.verb, record.user, record.impersonated, record.status) == ("create", "admin", "", 201)
    assert json.loads(record.request_body) == sent
    assert record.response == answer.json
    assert record.decision == Decision(allowed=True)
    assert record.annotations == ALLOWED


async def test_who_acts_as_somebody_else_is_seen_as_both(server: Composed, records: list[Record]) -> None:
    answer = await server.ask("GET", server.classes, Impersonate_User="bob")
    (record,) = records
    assert (record.user, record.impersonated) == ("admin", "bob")
    assert (answer.status, record.status) == (403, 403)
    assert record.annotations["authorization.k8s.io/decision"] == "forbid"
    assert record.decision is not None
    assert not record.decision.allowed
    assert record.response == answer.json


async def test_an_attempt_to_delete_what_cannot_be_read_is_noted(shared_server: Server, records: list[Record]) -> None:
    option = "ignoreStoreReadErrorWithClusterBreakingPotential"
    async with composed(shared_server, "--feature-gates=AllowUnsafeMalformedObjectDeletion=true") as server:
        await server.ask("DELETE", f"{server.classes}/a", {option: True})
        await server.ask("DELETE", f"{server.classes}/a", {option: False})
    attempt, ordinary = records
    assert attempt.annotations == {**ALLOWED, "apiserver.k8s.io/unsafe-delete-ignore-read-error": ""}
    assert ordinary.annotations == ALLOWED


async def test_a_refusal_is_seen_as_the_client_sees_it(server: Composed, records: list[Record]) -> None:
    answer = await server.ask("POST", server.classes, b"{")
    (record,) = records
    assert (record.status, record.request_body) == (400, b"{")
    assert record.response == answer.json
    forbidden = await server.ask("DELETE", f"{server.classes}/a", peer=JANE.peer)
    assert (records[-1].user, records[-1].response) == ("jane", forbidden.json)


async def test_a_streamed_list_is_seen_whole_before_compression(server: Composed, records: list[Record]) -> None:
    for i in range(40):
        note = {"note": f"{i}" * 8000}
        await server.ask("POST", server.classes, {"metadata": {"name": f"n{i}", "annotations": note}, "spec": {}})
    plain = await server.ask("GET", server.classes)
    assert len(plain.body) > 512 << 10
    assert len(records[-1].pieces) > 1
    assert records[-1].response == plain.json
    packed = await server.ask("GET", server.classes, Accept_Encoding="gzip")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert b"".join(records[-1].pieces) == gzip.decompress(packed.body)
    assert records[-1].response["items"] == plain.json["items"]


async def test_a_watch_is_seen_event_by_event(server: Composed, records: list[Record]) -> None:
    await server.ask("POST", server.classes, {"metadata": {"name": "old"}, "spec": {}})
    watching = asyncio.ensure_future(server.ask("GET", f"{server.classes}?watch=1&timeoutSeconds=3600"))
    await eventually(lambda: any(record.verb == "watch" and record.pieces for record in records))
    record = records[-1]
    for name in ("a", "b"):
        await server.ask("POST", server.classes, {"metadata": {"name": name}, "spec": {}})
    server.stores.end_watches()
    answer = await watching
    assert b"".join(record.pieces) == answer.body
    events = [json.loads(line) for line in answer.body.splitlines()]
    assert [(e["type"], e["object"]["metadata"]["name"]) for e in events] == [
        ("ADDED", "old"),
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]
    assert record.annotations == ALLOWED


async def test_an_answer_to_head_has_no_body_to_see(server: Composed, records: list[Record]) -> None:
    await server.ask("PUT", server.classes)
    await server.connect().ask("HEAD", server.classes)
    assert [(record.status, bool(record.pieces)) for record in records] == [(405, True), (405, False)]
