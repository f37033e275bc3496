"""Requests wait fairly for seats, and are refused in upstream's words."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery.request import User
from apiserver.filters import fairness
from apiserver.filters.fairness import priority_and_fairness
from apiserver.filters.state import Handler, Request
from apiserver.flowcontrol import bootstrap
from apiserver.flowcontrol.control import FlowControl
from apiserver.flowcontrol.estimates import Estimator, Stored
from apiserver.flowcontrol.types import PriorityLevel, Queuing
from apiserver.flowcontrol.watches import Watches
from tests.fixtures.connection import Connection
from tests.unit.cluster.plane import until
from tests.unit.filters.chain import ADMIN, JANE, V1, as_user, connect, outer

KIM = User("kim", groups=("system:authenticated",))
NODES = f"{V1}/nodes"
LEVEL, SCHEMA = "X-Kubernetes-PF-PriorityLevel-UID", "X-Kubernetes-PF-FlowSchema-UID"


class Gate:
    """A handler that answers when the test lets it. `begins`: a watch has sent its initial events."""

    def __init__(self, *, begins: bool = False) -> None:
        self.open = asyncio.Event()
        self.entered: asyncio.Queue[str] = asyncio.Queue()
        self.begins = begins

    async def __call__(self, request: Request) -> web.StreamResponse:
        if self.begins:
            request.exchange.begun()
        self.entered.put_nowait(request.user.name)
        await self.open.wait()
        return web.Response(text="fine")


class Rig:
    """One level for all but administrators."""

    def __init__(
        self, gate: Gate, *, seats: int = 1, queuing: Queuing | None = None, seconds: float = 60, watching: int = 10
    ) -> None:
        self.gate = gate
        self.control = FlowControl(lambda: seats)
        level = PriorityLevel(name="catch-all", uid="level", shares=1, borrowing=0, queuing=queuing)
        self.control.configure([bootstrap.CATCH_ALL_SCHEMA], [level])
        watches = Watches({})
        self.handler = priority_and_fairness(
            gate,
            control=self.control,
            estimate=Estimator(lambda _: Stored(5, 5000), watches),
            watches=watches,
            seconds=seconds,
            watching=lambda: watching,
        )

    def as_user(self, user: User) -> Handler:
        return as_user(self.handler, user)

    def send(self, user: User, target: str = NODES, method: str = "GET") -> Connection:
        connection = Connection(outer(self.as_user(user)))
        connection.feed(f"{method} {target} HTTP/1.1\r\nHost: s\r\n\r\n".encode())
        return connection

    async def waiting(self, number: int) -> None:
        """Wait until so many requests wait for seats."""
        await until(lambda: self.control.levels["catch-all"].queues.waiting == number)


QUEUES = Queuing(queues=64, hand=1, length=3)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_request_without_a_seat_gets_429_in_upstreams_words(method: str) -> None:
    rig = Rig(Gate())
    first = rig.send(JANE)
    await rig.gate.entered.get()
    kind = metrics.DROPPED.labels("readOnly" if method == "GET" else "mutating")
    before = kind.value
    refused = await connect(rig.as_user(KIM)).ask(method, NODES)
    assert (refused.status, refused.text) == (429, "Too many requests, please try again later.\n")
    assert refused.headers["Retry-After"] == "1"
    assert refused.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert refused.headers["X-Content-Type-Options"] == "nosniff"
    assert (refused.headers[LEVEL], refused.headers[SCHEMA]) == ("level", bootstrap.CATCH_ALL_SCHEMA.uid)
    assert kind.value == before + 1
    rig.gate.open.set()
    answer = await first.answer()
    assert (answer.status, answer.headers[LEVEL]) == (200, "level")


async def test_request_waits_for_a_seat_and_is_served() -> None:
    rig = Rig(Gate(), queuing=QUEUES)
    rig.send(JANE)
    await rig.gate.entered.get()
    second = rig.send(KIM)
    await rig.waiting(1)
    assert metrics.IN_QUEUE.labels("readOnly").value == 1
    rig.gate.open.set()
    assert (await second.answer()).status == 200
    assert metrics.IN_QUEUE.labels("readOnly").value == 0
    assert metrics.IN_FLIGHT.labels("readOnly").value == 0


async def test_request_that_waits_for_a_quarter_of_its_time_gets_429() -> None:
    rig = Rig(Gate(), queuing=QUEUES, seconds=0.2)
    rig.send(JANE)
    await rig.gate.entered.get()
    assert (await connect(rig.as_user(KIM)).ask("GET", NODES)).status == 429
    assert rig.control.levels["catch-all"].queues.cancelled == 1
    rig.gate.open.set()


async def test_timeout_of_the_client_shortens_its_wait() -> None:
    rig = Rig(Gate(), queuing=QUEUES, seconds=3600)
    rig.send(JANE)
    await rig.gate.entered.get()
    assert (await connect(rig.as_user(KIM)).ask("GET", f"{NODES}?timeout=100ms")).status == 429
    rig.gate.open.set()


async def test_storm_of_one_user_does_not_delay_another() -> None:
    rig = Rig(Gate(), queuing=Queuing(queues=64, hand=1, length=100))
    served = [rig.send(JANE)]
    assert await rig.gate.entered.get() == "jane"
    served += [rig.send(JANE) for _ in range(50)]
    await rig.waiting(50)
    served.append(rig.send(KIM))
    await rig.waiting(51)
    rig.gate.open.set()
    order = [await rig.gate.entered.get() for _ in range(51)]
    assert "kim" in order[:2]
    for connection in served:
        assert (await connection.answer()).status == 200


async def test_client_that_leaves_its_queue_frees_its_place() -> None:
    rig = Rig(Gate(), queuing=Queuing(queues=1, hand=1, length=1))
    rig.send(JANE)
    await rig.gate.entered.get()
    leaving = rig.send(KIM)
    await rig.waiting(1)
    assert (await connect(rig.as_user(KIM)).ask("GET", NODES)).status == 429
    await leaving.close()
    await rig.waiting(0)
    rig.send(KIM)
    await rig.waiting(1)
    rig.gate.open.set()


async def test_client_that_leaves_while_it_is_served_frees_its_seat() -> None:
    rig = Rig(Gate(), queuing=QUEUES)
    leaving = rig.send(JANE)
    await rig.gate.entered.get()
    rig.send(KIM)
    await rig.waiting(1)
    await leaving.close()
    assert await rig.gate.entered.get() == "kim"
    rig.gate.open.set()


async def test_waiting_requests_take_limited_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "WAITING_BYTES", 3 * fairness.HEAD_BYTES)
    rig = Rig(Gate(), queuing=Queuing(queues=64, hand=1, length=100))
    rig.send(JANE)
    await rig.gate.entered.get()
    small = [rig.send(KIM) for _ in range(2)]
    await rig.waiting(2)
    assert (await connect(rig.as_user(KIM)).ask("GET", f"{NODES}?{'x' * 2 * fairness.HEAD_BYTES}")).status == 429
    rig.gate.open.set()
    for connection in small:
        assert (await connection.answer()).status == 200


async def test_watch_keeps_its_seat_until_its_initial_events_are_sent() -> None:
    starting = Rig(Gate(), queuing=QUEUES)
    starting.send(JANE, f"{NODES}?watch=1")
    await starting.gate.entered.get()
    starting.send(KIM)
    await starting.waiting(1)
    begun = Rig(Gate(begins=True), queuing=QUEUES)
    begun.send(JANE, f"{NODES}?watch=1")
    await begun.gate.entered.get()
    begun.send(KIM)
    assert await begun.gate.entered.get() == "kim"
    for rig in (starting, begun):
        rig.gate.open.set()


async def test_watch_that_ends_before_it_began_frees_its_seat() -> None:
    rig = Rig(Gate(), queuing=QUEUES)
    leaving = rig.send(JANE, f"{NODES}?watch=1")
    await rig.gate.entered.get()
    await leaving.close()
    rig.send(KIM)
    assert await rig.gate.entered.get() == "kim"
    rig.gate.open.set()


async def test_watches_have_a_limit_of_their_own() -> None:
    rig = Rig(Gate(begins=True), queuing=QUEUES, watching=1)
    rig.send(JANE, f"{NODES}?watch=1")
    await rig.gate.entered.get()
    refused = await connect(rig.as_user(KIM)).ask("GET", f"{NODES}?watch=1")
    assert (refused.status, refused.json["reason"], refused.headers["Retry-After"]) == (429, "TooManyRequests", "1")
    rig.send(ADMIN, f"{NODES}?watch=1")
    assert await rig.gate.entered.get() == "admin"
    rig.gate.open.set()


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz", "/livez/ping", "/readyz?verbose"])
async def test_health_check_never_waits(path: str) -> None:
    rig = Rig(Gate())
    rig.send(JANE)
    await rig.gate.entered.get()
    for _ in range(3):
        rig.send(KIM, path)
        assert await rig.gate.entered.get() == "kim"
    rig.gate.open.set()


async def test_administrators_never_wait() -> None:
    rig = Rig(Gate())
    rig.send(JANE)
    await rig.gate.entered.get()
    rig.send(ADMIN)
    assert await rig.gate.entered.get() == "admin"
    rig.gate.open.set()
