"""Requests to a webhook over real TLS, and the fate of events that it refuses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from apiserver.audit import webhook as webhooks
from apiserver.audit.webhook import Webhook
from tests.unit.audit.sinks import event, events, lost, until
from tests.unit.cluster.plane import Clock, Plane, answer, encoded, hang, reset, status

PATH = "/audit"


@pytest_asyncio.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    folder = tmp_path / "plane"
    folder.mkdir()
    made = await Plane(folder).start()
    yield made
    await made.stop()


@asynccontextmanager
async def opened(
    plane: Plane, clock: Clock | None = None, *, backoff: float = 10.0, path: str = PATH, **user: Any
) -> AsyncIterator[Webhook]:
    kubeconfig = plane.kubeconfig(user or {"token": "ours"}, server=plane.url + path)
    webhook = Webhook(kubeconfig, {}, backoff=backoff, sleep=(clock or Clock()).sleep, random=lambda: 0.0)
    webhook.start()
    yield webhook
    await webhook.stop()


class Held:
    """A webhook that answers when it is let."""

    def __init__(self) -> None:
        self.free = asyncio.Event()
        self.inside = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.inside += 1
        await self.free.wait()
        return await answer({})(request)


async def test_events_are_posted_as_kube_apiserver_posts_them(plane: Plane) -> None:
    raw: list[bytes] = []

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        raw.append(await request.read())
        return web.Response()

    plane.on("/some/path", reply)
    one, two = event("1", response=[b'{"a":', b'"<"}']), event("2")
    async with opened(plane, path="/some/path/?x=y") as webhook:
        assert await webhook.process([one, two])
    (seen,) = plane.seen
    assert (seen.method, seen.path, dict(seen.query)) == ("POST", "/some/path", {"timeout": "30s"})
    expected = {"Accept": "application/json, */*", "Content-Type": "application/json", "Authorization": "Bearer ours"}
    assert {name: seen.headers[name] for name in expected} == expected
    assert seen.headers["Content-Length"] == str(len(raw[0]))
    items = b",".join(b"".join(each.item()) for each in (one, two))
    assert raw == [b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[' + items + b"]}\n"]


async def test_a_server_without_a_path_is_asked_for_its_root(plane: Plane) -> None:
    plane.on("/", answer({}))
    async with opened(plane, path="") as webhook:
        assert await webhook.process(events(1))


async def test_the_client_certificate_of_the_kubeconfig_is_shown(plane: Plane) -> None:
    plane.on(PATH, answer({}))
    pair = plane.client_pair("auditor")
    user: dict[str, Any] = {"client-certificate-data": encoded(pair.cert_pem), "client-key-data": encoded(pair.key_pem)}
    async with opened(plane, **user) as webhook:
        assert await webhook.process(events(1))
    assert plane.seen[0].subject == "auditor"


async def test_webhook_with_an_untrusted_certificate_gets_nothing(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    plane.on(PATH, answer({}))
    other = await Plane(plane.folder).start()
    kubeconfig, clock = other.kubeconfig({"token": "ours"}, server=plane.url), Clock()
    await other.stop()
    webhook = Webhook(kubeconfig, {}, backoff=1, sleep=clock.sleep, random=lambda: 0.0)
    assert not await webhook.process(events(1))
    await webhook.stop()
    assert plane.seen == []
    assert "the server's certificate is not accepted" in caplog.text


@pytest.mark.parametrize(
    "failure",
    [status(500, "oh"), status(403, "no"), answer({}, 302, Location="/elsewhere"), reset],
    ids=["500", "403", "302", "reset"],
)
async def test_every_failure_is_a_reason_to_try_again(plane: Plane, failure: Any) -> None:
    clock, before = Clock(), lost("webhook")
    plane.on(PATH, failure, failure, answer({}))
    async with opened(plane, clock) as webhook:
        assert await webhook.process(events(1))
    assert len(plane.seen) == 3
    assert clock.slept == [10, 15]
    assert lost("webhook") == before


async def test_the_fifth_failure_is_the_last(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    clock, before = Clock(), lost("webhook")
    plane.on(PATH, status(500, "out of paper"))
    async with opened(plane, clock, backoff=0.1) as webhook:
        assert not await webhook.process(events(1, 2))
    assert len(plane.seen) == 5
    assert clock.slept == [0.1, 0.15, 0.225, 0.3375]
    assert lost("webhook") == before + 2
    assert "Error in audit plugin 'webhook' affecting 2 audit events: out of paper\nImpacted events:\n" in caplog.text


async def test_a_longer_pause_is_granted_but_not_an_endless_one(plane: Plane) -> None:
    clock = Clock()
    plane.on(PATH, status(429, "busy", Retry_After="20"), status(429, "busy", Retry_After="9999999"), answer({}))
    async with opened(plane, clock) as webhook:
        assert await webhook.process(events(1))
    assert clock.slept == [20, webhooks.LONGEST_PAUSE]


async def test_unreachable_webhook_is_tried_again(plane: Plane) -> None:
    clock = Clock()
    async with opened(plane, clock) as webhook:
        await plane.stop()
        assert not await webhook.process(events(1))
    assert len(clock.slept) == 4
    await plane.start()


async def test_a_webhook_that_does_not_answer_is_given_up(
    plane: Plane, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(webhooks, "SECONDS", 0.05)
    plane.on(PATH, hang)
    clock = Clock()
    async with opened(plane, clock) as webhook:
        assert not await webhook.process(events(1))
    assert len(clock.slept) == 4
    assert re.search(r"no answer within 0\.0\d+ s", caplog.text)  # less the time until it was asked


async def test_an_answer_that_is_too_long_is_not_kept(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    plane.on(PATH, answer(b"x" * (webhooks.ANSWER_BYTES + 1)))
    async with opened(plane) as webhook:
        assert not await webhook.process(events(1))
    assert f"the answer is longer than {webhooks.ANSWER_BYTES} bytes" in caplog.text


async def test_credentials_that_cannot_be_had_are_tried_again(plane: Plane, caplog: pytest.LogCaptureFixture) -> None:
    plane.on(PATH, answer({}))
    token = plane.folder / "token"
    clock = Clock()

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        token.write_text("late")

    kubeconfig = plane.kubeconfig({"tokenFile": str(token)}, server=plane.url + PATH)
    webhook = Webhook(kubeconfig, {}, backoff=1, sleep=sleep, random=lambda: 0.0)
    assert await webhook.process(events(1))
    await webhook.stop()
    assert plane.seen[0].headers["Authorization"] == "Bearer late"
    assert clock.slept == [1]


async def test_large_events_arrive_whole_and_hold_up_no_step_of_the_loop(plane: Plane) -> None:
    """The budget is the test session's."""
    lengths: list[int] = []

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        length = 0
        async for chunk in request.content.iter_any():
            length += len(chunk)
        lengths.append(length)
        return web.Response()

    large = event(uri="/" + "é<" * 100_000, response=[b'"', *[b"x" * (1 << 19)] * 8, b'"'])
    async with receiving(plane, reply) as url:
        kubeconfig = plane.kubeconfig({"token": "ours"}, server=url)
        webhook = Webhook(kubeconfig, {}, backoff=1)
        assert await webhook.process([large, *events(2)])
        await webhook.stop()
    (length,) = lengths
    assert length > 4 << 20


