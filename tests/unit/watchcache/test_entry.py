"""The objects in memory."""

from __future__ import annotations

import gc

from apiserver.watchcache.entry import NO_LABELS, Entry, Event, EventType, Key, Revision, Unreadable, splice, split


def test_the_garbage_collector_has_nothing_to_do_with_entries_and_events() -> None:
    entry = Entry(Key("a"), Revision(1), b"{}", {"app": "x"}, ("node-1",))
    unreadable = Unreadable.named(Key("ns/b"), Revision(2), ("",))
    event = Event(Revision(3), EventType.UPDATED, entry, None)
    assert not any(map(gc.is_tracked, (entry, unreadable, event, entry.labels)))


def test_two_entries_are_the_same_only_if_they_are_one() -> None:
    one, other = (Entry(Key("a"), Revision(1), b"{}", NO_LABELS, ()) for _ in range(2))
    assert one != other
    assert len({one, other}) == 2


def test_an_unreadable_value_has_its_name_and_version_and_nothing_else() -> None:
    entry = Unreadable.named(Key("ns/b"), Revision(70000), ("",))
    assert entry.body == b'{"metadata":{"name":"b","namespace":"ns","uid":"","resourceVersion":"70000"}}'
    assert not entry.readable
    assert entry.at(Revision(70001)).body.endswith(b'"resourceVersion":"70001"}}')
    assert not entry.at(Revision(70001)).readable


def test_the_uid_is_read_from_the_body_whatever_else_stands_in_it() -> None:
    def uid(value: bytes) -> bytes:
        return Entry(Key("a"), Revision(1), splice(value, 1), NO_LABELS, ()).uid

    assert uid(b'{"metadata":{"name":"a","uid":"u-1","labels":{"uid":"x"}},"spec":{"uid":"y"}}') == b"u-1"
    assert uid(b'{"metadata":{"name":"a"},"spec":{}}') == b""
    assert Unreadable.named(Key("a"), Revision(1), ()).uid == b""


def test_how_raw_json_was_sent_stands_behind_the_body_at_every_version() -> None:
    value = b'{"metadata":{"name":"a","uid":"u-1"}}\n["{ }"]'
    body, verbatim = split(value)
    entry = Entry(Key("a"), Revision(1), splice(body, 1), NO_LABELS, (), verbatim=verbatim)
    assert entry.value == splice(value, 1)
    assert entry.size == len(entry.value)
    assert entry.at(Revision(2)).value == splice(value, 2)
    assert split(body) == (body, b"")


def test_value_derived_from_the_uid_stays_with_the_object() -> None:
    entry = Entry(Key("a"), Revision(1), splice(b'{"metadata":{"name":"a","uid":"u-1"}}', 1), NO_LABELS, ())
    entry.uid_hash = 7
    assert entry.at(Revision(2)).uid_hash == 7
