"""A local copy that follows the server's objects, through everything that ends a watch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
import pytest_asyncio

from apiserver.cluster import reflector
from apiserver.cluster.client import Client
from apiserver.cluster.reflector import Reflector
from tests.fixtures.failing import fail_once
from tests.unit.cluster.plane import Clock, Feed, Plane, Reply, answer, hang, status, until

PATH = "/api/v1/namespaces"


def thing(name: str, version: int, **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "resourceVersion": str(version), "managedFields": [{"manager": "m"}]}
    return {"metadata": metadata, **rest}


def things(version: int, *items: dict[str, Any], token: str = "") -> Reply:
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return answer(orjson.dumps({"kind": "NamespaceList", "metadata": metadata, "items": list(items)}))


class Story:
    """A reflector that runs, and what it asked for."""

    def __init__(self, plane: Plane, client: Client, clock: Clock) -> None:
        self.plane, self.clock = plane, clock
        self.changes: list[list[str]] = []
        self.reflector = Reflector(
            client, PATH, field_selector="metadata.name=x", on_change=lambda: self.changes.append(self.names)
        )
        self.task: asyncio.Task[None] | None = None

    def start(self, *replies: Reply) -> None:
        self.plane.on(PATH, *replies, hang)
        self.task = asyncio.create_task(self.reflector.run())

    @property
    def names(self) -> list[str]:
        return sorted(self.reflector.items)

    @property
    def asked(self) -> list[str]:
        """`list`, or `watch` with the version that it began at."""
        return [f"watch {s.query['resourceVersion']}" if "watch" in s.query else "list" for s in self.plane.asked(PATH)]

    async def follows(self, feed: Feed) -> None:
        await feed.opened.get()


@pytest_asyncio.fixture
async def story(plane: Plane, client: Client, clock: Clock) -> AsyncIterator[Story]:
    made = Story(plane, client, clock)
    yield made
    assert made.task is not None
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)
    assert made.task.cancelled()


async def test_it_lists_and_then_follows(story: Story) -> None:
    feed = Feed()
    story.start(things(7, thing("a", 1), thing("b", 2)), feed)
    await story.reflector.ready.wait()
    assert story.names == ["a", "b"]
    await story.follows(feed)
    feed.event("ADDED", thing("c", 8))
    feed.event("MODIFIED", thing("a", 9, status={"phase": "Terminating"}))
    feed.event("DELETED", thing("b", 10))
    await until(lambda: len(story.changes) == 4)
    assert story.changes == [["a", "b"], ["a", "b", "c"], ["a", "b", "c"], ["a", "c"]]
    assert story.reflector.get("a") == {
        "metadata": {"name": "a", "resourceVersion": "9"},
        "status": {"phase": "Terminating"},
    }
    assert story.reflector.get("b") is None


async def test_it_asks_as_client_go_does(story: Story) -> None:
    feed = Feed()
    story.start(things(7), feed)
    await story.follows(feed)
    first, second = story.plane.asked(PATH)
    assert first.query == {"limit": "500", "fieldSelector": "metadata.name=x"}
    assert second.query == {
        "watch": "true",
        "resourceVersion": "7",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "300",
        "fieldSelector": "metadata.name=x",
    }


async def test_it_lists_in_pages_and_shows_them_together(story: Story) -> None:
    feed = Feed()
    story.start(
        things(7, thing("a", 1), token="t&1"), things(7, thing("b", 2), token="t2"), things(7, thing("c", 3)), feed
    )
    await story.follows(feed)
    assert story.changes == [["a", "b", "c"]]
    assert [seen.query.get("continue") for seen in story.plane.asked(PATH)] == [None, "t&1", "t2", None]


async def test_a_page_of_large_objects_is_asked_for_again_with_fewer_of_them(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "PAGE_BYTES", 10_000)
    feed, objects = Feed(), [thing(name, 1, data="v" * 1000) for name in "abcdefghijkl"]
    too_long = things(7, *objects)
    story.start(too_long, too_long, things(7, *objects[:7], token="t"), things(7, *objects[7:]), feed)
    await story.follows(feed)
    assert story.changes == [[*"abcdefghijkl"]]
    asked = [(seen.query.get("limit"), seen.query.get("continue")) for seen in story.plane.asked(PATH)]
    assert asked == [("500", None), ("62", None), ("7", None), ("7", "t"), (None, None)]


async def test_oversized_object_is_reported_and_nothing_changes(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "PAGE_BYTES", 1000)
    story.start(*[things(7, thing("a", 1, data="v" * 1000))] * 4)
    await until(lambda: "longer than 1000 bytes" in story.reflector.problem)
    assert [seen.query["limit"] for seen in story.plane.asked(PATH)][:4] == ["500", "62", "7", "1"]
    assert not story.reflector.ready.is_set()


async def test_large_objects_of_one_page_are_decoded_in_steps_of_their_own(story: Story) -> None:
    data = {f"key-{at}": "" for at in range(20_000)}  # the detector fails a test with a step that is too long
    feed = Feed()
    story.start(things(7, *(thing(name, 1, data=data) for name in "abcdefgh")), feed)
    await story.follows(feed)
    assert story.changes == [[*"abcdefgh"]]


async def test_a_watch_that_ended_well_goes_on_at_once_where_it_was(story: Story) -> None:
    feeds = [Feed(), Feed()]
    story.start(things(7), *feeds)
    await story.follows(feeds[0])
    feeds[0].event("ADDED", thing("a", 9))
    feeds[0].end()
    await story.follows(feeds[1])
    assert story.asked == ["list", "watch 7", "watch 9"]
    assert story.clock.slept == []


async def test_a_bookmark_moves_the_version_and_changes_nothing(story: Story) -> None:
    feeds = [Feed(), Feed()]
    story.start(things(7, thing("a", 1)), *feeds)
    await story.follows(feeds[0])
    feeds[0].event("BOOKMARK", {"kind": "Namespace", "metadata": {"resourceVersion": "30"}})
    feeds[0].end()
    await story.follows(feeds[1])
    assert story.asked[-1] == "watch 30"
    assert story.changes == [["a"]]


async def test_a_broken_connection_is_resumed_without_a_list(story: Story) -> None:
    feeds = [Feed(), Feed()]
    story.start(things(7), *feeds)
    await story.follows(feeds[0])
    feeds[0].event("ADDED", thing("a", 8))
    await until(lambda: story.names == ["a"])
    feeds[0].cut()
    await story.follows(feeds[1])
    assert story.asked == ["list", "watch 7", "watch 8"]
    assert story.names == ["a"]


@pytest.mark.parametrize("code", [429, 502, 503])
async def test_a_busy_server_is_left_alone_and_then_resumed(story: Story, code: int) -> None:
    feed = Feed()
    story.start(things(7), status(code, "busy", Retry_After="9"), status(code, "busy"), feed)
    await story.follows(feed)
    assert story.asked == ["list", "watch 7", "watch 7", "watch 7"]
    assert story.clock.slept == [9, 1.6]


@pytest.mark.parametrize("code", [400, 403, 410, 500, 504])
async def test_watch_whose_version_is_refused_falls_back_to_a_list(story: Story, code: int) -> None:
    feed = Feed()
    story.start(things(7, thing("a", 1)), status(code, "too old"), things(20, thing("b", 2)), feed)
    await story.follows(feed)
    assert story.asked == ["list", "watch 7", "list", "watch 20"]
    assert story.changes == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}, "list"),
        ({"kind": "Status", "code": 500, "message": "oh"}, "list"),
        ({"kind": "Status"}, "list"),
        ({"kind": "Status", "code": 429, "message": "busy", "details": {"retryAfterSeconds": 3}}, "watch 8"),
    ],
)
async def test_an_error_event_is_an_answer_too(story: Story, event: dict[str, Any], expected: str) -> None:
    feeds = [Feed(), Feed()]
    story.start(things(7), feeds[0], things(20) if expected == "list" else feeds[1], feeds[1])
    await story.follows(feeds[0])
    feeds[0].event("ADDED", thing("a", 8))
    feeds[0].event("ERROR", event)
    await story.follows(feeds[1])
    assert story.asked[2] == expected
    assert story.clock.slept == [3 if "details" in event else 0.8]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b'{"type":"ADDED","object":{}}\n',
        b'{"type":"ADDED","object":{"metadata":{"name":"a"}}}\n',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"9"}}}\n',
        b'{"type":"MOVED","object":{"metadata":{"name":"a","resourceVersion":"9"}}}\n',
        b'{"type":"BOOKMARK","object":{"metadata":{}}}\n',
    ],
)
async def test_unreadable_event_leads_to_a_new_list(story: Story, line: bytes) -> None:
    feeds = [Feed(), Feed()]
    story.start(things(7), feeds[0], things(20, thing("b", 2)), feeds[1])
    await story.follows(feeds[0])
    feeds[0].send(line)
    await story.follows(feeds[1])
    assert story.asked == ["list", "watch 7", "list", "watch 20"]
    assert story.names == ["b"]


async def test_copy_stays_while_the_server_is_down(
    plane: Plane, client: Client, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    story, feed = Story(plane, client, clock), Feed()
    story.start(things(7, thing("a", 1)), feed)
    await story.follows(feed)
    await plane.stop()
    await until(lambda: len(clock.slept) >= 8)
    assert story.names == ["a"]
    assert story.reflector.ready.is_set()
    assert clock.slept[:8] == [0.8, 1.6, 3.2, 6.4, 12.8, 15, 15, 15]
    said = next(
        vars(record)
        for record in caplog.records
        if record.msg == "a collection cannot be followed and is tried again later"
    )
    assert (said["path"], said["seconds"]) == (PATH, 0.8)
    again = Feed()
    plane.on(PATH, again)
    await plane.start()
    await story.follows(again)
    assert story.asked[-1] == "watch 7"
    assert story.task is not None
    story.task.cancel()
    await asyncio.gather(story.task, return_exceptions=True)


async def test_pauses_are_up_to_twice_as_long_by_chance(plane: Plane, client: Client, clock: Clock) -> None:
    client.random = lambda: 1.0
    story = Story(plane, client, clock)
    story.start(*[status(403, "no")] * 8)
    await until(lambda: len(clock.slept) >= 7)
    assert clock.slept[:7] == [1.6, 3.2, 6.4, 12.8, 25.6, 30, 30]
    assert not story.reflector.ready.is_set()
    assert story.task is not None
    story.task.cancel()
    await asyncio.gather(story.task, return_exceptions=True)


async def test_pauses_begin_anew_once_something_was_heard(story: Story) -> None:
    feeds = [Feed(), Feed()]
    story.start(status(503, "away"), status(503, "away"), things(7), feeds[0], feeds[1])
    await story.follows(feeds[0])
    feeds[0].cut()
    await story.follows(feeds[1])
    assert story.clock.slept == [0.8, 1.6, 0.8]


async def test_a_list_that_expires_between_its_pages_begins_anew(story: Story) -> None:
    feed = Feed()
    expired = status(410, "the provided continue parameter is too old")
    story.start(things(7, thing("a", 1), token="t"), expired, things(9, thing("b", 2)), feed)
    await story.follows(feed)
    assert story.changes == [["b"]]
    assert [seen.query.get("continue") for seen in story.plane.asked(PATH)][:3] == [None, "t", None]


async def test_a_server_that_ends_watches_at_once_is_not_asked_without_pause(story: Story) -> None:
    feeds = [Feed(), Feed(), Feed()]
    for feed in feeds[:2]:
        feed.end()
    story.start(things(7), *feeds)
    await story.follows(feeds[2])
    # The first counts as heard, because the list before it was.
    assert story.clock.slept == [0.8, 1.6]


async def test_a_watch_that_the_server_forgets_to_end_is_ended_here(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector, "WATCH_SECONDS", 0.05)
    monkeypatch.setattr(reflector, "GRACE_SECONDS", 0.05)
    feeds = [Feed(), Feed()]
    story.start(things(7), *feeds)
    await feeds[0].gone.wait()
    await story.follows(feeds[1])
    assert story.asked == ["list", "watch 7", "watch 7"]


@pytest.mark.parametrize(
    "raw",
    [
        {"items": [], "metadata": {}},
        {"items": {}},
        {"items": 3, "metadata": {}},
        {"metadata": {"resourceVersion": "1"}, "items": [{}]},
    ],
)
async def test_malformed_list_changes_nothing(story: Story, raw: dict[str, Any]) -> None:
    feed = Feed()
    story.start(answer(raw), things(7, thing("a", 1)), feed)
    await story.follows(feed)
    assert story.changes == [["a"]]


async def test_an_empty_list_is_one(story: Story) -> None:
    feed = Feed()
    story.start(answer({"metadata": {"resourceVersion": "7"}, "items": None}), feed)
    await story.follows(feed)
    assert story.changes == [[]]


async def test_begun_again_after_a_bug_it_lists(story: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Watched on, it would meet the same event again."""
    feeds = [Feed(), Feed()]
    story.start(things(7), feeds[0], things(20, thing("b", 2)), feeds[1])
    await story.follows(feeds[0])
    fail_once(monkeypatch, Reflector, "_apply")
    feeds[0].event("ADDED", thing("a", 8))
    assert story.task is not None
    with pytest.raises(RuntimeError):
        await story.task
    story.task = asyncio.create_task(story.reflector.run())
    await story.follows(feeds[1])
    assert story.asked == ["list", "watch 7", "list", "watch 20"]
    assert story.names == ["b"]


