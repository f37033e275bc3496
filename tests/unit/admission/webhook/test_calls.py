"""How webhooks are reached: what is sent, for how long, and how often."""

from __future__ import annotations

import pytest

from apiserver.admission.webhook.calls import Caller, CallFailed, Target
from tests.unit.admission.webhook import hook as plays
from tests.unit.admission.webhook.hook import Hook


async def call(caller: Caller, hook: Hook, path: str = "/judge", *, seconds: float = 10.0) -> bytes:
    return await caller.call(Target.of(hook.config(path)), b'{"kind":"AdmissionReview"}', seconds=seconds)


async def test_a_review_is_posted_as_kube_apiserver_posts_it(hook: Hook, caller: Caller) -> None:
    hook.plays = [plays.answer("{}")]
    assert await call(caller, hook, "/judge//them/", seconds=2.3) == b"{}"
    (seen,) = hook.seen
    assert seen.line == "POST /judge/them?timeout=3s HTTP/1.1"
    assert seen.body == b'{"kind":"AdmissionReview"}'
    assert seen.headers["User-Agent"] == "kube-apiserver-admission"
    assert seen.headers["Accept"] == "application/json, */*"
    assert seen.headers["Content-Type"] == "application/json"


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
