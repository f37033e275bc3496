"""Protobuf as a media type: what Go's clients send, and what they get."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Sequence
from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.request import NO_QUERY
from apiserver.kinds.served import Kinds
from apiserver.listcache.encoding import EncodingCache
from apiserver.listcache.piece import finished, text
from apiserver.schema.resource import Resource
from apiserver.watchcache.entry import NO_LABELS, Entry, Key, Revision
from apiserver.wire import as_json, negotiation
from apiserver.wire.forms import choice, form
from tests.fixtures import protobuf
from tests.fixtures.protobuf import document, field, frames, inside, messages, number, opened
from tests.fixtures.server import Reply
from tests.promises.api.client import (
    MARKER,
    MERGE,
    Client,
    Object,
    at,
    claim,
    device_class,
    resource_slice,
    version,
    with_query,
)
from tests.promises.api.target import VERSIONS

PROTOBUF = "application/vnd.kubernetes.protobuf"
STREAM = f"{PROTOBUF};stream=watch"
FIRST = f"{PROTOBUF},application/json"
"""The Accept header of client-go."""
WATCH = {"watch": "1", "timeoutSeconds": "120"}
INITIAL = {
    **WATCH,
    "allowWatchBookmarks": "true",
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
}


def in_form(kind: str, version: str = "v1") -> str:
    return f"{PROTOBUF};as={kind};g=meta.k8s.io;v={version}"


def fetch(api: Client, path: str, accept: str = PROTOBUF, **query: Any) -> Reply:
    return api.ask("GET", path, headers={"Accept": accept}, **query)


def read(api: Client, path: str, accept: str = PROTOBUF, **query: Any) -> tuple[str, str, bytes]:
    """(apiVersion, kind, message) of an answer."""
    reply = fetch(api, path, accept, **query)
    assert (reply.status, reply.headers["Content-Type"]) == (200, PROTOBUF), reply.body
    return opened(reply.body)


def send(api: Client, method: str, path: str, body: bytes, *, accept: str = "application/json", **query: Any) -> Reply:
    return api.ask(method, path, body, headers={"Content-Type": PROTOBUF, "Accept": accept}, **query)


def class_document(api: Client, name: bytes, spec: bytes = b"", *, metadata: bytes = b"") -> bytes:
    message = field(1, field(1, name) + metadata) + field(2, spec)
    return document(f"{api.group}/v1", "DeviceClass", message)


def named(api: Client, mine: str, count: int, **metadata: Any) -> list[str]:
    """Names of new claims."""
    for i in range(count):
        api.create(api.claims(mine), claim(f"c{i}", **metadata))
    return [f"c{i}" for i in range(count)]


# Answers


def test_every_verb_answers_in_protobuf(api: Client, mine: str) -> None:
    asked = {"Accept": FIRST}
    path, one = api.claims(mine), f"{api.claims(mine)}/one"
    created = api.ask("POST", path, claim("one"), headers=asked)
    put = api.ask("PUT", one, {**api.get(one), "metadata": {"name": "one", "labels": {"a": "b"}}}, headers=asked)
    patched = api.ask("PATCH", one, {"metadata": {"labels": None}}, headers={"Content-Type": MERGE, **asked})
    got, listed = fetch(api, one, FIRST), fetch(api, path, FIRST)
    emptied = api.ask("DELETE", path, headers=asked, dryRun="All")
    deleted = api.ask("DELETE", one, headers=asked)

    answers = [created, put, patched, got, listed, emptied, deleted]
    assert [reply.status for reply in answers] == [201, 200, 200, 200, 200, 200, 200]
    assert {reply.headers["Content-Type"] for reply in answers} == {PROTOBUF}
    kinds = [opened(reply.body)[:2] for reply in answers]
    single, many = (f"{api.group}/v1", "ResourceClaim"), (f"{api.group}/v1", "ResourceClaimList")
    assert kinds == [single, single, single, single, many, many, single]
    assert patched.body == got.body
    assert messages(opened(listed.body)[2], 2) == messages(opened(emptied.body)[2], 2) == [opened(got.body)[2]]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_list_holds_the_messages_of_its_objects(api: Client, mine: str, count: int) -> None:
    singles = [read(api, f"{api.claims(mine)}/{name}")[2] for name in named(api, mine, count)]

    _, kind, message = read(api, api.claims(mine))

    assert kind == "ResourceClaimList"
    assert messages(message, 2) == singles
    assert [found for found, _ in protobuf.fields(message)] == [1] + [2] * count
    assert [found for found, _ in protobuf.fields(inside(message, 1))] == [1, 2, 3]


def test_a_long_list_says_its_length_first(api: Client, mine: str) -> None:
    names = named(api, mine, 7, annotations={"padding": "x" * 60_000})
    singles = [read(api, f"{api.claims(mine)}/{name}")[2] for name in names]

    first = fetch(api, api.claims(mine))
    state = {"resourceVersion": inside(opened(first.body)[2], 1, 2).decode(), "resourceVersionMatch": "Exact"}
    again = fetch(api, api.claims(mine), **state)
    packed = api.ask("GET", api.claims(mine), headers={"Accept": PROTOBUF, "Accept-Encoding": "gzip"}, **state)

    assert messages(opened(first.body)[2], 2) == singles
    assert again.body == first.body
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.body) == first.body


def test_a_list_comes_in_chunks_of_one_state(api: Client, mine: str) -> None:
    singles = [read(api, f"{api.claims(mine)}/{name}")[2] for name in named(api, mine, 3)]

    first = read(api, api.claims(mine), limit=2)[2]
    onward = inside(first, 1, 3).decode()
    rest = read(api, api.claims(mine), limit=2, continue_=onward)[2]

    assert messages(first, 2) + messages(rest, 2) == singles
    assert dict(protobuf.fields(inside(first, 1)))[4] == 1
    assert inside(rest, 1, 3) == b""


def test_partial_metadata_is_a_prefix_of_the_object(api: Client, mine: str) -> None:
    named(api, mine, 2, labels={"a": "b"})
    one = f"{api.claims(mine)}/c0"
    metadata = inside(read(api, one)[2], 1)

    for served in ("v1", "v1beta1"):
        single = read(api, one, in_form("PartialObjectMetadata", served))
        listed = read(api, api.claims(mine), in_form("PartialObjectMetadataList", served) + ",application/json")
        assert single == (f"meta.k8s.io/{served}", "PartialObjectMetadata", field(1, metadata))
        assert listed[:2] == (f"meta.k8s.io/{served}", "PartialObjectMetadataList")
        items = messages(listed[2], 2 if served == "v1" else 1)
        assert len(items) == 2
        assert items[0] == field(1, metadata)


def test_a_table_is_not_written_in_protobuf(api: Client, mine: str) -> None:
    named(api, mine, 1)
    table = in_form("Table")
    other = f"{table},application/json;as=Table;g=meta.k8s.io;v=v1"

    assert fetch(api, api.claims(mine), table).status == 406
    assert fetch(api, api.claims(mine), table, watch="1").status == 406
    assert fetch(api, api.claims(mine), other).json["kind"] == "Table"
    assert read(api, api.claims(mine), f"{table},{PROTOBUF}")[1] == "ResourceClaimList"


@pytest.mark.parametrize(
    ("accept", "media"),
    [
        (FIRST, PROTOBUF),
        (f"{PROTOBUF}, */*", PROTOBUF),
        (f"application/json,{PROTOBUF}", "application/json"),
        (f"{PROTOBUF};q=0.5,application/json", "application/json"),
        (f"{PROTOBUF};pretty=1", PROTOBUF),
        (STREAM, PROTOBUF),
        (f"application/yaml,{PROTOBUF}", "application/yaml"),
        (f"application/cbor,{PROTOBUF}", PROTOBUF),
        ("*/*", "application/json"),
    ],
)
def test_the_client_says_what_it_prefers(api: Client, accept: str, media: str) -> None:
    assert fetch(api, api.classes, accept, limit=1).headers["Content-Type"] == media


# Watches


def stream_of(api: Client, path: str, count: int, accept: str = PROTOBUF, **query: Any) -> bytes:
    """The first frames of a watch; waits for them, and leaves."""
    with contextlib.closing(api.target.connect()) as connection:
        connection.request("GET", with_query(path, query), headers={"Accept": accept})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, STREAM)
        stream = b""
        for _ in range(count):
            length = answer.read(4)
            stream += length + answer.read(int.from_bytes(length, "big"))
        return stream


def frames_of(api: Client, path: str, count: int, accept: str = PROTOBUF, **query: Any) -> Sequence[tuple[str, bytes]]:
    return frames(stream_of(api, path, count, accept, **query))


@pytest.mark.parametrize("accept", [PROTOBUF, STREAM, FIRST, f"{STREAM},application/json;stream=watch"])
def test_initial_events_hold_what_a_get_answers(api: Client, mine: str, accept: str) -> None:
    documents = [fetch(api, f"{api.claims(mine)}/{name}").body for name in named(api, mine, 3)]

    events = frames_of(api, api.claims(mine), 4, accept, **INITIAL)

    assert events[:3] == [("ADDED", one) for one in documents]
    assert events[3][0] == "BOOKMARK"
    api_version, kind, message = opened(events[3][1])
    assert (api_version, kind) == (f"{api.group}/v1", "ResourceClaim")
    assert messages(inside(message, 1), 12) == [field(1, MARKER.encode()) + field(2, b"true")]
    assert [found for found, _ in protobuf.fields(message)] == [1, 2, 3]


def test_changes_are_frames(api: Client, mine: str) -> None:
    before = version(api.get(api.claims(mine)))
    made = api.ask("POST", api.claims(mine), claim("one"), headers={"Accept": PROTOBUF})
    one = f"{api.claims(mine)}/one"
    changed = api.ask(
        "PATCH", one, {"metadata": {"labels": {"a": "b"}}}, headers={"Accept": PROTOBUF, "Content-Type": MERGE}
    )
    gone = api.ask("DELETE", one, headers={"Accept": PROTOBUF})

    query = {**WATCH, "resourceVersion": str(before)}
    events = frames_of(api, api.claims(mine), 3, **query)
    partial = frames_of(api, api.claims(mine), 3, in_form("PartialObjectMetadata", "v1beta1"), **query)

    assert events == [("ADDED", made.body), ("MODIFIED", changed.body), ("DELETED", gone.body)]
    assert [kind for kind, _ in partial] == ["ADDED", "MODIFIED", "DELETED"]
    for (_, whole), (_, less) in zip(events, partial, strict=True):
        metadata = field(1, inside(opened(whole)[2], 1))
        assert opened(less) == ("meta.k8s.io/v1beta1", "PartialObjectMetadata", metadata)


def test_an_error_within_a_watch_is_a_frame_with_a_status(api: Client) -> None:
    ((kind, status),) = frames_of(
        api, api.classes, 1, **INITIAL, resourceVersion=str(version(api.get(api.classes)) + (1 << 40))
    )

    assert kind == "ERROR"
    api_version, name, message = opened(status)
    assert (api_version, name) == ("v1", "Status")
    assert inside(message, 4) == b"Timeout"
    assert dict(protobuf.fields(message))[6] == 504


# Errors


def test_errors_are_messages_too(api: Client, mine: str) -> None:
    missing = fetch(api, f"{api.classes}/{mine}")
    details = field(1, mine.encode()) + field(2, api.group.encode()) + field(3, b"deviceclasses")
    details += number(5, 0) + field(6, b"")
    text = f'deviceclasses.{api.group} "{mine}" not found'.encode()
    head = field(1, field(1, b"") + field(2, b"") + field(3, b""))
    message = head + field(2, b"Failure") + field(3, text) + field(4, b"NotFound") + field(5, details) + number(6, 404)
    assert (missing.status, missing.headers["Content-Type"]) == (404, PROTOBUF)
    assert missing.body == document("v1", "Status", message)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "{v1}/nothing", 404),
        ("GET", "{v1}/deviceclasses/a/b/c", 404),
        ("POST", "{v1}/deviceclasses/a", 405),
        ("GET", "{v1}/deviceclasses?limit=x", 400),
        ("PATCH", "{v1}/deviceclasses/a", 415),
        ("POST", "{v1}/deviceclasses", 400),
    ],
)
def test_every_sort_of_error_is_a_status(api: Client, method: str, path: str, code: int) -> None:
    reply = api.ask(method, path.format(v1=api.v1), headers={"Accept": FIRST})
    assert (reply.status, reply.headers["Content-Type"]) == (code, PROTOBUF)
    api_version, kind, message = opened(reply.body)
    assert (api_version, kind, dict(protobuf.fields(message))[6]) == ("v1", "Status", code)


# StoredPiece


def test_object_that_was_read_can_be_written_back(api: Client, mine: str) -> None:
    named(api, mine, 1, labels={"z": "", "a": "b"}, annotations={"text": "ü\n"})
    one = f"{api.claims(mine)}/c0"
    before = fetch(api, one)

    same = send(api, "PUT", one, before.body, accept=PROTOBUF)
    api_version, kind, message = opened(before.body)
    relabelled = message.replace(field(1, b"a") + field(2, b"b"), field(1, b"a") + field(2, b"c"))
    changed = send(api, "PUT", one, document(api_version, kind, relabelled))

    assert (same.status, same.body) == (200, before.body)
    assert changed.json["metadata"]["labels"] == {"a": "c", "z": ""}
    assert changed.json["spec"] == api.get(one)["spec"]


@pytest.mark.parametrize("served", VERSIONS)
def test_every_version_is_written_and_read(api: Client, mine: str, served: str) -> None:
    rich = resource_slice(f"{mine}-one", node="n")
    rich["spec"]["devices"][0] |= {
        "attributes": {"model": {"string": "A100"}},
        "capacity": {"memory": {"value": "1Gi"}},
    }
    api.create(api.slices, rich)
    api.create(api.claims(mine), claim("one"))
    for path, name in ((api.claims(mine), "one"), (api.slices, f"{mine}-one")):
        there = path.replace("/v1/", f"/{served}/")
        before = fetch(api, f"{there}/{name}")
        assert opened(before.body)[0] == f"{api.group}/{served}"

        again = send(api, "PUT", f"{there}/{name}", before.body, accept=PROTOBUF)
        ((_, frame), _) = frames_of(api, there, 2, **INITIAL, fieldSelector=f"metadata.name={name}")

        assert (again.status, again.body, frame) == (200, before.body, before.body)


def test_protobuf_and_json_make_the_same_object(api: Client, mine: str) -> None:
    made = [claim("one"), device_class(f"{mine}-one"), resource_slice(f"{mine}-one", node="n")]
    made[2]["spec"]["devices"][0] |= {
        "attributes": {"model": {"string": "A100"}, "index": {"int": -1}, "mig": {"bool": False}},
        "capacity": {"memory": {"value": "81920Mi"}},
    }
    for path, obj in zip((api.claims(mine), api.classes, api.slices), made, strict=True):
        in_json = api.create(path, obj)
        raw = fetch(api, f"{path}/{obj['metadata']['name']}").body
        api.delete(f"{path}/{obj['metadata']['name']}")
        api_version, kind, message = opened(raw)
        metadata, *others = (value for _, value in protobuf.fields(message) if isinstance(value, bytes))
        bare = field(1, field(1, inside(metadata, 1))) + field(2, *others[:1])
        reply = send(api, "POST", path, document(api_version, kind, bare))
        assert reply.status == 201, reply.text
        for member in in_json.keys() - {"metadata"}:
            assert reply.json[member] == in_json[member]


def test_a_document_need_not_say_what_it_is(api: Client, mine: str) -> None:
    message = field(1, field(1, f"{mine}-x".encode()))
    accepted = [
        document("", "", message),
        document("", "DeviceClass", message),
        document(f"{api.group}/v1", "", message),
        document(f"{api.group}/", "DeviceClass", message),
        document("a/b/c", "DeviceClass", message),
        document(f"{api.group}/v1", "DeviceClass", message, encoding=b"gzip", content=b"application/json"),
        document(f"{api.group}/v1", "DeviceClass", message + field(77, b"unknown")) + field(9, b"behind"),
        protobuf.MAGIC + field(2, message),
    ]
    for body in accepted:
        reply = send(api, "POST", api.classes, body, dryRun="All", fieldValidation="Strict")
        assert reply.status == 201, (body, reply.text)
        assert reply.json["metadata"]["name"] == f"{mine}-x"
        assert reply.headers["Warning"] is None


UNRECOGNIZED = "the object provided is unrecognized (must be of type DeviceClass): "
PREFIX = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
V1 = 'DeviceClass in version "v1" cannot be handled as a DeviceClass: '


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", f"{UNRECOGNIZED}empty data (<empty>)"),
        (b"abc", f"{UNRECOGNIZED}{PREFIX} (616263)"),
        (b'{"a":1}' * 9, UNRECOGNIZED + PREFIX + ' ({"a":1}{"a":1}{"a":1}{"a":1}{" ...)'),
        (b"k8s\0", f"{UNRECOGNIZED}empty body (6b387300)"),
        (b"k8s\0\x0a\xff", f"{UNRECOGNIZED}unexpected EOF (6b3873000aff)"),
        (b"k8s\0\x08\x01", f"{UNRECOGNIZED}proto: wrong wireType = 0 for field TypeMeta (6b3873000801)"),
    ],
)
def test_a_body_without_an_envelope_is_not_recognized(api: Client, body: bytes, why: str) -> None:
    reply = send(api, "POST", api.classes, body)
    assert (reply.status, reply.json["reason"], reply.json["message"]) == (400, "BadRequest", why)


def refused(api: Client, body: bytes, path: str = "") -> str:
    reply = send(api, "POST", path or api.classes, body, dryRun="All")
    assert (reply.status, reply.json["reason"]) == (400, "BadRequest")
    text: str = reply.json["message"]
    return text


def test_a_body_of_another_kind_is_refused(api: Client) -> None:
    v1, name = f"{api.group}/v1", field(1, field(1, b"x"))
    unknown = f'Foo in version "v1" cannot be handled as a DeviceClass: no kind "Foo" is registered for version "{v1}"'
    assert refused(api, document(v1, "Foo", name)).startswith(unknown)
    other = 'ResourceSlice in version "v1" cannot be handled as a DeviceClass: converting (v1.ResourceSlice) to ('
    assert refused(api, document(v1, "ResourceSlice", name)).startswith(other)
    status = 'Status in version "v1" cannot be handled as a DeviceClass: converting (v1.Status) to ('
    assert refused(api, document("v1", "Status", b"")).startswith(status)
    later = 'DeviceClass in version "v9" cannot be handled as a DeviceClass: no kind "DeviceClass" is registered for '
    assert refused(api, document(f"{api.group}/v9", "DeviceClass", name)).startswith(later)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"\x0a\x05abc", "unexpected EOF"),
        (b"\x08\x05", "proto: wrong wireType = 0 for field ObjectMeta"),
        (b"\x0c", "proto: DeviceClass: wiretype end group for non-group"),
        (b"\x00\x01", "proto: DeviceClass: illegal tag 0 (wire type 0)"),
    ],
)
def test_a_broken_message_is_refused_in_gos_words(api: Client, message: bytes, why: str) -> None:
    assert refused(api, document(f"{api.group}/v1", "DeviceClass", message)) == V1 + why


QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@pytest.mark.parametrize("text", [b"abc", b"", b"1 Gi"])
def test_malformed_quantity_is_refused(api: Client, text: bytes) -> None:
    capacity = field(1, b"memory") + field(2, field(1, field(1, text)))
    spec = field(1, b"d.example.com") + field(6, field(1, b"gpu-0") + field(3, capacity))
    body = document(f"{api.group}/v1", "ResourceSlice", field(1, field(1, b"x")) + field(2, spec))
    where = 'ResourceSlice in version "v1" cannot be handled as a ResourceSlice: '
    assert refused(api, body, api.slices) == where + QUANTITY


def test_texts_that_are_no_unicode_are_shown_with_replacements(api: Client, mine: str) -> None:
    name, odd = f"{mine}-odd", field(12, field(1, b"a") + field(2, b"\xff\xfe"))
    reply = send(api, "POST", api.classes, class_document(api, name.encode(), metadata=odd))

    assert reply.status == 201, reply.text
    for answer in (reply.json, api.get(f"{api.classes}/{name}")):
        assert answer["metadata"]["annotations"] == {"a": "\ufffd\ufffd"}
    assert fetch(api, f"{api.classes}/{name}").status == 200


def configured(api: Client, name: str, parameters: bytes) -> bytes:
    opaque = field(1, b"driver.example.com") + field(2, field(1, parameters))
    return class_document(api, name.encode(), field(2, field(1, field(1, opaque))))


def test_parameters_come_as_json_within_the_message(api: Client, mine: str) -> None:
    reply = send(api, "POST", api.classes, configured(api, mine, b'{ "a" : [1,"<"] ,"b":null}'))
    assert reply.status == 201, reply.text
    assert reply.json["spec"]["config"][0]["opaque"]["parameters"] == {"a": [1, "<"], "b": None}
    assert json.loads(inside(read(api, f"{api.classes}/{mine}")[2], 2, 2, 1, 1, 2, 1)) == {"a": [1, "<"], "b": None}
    for parameters in (b"null", b"[1]"):
        reply = send(api, "POST", api.classes, configured(api, f"{mine}-2", parameters))
        assert (reply.status, reply.json["details"]["causes"][0]["field"]) == (
            422,
            "spec.config[0].opaque.parameters",
        )


@pytest.mark.only("dev", "aggregated", reason="upstream breaks the connection off")
@pytest.mark.parametrize("parameters", [b"{abc", b"{} x", b'{"a":}'])
def test_parameters_that_are_no_json_are_not_stored(api: Client, mine: str, parameters: bytes) -> None:
    reply = send(api, "POST", api.classes, configured(api, mine, parameters))
    assert reply.status == 400
    assert reply.json["message"].startswith(V1)
    assert fetch(api, f"{api.classes}/{mine}").status == 404


# Options of a deletion


def test_a_deletion_reads_its_options(api: Client, mine: str) -> None:
    made = api.create(api.classes, device_class(mine))
    path, trial = f"{api.classes}/{mine}", field(5, b"All")

    def delete(options: bytes) -> Reply:
        return send(api, "DELETE", path, options)

    for api_version, kind in (
        ("v1", "DeleteOptions"),
        ("", ""),
        (f"{api.group}/v1", "DeleteOptions"),
        ("a/b", "DeleteOptions"),
    ):
        assert delete(document(api_version, kind, trial)).status == 200
        assert fetch(api, path).status == 200

    other = delete(document("v1", "DeleteOptions", field(2, field(1, b"another uid"))))
    assert (other.status, other.json["reason"]) == (409, "Conflict")
    policy = delete(document("v1", "DeleteOptions", field(4, b"Foo")))
    assert (policy.status, policy.json["reason"]) == (422, "Invalid")
    right = field(2, field(1, made["metadata"]["uid"].encode()))
    assert delete(document("v1", "DeleteOptions", right + field(4, b"Background"))).status == 200
    assert fetch(api, path).status == 404


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"abc", PREFIX),
        (b"k8s\0", "empty body"),
        (document("v1", "DeleteOptions", b"\x0a\x01a"), "proto: wrong wireType = 2 for field GracePeriodSeconds"),
        (document("v1", "Status", b""), "converting (v1.Status) to (v1.DeleteOptions): unknown conversion"),
    ],
)
def test_malformed_options_are_refused(api: Client, mine: str, body: bytes, why: str) -> None:
    reply = send(api, "DELETE", f"{api.classes}/{mine}", body)
    assert (reply.status, reply.json["reason"], reply.json["message"]) == (400, "BadRequest", why)


# Discovery


def test_discovery_is_served_in_protobuf(api: Client) -> None:
    groups, group, listed = (read(api, path, FIRST) for path in ("/apis", f"/apis/{api.group}", api.v1))

    assert [one[:2] for one in (groups, group, listed)] == [
        ("v1", kind) for kind in ("APIGroupList", "APIGroup", "APIResourceList")
    ]
    assert api.group in [inside(one, 1).decode() for one in messages(groups[2], 1)]
    assert inside(group[2], 1).decode() == api.group
    names = [inside(one, 1).decode() for one in messages(listed[2], 2)]
    assert "resourceclaims/status" in names
    verbs = [word.decode() for word in messages(inside(messages(listed[2], 2)[0], 4), 1)]
    assert verbs == ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def test_the_aggregated_document_is_served_in_protobuf(api: Client) -> None:
    media = f"{PROTOBUF};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    reply = fetch(api, "/apis", f"{media},application/json")

    assert (reply.status, reply.headers["Content-Type"]) == (200, media)
    api_version, kind, message = opened(reply.body)
    assert (api_version, kind) == ("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList")
    assert api.group in [inside(group, 1, 1).decode() for group in messages(message, 2)]


def test_the_version_is_only_served_in_json(api: Client) -> None:
    reply = fetch(api, "/version")
    assert (reply.status, opened(reply.body)[1]) == (406, "Status")
    assert fetch(api, "/version", FIRST).json["major"] == "1"


# Held against the bytes of a real server


def ours(resource: Resource, accept: str) -> form.Form:
    chosen = negotiation.negotiate(accept, NO_QUERY, "")
    return choice.form(chosen, resource, query=NO_QUERY, clock=lambda: 0.0, cache=EncodingCache())


def entry(obj: Object, at: int = 1) -> Entry:
    members = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
    return Entry(Key("x"), Revision(at), as_json.dumps(members), NO_LABELS, ())


FULL_CLAIM = {
    "requests": [
        {
            "name": "a",
            "exactly": {
                "deviceClassName": "gpu",
                "allocationMode": "All",
                "selectors": [{"cel": {"expression": "true"}}],
                "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
            },
        },
        {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "gpu", "count": 3}]},
    ],
    "constraints": [{"requests": ["a"], "matchAttribute": "gpu.example.com/numa"}],
    "config": [
        {"requests": ["a"], "opaque": {"driver": "gpu.example.com", "parameters": {"z": [1, "<ü>", None], "a": {}}}}
    ],
}


@pytest.mark.only("upstream", reason="it compares what this server would write with what that one has written")
def test_a_real_server_writes_these_very_bytes(api: Client, mine: str) -> None:
    rich = resource_slice(f"{mine}-one", node="n", labels={"b": "", "a": "x"}, finalizers=["example.com/a"])
    rich["spec"]["devices"][0] |= {
        "attributes": {"s": {"string": "ü"}, "i": {"int": -7}, "b": {"bool": False}, "v": {"version": "1.2.3"}},
        "capacity": {"memory": {"value": "1.5Gi"}, "none": {"value": "0"}},
        "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2024-01-02T03:04:05Z"}],
    }
    api.create(api.slices, rich)
    api.create(api.classes, device_class(f"{mine}-one", annotations={"text": "a\n\t\u2028"}))
    # Parameters are kept as they were sent, blanks and all: without any, they are what JSON answers say.
    compact = as_json.dumps({**claim("one"), "spec": {"devices": FULL_CLAIM}})
    assert api.ask("POST", api.claims(mine), compact, headers={"Content-Type": "application/json"}).status == 201
    api.create(
        api.templates(mine), {"metadata": {"name": "one"}, "spec": claim("") | {"metadata": {"labels": {"a": "b"}}}}
    )
    kinds = Kinds(resources.RESOURCES, group=api.group)
    where = {
        "resourceslices": (api.slices, f"{mine}-one"),
        "deviceclasses": (api.classes, f"{mine}-one"),
        "resourceclaims": (api.claims(mine), "one"),
        "resourceclaimtemplates": (api.templates(mine), "one"),
    }
    for plural, (path, name) in where.items():
        only = {"fieldSelector": f"metadata.name={name}"}
        obj, listed = api.get(f"{path}/{name}"), api.get(path, **only)
        for served in VERSIONS:
            (resource,) = (r for r in kinds.known if (r.version, r.plural) == (served, plural))
            there = path.replace("/v1/", f"/{served}/")
            for accept in (PROTOBUF, in_form("PartialObjectMetadata"), in_form("PartialObjectMetadata", "v1beta1")):
                made = ours(resource, accept)
                assert fetch(api, f"{there}/{name}", accept).body == made.single(entry(obj).body)
                event = made.frame("ADDED", entry(obj))
                stream = stream_of(api, there, 2, accept, **INITIAL, **only)
                marker = made.bookmark(int(inside(opened(frames(stream)[1][1])[2], 1, 6)), marker=True)
                assert stream == event + marker
                accept = accept.replace("Metadata;", "MetadataList;")
                reply = fetch(api, there, accept, **at(listed), **only)
                entries = [entry(item, at) for at, item in enumerate(listed["items"])]
                pieces = ours(resource, accept).listing(entries, form.ListMeta(version(listed))).pieces
                assert reply.body == b"".join(map(text, finished(pieces)))
        missing = fetch(api, f"{path}/nothing")
        status = fetch(api, f"{path}/nothing", "application/json").json
        assert missing.body == form.status(negotiation.negotiate(PROTOBUF, NO_QUERY, ""), status).run()
