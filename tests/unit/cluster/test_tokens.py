"""TokenReview: what is sent, what is remembered, what is counted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery.request import User
from apiserver.cluster import pace, tokens
from apiserver.cluster.client import Client, ClusterError
from apiserver.cluster.tokens import BadToken, Tokens
from tests.unit.cluster.plane import Clock, Plane, Reply, answer, hang, reset, status, until

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


def review(**found: Any) -> Reply:
    metadata = {"managedFields": [{"manager": "sluice"}]}
    return answer(
        {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": metadata, "status": found}, 201
    )


JANE = review(
    authenticated=True,
    user={
        "username": "system:serviceaccount:ns:jane",
        "uid": "u-1",
        "groups": ["system:serviceaccounts", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/pod-name": ["p"], "Example.com/Odd Key": ["a", "b", ""]},
    },
    audiences=["https://kubernetes.default.svc"],
)
NOBODY = review(user={})
FAULTY = review(user={}, error="invalid bearer token, token lookup failed")


@pytest_asyncio.fixture
async def tokens_(client: Client, clock: Clock) -> Tokens:
    return Tokens(client, clock=clock)


async def test_a_token_is_reviewed_and_its_user_is_passed_on_unmodified(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, JANE)
    assert await tokens_.review("secret") == User(
        "system:serviceaccount:ns:jane",
        "u-1",
        ("system:serviceaccounts", "system:authenticated"),
        {"authentication.kubernetes.io/pod-name": ("p",), "Example.com/Odd Key": ("a", "b", "")},
    )
    (seen,) = plane.seen
    assert seen.method == "POST"
    assert seen.body == {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "secret"}}


async def test_a_user_may_have_nothing_but_a_name(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, review(authenticated=True, user={"username": "x"}))
    assert await tokens_.review("secret") == User("x")


async def test_a_token_is_asked_about_once_while_it_is_cached(plane: Plane, tokens_: Tokens, clock: Clock) -> None:
    plane.on(PATH, JANE)
    for _ in range(5):
        await tokens_.review("secret")
        clock.now += 2
    assert len(plane.seen) == 1
    await tokens_.review("secret")
    assert len(plane.seen) == 2


async def test_a_definite_no_is_cached_too(plane: Plane, tokens_: Tokens, clock: Clock) -> None:
    plane.on(PATH, NOBODY)
    for _ in range(3):
        with pytest.raises(BadToken, match=r"^invalid bearer token$"):
            await tokens_.review("secret")
    assert len(plane.seen) == 1
    clock.now += 10
    plane.on(PATH, JANE)
    assert (await tokens_.review("secret")).uid == "u-1"


async def test_a_no_with_an_error_is_not_cached(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, FAULTY, FAULTY, JANE)
    for _ in range(2):
        with pytest.raises(BadToken, match="token lookup failed"):
            await tokens_.review("secret")
    assert (await tokens_.review("secret")).uid == "u-1"


@pytest.mark.parametrize(
    "failure", [status(403, "forbidden"), status(503, "away"), answer(b"?"), answer({"status": {"user": 3}})]
)
async def test_an_error_is_not_cached(plane: Plane, tokens_: Tokens, failure: Reply) -> None:
    plane.on(PATH, failure, failure, JANE)
    for _ in range(2):
        with pytest.raises(ClusterError):
            await tokens_.review("secret")
    assert (await tokens_.review("secret")).uid == "u-1"


async def test_a_passing_failure_is_tried_again(plane: Plane, tokens_: Tokens, clock: Clock) -> None:
    plane.on(PATH, status(500, "oh"), reset, JANE)
    await tokens_.review("secret")
    assert clock.slept == [0.5, 0.75]


async def test_all_attempts_together_take_ten_seconds_at_most(plane: Plane, tokens_: Tokens, clock: Clock) -> None:
    plane.on(PATH, status(429, "busy", Retry_After="4"))
    with pytest.raises(ClusterError, match="busy"):
        await tokens_.review("secret")
    assert clock.slept == [4, 4]
    assert tokens.REVIEW_SECONDS == 10


async def test_simultaneous_equal_tokens_share_one_review(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, JANE)
    users = await asyncio.gather(*(tokens_.review("secret") for _ in range(20)))
    assert {user.uid for user in users} == {"u-1"}
    assert len(plane.seen) == 1


async def test_a_review_goes_on_when_its_first_caller_leaves(plane: Plane, tokens_: Tokens) -> None:
    go = asyncio.Event()

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        await go.wait()
        return await JANE(request)

    plane.on(PATH, late)
    first, second = (asyncio.create_task(tokens_.review("secret")) for _ in range(2))
    await until(lambda: plane.seen)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    go.set()
    assert (await second).uid == "u-1"
    assert first.cancelled()
    assert len(plane.seen) == 1


async def test_different_tokens_are_different_questions(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, JANE, NOBODY)
    await tokens_.review("secret")
    with pytest.raises(BadToken):
        await tokens_.review("secret2")


async def test_with_no_time_to_live_every_request_asks(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(PATH, JANE)
    never = Tokens(client, ttl=0, clock=clock)
    for _ in range(3):
        await never.review("secret")
    assert len(plane.seen) == 3


async def test_the_memory_holds_no_token_and_another_key_in_each_process(
    client: Client, plane: Plane, clock: Clock
) -> None:
    plane.on(PATH, JANE)
    keys: list[bytes] = []
    for _ in range(2):
        made = Tokens(client, clock=clock)
        await made.review("secret")
        keys += made._answers._kept
    assert len(set(keys)) == 2
    assert all(len(key) == 32 and b"secret" not in key for key in keys)


async def test_the_memory_is_bounded(
    client: Client, plane: Plane, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED", 3)
    plane.on(PATH, JANE)
    made = Tokens(client, clock=clock)
    for number in range(10):
        await made.review(str(number))
    assert len(made._answers) == 3


async def test_a_flood_of_bad_tokens_leaves_the_other_questions_their_turns(
    plane: Plane, client: Client, tokens_: Tokens, clock: Clock
) -> None:
    plane.on(PATH, FAULTY)
    for _ in range(pace.BURST + 1):
        with pytest.raises(BadToken):
            await tokens_.review("bad")
    assert len(clock.slept) == 1
    plane.on("/other", answer({}))
    await client.ask("GET", "/other")
    assert len(clock.slept) == 1


async def test_bytes_that_are_no_text_are_no_token(plane: Plane, tokens_: Tokens) -> None:
    with pytest.raises(BadToken):
        await tokens_.review("\udcff")
    assert plane.seen == []


async def test_no_error_and_no_log_shows_a_token(
    plane: Plane, tokens_: Tokens, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "REVIEW_SECONDS", 0.05)
    for failure in (status(403, "no"), answer(b"?"), hang):
        plane.on(PATH, failure)
        with pytest.raises(ClusterError) as raised:
            await tokens_.review("verysecret")
        assert "verysecret" not in str(raised.value)
    assert "verysecret" not in caplog.text


async def test_everything_is_counted_under_upstreams_names(plane: Plane, tokens_: Tokens) -> None:
    def now() -> dict[str, float]:
        return {
            "hit": metrics.TOKEN_CACHE_REQUESTS.labels("hit").value,
            "miss": metrics.TOKEN_CACHE_REQUESTS.labels("miss").value,
            "timed": metrics.TOKEN_CACHE_SECONDS.labels("hit").count + metrics.TOKEN_CACHE_SECONDS.labels("miss").count,
            "ok": metrics.TOKEN_CACHE_FETCHES.labels("ok").value,
            "error": metrics.TOKEN_CACHE_FETCHES.labels("error").value,
            "201": metrics.DELEGATED_AUTHN_REQUESTS.labels("201").value,
            "500": metrics.DELEGATED_AUTHN_REQUESTS.labels("500").value,
            "<error>": metrics.DELEGATED_AUTHN_REQUESTS.labels("<error>").value,
            "latency": metrics.DELEGATED_AUTHN_SECONDS.labels("201").count,
        }

    before = now()
    plane.on(PATH, status(500, "oh"), reset, JANE)
    await tokens_.review("a")
    await tokens_.review("a")
    plane.on(PATH, FAULTY)
    with pytest.raises(BadToken):
        await tokens_.review("b")
    after = now()
    assert {name: after[name] - before[name] for name in before} == {
        "hit": 1, "miss": 2, "timed": 3, "ok": 1, "error": 1, "201": 2, "500": 1, "<error>": 1, "latency": 2,
    }  # fmt: skip
    assert [metrics.TOKEN_CACHE_ACTIVE_FETCHES.labels(status).value for status in ("blocked", "in_flight")] == [0, 0]


async def test_kube_apiserver_is_asked_about_no_token_that_is_longer_than_any_is(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, JANE)
    with pytest.raises(BadToken, match="invalid bearer token"):
        await tokens_.review("x" * (tokens.LONGEST + 1))
    assert plane.seen == []


async def test_flood_of_bad_tokens_from_one_address_fails_no_others(plane: Plane, tokens_: Tokens) -> None:
    plane.on(PATH, JANE)
    while tokens_._throttle.enter("192.0.2.1") is not None:
        pass
    assert (await tokens_.review("good", source="192.0.2.2")).name
