"""Watchers of Tables get the current age of an event, and the same frame for all of them while it holds."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from apiserver.apimachinery.request import Query
from apiserver.listcache.encoding import BUDGET, EncodingCache, Encodings
from apiserver.runtime import workers
from apiserver.schema.resource import Resource
from apiserver.verbs.context import Services
from apiserver.verbs.selection import Selection
from apiserver.verbs.watch import AgingSink, Encoder, Meter, Sink
from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision
from apiserver.watchcache.hub import Bookmark
from apiserver.wire import as_json, frames, negotiation
from apiserver.wire.forms import choice
from apiserver.wire.response import WatchStream
from tests.fixtures.watching import Clock
from tests.unit.wire.served import SLICES

TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
CREATED = 1_700_000_000.0
EVERYTHING = Selection(prefix="", key=None, test=None, unfiltered=True, field=None)
SELECTED = Selection(prefix="", key=None, test=lambda entry: True, unfiltered=False, field=None)


class Stream:
    """A client that takes everything."""

    writable = True

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def push(self, chunk: bytes) -> bool:
        self.taken.append(chunk)
        return True


class Watches:
    """Watchers of one kind, which share what is remembered of its events."""

    def __init__(self, budget: int = BUDGET, resource: Resource = SLICES) -> None:
        self.clock = Clock()
        self.clock.now = CREATED
        self.cache = EncodingCache(budget)
        self.resource = resource

    def begin(self, chosen: Selection = EVERYTHING, *, accept: str = TABLE, first: bool = False) -> Sink:
        """A watch, which has sent a frame already unless this is its `first`."""
        query = Query("")
        form = choice.form(
            negotiation.negotiate(accept, query, ""), self.resource, query=query, clock=self.clock, cache=self.cache
        )
        services = SimpleNamespace(workers=workers.RENDERING, encodings=self.cache)
        stream, encoder = cast(WatchStream, Stream()), Encoder(form, cast(Services, services), frames.CHUNKS)
        kind = AgingSink if encoder.ages else Sink
        sink = kind(stream, encoder, chosen, Meter(self.resource))
        if not first:
            assert sink.bookmark(Bookmark(Revision(1)))
        return sink


def created(*, pad: int = 0) -> Event:
    metadata = {"name": "s1", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2023-11-14T22:13:20Z"}
    spec: dict[str, Any] = {"driver": "d", "nodeName": "n", "pool": {"name": "p" * (1 + pad)}}
    entry = Entry(Key("s1"), Revision(7), as_json.dumps({"metadata": metadata, "spec": spec}), NO_LABELS, ())
    return Event(Revision(7), EventType.CREATED, entry, None)


def frame_of(sink: Sink, event: Event) -> bytes:
    assert sink.event(event)
    return cast(Stream, sink.stream).taken[-1]


def age_in(chunk: bytes) -> str:
    age: str = json.loads(chunk.split(b"\r\n")[1])["object"]["rows"][0]["cells"][-1]
    return age


@pytest.mark.parametrize("budget", [BUDGET, 0])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("chosen", [EVERYTHING, SELECTED])
def test_event_sent_later_again_shows_the_age_at_that_time(budget: int, first: bool, chosen: Selection) -> None:
    watches, event = Watches(budget), created()
    ages = []
    for seconds in (0, 17, 600, 59, 0):  # clocks are set back, too
        watches.clock.now = CREATED + seconds
        ages.append(age_in(frame_of(watches.begin(chosen, first=first), event)))

    assert ages == ["0s", "17s", "10m", "59s", "0s"]


async def test_so_does_one_that_is_pulled() -> None:
    watches, event = Watches(), created()
    assert age_in(frame_of(watches.begin(), event)) == "0s"
    watches.clock.now += 17
    chunk = await watches.begin().made(event)
    assert chunk is not None
    assert age_in(chunk) == "17s"


async def test_so_does_one_that_is_made_in_a_thread() -> None:
    watches, event = Watches(), created(pad=100_000)
    for age in ("0s", "17s"):
        sink = watches.begin()
        assert not sink.event(event), "it takes too long for a step"
        made = await sink.made(event)
        assert made is not None
        assert age_in(made) == age
        assert frame_of(watches.begin(), event) is made
        watches.clock.now += 17


def test_a_frame_is_the_same_for_all_watchers_while_its_age_is() -> None:
    watches, event = Watches(), created()
    sinks = [watches.begin() for _ in range(3)]
    for seconds in (0, 17, 650):
        watches.clock.now = CREATED + seconds
        early = [frame_of(sink, event) for sink in sinks]
        watches.clock.now += 0.9
        assert len({id(frame) for frame in early} | {id(frame_of(sink, event)) for sink in sinks}) == 1


def test_a_frame_with_a_newer_age_takes_the_place_of_the_older_one() -> None:
    watches, event = Watches(), created()
    length, held = len(frame_of(watches.begin(), event)), watches.cache.size
    for seconds in (17, 1, 0):
        watches.clock.now = CREATED + seconds
        more = len(frame_of(watches.begin(), event)) - length
        assert watches.cache.size == held + more
    assert isinstance(event.encodings, Encodings)
    assert len(event.encodings) == 1
    event.encodings.forget()
    assert watches.cache.size == 0
