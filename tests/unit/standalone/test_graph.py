"""Objects that the collector looks at, for each change."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from apiserver.runtime.offload import READ_OWNERS
from apiserver.standalone import graph as reading
from apiserver.standalone.collector import Collector
from apiserver.standalone.graph import Facts, Graph, Id, Owner, facts
from apiserver.watchcache.entry import Entry, Key, Revision

A, B, C, D = (Id("things", Key(f"ns/{name}")) for name in "abcd")


def owned(uid: str, *owners: str, blocks: bool = False, **more: bool) -> Facts:
    references = tuple(Owner("v1", "Thing", owner, owner, block_owner_deletion=blocks or None) for owner in owners)
    return Facts(uid, references, **more)


@pytest.fixture(params=[reading.MANY, 0], ids=["few", "many"])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """`b` and `c` belong to `a`, which must wait for `b`; `c` belongs to `b` too. With "many", each has too many for shared dicts."""
    monkeypatch.setattr(reading, "MANY", request.param)
    graph = Graph()
    list(graph.put(A, Facts("a")))
    list(graph.put(B, owned("b", "a", blocks=True)))
    list(graph.put(C, owned("c", "a", "b")))
    return graph


def entry(**metadata: Any) -> Entry:
    body = json.dumps({"metadata": {"name": "x", "uid": "u", **metadata}}, separators=(",", ":")).encode()
    return Entry(Key("ns/x"), Revision(1), body, {}, ())


def test_facts_are_the_metadata_that_decide_about_collection() -> None:
    owner = {"apiVersion": "v1", "kind": "Thing", "name": "a", "uid": "a", "blockOwnerDeletion": True}
    found = facts(entry(ownerReferences=[owner], finalizers=["x.y/z", "foregroundDeletion"], deletionTimestamp="2026"))

    assert found == Facts(
        "u", (Owner("v1", "Thing", "a", "a", block_owner_deletion=True),), deleting=True, foreground=True
    )
    assert found.waiting


def test_lone_surrogates_in_raw_json_do_not_hide_owners() -> None:
    body = rb'{"metadata":{"uid":"u","ownerReferences":[{"name":"a","uid":"a"}]},"spec":{"raw":"\ud800"}}'
    found = facts(Entry(Key("ns/x"), Revision(1), body, {}, ()))

    assert found == Facts("u", (Owner(name="a", uid="a"),))


def test_facts_of_an_object_without_owners_are_its_uid() -> None:
    assert facts(entry(finalizers=["orphan"])) == Facts("u")


async def test_large_object_is_read_in_a_thread_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = [{"apiVersion": "v1", "kind": "Thing", "name": "n", "uid": f"u{at}"} for at in range(2_000)]
    large, threads = entry(ownerReferences=owners), list[str]()
    read = reading._read

    def noting(found: Entry) -> Facts:
        threads.append(threading.current_thread().name)
        return read(found)

    monkeypatch.setattr(reading, "_read", noting)
    await reading.prepare(large)
    assert len(facts(large).owners) == len(owners)
    assert [name.split("_")[0] for name in threads] == ["owners"]
    assert await reading.read(large) == facts(large)
    assert not reading._large
    assert len(threads) == 2, "once by a thread, and once by this test when nothing was kept any more"


async def test_large_objects_are_read_in_threads_while_many_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    owners = [{"apiVersion": "v1", "kind": "Thing", "name": "n", "uid": f"u{at}"} for at in range(2_000)]
    threads, all_read = list[threading.Thread](), threading.Event()
    many, read = [entry(ownerReferences=owners) for _ in range(6)], reading._read

    def noting(found: Entry) -> Facts:
        threads.append(threading.current_thread())
        if len(threads) == len(many):
            all_read.set()
        return read(found)

    async def work(on: Entry) -> None:
        await reading.prepare(on)
        all_read.wait(60)  # the event loop is busy
        assert len(facts(on).owners) == len(owners)

    monkeypatch.setattr(reading, "_read", noting)
    await asyncio.gather(*map(work, many))
    assert len(threads) == len(many)
    assert threading.current_thread() not in threads
    for each in many:
        reading.forget(each)


async def test_owners_of_a_large_object_are_collected_in_a_thread() -> None:
    owners = [
        {"apiVersion": "v1", "kind": "Thing", "name": "n", "uid": f"u{at}", "blockOwnerDeletion": True}
        for at in range(20_000)
    ]
    large, graph = entry(ownerReferences=owners), Graph()
    await reading.prepare(large)
    tracemalloc.start()
    try:
        list(graph.put(A, facts(large)))
        reading.forget(large)
        assert tracemalloc.get_traced_memory()[1] < 16 << 10, "bytes that the event loop took for it"
    finally:
        tracemalloc.stop()
    assert list(graph.dependents("u7")) == [A]
    assert graph.blocked("u19999")
    list(graph.remove(A, "u"))
    assert not graph.blocked("u19999")


async def test_collector_goes_through_known_objects_in_pieces_and_forgets_them_in_the_end() -> None:
    async def caught_up() -> None:
        return None

    collector = Collector(Kinds(RESOURCES), {}, cast("Any", None), caught_up=caught_up)
    collector.begun("things")
    for at in range(100):
        body = entry(ownerReferences=[{"apiVersion": "v1", "kind": "Thing", "name": "n", "uid": "a"}]).body
        collector.seen("things", Entry(Key(f"ns/{at}"), Revision(1), body, {}, ()))
    known = collector._graph
    list(known.put(A, facts(entry(ownerReferences=[{"uid": f"u{at}"} for at in range(2 * reading.MANY)]))))
    assert sum(1 for _ in collector.listed("things")) == len(known) == collector.pending == 101

    running = asyncio.ensure_future(collector.run())
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])
    assert await READ_OWNERS.run(len, known) == 0
    assert not known.dependents("a")
    assert not known.dependents("u1")


def test_object_is_looked_at_when_it_gets_owners(graph: Graph) -> None:
    assert list(graph.put(D, owned("d", "nobody"))) == [D]
    assert list(graph.put(D, owned("d", "nobody"))) == []
    assert list(graph.put(D, owned("d", "nobody", "a"))) == [D]
    assert list(graph.put(D, Facts("d"))) == []


def test_dependents_are_looked_at_when_their_owner_is_removed(graph: Graph) -> None:
    assert list(graph.remove(A, "a")) == [B, C]
    assert list(graph.remove(B, "b")) == [C]


def test_dependents_and_owner_are_checked_once_when_the_owner_waits(graph: Graph) -> None:
    waiting = Facts("a", deleting=True, foreground=True)

    assert list(graph.put(A, waiting)) == [B, C, A]
    assert list(graph.put(A, waiting)) == []
    assert graph.waits(A)


def test_orphaning_wins_over_foreground_deletion(graph: Graph) -> None:
    both = Facts("a", deleting=True, foreground=True, orphaning=True)

    assert list(graph.put(A, both)) == [A]
    assert not graph.waits(A)


@pytest.mark.parametrize(
    "change",
    [owned("b", "a"), owned("b", "other", blocks=True), Facts("b"), None],
    ids=["unblocked", "moved", "freed", "gone"],
)
def test_waiting_owner_is_looked_at_when_a_dependent_blocks_it_no_longer(graph: Graph, change: Facts | None) -> None:
    list(graph.put(A, Facts("a", deleting=True, foreground=True)))
    assert graph.blocked("a")

    found = list(graph.remove(B, "b") if change is None else graph.put(B, change))

    assert A in found
    assert not graph.blocked("a")


def test_object_of_the_same_name_and_another_uid_is_another_object(graph: Graph) -> None:
    found = list(graph.put(B, owned("b2", "a")))

    assert C in found, "its owner is gone"
    assert set(graph.dependents("a")) == {B, C}
    assert set(graph.dependents("b2")) == set()


def test_owner_named_twice_is_one_owner(graph: Graph) -> None:
    blocking = Owner("v1", "Thing", "a", "a", block_owner_deletion=True)
    other = Owner("v1", "Thing", "renamed", "a")

    list(graph.put(D, Facts("d", (blocking, other))))

    assert set(graph.dependents("a")) == {B, C, D}
    list(graph.put(D, Facts("d", (other,))))
    list(graph.remove(B, "b"))
    assert not graph.blocked("a")


def test_graph_without_owners_is_empty(graph: Graph) -> None:
    for at, uid in ((A, "a"), (B, "b"), (C, "c")):
        list(graph.remove(at, uid))

    assert len(graph) == 0
    assert not graph.dependents("a")
    assert not graph.blocked("a")


_FACTS = st.builds(
    lambda owners, blocking: Facts(
        "u", tuple(Owner("v1", "Thing", uid, uid, block_owner_deletion=uid in blocking) for uid in owners)
    ),
    st.lists(st.sampled_from("wxyz")),
    st.sets(st.sampled_from("wxyz")),
)


@given(st.lists(st.tuples(st.sampled_from((A, B, C)), st.none() | _FACTS)), st.sampled_from((reading.MANY, 2)))
def test_edges_are_those_of_the_newest_facts(changes: list[tuple[Id, Facts | None]], many: int) -> None:
    graph, newest = Graph(), dict[Id, Facts]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "MANY", many)
        for at, now in changes:
            if now is None:
                list(graph.remove(at, "u"))
                newest.pop(at, None)
            else:
                list(graph.put(at, Facts(now.uid, now.owners)))
                newest[at] = now
    for uid in "wxyz":
        owned_by = {at: [owner for owner in now.owners if owner.uid == uid] for at, now in newest.items()}
        assert set(graph.dependents(uid)) == {at for at, owners in owned_by.items() if owners}
        assert graph.blocked(uid) == any(owner.block_owner_deletion for owners in owned_by.values() for owner in owners)
    assert set(graph) == {at for at, now in newest.items() if now.owners}


def test_graph_takes_less_than_twice_the_bytes_of_many_owners() -> None:
    uids = [f"0a1b2c3d-0000-4000-8000-{at:012}" for at in range(10_000)]
    stored = entry(ownerReferences=[{"apiVersion": "v1", "kind": "Thing", "name": "n", "uid": uid} for uid in uids])
    graph = Graph()
    tracemalloc.start()
    try:
        list(graph.put(A, facts(stored)))
        reading.forget(stored)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 2 * len(stored.body)
    assert set(graph.dependents(uids[-1])) == {A}
