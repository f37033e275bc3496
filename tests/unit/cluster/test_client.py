"""Questions and watches, over real TLS."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
import uvloop

from apiserver import metrics
from apiserver.cluster import client as clients
from apiserver.cluster import pace
from apiserver.cluster.client import Client, ClusterError, Refused
from apiserver.cluster.credentials import Kubeconfig
from apiserver.cluster.pace import WEBHOOK
from apiserver.serving import pki
from tests.fixtures.tls_servers import cutting, server_side, serving
from tests.unit.cluster.plane import NOW, Clock, Feed, Plane, answer, encoded, hang, reset, status, until

HERE = "/api/v1/things"


async def test_question_is_asked_as_the_user_of_the_kubeconfig(plane: Plane, client: Client) -> None:
    plane.on(HERE, answer({"kind": "Thing"}, 201))
    found = await client.ask("POST", HERE, query={"fieldSelector": "a=b,c=d", "limit": "5"}, body={"spec": {"x": "ü"}})
    assert found == {"kind": "Thing"}
    (seen,) = plane.seen
    assert (seen.method, seen.body) == ("POST", {"spec": {"x": "ü"}})
    assert seen.query == {"fieldSelector": "a=b,c=d", "limit": "5"}
    assert seen.headers["Authorization"] == "Bearer ours"
    assert seen.headers["User-Agent"].startswith("sluice/")
    assert seen.headers["Accept"] == seen.headers["Content-Type"] == "application/json"


async def test_connections_are_used_again(plane: Plane, client: Client) -> None:
    plane.on(HERE, answer({}))
    for _ in range(5):
        await client.ask("GET", HERE)
    assert len({seen.peer for seen in plane.seen}) == 1


async def test_the_pool_of_connections_is_bounded(plane: Plane, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CONNECTIONS", 4)
    client = await plane.client(clock)
    plane.on(HERE, answer({}))
    await asyncio.gather(*(client.ask("GET", HERE) for _ in range(40)))
    assert len(plane.seen) == 40
    assert len({seen.peer for seen in plane.seen}) <= 4
    await client.close()


async def test_a_refusal_has_the_servers_words_and_its_code(plane: Plane, client: Client) -> None:
    plane.on(HERE, status(403, 'things is forbidden: User "me" cannot list'))
    with pytest.raises(Refused, match=r'^things is forbidden: User "me" cannot list$') as raised:
        await client.ask("GET", HERE, backoff=WEBHOOK)
    assert (raised.value.code, raised.value.transient) == (403, False)
    assert len(plane.seen) == 1


async def test_a_refusal_that_is_no_status_is_quoted(plane: Plane, client: Client) -> None:
    plane.on(HERE, answer(b"<html>bad gateway</html>", 502))
    with pytest.raises(Refused, match="HTTP 502: '<html>bad gateway</html>'"):
        await client.ask("GET", HERE)


async def test_redirects_are_not_followed(plane: Plane, client: Client) -> None:
    plane.on(HERE, answer({}, 302, Location="/elsewhere"))
    with pytest.raises(Refused) as raised:
        await client.ask("GET", HERE)
    assert raised.value.code == 302
    assert len(plane.seen) == 1


@pytest.mark.parametrize("raw", [b"", b"no json", b"[1]", b'"text"', b"{"])
async def test_an_answer_must_be_a_json_object(plane: Plane, client: Client, raw: bytes) -> None:
    plane.on(HERE, answer(raw))
    with pytest.raises(ClusterError, match="the answer is no JSON object"):
        await client.ask("GET", HERE)


@pytest.mark.parametrize(
    "failure",
    [status(500, "oh"), status(504, "late"), status(429, "busy"), status(503, "soon", Retry_After="0"), reset],
    ids=["500", "504", "429", "Retry-After", "reset"],
)
async def test_a_passing_failure_is_tried_five_times_with_growing_pauses(
    plane: Plane, client: Client, clock: Clock, failure: Any
) -> None:
    plane.on(HERE, failure)
    with pytest.raises(ClusterError):
        await client.ask("POST", HERE, body={}, backoff=WEBHOOK)
    assert len(plane.seen) == 5
    assert clock.slept == [0.5, 0.75, 1.125, 1.6875]


async def test_an_attempt_that_succeeds_ends_the_trying(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(HERE, status(500, "oh"), status(500, "oh"), answer({"ok": True}))
    assert await client.ask("GET", HERE, backoff=WEBHOOK) == {"ok": True}
    assert clock.slept == [0.5, 0.75]


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 422, 502, 503])
async def test_other_refusals_are_tried_once(plane: Plane, client: Client, code: int) -> None:
    plane.on(HERE, status(code, "no"))
    with pytest.raises(Refused) as raised:
        await client.ask("GET", HERE, backoff=WEBHOOK)
    assert raised.value.code == code
    assert len(plane.seen) == 1


async def test_without_a_backoff_nothing_is_tried_again(plane: Plane, client: Client) -> None:
    plane.on(HERE, status(500, "oh"))
    with pytest.raises(Refused):
        await client.ask("GET", HERE)
    assert len(plane.seen) == 1


async def test_the_server_may_ask_for_a_longer_pause(plane: Plane, client: Client, clock: Clock) -> None:
    details = {"kind": "Status", "message": "busy", "details": {"retryAfterSeconds": 4}}
    plane.on(HERE, status(429, "busy", Retry_After="3"), answer(details, 429), answer({}))
    await client.ask("GET", HERE, backoff=WEBHOOK)
    assert clock.slept == [3, 4]


async def test_no_pause_goes_beyond_the_time_for_all_attempts(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(HERE, status(503, "later", Retry_After="60"))
    with pytest.raises(Refused):
        await client.ask("GET", HERE, backoff=WEBHOOK, within=10)
    assert clock.slept == []


async def test_the_jitter_makes_pauses_longer() -> None:
    assert list(WEBHOOK.pauses(lambda: 1.0)) == pytest.approx([0.6, 0.9, 1.35, 2.025])


async def test_a_server_that_does_not_answer_is_given_up(plane: Plane, client: Client) -> None:
    plane.on(HERE, hang)
    with pytest.raises(ClusterError, match=r'^Get "https://127.0.0.1:\d+/api/v1/things": no answer within 0.05 s$'):
        await client.ask("GET", HERE, seconds=0.05, backoff=WEBHOOK)


async def test_unreachable_server_gets_a_plain_message(plane: Plane, client: Client) -> None:
    await plane.stop()
    with pytest.raises(ClusterError, match=r'^Post "https://.*": connecting to 127.0.0.1:\d+: connection refused$'):
        await client.ask("POST", HERE, body={})
    await plane.start()


async def test_server_of_another_authority_gets_a_plain_message(plane: Plane, clock: Clock) -> None:
    other = Plane(plane.folder)
    client = await plane.client(clock, {"token": "t"}, **{"certificate-authority-data": encoded(other.ca.cert_pem)})
    with pytest.raises(
        ClusterError, match=r"the server's certificate is not accepted: .*CERTIFICATE_VERIFY_FAILED"
    ) as raised:
        await client.ask("GET", HERE)
    assert "object at 0x" not in str(raised.value)
    await client.close()


CUT = {
    "nothing": b"",
    "a part of the head": b"HTTP/1.1 200 OK\r\nContent-",
    "a part of the body": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    "some chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
    "a body without a length": b"HTTP/1.1 200 OK\r\n\r\n{}",
    "a refusal without a length": b"HTTP/1.1 403 Forbidden\r\n\r\nno",
}


@pytest.mark.parametrize("said", CUT)
@pytest.mark.parametrize("within_record", [False, True])
async def test_answer_that_is_cut_off_is_an_error(plane: Plane, clock: Clock, said: str, within_record: bool) -> None:
    pair = pki.make_serving(plane.ca, "kube-apiserver", hosts=plane.hosts, now=NOW)
    path = plane.folder / "cut.pem"
    path.write_bytes(pair.cert_pem + pair.key_pem)

    def cut(sock: socket.socket) -> None:
        cutting(server_side(path, path), sock, CUT[said], within_record=within_record)

    with serving(cut) as port:
        client = await plane.client(clock, server=f"https://127.0.0.1:{port}")
        with pytest.raises(ClusterError) as raised:
            await client.ask("POST", HERE, body={})  # a GET would be asked again
        assert not isinstance(raised.value, Refused)
        assert raised.value.transient == ("without a length" not in said)
        await client.close()
        await asyncio.to_thread(lambda: None)


async def test_value_that_fits_no_json_is_not_sent(plane: Plane, client: Client) -> None:
    with pytest.raises(ClusterError, match="fits no JSON"):
        await client.ask("POST", HERE, body={"user": "\udcff"})
    assert plane.seen == []


async def test_every_attempt_is_counted_by_its_code(plane: Plane, client: Client) -> None:
    counted: list[str] = []
    plane.on(HERE, status(500, "oh"), reset, answer({}))
    host = f"127.0.0.1:{plane.port}"
    await client.ask("POST", HERE, body={}, backoff=WEBHOOK, counted=lambda code, _seconds: counted.append(code))
    assert counted == ["500", "<error>", "200"]
    assert [metrics.CLIENT_REQUESTS.labels(code, "POST", host).value for code in counted] == [1, 1, 1]
    assert metrics.CLIENT_SECONDS.labels("POST", host).count == 3


async def test_a_burst_waits_for_its_turn(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(HERE, answer({}))
    for _ in range(pace.BURST + 3):
        await client.ask("GET", HERE)
    # Sleeping moves the clock, so each of the three waits for one place.
    assert clock.slept == [pytest.approx(1 / pace.REQUESTS_PER_SECOND)] * 3


async def test_unthrottled_client_waits_for_no_turn(plane: Plane, clock: Clock) -> None:
    source = Kubeconfig(plane.kubeconfig({"token": "ours"}), {})
    client = await Client.of(source, clock=clock, sleep=clock.sleep, throttled=False, accept="text/plain")
    plane.on(HERE, answer({}))
    for _ in range(pace.BURST + 3):
        await client.ask("GET", HERE)
    await client.close()
    assert clock.slept == []
    assert plane.seen[0].headers["Accept"] == "text/plain"


async def test_body_sent_in_pieces_has_a_length_and_arrives_as_one(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(HERE, status(500, "oh"), answer({}))
    await client.fetch("POST", HERE, content=[b'["', *[b"x" * 60_000] * 3, b'"]'], backoff=WEBHOOK)
    assert [seen.body for seen in plane.seen] == [["x" * 180_000]] * 2
    assert {seen.headers["Content-Length"] for seen in plane.seen} == {"180004"}
    assert all("Transfer-Encoding" not in seen.headers for seen in plane.seen)


async def test_request_that_would_wait_too_long_is_refused_at_once(plane: Plane, client: Client) -> None:
    plane.on(HERE, answer({}))
    for _ in range(pace.BURST):
        await client.ask("GET", HERE)
    before = [client._throttle.enter("") for _ in range(199)]
    assert None not in before
    plane.seen.clear()
    with pytest.raises(ClusterError, match="too many requests wait for"):
        await client.ask("GET", HERE, within=0.9)
    assert plane.seen == []
    await client.ask("GET", HERE, within=1.1)


async def test_a_closed_client_says_so(plane: Plane, clock: Clock) -> None:
    client = await plane.client(clock)
    plane.on(HERE, hang)
    asking = asyncio.create_task(client.ask("GET", HERE))
    started = client.start(asyncio.Event().wait())
    await until(lambda: plane.seen)
    await client.close()
    with pytest.raises(ClusterError):
        await asking
    assert started.cancelled()
    with pytest.raises(ClusterError, match="the client is closed"):
        await client.ask("GET", HERE)
    with pytest.raises(ClusterError, match="the client is closed"):
        async with client.watch(HERE, {}):
            pass


# ---------------------------------------------------------------------------------------------------------------- watches


async def test_watch_sends_events_as_they_come(plane: Plane, client: Client) -> None:
    feed = Feed()
    plane.on(HERE, feed)
    async with client.watch(HERE, {"resourceVersion": "7"}) as events:
        feed.event("ADDED", {"n": 1})
        assert await anext(events) == ("ADDED", {"n": 1})
        feed.event("MODIFIED", {"n": 2})
        assert await anext(events) == ("MODIFIED", {"n": 2})
        feed.end()
        assert [event async for event in events] == []
    assert plane.seen[0].query == {"resourceVersion": "7", "watch": "true"}


async def test_events_may_be_cut_anywhere_and_be_of_any_length(plane: Plane, client: Client) -> None:
    feed = Feed()
    plane.on(HERE, feed)
    long = {"text": "x" * 3_000_000}
    raw = b"".join(
        json.dumps({"type": "ADDED", "object": found}).encode() + b"\n\r\n" for found in ({"n": 1}, long, {"n": 2})
    )
    for at in range(0, len(raw), 100_001):
        feed.send(raw[at : at + 100_001])
    feed.end()
    async with client.watch(HERE, {}) as events:
        assert [found async for _, found in events] == [{"n": 1}, long, {"n": 2}]


async def test_an_event_without_its_end_is_no_event(plane: Plane, client: Client) -> None:
    feed = Feed()
    plane.on(HERE, feed)
    feed.event("ADDED", {"n": 1})
    feed.send(b'{"type":"ADDED","object":{}}')
    feed.end()
    async with client.watch(HERE, {}) as events:
        assert [found async for _, found in events] == [{"n": 1}]


@pytest.mark.parametrize(
    "line", [b"[]", b"no json", b'{"type":1,"object":{}}', b'{"type":"ADDED"}', b'{"type":"X","object":3}']
)
async def test_line_that_is_no_event_is_an_error(plane: Plane, client: Client, line: bytes) -> None:
    feed = Feed()
    plane.on(HERE, feed)
    feed.send(line + b"\n")
    async with client.watch(HERE, {}) as events:
        with pytest.raises(ClusterError):
            await anext(events)
    await feed.gone.wait()


async def test_a_broken_watch_is_an_error(plane: Plane, client: Client) -> None:
    feed = Feed()
    plane.on(HERE, feed)
    feed.event("ADDED", {"n": 1})
    feed.cut()
    async with client.watch(HERE, {}) as events:
        assert await anext(events) == ("ADDED", {"n": 1})
        with pytest.raises(ClusterError):
            await anext(events)


async def test_a_refused_watch_is_a_refusal(plane: Plane, client: Client) -> None:
    plane.on(HERE, status(410, "too old resource version"))
    with pytest.raises(Refused, match="too old") as raised:
        async with client.watch(HERE, {}):
            pass
    assert raised.value.code == 410


async def test_a_watch_that_does_not_begin_is_given_up(plane: Plane, client: Client) -> None:
    plane.on(HERE, hang)
    with pytest.raises(ClusterError, match="no answer within"):
        async with client.watch(HERE, {}, seconds=0.05):
            pass


async def test_leaving_a_watch_closes_it(plane: Plane, client: Client) -> None:
    feed = Feed()
    plane.on(HERE, feed)

    async def follow() -> None:
        async with client.watch(HERE, {}) as events:
            async for _ in events:
                pass

    following = asyncio.create_task(follow())
    await feed.opened.get()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await feed.gone.wait()
    assert following.cancelled()


def test_silently_lost_server_is_noticed() -> None:
    made = clients._lasting_socket((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("", 0)))
    with made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == clients.KEEPALIVE["TCP_KEEPIDLE"]


def test_it_runs_under_uvloop_too(tmp_path: Any) -> None:
    async def story() -> None:
        plane, clock, feed = await Plane(tmp_path).start(), Clock(), Feed()
        client = await plane.client(clock)
        plane.on(HERE, answer({"ok": True}), feed)
        assert await client.ask("GET", HERE) == {"ok": True}
        async with client.watch(HERE, {}) as events:
            feed.event("ADDED", {"n": 1})
            assert await anext(events) == ("ADDED", {"n": 1})
        await client.close()
        await plane.stop()

    uvloop.run(story())
