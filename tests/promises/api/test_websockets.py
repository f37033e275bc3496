"""Watches over WebSockets: each event is a message, and a client sends nothing but pings and the end."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures import websocket
from tests.fixtures.websocket import BINARY, CLOSE, PING, PONG, TEXT, Frame, Headers, Refused, WebSocket
from tests.promises.api.client import (
    MARKER,
    PARTIAL,
    TABLE,
    Client,
    Event,
    claim,
    content,
    device_class,
    version,
    with_query,
)

KUBERNETES_PROTOBUF = "application/vnd.kubernetes.protobuf"
NORMAL = Frame(CLOSE, struct.pack(">H", 1000))
PROTOCOL_ERROR = Frame(CLOSE, struct.pack(">H", 1002))


def opened(
    api: Client, path: str, headers: Headers | None = None, *, method: str = "GET", behind: bytes = b"", **query: Any
) -> WebSocket:
    query.setdefault("watch", "1")
    query.setdefault("timeoutSeconds", "120")
    return WebSocket(api.target.connect(), with_query(path, query), headers, method=method, behind=behind)


def accepting(media: str) -> Headers:
    return websocket.handshake(Accept=media)


def test_each_event_is_a_text_message_in_order(api: Client, mine: str) -> None:
    path = api.claims(mine)
    before = api.create(path, claim("before"))
    with opened(api, path) as watch:
        assert watch.event() == ("ADDED", before)
        created = api.create(path, claim("one"))
        patched = api.patch(f"{path}/one", {"metadata": {"annotations": {"a": "é\n"}}})
        api.delete(f"{path}/one")
        events = [watch.event() for _ in range(3)]
        assert events[:2] == [("ADDED", created), ("MODIFIED", patched)]
        assert (events[2][0], content(events[2][1])) == ("DELETED", content(patched))


def test_watch_past_its_timeout_ends_with_a_close_frame(api: Client) -> None:
    with opened(api, api.classes, timeoutSeconds="1") as watch:
        assert watch.rest()[-1:] == [NORMAL]


def test_handshake_answer_has_no_other_headers(api: Client) -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    with opened(api, api.classes, websocket.handshake(Sec_WebSocket_Key=key)) as watch:
        assert dict(watch.headers.items()) == {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": websocket.accepted(key),
        }


@pytest.mark.parametrize("protocol", ["base64.binary.k8s.io", "binary.k8s.io", "v4.channel.k8s.io", "anything"])
def test_offered_subprotocol_is_repeated_and_changes_nothing(api: Client, mine: str, protocol: str) -> None:
    created = api.create(api.claims(mine), claim("one"))
    with opened(api, api.claims(mine), websocket.handshake(Sec_WebSocket_Protocol=protocol)) as watch:
        assert watch.headers["Sec-WebSocket-Protocol"] == protocol
        assert watch.event() == ("ADDED", created)


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"Sec_WebSocket_Key": None}, 400, b"mismatch challenge/response"),
        ({"Sec_WebSocket_Key": None, "Sec_WebSocket_Version": "8"}, 400, b"mismatch challenge/response"),
        ({"Sec_WebSocket_Version": "8"}, 400, b"missing or bad WebSocket Version"),
        ({"Sec_WebSocket_Version": None, "Origin": None}, 400, b"missing or bad WebSocket Version"),
        ({"Sec_WebSocket_Version": "13, 8"}, 400, b"missing or bad WebSocket Version"),
        ({"Origin": None}, 403, b""),
        ({"Origin": "null"}, 403, b""),
        ({"Origin": "client.example.com"}, 403, b""),
        ({"Origin": "https://client.example.com:port"}, 403, b""),
        ({"Origin": None, "Sec_WebSocket_Protocol": "a, b"}, 403, b""),
        ({"Sec_WebSocket_Protocol": "base64.binary.k8s.io, binary.k8s.io"}, 400, b""),
        ({"Sec_WebSocket_Protocol": "a,"}, 400, b""),
    ],
    ids=str,
)
def test_a_malformed_handshake_is_refused(api: Client, changed: dict[str, str | None], code: int, text: bytes) -> None:
    with pytest.raises(Refused) as refused:
        opened(api, api.classes, websocket.handshake(**changed))
    assert (refused.value.status, refused.value.body) == (code, text)
    assert refused.value.headers["Sec-WebSocket-Version"] == ("13" if text.startswith(b"missing") else None)


@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "/anywhere"},
        {"Origin": "*"},
        {"Origin": "app:anything"},
        {"Connection": "keep-alive, upgrade"},
        {"Upgrade": "WebSocket"},
        {"Sec_WebSocket_Extensions": "permessage-deflate"},
        {"Sec_WebSocket_Key": "not base64"},
    ],
    ids=str,
)
def test_an_unusual_handshake_is_accepted(api: Client, changed: dict[str, str | None]) -> None:
    with opened(api, api.classes, websocket.handshake(**changed), timeoutSeconds="1") as watch:
        assert watch.headers["Sec-WebSocket-Extensions"] is None
        assert watch.rest()[-1] == NORMAL


def test_a_wrong_option_is_refused_before_the_handshake_is_judged(api: Client) -> None:
    with pytest.raises(Refused) as refused:
        opened(api, api.classes, websocket.handshake(Sec_WebSocket_Key=None), resourceVersion="x")
    assert refused.value.status == 500
    assert refused.value.json["message"].startswith("resourceVersion: Invalid value")


@pytest.mark.parametrize("media", ["application/yaml", "application/xml"])
def test_a_media_type_that_cannot_be_streamed_is_406(api: Client, media: str) -> None:
    with pytest.raises(Refused) as refused:
        opened(api, api.classes, accepting(media))
    assert refused.value.status == 406


def test_a_version_of_the_past_is_an_error_event(api: Client) -> None:
    with opened(api, api.classes, resourceVersion="1") as watch:
        kind, status = watch.event()
        assert (kind, status["kind"], status["code"], status["reason"]) == ("ERROR", "Status", 410, "Expired")
        assert watch.rest() == [NORMAL]


def test_future_version_is_an_error_event_where_the_state_is_asked_for(api: Client) -> None:
    later = str(version(api.get(api.classes)) + 10**9)
    query: dict[str, Any] = {
        "resourceVersion": later,
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    with opened(api, api.classes, allowWatchBookmarks="true", **query) as watch:
        kind, status = watch.event()
        assert (kind, status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
        assert watch.rest() == [NORMAL]


def test_initial_events_come_one_by_one_and_then_the_marker(api: Client, mine: str) -> None:
    path = api.claims(mine)
    stored = [api.create(path, claim(f"c{number:02}")) for number in range(30)]
    query: dict[str, Any] = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
    }
    with opened(api, path, **query) as watch:
        assert [watch.event() for _ in stored] == [("ADDED", obj) for obj in stored]
        kind, obj = watch.event()
        assert (kind, obj["metadata"]["annotations"]) == ("BOOKMARK", {MARKER: "true"})
        assert version(obj) >= version(stored[-1])


def test_selectors_choose_and_an_object_that_leaves_is_deleted(api: Client, mine: str) -> None:
    path = api.claims(mine)
    start = api.get(path)["metadata"]["resourceVersion"]
    with opened(api, path, resourceVersion=start, labelSelector="in=yes") as watch:
        api.create(path, claim("never"))
        api.create(path, claim("one", labels={"in": "yes"}))
        api.patch(f"{path}/one", {"metadata": {"labels": {"in": "no"}}})
        seen = [watch.event() for _ in range(2)]
    assert [(kind, obj["metadata"]["name"]) for kind, obj in seen] == [("ADDED", "one"), ("DELETED", "one")]


def test_one_object_may_be_watched(api: Client, mine: str) -> None:
    path = api.claims(mine)
    api.create(path, claim("other"))
    created = api.create(path, claim("one"))
    with opened(api, path, fieldSelector="metadata.name=one") as watch:
        assert watch.event() == ("ADDED", created)


def test_the_older_path_of_watches_is_served_too(api: Client, mine: str) -> None:
    created = api.create(api.claims(mine), claim("one"))
    path = api.claims(mine).replace("/v1/namespaces", "/v1/watch/namespaces")
    with opened(api, path, watch=None) as watch:
        assert watch.event() == ("ADDED", created)


def test_a_table_names_its_columns_once(api: Client, mine: str) -> None:
    path = api.claims(mine)
    api.create(path, claim("one"))
    with opened(api, path, accepting(TABLE)) as watch:
        first = watch.event()
        api.create(path, claim("two"))
        second = watch.event()
    assert [(kind, obj["kind"], obj["rows"][0]["object"]["metadata"]["name"]) for kind, obj in (first, second)] == [
        ("ADDED", "Table", "one"),
        ("ADDED", "Table", "two"),
    ]
    assert first[1]["columnDefinitions"]
    assert not second[1]["columnDefinitions"]


def test_metadata_alone_may_be_watched(api: Client, mine: str) -> None:
    created = api.create(api.claims(mine), claim("one"))
    with opened(api, api.claims(mine), accepting(PARTIAL)) as watch:
        kind, obj = watch.event()
    assert (kind, obj["kind"], obj["metadata"]) == ("ADDED", "PartialObjectMetadata", created["metadata"])


def test_events_in_protobuf_are_binary_messages_without_a_length(api: Client, mine: str) -> None:
    path = api.claims(mine)
    api.create(path, claim("one"))
    with opened(api, path, accepting(KUBERNETES_PROTOBUF)) as watch:
        api.create(path, claim("two"))
        found = [watch.frame(), watch.frame()]
    for frame, name in zip(found, (b"one", b"two"), strict=True):
        assert frame is not None
        assert frame.opcode == BINARY
        assert frame.payload.startswith(b"\x0a\x05ADDED\x12")
        assert b"k8s\0" in frame.payload
        assert name in frame.payload


def test_bookmark_comes_two_seconds_before_the_end_without_any_change(api: Client, mine: str) -> None:
    """Upstream counts versions for the whole cluster, and another kind's change is what moves them."""
    start = version(api.get(api.claims(mine)))
    if api.target.name == "upstream":
        api.create(api.classes, device_class(mine))
    query: dict[str, Any] = {"resourceVersion": start, "allowWatchBookmarks": "true", "timeoutSeconds": "5"}
    with opened(api, api.claims(mine), **query) as watch:
        seen = list(_events(watch))
    assert {kind for kind, _ in seen} <= {"BOOKMARK"}
    assert all(version(obj) >= start for _, obj in seen)
    if api.target.name != "upstream":  # where it takes until etcd tells of its progress
        assert len(seen) == 1


