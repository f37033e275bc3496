"""How webhooks are reached: what is sent, for how long, and how often."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from apiserver.admission.webhooks import calls, pacing
from apiserver.admission.webhooks.calls import Caller, CallFailed, Target
from apiserver.serving.steps import new_event_loop
from tests.unit.admission.webhooks import hook as plays
from tests.unit.admission.webhooks.hook import Hook

SYSTEM_BYTES = 64 << 20
"""Bytes of a connection that the kernel may buffer between the two ends."""


async def call(caller: Caller, hook: Hook, path: str = "/judge", *, seconds: float = 10.0) -> bytes:
    return await caller.call(Target.of(hook.config(path)), b'{"kind":"AdmissionReview"}', seconds=seconds)


async def test_a_review_is_posted_as_kube_apiserver_posts_it(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.answer("{}")]
    assert await call(caller, hook, "/judge//them/", seconds=2.3) == b"{}"
    (seen,) = hook.seen
    assert seen.line == "POST /judge/them?timeout=3s HTTP/1.1"
    assert seen.body == b'{"kind":"AdmissionReview"}'
    assert list(seen.headers.items()) == [
        ("Host", f"127.0.0.1:{hook.port}"),
        ("User-Agent", "kube-apiserver-admission"),
        ("Content-Length", "26"),
        ("Accept", "application/json, */*"),
        ("Content-Type", "application/json"),
        ("Accept-Encoding", "gzip"),
    ]


async def test_connections_are_reused(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.answer("{}")]
    for _ in range(3):
        await call(caller, hook)
    assert len({seen.peer for seen in hook.seen}) == 1


async def test_a_webhook_that_asks_for_a_pause_is_asked_again(hook: Hook, caller: Caller) -> None:
    hook.plays = [
        plays.answer("", "429 Too Many", Retry_After="0"),
        plays.answer("", "500 No", Retry_After="0"),
        plays.answer("{}"),
    ]
    assert await call(caller, hook) == b"{}"
    assert len(hook.seen) == 3


async def test_one_that_asks_for_pauses_without_end_is_given_up(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.answer("", "503 No", Retry_After="0")]
    with pytest.raises(CallFailed, match=r"^the server is currently unable to handle the request$"):
        await call(caller, hook)
    assert len(hook.seen) == 11


async def test_one_that_says_nothing_fails_when_its_time_is_over(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.hangs]
    with pytest.raises(CallFailed) as failed:
        await call(caller, hook, seconds=0.2)
    assert str(failed.value) == f'Post "https://127.0.0.1:{hook.port}/judge?timeout=1s": context deadline exceeded'


def redirects(status: int, location: str) -> plays.Play:
    return plays.answer("", f"{status} Elsewhere", Location=location)


@pytest.mark.parametrize(
    ("status", "line", "body"),
    [(301, "GET", b""), (302, "GET", b""), (303, "GET", b""), (307, "POST", b"{}"), (308, "POST", b"{}")],
)
async def test_redirects_are_followed(status: int, line: str, body: bytes, hook: Hook, caller: Caller) -> None:
    hook.plays = [redirects(status, "/other?x=1"), plays.answer("{}")]
    assert await caller.call(Target.of(hook.config("/v")), b"{}", seconds=10) == b"{}"
    seen = hook.seen[-1]
    assert (seen.line, seen.body) == (f"{line} /other?x=1 HTTP/1.1", body)
    assert seen.headers["Referer"] == f"https://127.0.0.1:{hook.port}/v?timeout=10s"
    assert ("Content-Type" in seen.headers) == bool(body)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/v", 'Post "/v": stopped after 10 redirects'),
        ("://bad", 'Post "URL": failed to parse Location header "://bad": parse "://bad": missing protocol scheme'),
        ("http://[::1/", 'Post "URL": failed to parse Location header "http://[::1/": parse "http://[::1/": missing \']\' in host'),
        ("ftp://x/y", 'Post "ftp://x/y": unsupported protocol scheme "ftp"'),
    ],
)  # fmt: skip
async def test_redirects_that_lead_nowhere_are_reported(location: str, words: str, hook: Hook, caller: Caller) -> None:
    hook.plays = [redirects(307, location)]
    with pytest.raises(CallFailed) as failed:
        await call(caller, hook, "/v")
    assert str(failed.value) == words.replace("URL", f"https://127.0.0.1:{hook.port}/v?timeout=10s")


async def test_a_connection_that_was_closed_meanwhile_is_replaced(hook: Hook, caller: Caller) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    hook.plays = [plays.says(answer, then_closes=True)]
    for _ in range(3):
        assert await call(caller, hook) == b"{}"
    assert len({seen.peer for seen in hook.seen}) == 3


async def test_unreachable_webhook_after_closed_connections_is_reported_at_once(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", then_closes=True)]
    await call(caller, hook)
    await hook.stop()
    with pytest.raises(CallFailed, match=r"connect: connection refused$"):
        await call(caller, hook)


async def test_long_questions_and_long_answers_pass(hook: Hook, caller: Caller) -> None:
    review, long = b'"' + b"x" * (4 << 20) + b'"', "y" * (5 << 20)
    hook.plays = [plays.answer(long)]
    assert await caller.call(Target.of(hook.config()), review, seconds=60) == long.encode()
    assert hook.seen[0].body == review


async def test_an_answer_without_end_is_given_up(hook: Hook, caller: Caller) -> None:
    """The sender waits until the server has looked at the received part: the whole is never in memory."""
    sent = 0

    async def endless(exchange: plays.Exchange) -> None:
        nonlocal sent
        exchange.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            exchange.send(b"z" * (1 << 18))
            sent += 1 << 18
            await exchange.writer.drain()
            await asyncio.sleep(0)  # only the loop notices a disconnected peer, and a drain need not give it its turn

    hook.plays = [endless]
    with pytest.raises(CallFailed, match=r"Please retry\. Original error: http: response body too large$"):
        await call(caller, hook, seconds=60)
    assert sent < pacing.MOST_BODY + SYSTEM_BYTES


async def test_an_answer_of_many_small_chunks_holds_nothing_up(hook: Hook, caller: Caller) -> None:
    """The meter of the event loop judges it."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    hook.plays = [plays.says(head + b"1\r\n{\r\n" + b"1\r\n \r\n" * 60_000 + b"1\r\n}\r\n0\r\n\r\n")]
    assert (await call(caller, hook, seconds=60)).replace(b" ", b"") == b"{}"


