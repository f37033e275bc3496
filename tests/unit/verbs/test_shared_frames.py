"""One frame for all watchers of the same form and framing: of an event, and of a bookmark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from apiserver.apimachinery.request import Query
from apiserver.listcache.encoding import EncodingCache
from apiserver.runtime import workers
from apiserver.verbs.context import Services
from apiserver.verbs.watch import Encoder, Meter, Sink
from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision
from apiserver.watchcache.hub import Bookmark
from apiserver.wire import as_json, frames, negotiation, websocket
from apiserver.wire.forms import choice, media
from apiserver.wire.frames import Framing
from apiserver.wire.response import WatchStream
from tests.unit.verbs.test_frames_with_ages import EVERYTHING, TABLE, Stream
from tests.unit.wire.served import SLICES

JSON, PROTOBUF = media.JSON, media.PROTOBUF
WEBSOCKET = {JSON: websocket.FRAMINGS[JSON], PROTOBUF: websocket.FRAMINGS[PROTOBUF], TABLE: websocket.FRAMINGS[JSON]}
CACHE = EncodingCache()


def watching(accept: str, framing: Framing) -> Sink:
    query = Query("")
    chosen = negotiation.negotiate(accept, query, "")
    form = choice.form(chosen, SLICES, query=query, clock=lambda: 1e9, cache=CACHE)
    services = cast(Services, SimpleNamespace(workers=workers.RENDERING, encodings=CACHE))
    stream = cast(WatchStream, Stream())
    encoder = Encoder(form, services, framing)
    return Sink(stream, encoder, EVERYTHING, Meter(SLICES))


def taken(sink: Sink) -> bytes:
    return cast(Stream, sink.stream).taken[-1]


@pytest.mark.parametrize("accept", [JSON, PROTOBUF, TABLE])
def test_the_watchers_of_a_round_share_the_frame_of_their_bookmark(accept: str) -> None:
    bookmark = Bookmark(Revision(7))
    plain, plain_too = (watching(accept, frames.CHUNKS) for _ in range(2))
    upgraded, upgraded_too = (watching(accept, WEBSOCKET[accept]) for _ in range(2))
    for sink in (plain, plain_too, upgraded, upgraded_too):
        assert sink.bookmark(bookmark)
    assert taken(plain) is taken(plain_too)
    assert taken(upgraded) is taken(upgraded_too)
    assert taken(upgraded)[0] == (0x82 if accept == PROTOBUF else 0x81)
    assert len(bookmark.frames) == 2


def test_a_later_bookmark_of_a_table_does_not_repeat_its_columns() -> None:
    one, other = watching(TABLE, frames.CHUNKS), watching(TABLE, frames.CHUNKS)
    assert one.bookmark(Bookmark(Revision(7)))
    first = taken(one)
    bookmark = Bookmark(Revision(8))
    assert one.bookmark(bookmark)
    assert other.bookmark(bookmark)
    assert b'"columnDefinitions":null' in taken(one)
    assert b'"columnDefinitions":[' in first
    assert b'"columnDefinitions":[' in taken(other)


@pytest.mark.parametrize("accept", [JSON, PROTOBUF])
def test_an_event_has_one_frame_for_chunks_and_one_for_messages(accept: str) -> None:
    metadata = {"name": "s1", "uid": "u", "resourceVersion": "7"}
    body = as_json.dumps({"metadata": metadata, "spec": {"driver": "d", "pool": {"name": "p"}}})
    event = Event(Revision(7), EventType.CREATED, Entry(Key("s1"), Revision(7), body, NO_LABELS, ()), None)
    plain, plain_too = (watching(accept, frames.CHUNKS) for _ in range(2))
    upgraded, upgraded_too = (watching(accept, WEBSOCKET[accept]) for _ in range(2))
    for sink in (plain, upgraded, plain_too, upgraded_too):
        assert sink.event(event)
    assert taken(plain) is taken(plain_too)
    assert taken(upgraded) is taken(upgraded_too)
    assert taken(plain).split(b"\r\n", 1)[1][(4 if accept == PROTOBUF else 0) : -2] in taken(upgraded)