def _events(watch: WebSocket) -> Iterator[Event]:
    with contextlib.suppress(AssertionError):
        while True:
            yield watch.event()


# Clients


@pytest.fixture
def quiet(api: Client, mine: str) -> Iterator[WebSocket]:
    """A watch in which nothing happens."""
    with opened(api, api.claims(mine), fieldSelector="metadata.name=none") as watch:
        yield watch


PONG_AFTER = websocket.frame(PING, b"after")
"""Shows that the server has read everything before it."""


@pytest.mark.parametrize(
    ("sent", "payloads"),
    [
        (websocket.frame(PING, b"hello"), [b"hello"]),
        (websocket.frame(PING), [b""]),
        (websocket.frame(PING, b"a") + websocket.frame(PING, b"b"), [b"a", b"b"]),
        (websocket.frame(PING, b"x" * 300), [b"x" * 125]),
        (websocket.frame(PING, b"part", last=False), [b"part"]),
    ],
)
def test_pings_are_answered_with_what_they_say(quiet: WebSocket, sent: bytes, payloads: list[bytes]) -> None:
    quiet.send(sent)
    assert [quiet.frame() for _ in payloads] == [Frame(PONG, payload) for payload in payloads]


@pytest.mark.parametrize(
    "sent",
    [
        websocket.frame(TEXT, b"hello"),
        websocket.frame(TEXT, b"\xff\xfe no UTF-8"),
        websocket.frame(BINARY, bytes(70_000)),
        websocket.frame(TEXT, b"a part", last=False) + websocket.frame(0, b"and no end", last=False),
        websocket.frame(0, b"no beginning"),
        websocket.frame(TEXT, b"x", reserved=7),
        websocket.frame(3, b"reserved"),
        websocket.frame(11, b"reserved"),
        websocket.frame(PONG, b"unasked"),
        websocket.frame(BINARY, b"12345", length=(1 << 63) + 5),
        b"".join(websocket.frame(TEXT) for _ in range(20_000)),
    ],
    ids=lambda sent: sent[:2].hex(),
)
def test_other_frames_of_a_client_are_ignored(quiet: WebSocket, sent: bytes) -> None:
    quiet.send(sent + PONG_AFTER)
    assert quiet.frame() == Frame(PONG, b"after")


