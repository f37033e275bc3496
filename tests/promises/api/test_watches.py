"""WATCH: where it starts, what each change means to it, what it may rely on while it runs, how it ends.

A test that expects silence writes something at last: what arrives first must be that.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.promises.api.client import (
    MARKER,
    MERGE,
    PARTIAL,
    PARTIAL_LIST,
    SECONDS,
    TABLE,
    Client,
    Event,
    Object,
    Watch,
    at,
    claim,
    device_class,
    names,
    resource_slice,
    told,
    version,
)
from tests.promises.api.target import Target
from tests.promises.api.watching import besides_bookmarks, changes

FUTURE = "9000000000000000000"
NOT_OLDER = {"resourceVersionMatch": "NotOlderThan"}


@pytest.fixture
def then(api: Client, mine: str) -> int:
    """The version at which a and b existed; b has changed since, and a client that asks for any state sees that."""
    for name in "ab":
        last = api.create(api.claims(mine), claim(name))
    changed = api.patch(f"{api.claims(mine)}/b", {"metadata": {"labels": {"changed": "yes"}}})
    api.get(api.claims(mine), resourceVersion=version(changed), **NOT_OLDER)
    return version(last)


# Where it starts


@pytest.mark.parametrize("bookmarks", [False, True])
@pytest.mark.parametrize(
    ("initial_events", "stated", "expected"),
    [
        (None, None, "state"),
        (None, "", "state"),
        (None, "0", "state"),
        (None, "N", "since"),
        ("true", None, "state"),
        ("true", "0", "state"),
        ("true", "N", "state"),
        ("false", None, "none"),
        ("false", "0", "none"),
        ("false", "N", "since"),
    ],
)
def test_version_and_initial_events_say_where_a_watch_starts(
    api: Client, mine: str, then: int, initial_events: str | None, stated: str | None, expected: str, bookmarks: bool
) -> None:
    query: dict[str, Any] = {"resourceVersion": str(then) if stated == "N" else stated}
    if initial_events:
        query |= {"sendInitialEvents": initial_events, **NOT_OLDER}
    if bookmarks:
        query["allowWatchBookmarks"] = "true"

    with api.watch(api.claims(mine), **query) as watch:
        last = version(api.create(api.claims(mine), claim("last")))
        events = besides_bookmarks(watch.up_to(last))

    before = {"state": [("ADDED", "a"), ("ADDED", "b")], "since": [("MODIFIED", "b")], "none": []}[expected]
    marked = expected == "state" and bookmarks
    assert told(events) == [*before, *[("BOOKMARK", "")] * marked, ("ADDED", "last")]
    if marked:
        assert events[2][1]["metadata"]["annotations"] == {MARKER: "true"}
        assert then < version(events[2][1]) <= last


def test_initial_events_come_in_key_order_with_each_objects_version(api: Client, mine: str) -> None:
    made = {name: api.create(api.claims(mine), claim(name)) for name in ("c", "a-b", "a", "b")}
    api.create(api.claims(mine), claim("gone"))
    api.delete(f"{api.claims(mine)}/gone")

    with api.watch(api.claims(mine), allowWatchBookmarks="1") as watch:
        events, marker = watch.initial()

    assert events == [("ADDED", made[name]) for name in sorted(made)]
    assert marker > max(map(version, made.values()))


def test_an_empty_collection_has_a_marker_all_the_same(api: Client, mine: str) -> None:
    listed = version(api.get(api.claims(mine)))
    with api.watch(api.claims(mine), allowWatchBookmarks="true") as watch:
        events, marker = watch.initial()

    assert (events, marker >= listed) == ([], True)


def test_many_initial_events_arrive_whole(api: Client, mine: str) -> None:
    for i in range(150):
        api.create(api.claims(mine), claim(f"c{i:03}"))

    with api.watch(api.claims(mine), allowWatchBookmarks="true") as watch:
        assert [name for _, name in told(watch.initial()[0])] == [f"c{i:03}" for i in range(150)]


def test_a_watch_without_a_version_misses_nothing_that_was_acknowledged(api: Client, mine: str) -> None:
    for i in range(10):
        made = api.create(api.claims(mine), claim(f"c{i}"))
        with api.watch(api.claims(mine), allowWatchBookmarks="true") as watch:
            events, marker = watch.initial()
        assert (len(events), marker >= version(made)) == (i + 1, True)


def test_watch_from_any_version_sends_exactly_the_later_events(api: Client, mine: str) -> None:
    path = api.claims(mine)
    start = version(api.create(path, claim("a")))
    for i in range(5):
        api.create(path, claim(f"b{i}"))
        api.patch(f"{path}/a", {"metadata": {"labels": {"step": str(i)}}})
        last = api.delete(f"{path}/b{i}")
    with api.watch(path, resourceVersion=start) as watch:
        log = watch.up_to(version(last))

    assert len(log) == 15
    for i, (_, obj) in enumerate(log[:-1]):
        with api.watch(path, resourceVersion=version(obj)) as watch:
            assert watch.up_to(version(last)) == log[i + 1 :]


@pytest.mark.parametrize("accept", ["", TABLE, PARTIAL])
def test_a_watch_from_below_the_floor_is_one_error_event(api: Client, accept: str) -> None:
    with api.watch(api.classes, resourceVersion="1", accept=accept) as watch:
        ((kind, status),) = watch.rest()

    assert kind == "ERROR"
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


def test_initial_events_from_below_the_floor_are_the_present_state(api: Client, mine: str, then: int) -> None:
    with api.watch(api.claims(mine), sendInitialEvents="true", resourceVersion="1", **NOT_OLDER) as watch:
        assert told(watch.take(2)) == [("ADDED", "a"), ("ADDED", "b")]


def test_change_of_a_large_object_drops_no_other_history(api: Client, mine: str) -> None:
    spec = claim("large", labels={f"l{at:05}": "v" * 60 for at in range(6000)})
    made = api.create(api.claims(mine), spec)
    for name in ("a", "b"):
        api.create(api.claims(mine), claim(name))
    chunk = api.get(api.claims(mine), limit=1)
    changed = api.patch(f"{api.claims(mine)}/large", {"metadata": {"labels": {"l00000": "w"}}})
    deleted = api.delete(f"{api.claims(mine)}/large")

    with api.watch(api.claims(mine), resourceVersion=version(made)) as watch:
        seen = [(kind, obj["metadata"]["name"]) for kind, obj in watch.up_to(version(deleted))]
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "large"), ("DELETED", "large")]
    assert names(api.get(api.claims(mine), **at(changed))) == ["a", "b", "large"]
    assert names(api.get(api.claims(mine), continue_=chunk["metadata"]["continue"])) == ["b", "large"]


def test_a_plain_watch_of_the_future_is_silent(api: Client, mine: str) -> None:
    with (
        api.watch(api.claims(mine), resourceVersion=FUTURE, allowWatchBookmarks="1", timeoutSeconds=2) as silent,
        api.watch(
            api.claims(mine), sendInitialEvents="false", resourceVersion=FUTURE, timeoutSeconds=2, **NOT_OLDER
        ) as too,
    ):
        api.create(api.claims(mine), claim("one"))

        assert silent.rest() == too.rest() == []


def test_a_watch_of_the_near_future_begins_when_it_has_come(api: Client, mine: str) -> None:
    now = version(api.create(api.claims(mine), claim("a")))

    with api.watch(api.claims(mine), resourceVersion=now + 2) as watch:
        made = [api.create(api.claims(mine), claim(name)) for name in "bcdefg"]
        later = [("ADDED", obj) for obj in made if version(obj) > now + 2]

        assert watch.take(len(later)) == later


def test_future_initial_events_are_an_error_event_after_three_seconds(api: Client, mine: str) -> None:
    begin = time.monotonic()
    with api.watch(api.claims(mine), sendInitialEvents="true", resourceVersion=FUTURE, **NOT_OLDER) as watch:
        ((kind, status),) = watch.rest()

    assert (kind, status["code"], status["reason"]) == ("ERROR", 504, "Timeout")
    assert status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert time.monotonic() - begin > 2.9


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ({"sendInitialEvents": "true"}, 422, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ({**NOT_OLDER}, 422, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
        ({"continue": "x"}, 422, "resourceVersionMatch is forbidden when continue is provided"),
        ({"sendInitialEvents": "1", "resourceVersionMatch": "Exact"}, 422, 'Unsupported value: "Exact"'),
        ({"resourceVersion": "abc"}, 500, 'resourceVersion: Invalid value: "abc": strconv.ParseUint'),
        ({"timeoutSeconds": "x"}, 400, "invalid syntax"),
        ({"fieldSelector": "spec.x=y"}, 400, "is not a known field selector"),
        ({"labelSelector": "=="}, 400, "found '==', expected: !, identifier"),
    ],
)
def test_bad_options_are_refused_before_the_stream(api: Client, query: dict[str, str], code: int, text: str) -> None:
    refusal = api.refusal("GET", api.classes, watch="1", **query)

    assert (refusal.code, text in refusal.message) == (code, True), refusal


def test_options_are_judged_before_what_cannot_be_streamed(api: Client) -> None:
    for query, code in (
        ({"labelSelector": "!!"}, 400),
        ({"fieldSelector": "spec.x=y"}, 400),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "abc"}, 500),
        ({}, 406),
    ):
        reply = api.ask("GET", api.classes, headers={"Accept": "application/yaml"}, watch="1", **query)
        assert (reply.status, f"code: {code}" in reply.text) == (code, True), reply.text


@pytest.mark.parametrize("query", [{"limit": 1}, {"limit": 1, "continue_": "abc", "resourceVersion": "N"}])
def test_limit_and_continue_mean_nothing_to_a_watch(api: Client, mine: str, then: int, query: dict[str, Any]) -> None:
    stated = {"resourceVersion": then} if "resourceVersion" in query else {}
    with api.watch(api.claims(mine), **{**query, **stated}) as watch:
        last = version(api.create(api.claims(mine), claim("last")))

        assert len(watch.up_to(last)) == (2 if stated else 3)


@pytest.mark.parametrize("watch_parameter", ["true", "", "yes", "1"])
def test_any_value_but_false_asks_for_a_watch(api: Client, watch_parameter: str) -> None:
    with api.watch(api.classes, watch=watch_parameter, resourceVersion=FUTURE, timeoutSeconds=-1) as watch:
        assert watch.rest() == []
    assert api.get(api.classes, watch="FALSE")["kind"] == "DeviceClassList"
    assert api.get(api.classes, watch="0")["kind"] == "DeviceClassList"


# The deprecated paths


def test_old_watch_paths_send_the_state_and_then_the_changes(api: Client, mine: str, then: int) -> None:
    old = f"{api.v1}/watch/namespaces/{mine}/resourceclaims"
    for path, before in ((old, ["a", "b"]), (f"{old}/b", ["b"]), (f"{old}/none", [])):
        with api.watch(path, watch=None, allowWatchBookmarks="true") as watch:
            last = api.patch(f"{api.claims(mine)}/b", {"metadata": {"labels": {"for": path.rpartition("/")[2]}}})
            if not before:
                last = api.create(api.claims(mine), claim("none"))
            events = besides_bookmarks(watch.up_to(version(last)))
        assert told(events[:-1]) == [("ADDED", name) for name in before], "no marker without the parameter"
    with api.watch(f"{api.v1}/watch/resourceclaims", watch=None, resourceVersion=then) as watch:
        assert told([watch.next()]) == [("MODIFIED", "b")]


def test_the_old_watch_paths_are_judged_as_lists(api: Client, mine: str) -> None:
    old = f"{api.v1}/watch/deviceclasses"
    initial = {"sendInitialEvents": "true", **NOT_OLDER, "resourceVersion": "5"}
    assert "forbidden for list" in api.refusal("GET", old, **initial).message
    other = {"fieldSelector": "metadata.name=b"}
    assert api.refusal("GET", f"{old}/a", **other).message == "fieldSelector metadata.name doesn't match requested name"


# Selection


@pytest.mark.parametrize(
    "selector", [{"labelSelector": "in=yes"}, {"labelSelector": "in", "fieldSelector": "metadata.name=x"}]
)
def test_an_object_enters_and_leaves_a_selection_by_labels(api: Client, mine: str, selector: dict[str, str]) -> None:
    path, one = api.claims(mine), f"{api.claims(mine)}/x"
    start = version(api.create(path, claim("x")))

    with api.watch(path, resourceVersion=start, **selector) as watch:
        api.patch(one, {"metadata": {"annotations": {"n": "0"}}})
        entered = api.patch(one, {"metadata": {"labels": {"in": "yes"}}})
        changed = api.patch(one, {"metadata": {"annotations": {"n": "1"}}})
        left = api.patch(one, {"metadata": {"labels": {"in": None}, "annotations": {"n": "2"}}})
        api.patch(one, {"metadata": {"annotations": {"n": "3"}}})
        again = api.patch(one, {"metadata": {"labels": {"in": "yes"}}})
        deleted = api.delete(one)
        api.create(path, claim("x"))
        api.delete(one)
        last = api.create(path, claim("x", labels={"in": "yes"}))
        events = watch.take(6)

    old_content = {
        **changed,
        "metadata": {**changed["metadata"], "resourceVersion": left["metadata"]["resourceVersion"]},
    }
    assert events == [
        ("ADDED", entered),
        ("MODIFIED", changed),
        ("DELETED", old_content),
        ("ADDED", again),
        ("DELETED", deleted),
        ("ADDED", last),
    ]


def test_an_object_moves_between_selections_by_an_indexed_field(api: Client, mine: str) -> None:
    made = api.create(api.slices, resource_slice(mine, f"{mine}-a", labels={"test": mine}))
    start = version(made)
    with (
        api.watch(api.slices, resourceVersion=start, fieldSelector="spec.driver=a.example.com") as to,
        api.watch(
            api.slices, resourceVersion=start, fieldSelector="spec.driver=gpu.example.com", labelSelector=f"test={mine}"
        ) as fr,
        api.watch(api.slices, resourceVersion=start, fieldSelector=f"spec.nodeName={mine}-a") as both,
        api.watch(api.slices, resourceVersion=start, fieldSelector="spec.driver!=gpu.example.com") as negated,
    ):
        gone = api.delete(f"{api.slices}/{mine}")
        made["spec"]["driver"] = "a.example.com"
        back = api.create(api.slices, {**made, "metadata": {"name": mine, "labels": {"test": mine}}})
        assert fr.take(1) == [("DELETED", gone)]
        assert to.take(1) == negated.take(1) == [("ADDED", back)]
        assert both.take(2) == [("DELETED", gone), ("ADDED", back)]


def test_a_watch_of_one_name_sees_that_one_come_and_go(api: Client, mine: str) -> None:
    with api.watch(api.claims(mine), fieldSelector="metadata.name=x", allowWatchBookmarks="1") as watch:
        assert watch.initial()[0] == []
        api.create(api.claims(mine), claim("y"))
        made = api.create(api.claims(mine), claim("x"))
        api.create(api.claims(api.namespace(f"{mine}-other")), claim("x"))
        gone = api.delete(f"{api.claims(mine)}/x")

        assert changes(watch, 2) == [("ADDED", made), ("DELETED", gone)]


def test_namespaces_confine_a_watch(api: Client, mine: str) -> None:
    namespaces = [api.namespace(f"{mine}-b"), mine, api.namespace(f"{mine}0")]
    start = version(api.get(api.claims(mine)))
    by_field = {"fieldSelector": f"metadata.namespace={mine}"}
    with (
        api.watch(api.claims(mine), resourceVersion=start) as one,
        api.watch(api.all_claims, resourceVersion=start, **by_field) as field,
        api.watch(api.all_claims, resourceVersion=start, fieldSelector=f"metadata.namespace!={mine}") as others,
        api.watch(api.all_claims, resourceVersion=start, fieldSelector="metadata.name=a") as named,
        api.watch(api.all_claims, resourceVersion=start) as everything,
    ):
        made = [
            ("ADDED", api.create(api.claims(namespace), claim(name)))
            for namespace, name in itertools.product(namespaces, "ab")
        ]
        mine_only = [event for event in made if event[1]["metadata"]["namespace"] == mine]
        assert one.take(2) == field.take(2) == mine_only
        assert others.take(4) == [event for event in made if event not in mine_only]
        assert named.take(3) == made[::2]
        assert everything.take(6) == made


def test_contradictory_selectors_are_silent(api: Client, mine: str) -> None:
    queries = [
        {"fieldSelector": "metadata.name=a,metadata.name=b"},
        {"fieldSelector": "metadata.namespace=other"},
        {"labelSelector": "x=1,x=2"},
        {"fieldSelector": "metadata.name=a", "labelSelector": "none"},
    ]
    watches = [api.watch(api.claims(mine), timeoutSeconds=2, **query) for query in queries]
    for name in "ab":
        api.create(api.claims(mine), claim(name, labels={"x": "1"}))

    for watch in watches:
        with watch:
            assert watch.rest() == []


# Bookmarks and the end


def test_the_last_bookmark_comes_two_seconds_before_the_end(api: Client, mine: str) -> None:
    _the_last_bookmark_comes_two_seconds_before_the_end(api, mine, 4)


def _the_last_bookmark_comes_two_seconds_before_the_end(api: Client, mine: str, seconds: int) -> None:
    """Again with more time where this machine needs two seconds to open the watches and to write."""
    begin, start = time.monotonic(), version(api.get(api.claims(mine)))
    common: dict[str, Any] = {"allowWatchBookmarks": "true", "timeoutSeconds": seconds}
    with (
        api.watch(api.claims(mine), **common) as plain,
        api.watch(api.claims(mine), **common, labelSelector="none") as selected,
        api.watch(api.claims(mine), **common, accept=TABLE, includeObject="None") as table,
        api.watch(api.claims(mine), **common, accept=PARTIAL_LIST) as formless,
        api.watch(
            api.claims(mine), **common, accept=PARTIAL_LIST, resourceVersion=start, labelSelector="none"
        ) as formless_too,
        api.watch(api.claims(mine), timeoutSeconds=seconds) as without,
        api.watch(api.claims(mine), **common, resourceVersion=FUTURE) as future,
    ):
        made = api.create(api.claims(mine), claim("one"))
        if time.monotonic() - begin > seconds - 2.2:
            api.delete(f"{api.claims(mine)}/one")
            _the_last_bookmark_comes_two_seconds_before_the_end(api, mine, 4 * seconds)
            return
        events, rows, nothing = plain.rest(), table.rest(), selected.rest()
        ended = time.monotonic()
        assert formless.rest() == formless_too.rest() == [], "there is no such event: it ends cleanly without one"
        assert formless_too.reuse(api.classes) == 200, "nothing was sent behind the end"
        assert told(without.rest()) == [("ADDED", "one")]
        assert future.rest() == []

    assert ended - begin > seconds - 0.5
    assert told(besides_bookmarks(events)) == [("BOOKMARK", ""), ("ADDED", "one")]
    for kind, last in (events[-1], nothing[-1]):
        assert kind == "BOOKMARK"
        assert last["metadata"] == {"resourceVersion": last["metadata"]["resourceVersion"]}
        assert version(last) >= version(made)
    assert events[-1][1] == {
        "kind": "ResourceClaim",
        "apiVersion": f"{api.group}/v1",
        "metadata": events[-1][1]["metadata"],
        "spec": {"devices": {"requests": None}},
        "status": {},
    }
    marker, bookmark = rows[0], rows[-1]
    (added,) = (event for event in rows if event[0] == "ADDED")
    assert marker[1]["rows"][0]["object"]["metadata"]["annotations"] == {MARKER: "true"}
    assert (marker[1]["columnDefinitions"] is None, added[1]["columnDefinitions"]) == (False, None)
    assert added[1]["rows"][0]["object"] is None
    assert (bookmark[0], version(bookmark[1]) >= version(made)) == ("BOOKMARK", True)


@pytest.mark.parametrize("seconds", [-1, -86400, 10_000_000_000, 1 << 54])
def test_a_negative_time_is_over_at_once(api: Client, mine: str, then: int, seconds: int) -> None:
    """Upstream sometimes says so in an event of its own."""
    for _ in range(5):
        with api.watch(api.claims(mine), timeoutSeconds=seconds) as watch:
            assert [obj for kind, obj in watch.rest() if kind != "ERROR"] == []


@pytest.mark.parametrize("seconds", [0, 9_000_000_000, -10_000_000_000, 1 << 55, -1 << 63])
def test_a_watch_may_go_on_for_ever(api: Client, mine: str, then: int, seconds: int) -> None:
    with api.watch(api.claims(mine), timeoutSeconds=seconds, timeout="1s", allowWatchBookmarks="1") as watch:
        assert len(watch.initial()[0]) == 2
        made = api.create(api.claims(mine), claim("c"))
        assert changes(watch, 1) == [("ADDED", made)]


def test_a_table_names_its_columns_in_the_first_event_only(api: Client, mine: str, then: int) -> None:
    with api.watch(api.claims(mine), accept=TABLE) as watch:
        assert [obj["columnDefinitions"] is None for _, obj in watch.take(2)] == [False, True]
    with api.watch(api.claims(mine), resourceVersion=then, accept=TABLE) as watch:
        api.create(api.claims(mine), claim("c"))
        (_, first), (_, second) = watch.take(2)

    assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "State", "Age"]
    assert second["columnDefinitions"] is None
    assert [row["cells"][:2] for row in first["rows"] + second["rows"]] == [["b", "pending"], ["c", "pending"]]


def test_partial_metadata_is_watched_with_its_own_kind(api: Client, mine: str, then: int) -> None:
    with api.watch(api.claims(mine), accept=PARTIAL, allowWatchBookmarks="true") as watch:
        events, _ = watch.initial()

    assert {obj["kind"] for _, obj in events} == {"PartialObjectMetadata"}
    assert all(obj.keys() == {"kind", "apiVersion", "metadata"} for _, obj in events)


# Promises under load


def until_it_ends(watch: Watch, last: int) -> list[Event]:
    """The whole events up to one of this version, or up to the end of the stream, also where the connection was cut off."""
    events: list[Event] = []
    try:
        while not events or version(events[-1][1]) < last:
            events.append(watch.next())
    except TimeoutError:  # it did not end
        raise
    except (OSError, http.client.HTTPException, AssertionError):  # AssertionError: a clean end
        pass
    return events


def test_slow_reader_misses_nothing_or_is_ended_and_resumes_without_a_gap(api: Client, mine: str) -> None:
    """A reader that stands still for too long is cut off. On a busy machine, that may be anyone."""
    path, count = f"{api.claims(mine)}/big", 90
    last = start = version(api.create(api.claims(mine), claim("big")))
    seen: list[Event] = []
    with api.watch(api.claims(mine), resourceVersion=start) as watch:
        for i in range(count):
            annotations = {"n": str(i), "padding": f"{i % 10}" * 240_000}
            last = version(api.patch(path, {"metadata": {"annotations": annotations}}))
        seen += until_it_ends(watch, last)
    empty = 0
    while not seen or version(seen[-1][1]) < last:
        with api.watch(api.claims(mine), resourceVersion=version(seen[-1][1]) if seen else start) as watch:
            more = until_it_ends(watch, last)
        empty += not more
        assert empty < count
        seen += more

    assert [obj["metadata"]["annotations"]["n"] for _, obj in seen] == [str(i) for i in range(count)]
    assert {len(obj["metadata"]["annotations"]["padding"]) for _, obj in seen} == {240_000}


def test_client_that_vanishes_disturbs_no_other(api: Client, mine: str) -> None:
    start = version(api.create(api.claims(mine), claim("one")))
    with api.watch(api.claims(mine), resourceVersion=start) as stays:
        for i in range(20):
            api.watch(api.claims(mine), resourceVersion=start).abandon()
            api.patch(f"{api.claims(mine)}/one", {"metadata": {"labels": {"n": str(i)}}})

        assert [obj["metadata"]["labels"]["n"] for _, obj in stays.take(20)] == [str(i) for i in range(20)]


@pytest.mark.only("dev", reason="counts by Sluice's own metrics, which kube-apiserver does not pass on")
def test_nothing_is_left_of_clients_that_vanished(api: Client) -> None:
    def watching() -> float:
        lines = api.ask("GET", "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("sluice_watchers{"))

    before = watching()  # the controllers of a stand-alone server watch too
    watches = [api.watch(api.classes) for _ in range(10)]
    assert watching() >= 10
    for watch in watches:
        watch.abandon()

    end = time.monotonic() + SECONDS
    while watching() > before:
        assert time.monotonic() < end


def test_fifty_watchers_see_the_log_through_their_selectors_in_one_order(
    target: Target, api: Client, mine: str
) -> None:
    """Invariant 5: no gap, no duplicate, no reordering, and transitions told right."""
    selections: list[dict[str, str]] = [
        {},
        {"labelSelector": "c=red"},
        {"labelSelector": "c!=red"},
        {"labelSelector": "c in (red,blue)", "fieldSelector": "metadata.name!=x1"},
        {"fieldSelector": "metadata.name=x2"},
        {"fieldSelector": "metadata.name=x3", "labelSelector": "c=blue"},
    ]
    namespaces = [api.namespace(f"{mine}-{n}") for n in "ab"]
    start = version(api.get(api.all_claims))
    jobs = [(selections[i % 6], ["", *namespaces][i // 6 % 3]) for i in range(50)]

    def write(number: int) -> None:
        writer = Client(target)
        for i in range(30):
            path, name = api.claims(namespaces[(i + number) % 2]), f"x{(i * 7 + number) % 4}"
            writer.ask("POST", path, claim(name, labels={"c": ["red", "blue", "green"][(i + number) % 3]}))
            change = {"labels": {"c": ["blue", "red"][i % 2]}, "annotations": {"by": f"{number}-{i}"}}
            writer.ask("PATCH", f"{path}/{name}", {"metadata": change}, headers={"Content-Type": MERGE})
            if i % 3 == number % 3:
                writer.ask("DELETE", f"{path}/{name}")
        writer.close()

    with contextlib.ExitStack() as stack:
        watches = [
            stack.enter_context(api.watch(api.claims(ns) if ns else api.all_claims, resourceVersion=start, **selector))
            for selector, ns in jobs
        ]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        last = finale(api, namespaces)
        log = watches[0].up_to(last)
        versions = [version(obj) for _, obj in log]
        assert versions == sorted(set(versions))
        assert len(log) > 150
        for (selector, namespace), watch in list(zip(jobs, watches, strict=True))[1:]:
            wanted = expected(log, selector, namespace)
            assert watch.up_to(version(wanted[-1][1])) == wanted


def finale(api: Client, namespaces: list[str]) -> int:
    """Changes of which each selection has to hear, after all the others; the version of the last."""
    for namespace in namespaces:
        api.delete(api.claims(namespace))
        for name in ("x1", "x2", "x3"):
            api.create(api.claims(namespace), claim(name, labels={"c": "red"}))
            last = api.patch(f"{api.claims(namespace)}/{name}", {"metadata": {"labels": {"c": "blue"}}})
    return version(last)


def expected(log: list[Event], selector: dict[str, str], namespace: str) -> list[Event]:
    """The log through a selector."""

    def selects(obj: Object | None) -> bool:
        if obj is None or namespace not in ("", obj["metadata"]["namespace"]):
            return False
        color, name = obj["metadata"].get("labels", {}).get("c"), obj["metadata"]["name"]
        by_label: bool = {
            None: True,
            "c=red": color == "red",
            "c=blue": color == "blue",
            "c!=red": color != "red",
            "c in (red,blue)": color in ("red", "blue"),
        }[selector.get("labelSelector")]
        operator, wanted = selector.get("fieldSelector", "!=")[13:].partition("=")[::2]
        return by_label and ((name != wanted) if operator == "!" or not wanted else name == wanted)

    state: dict[tuple[str, str], Object] = {}
    found: list[Event] = []
    for kind, obj in log:
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        before, after = state.get(key), obj if kind != "DELETED" else None
        if selects(after):
            found.append(("MODIFIED" if selects(before) else "ADDED", obj))
        elif selects(before):
            assert before is not None
            content = {
                **before,
                "metadata": {**before["metadata"], "resourceVersion": obj["metadata"]["resourceVersion"]},
            }
            found.append(("DELETED", content))
        if after is None:
            state.pop(key, None)
        else:
            state[key] = after
    return found


def test_bookmark_comes_after_all_earlier_events(api: Client, mine: str) -> None:
    """Invariant 10, on the marker: a watch resumed from it and the one that got it see the same."""
    for name in "abc":
        api.create(api.claims(mine), claim(name))
    with api.watch(api.claims(mine), allowWatchBookmarks="true") as first:
        events, marker = first.initial()
        with api.watch(api.claims(mine), resourceVersion=marker) as second:
            api.create(api.classes, device_class(mine))
            last = api.create(api.claims(mine), claim("d"))
            assert changes(first, 1) == second.take(1) == [("ADDED", last)]
    assert names({"items": [obj for _, obj in events]}) == ["a", "b", "c"]