async def test_a_packed_answer_is_unpacked(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.answer(gzip.compress(b"{}"), Content_Encoding="gzip")]
    assert await call(caller, hook) == b"{}"


async def test_a_hundred_slow_calls_keep_no_other_waiting(hook: Hook, caller: Caller) -> None:
    all_hang = asyncio.Barrier(101)

    async def hangs(exchange: plays.Exchange) -> None:
        await all_hang.wait()
        await plays.hangs(exchange)

    hook.plays = [*[hangs] * 100, plays.answer("{}")]
    slow = [asyncio.create_task(call(caller, hook, seconds=300)) for _ in range(100)]
    await all_hang.wait()
    assert await call(caller, hook, seconds=60) == b"{}"
    await caller.close()
    for failed in await asyncio.gather(*slow, return_exceptions=True):
        assert isinstance(failed, CallFailed)


async def test_more_targets_than_are_kept_are_called_all_the_same(
    hook: Hook, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CLIENTS", 2)
    hook.plays = [plays.answer("{}")]
    for path in ("/a", "/b", "/c", "/a"):
        assert await call(caller, hook, path) == b"{}"


def test_the_event_loop_that_serves_calls_as_well(tmp_path: Path) -> None:
    """Its transports are others than those of asyncio, with which the rest is tested."""

    async def story() -> None:
        hook, caller = await Hook(tmp_path).start(), Caller()
        hook.plays = [plays.answer("{}"), plays.says(b"", then_closes=True)]
        assert await call(caller, hook) == b"{}"
        with pytest.raises(CallFailed, match=r": EOF$"):
            await call(caller, hook)
        await caller.close()
        await hook.stop()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())
