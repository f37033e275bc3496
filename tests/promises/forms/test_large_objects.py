"""Objects as large as the store takes, in every form. That none of it holds the loop is judged by the detector of `tests/conftest.py`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver.listcache.encoding import BUDGET
from apiserver.storage.store import Write
from apiserver.watchcache.entry import Entry, Key, Revision
from apiserver.wire.forms.table import Table
from tests.fixtures import protobuf
from tests.fixtures.composed import Composed, composed
from tests.fixtures.connection import Connection
from tests.fixtures.valkey import Server

SIZE = (3 << 19) - 8192
"""Just below what the store takes."""
OF = ";as={};g=meta.k8s.io;v=v1"
TABLE, PARTIAL = (f"application/json{OF.format(kind)}" for kind in ("Table", "PartialObjectMetadata"))
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
WATCHERS = 20


@pytest_asyncio.fixture
async def served(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server) as running:
        yield running


def numbers(size: int) -> bytes:
    """Many small values: what takes longest to decode."""
    return b"[" + b"{}," * (size // 3 - 1) + b"{}]"


def text(size: int) -> bytes:
    return b'["' + rb"\u003cx\u003e" * (size // 13 - 1) + b'"]'


def deep(size: int) -> bytes:
    """Many levels, again and again."""
    levels = b'{"a":' * 100 + b"1" + b"}" * 100
    return b"[" + b",".join([levels] * (size // len(levels) - 1)) + b"]"


KINDS = {"small values": numbers, "text": text, "depth": deep}


async def stored(served: Composed, name: str, members: bytes, before: Entry | None = None) -> Entry:
    """Puts an object there as it would stand in the log, past everything that a write is asked."""
    [store] = [store for resource, store in served.stores.items() if resource.endswith("/deviceclasses")]
    metadata = b'{"name":"%b","uid":"u-%b","creationTimestamp":"2026-01-01T00:00:00Z"}' % ((name.encode(),) * 2)
    value = b'{"metadata":%b,"spec":{"config":%b}}' % (metadata, members)
    at = Revision(0) if before is None else before.revision
    return await store.commit(Write(Key(name), value, at, f"u-{name}"), dry_run=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accept", [JSON, YAML, TABLE, PARTIAL, YAML + OF.format("Table")])
@pytest.mark.parametrize("query", ["", "pretty=1&includeObject=Object"])
async def test_one_object_is_shown_whatever_the_form(served: Composed, accept: str, query: str, kind: str) -> None:
    await stored(served, "large", KINDS[kind](SIZE))
    answer = await served.ask("GET", f"{served.classes}/large?{query}", Accept=accept)
    assert answer.status == 200
    assert answer.headers["Content-Type"] == accept.partition(";")[0]
    assert b"u-large" in answer.body
    assert len(answer.body) > SIZE - 100_000 or accept != JSON


@pytest.mark.parametrize("accept", [JSON, YAML, TABLE, f"application/json{OF.format('PartialObjectMetadataList')}"])
@pytest.mark.parametrize("query", ["", "pretty=1"])
async def test_a_list_with_large_objects_is_shown_around_them(served: Composed, accept: str, query: str) -> None:
    for name, kind in (("b", "small values"), ("d", "text"), ("f", "depth")):
        await stored(served, name, KINDS[kind](SIZE))
    for name in "aceg":
        await stored(served, name, b"null")
    answer = await served.ask("GET", f"{served.classes}?{query}", Accept=accept)
    assert answer.status == 200
    for name in "abcdefg":
        assert f"u-{name}".encode() in answer.body


@pytest.mark.parametrize("kind", ["small values", "depth"])
async def test_large_objects_are_written_in_protobuf(served: Composed, kind: str) -> None:
    for name in "ac":
        await stored(served, name, b"null")
    await stored(served, "b", KINDS[kind](SIZE))
    for _ in range(2):  # anew, and from what is remembered
        one = await served.ask("GET", f"{served.classes}/b", Accept=PROTOBUF)
        listed = await served.ask("GET", served.classes, Accept=PROTOBUF)
        assert (one.status, listed.status) == (200, 200)
        _, _, message = protobuf.opened(one.body)
        items = protobuf.messages(protobuf.opened(listed.body)[2], 2)
        assert [protobuf.inside(item, 1, 1) for item in items] == [b"a", b"b", b"c"]
        assert items[1] == message


async def next_chunk(connection: Connection) -> bytes:
    size = int(await connection._until(b"\r\n"), 16)
    chunk = await connection._exactly(size)
    await connection._until(b"\r\n")
    return chunk


async def watching(served: Composed, query: str, accept: str) -> Connection:
    connection = served.connect()
    head = f"GET {served.classes}?watch=1&{query} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\n\r\n"
    connection.feed(head.encode())
    assert (await connection._until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    return connection


@pytest.mark.parametrize("include", ["None", "Metadata", "Object"])
async def test_a_frame_of_a_large_object_is_made_once_for_all_watchers(
    served: Composed, include: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bool] = []
    told = Table.timed_frame

    def counted(self: Table, event_type: str, entry: Entry, *, first: bool = False) -> Any:
        made.append(first)
        return told(self, event_type, entry, first=first)

    monkeypatch.setattr(Table, "timed_frame", counted)
    small = await stored(served, "a", b"null")
    query = f"resourceVersion={small.revision}&includeObject={include}"
    watchers = [await watching(served, query, TABLE) for _ in range(WATCHERS)]
    entry: Entry | None = None
    for turn, members in enumerate((KINDS["depth"](SIZE), KINDS["text"](SIZE), b"null")):
        entry = await stored(served, "large", members, entry)
        frames = await asyncio.gather(*map(next_chunk, watchers))
        assert len(set(frames)) == 1
        assert frames[0].startswith(b'{"type":"ADDED"' if not turn else b'{"type":"MODIFIED"')
        assert (b'"columnDefinitions":null' in frames[0]) is bool(turn)
        assert b'"resourceVersion":"%d"' % entry.revision in frames[0]
    assert made == [True, False, False]
    for watcher in watchers:
        await watcher.close()


@pytest.mark.parametrize("accept", [JSON, TABLE, PARTIAL])
async def test_a_watch_begins_with_large_objects(served: Composed, accept: str) -> None:
    for name, kind in (("a", "small values"), ("b", "text"), ("c", "depth")):
        await stored(served, name, KINDS[kind](SIZE))
    query = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&includeObject=Object"
    watcher = await watching(served, query, accept)
    seen = b""
    while b"k8s.io/initial-events-end" not in seen[-20_000:]:
        seen += await next_chunk(watcher)
    assert [b'"uid":"u-%b"' % name in seen for name in (b"a", b"b", b"c")] == [True] * 3
    await watcher.close()


async def test_caches_stay_within_their_bound_under_all_requests(served: Composed) -> None:
    for at in range(40):
        await stored(served, f"c{at:02}", KINDS["text"](SIZE // 40))
    for accept in (YAML, TABLE, TABLE.replace("v=v1", "v=v1beta1"), YAML + OF.format("Table")):
        for include in ("None", "Metadata", "Object"):
            answer = await served.ask("GET", f"{served.classes}?includeObject={include}", Accept=accept)
            assert answer.status == 200
    [held] = re.findall(r"(?m)^sluice_encoding_bytes (.*)$", (await served.ask("GET", "/metrics")).text)
    assert 1 << 18 < float(held) <= BUDGET