@asynccontextmanager
async def receiving(plane: Plane, reply: Callable[[web.BaseRequest], Any]) -> AsyncIterator[str]:
    """A server without TLS that reads nothing by itself."""
    runner = web.ServerRunner(web.Server(reply, access_log=None))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_disconnected_client_does_not_lose_its_audit_events(plane: Plane) -> None:
    held, before = Held(), lost("webhook")
    plane.on(PATH, held)
    async with opened(plane) as webhook:
        gone = asyncio.create_task(webhook.process(events("gone")))
        await until(lambda: held.inside)
        gone.cancel()
        await asyncio.wait((gone,))
        held.free.set()
    assert [item["auditID"] for item in plane.seen[0].body["items"]] == ["gone"]
    assert lost("webhook") == before


async def test_bytes_in_flight_are_bounded(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "SENDING_BYTES", 10_000)
    held, before = Held(), lost("webhook")
    plane.on(PATH, held)
    async with opened(plane) as webhook:
        large = [event(response=[b'"', b"x" * 8000, b'"'])]
        coming = [asyncio.create_task(webhook.process(large)) for _ in range(4)]
        gone = asyncio.create_task(webhook.process(events("gone")))
        await until(lambda: held.inside == 1)
        gone.cancel()
        await asyncio.wait((gone,))
        assert lost("webhook") == before + 1
        held.free.set()
        assert await asyncio.gather(*coming) == [True] * 4
    assert len(plane.seen) == 4


async def test_stop_waits_for_a_slow_webhook_and_nothing_comes_afterwards(plane: Plane) -> None:
    held, before = Held(), lost("webhook")
    plane.on(PATH, held)
    async with opened(plane) as webhook:
        coming = [asyncio.create_task(webhook.process(events(n))) for n in range(3)]
        await until(lambda: held.inside == 3)
        stopping = asyncio.create_task(webhook.stop())
        await asyncio.sleep(0)
        assert not await webhook.process(events("late"))
        assert lost("webhook") == before + 1
        assert not stopping.done()
        held.free.set()
        await stopping
        assert await asyncio.gather(*coming) == [True] * 3


async def test_a_stop_that_is_broken_off_counts_what_is_on_its_way(
    plane: Plane, caplog: pytest.LogCaptureFixture
) -> None:
    held, before = Held(), lost("webhook")
    plane.on(PATH, held)
    async with opened(plane) as webhook:
        coming = asyncio.create_task(webhook.process(events(1, 2)))
        await until(lambda: held.inside)
        stopping = asyncio.create_task(webhook.stop())
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait((stopping, coming))
    assert lost("webhook") == before + 2
    assert "affecting 2 audit events: audit backend shut down\n" in caplog.text