async def test_objects_of_namespaces_are_known_by_both_names(story: Story) -> None:
    both = [thing("a", 1), thing("a", 2)]
    for item, namespace in zip(both, ("one", "two"), strict=True):
        item["metadata"]["namespace"] = namespace
    story.start(things(7, *both))
    await story.reflector.ready.wait()
    assert story.names == ["one/a", "two/a"]


async def test_its_version_is_another_one_after_each_change(story: Story) -> None:
    feed = Feed()
    before = story.reflector.version
    story.start(things(7, thing("a", 1)), feed)
    await story.follows(feed)
    listed = story.reflector.version
    assert listed != before
    feed.event("BOOKMARK", {"kind": "Namespace", "metadata": {"resourceVersion": "30"}})
    feed.event("MODIFIED", thing("a", 31))
    await until(lambda: len(story.changes) == 2)
    assert story.reflector.version == listed + 1


async def test_unconfirmed_copy_ages_is_reported_and_stays(story: Story, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="apiserver.cluster.reflector")
    feed = Feed()
    refusals = [status(503, "away")] * 12
    story.start(things(7, thing("a", 1)), *refusals, feed)
    await story.follows(feed)
    await until(lambda: story.reflector.problem == "")
    assert story.names == ["a"]
    told = [
        record.message
        for record in caplog.records
        if record.message != "a collection cannot be followed and is tried again later"
    ]
    assert told == ["not confirmed for long: the copy stays in use", "confirmed again"]
    assert story.reflector.age == 0


async def test_it_says_why_it_does_not_follow(story: Story) -> None:
    story.start(status(403, "namespaces is forbidden"))
    await until(lambda: story.reflector.problem == "namespaces is forbidden")
    assert not story.reflector.ready.is_set()
