"""No byte of a list, a page or the initial events of a watch differs for cached encodings, after any writes."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.apimachinery.request import NO_QUERY, Query
from apiserver.listcache.chunk import ListRange
from apiserver.listcache.encoding import EncodingCache, Use
from apiserver.listcache.piece import LONG, Piece, Step, finished, text
from apiserver.schema.resource import Resource
from apiserver.watchcache.blocks import Blocks
from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision, splice
from apiserver.watchcache.mvcc import Index, View
from apiserver.wire import as_json, negotiation, response
from apiserver.wire.forms import choice
from apiserver.wire.forms.form import Form, ListMeta
from tests.unit.wire.served import CLASSES, SLICES

PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON, YAML = "application/json", "application/yaml"
STREAMED = [
    (media, kind, query) for media in (JSON, PROTOBUF) for kind in ("", "PartialObjectMetadata") for query in ("",)
] + [(JSON, "Table", query) for query in ("", "includeObject=None", "includeObject=Object")]
LISTS = [
    *((media, kind, "") for media in (JSON, YAML, PROTOBUF) for kind in ("", "PartialObjectMetadataList")),
    *((JSON, kind, "pretty=1") for kind in ("", "Table", "PartialObjectMetadataList")),
    *((JSON, "Table", query) for query in ("", "includeObject=None", "includeObject=Object")),
    (YAML, "Table", ""),
]
BARE = dataclasses.replace(CLASSES, columns=())
START = 5 << 16
NOW = 1_700_000_000


def made_of(media: str, kind: str, query: str, *, resource: Resource, cache: EncodingCache, now: float) -> Form:
    accept = f"{media};as={kind};g=meta.k8s.io;v=v1" if kind else media
    found = negotiation.negotiate(accept, Query(query) if query else NO_QUERY, "")
    return choice.form(found, resource, query=Query(query), clock=lambda: now, cache=cache)


def stored(number: int, revision: int, size: int) -> Entry:
    namespace, name = f"ns{number % 3}", f"o{number:03}"
    created = f"2023-11-14T{number % 24:02}:12:20Z"
    metadata = {"name": name, "uid": f"u{revision}", "creationTimestamp": created, "labels": {"é<": "x" * size}}
    spec = {"driver": "d.example.com", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "nodeName": "n"}
    body = as_json.dumps({"metadata": {**metadata, "annotations": {"at": str(revision)}}, "spec": spec})
    return Entry(Key(f"{namespace}/{name}"), Revision(revision), splice(body, revision), NO_LABELS, ())


class Store:
    """The memory of a resource, and the states that lists go on with."""

    def __init__(self) -> None:
        self.index = Index()
        self.index.load(Blocks.of(()), applied=Revision(START), floor=Revision(START))
        self.views: list[View] = []
        self.log: list[Event] = []
        for number in range(0, 160, 2):
            self.write(number, 30)

    def write(self, number: int, size: int) -> None:
        entry = stored(number, self.index.applied + 1, size)
        known = self.index.view().get(entry.key) is not None
        self._apply(Event(entry.revision, EventType.UPDATED if known else EventType.CREATED, entry, None))

    def delete(self, number: int) -> None:
        held = self.index.view().get(stored(number, 1, 0).key)
        if held is not None:
            revision = Revision(self.index.applied + 1)
            self._apply(Event(revision, EventType.DELETED, held.at(revision), None))

    def _apply(self, event: Event) -> None:
        self.index.apply(event)
        self.log.append(event)

    def restart(self) -> None:
        """Another process fills its memory: the objects, then what was written lately, of which nobody has seen a list yet."""
        objects, since = fresh(self.index.view().scan()), self.log[len(self.log) // 2].revision
        index = Index()
        index.load(Blocks.of(objects), applied=self.index.applied, floor=since)
        told = [event for event in self.log if event.revision > since]
        list(index.preload([_as_read(event) for event in told], since=since))
        self.index, self.log = index, told
        self.views = [index.view_at(event.revision) for event in told[-8:]] or [index.view()]


def _as_read(event: Event) -> Event:
    previous = None if event.previous is None else fresh([event.previous])[0]
    return Event(event.revision, event.type, fresh([event.entry])[0], previous)


def fresh(entries: Iterable[Entry]) -> list[Entry]:
    """Return the same objects without cached encodings."""
    return [Entry(one.key, one.revision, one.body, one.labels, one.fields) for one in entries]


def listed(form: Form, entries: Sequence[Entry], range_: ListRange, *, compressed: bool) -> bytes:
    meta = ListMeta(range_.revision, "" if range_.ends else "more")
    length, pieces, large = form.listing(entries, meta, range_, compressed=compressed)
    parts = list(finished(pieces))
    data = b"".join(map(text, parts))
    assert length in (None, len(data))
    assert not large or len(data) > LONG / 2
    if not compressed:
        return data
    packed = asyncio.run(_packed(parts))
    assert gzip.decompress(packed) == data
    return data


async def _packed(parts: Sequence[bytes | Piece]) -> bytes:
    async def sent() -> AsyncIterator[bytes | Piece]:
        for part in parts:
            yield part

    return b"".join([data async for some in response.packed(sent()) for data in some])


NUMBERS = st.integers(0, 170)
WRITES = st.tuples(st.just("write"), NUMBERS, st.sampled_from([0, 30, 2000, 70_000]))
DELETIONS = st.tuples(st.just("delete"), NUMBERS, st.just(0))
RESTARTS = st.tuples(st.just("restart"), st.just(0), st.just(0))
SHOWN = st.tuples(
    st.sampled_from(["list", "chunk", "namespace", "selected", "older", "watch"]),
    st.tuples(st.integers(0, 12), st.booleans(), st.integers(0, 10**6)),
    NUMBERS,
)


@pytest.mark.parametrize("resource", [SLICES, BARE], ids=["with columns", "without"])
@given(
    steps=st.lists(st.one_of(WRITES, DELETIONS, RESTARTS, SHOWN, SHOWN), min_size=5, max_size=40),
    budget=st.sampled_from([0, 30_000, 64 << 20]),
)
@settings(max_examples=25, deadline=None)
def test_no_list_differs_for_cached_encodings(resource: Resource, steps: list[tuple], budget: int) -> None:  # type: ignore[type-arg]
    store, cache = Store(), EncodingCache(budget)
    for what, how, number in steps:
        if what == "write":
            store.write(how, number)
        elif what == "delete":
            store.delete(how)
        elif what == "restart" and len(store.log) > 1:
            store.restart()
        elif what != "restart":
            _compare(store, cache, resource, what, how, number)
        assert cache.size <= budget


def _compare(
    store: Store, cache: EncodingCache, resource: Resource, what: str, how: tuple[int, bool, int], number: int
) -> None:
    which, compressed, seconds = how
    view = store.index.view()
    store.views.append(view)
    if what == "older":
        view = store.views[number % len(store.views)]
    entries, range_ = list(view.scan()), ListRange(view.revision)
    if what == "chunk":
        end = min(len(entries), number // 2 + 40)
        entries, range_ = entries[number // 2 : end], range_._replace(begins=number < 2, ends=end == len(entries))
    elif what == "namespace":
        entries, range_ = list(view.scan("ns1/")), range_._replace(begins=False, ends=False)
    elif what == "selected":
        entries, range_ = entries[number % 5 :: 3], range_._replace(sparse=True)
    forms = STREAMED if what == "watch" else LISTS
    media, kind, query = forms[which % len(forms)]

    def shown(some: Sequence[Entry], kept: EncodingCache) -> bytes:
        form = made_of(media, kind, query, resource=resource, cache=kept, now=NOW + seconds)
        if what == "watch":
            return b"".join(map(text, finished(form.initial(some, range_, first=True))))
        return listed(form, some, range_, compressed=compressed)

    assert shown(entries, cache) == shown(fresh(entries), EncodingCache(0))


@pytest.mark.parametrize(("media", "kind", "query"), STREAMED)
def test_a_watch_begins_with_the_frames_of_its_objects(media: str, kind: str, query: str) -> None:
    store = Store()
    entries = list(store.index.view().scan())
    form = made_of(media, kind, query, resource=SLICES, cache=EncodingCache(), now=NOW)
    begun = b"".join(map(text, finished(form.initial(entries, ListRange(store.index.applied), first=True))))
    assert begun == b"".join(form.frame("ADDED", entry, first=not at) for at, entry in enumerate(entries))


@pytest.mark.parametrize("lists", range(2, 7))
@pytest.mark.parametrize("before", ["nothing", "ns0/"])
@pytest.mark.parametrize("media", [PROTOBUF, YAML])
def test_lists_at_the_same_time_encode_each_object_once(
    media: str, before: str, lists: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, cache = Store(), EncodingCache()
    entries, made = list(store.index.view().scan()), 0
    form = made_of(media, "", "", resource=SLICES, cache=cache, now=NOW)
    make = form.encodings_of

    def counted(several: Sequence[Entry]) -> Sequence[Any]:
        nonlocal made
        made += len(several)
        return make(several)

    monkeypatch.setattr(form, "encodings_of", counted)
    meta = ListMeta(store.index.applied)
    cached = list(store.index.view().scan(before))
    listed(form, cached, ListRange(store.index.applied, begins=True, ends=False), compressed=False)
    texts = [b""] * lists
    going = dict(enumerate(form.listing(entries, meta).pieces for _ in texts))
    while going:
        for at, pieces in list(going.items()):
            piece = next(pieces, None)
            if piece is None:
                del going[at]
            elif isinstance(piece, Step):
                piece.run()
            else:
                texts[at] += text(piece)
    assert made == len(entries)
    assert len(set(texts)) == 1


def compressed_anew(cache: EncodingCache, show: Callable[[], object]) -> int:
    """Count the pieces that are compressed for a list."""
    before = cache.uses[Use.PIECE_MADE]
    show()
    return cache.uses[Use.PIECE_MADE] - before


@pytest.mark.parametrize("before", ["a list of all", "nothing"])
@pytest.mark.parametrize("limit", [37, 50])
def test_a_second_walk_of_pages_compresses_nothing_anew(limit: int, before: str) -> None:
    store, cache = Store(), EncodingCache()
    for number in range(0, 160, 2):
        store.write(number, 2 * LONG // limit)
    entries = list(store.index.view().scan())
    form = made_of(JSON, "", "", resource=SLICES, cache=cache, now=NOW)

    def walk() -> None:
        for start in range(0, len(entries), limit):
            range_ = ListRange(store.index.applied, begins=not start, ends=start + limit >= len(entries))
            listed(form, entries[start : start + limit], range_, compressed=True)

    if before != "nothing":
        listed(form, entries, ListRange(store.index.applied), compressed=True)
    else:
        assert compressed_anew(cache, walk) > 0
    walk()
    assert compressed_anew(cache, walk) == 0


def test_a_table_is_compressed_anew_only_when_an_age_changes() -> None:
    store, cache = Store(), EncodingCache()
    entries = list(store.index.view().scan())

    def compressed_at(now: float) -> int:
        form = made_of(JSON, "Table", "", resource=SLICES, cache=cache, now=now)
        return compressed_anew(cache, lambda: listed(form, entries, ListRange(store.index.applied), compressed=True))

    day = 86400
    times = (0, 0.5, 100 * day, 100 * day + 60, 102 * day, 0)
    assert [compressed_at(NOW + seconds) > 0 for seconds in times] == [True, False, True, False, True, True]


@pytest.mark.parametrize(("media", "kind", "query"), LISTS)
def test_a_list_of_the_past_after_a_restart_changes_no_newer_list(media: str, kind: str, query: str) -> None:
    store, cache = Store(), EncodingCache()
    store.write(20, 3)
    store.restart()
    form = made_of(media, kind, query, resource=SLICES, cache=cache, now=NOW)
    for view in (store.index.view_at(Revision(store.index.applied - 1)), store.index.view()):
        entries, range_ = list(view.scan()), ListRange(view.revision)
        shown = listed(form, entries, range_, compressed=False)
        anew = made_of(media, kind, query, resource=SLICES, cache=EncodingCache(0), now=NOW)
        assert shown == listed(anew, fresh(entries), range_, compressed=False)