@pytest.mark.parametrize(
    "sent",
    [
        websocket.frame(CLOSE),
        websocket.frame(CLOSE, struct.pack(">H", 1000)),
        websocket.frame(CLOSE, struct.pack(">H", 4711) + b"bye"),
        websocket.frame(BINARY, length=(32 << 20) + 1),
    ],
    ids=lambda sent: sent[:2].hex(),
)
def test_client_that_closes_or_sends_too_much_gets_a_normal_close(quiet: WebSocket, sent: bytes) -> None:
    quiet.send(sent)
    assert quiet.rest() == [NORMAL]


@pytest.mark.parametrize("sent", [websocket.frame(TEXT, b"x", masked=False), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"])
def test_client_that_does_not_mask_gets_a_protocol_error_and_the_end(quiet: WebSocket, sent: bytes) -> None:
    quiet.send(sent)
    assert quiet.rest() == [PROTOCOL_ERROR, NORMAL]


def test_frames_may_come_in_pieces(quiet: WebSocket) -> None:
    for byte in websocket.frame(TEXT, bytes(300)) + websocket.frame(PING, b"x" * 100):
        quiet.send(bytes((byte,)))
    assert quiet.frame() == Frame(PONG, b"x" * 100)


@pytest.mark.only("dev", "upstream", reason="the aggregator drops what came before it has passed the answer on")
def test_frames_in_the_packet_of_the_handshake_are_read(api: Client) -> None:
    query: dict[str, Any] = {"resourceVersion": api.get(api.classes)["metadata"]["resourceVersion"]}
    with opened(api, api.classes, behind=websocket.frame(PING, b"early"), **query) as watch:
        assert watch.frame() == Frame(PONG, b"early")


def test_a_watch_goes_on_after_pings(api: Client, mine: str) -> None:
    with opened(api, api.claims(mine)) as watch:
        watch.send(PONG_AFTER)
        assert watch.frame() == Frame(PONG, b"after")
        created = api.create(api.claims(mine), claim("one"))
        assert watch.event() == ("ADDED", created)


# Requests that are no watch


@pytest.mark.only(
    "dev", reason="upstream serves such requests as if they had not asked; the aggregator cannot upgrade them"
)
@pytest.mark.parametrize(
    ("method", "watch", "changed"),
    [
        ("GET", None, {}),
        ("POST", "1", {}),
        ("HEAD", "1", {}),
        ("GET", "1", {"Upgrade": "h2c"}),
        ("GET", "1", {"Upgrade": "SPDY/3.1"}),
        ("GET", "1", {"Connection": "keep-alive"}),
        ("GET", "1", {"Content_Length": "1"}),
        ("GET", "1", {"Transfer_Encoding": "chunked"}),
    ],
    ids=str,
)
def test_nothing_but_a_watch_is_upgraded(
    api: Client, method: str, watch: str | None, changed: dict[str, str | None]
) -> None:
    smuggled = f"DELETE {api.classes} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with pytest.raises(Refused) as refused:
        opened(api, api.classes, websocket.handshake(**changed), method=method, behind=smuggled, watch=watch)
    assert (refused.value.status, refused.value.headers["Connection"]) == (400, "close")
