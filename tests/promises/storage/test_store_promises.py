"""Invariants 1, 3, 5, 6, 8, 12 and 13 of tests/promises/README.md on a real Valkey with several replicas, in every order that Hypothesis
finds.

The pure index keeps the same promises alone (tests/unit/watchcache/test_index_promises.py). Here they hold from one replica's `commit`
through the server's functions and log to another one's views and watches, across restarts of replicas and of the server.

The truth is an archive of the log, read past the code under test after every step, and folded in the plainest way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from apiserver.storage import log
from apiserver.storage.errors import KeyExists, Moved
from apiserver.storage.functions import Commands
from apiserver.storage.store import Store, Stores, Write, open_stores
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry, Event, EventType, Key, Revision, splice
from apiserver.watchcache.errors import Compacted, Future
from apiserver.watchcache.hub import Bookmark, Wake, Watcher
from apiserver.watchcache.scope import Scope
from tests.fixtures.valkey import Server, eventually, index_func, install, patient, value

T = TypeVar("T")
KEYS = ("a/x", "a/y", "ab/x", "b/x", "c")
NODES = ("", "n1", "n2")
SCOPES = (
    Scope(),
    Scope(prefix="a/"),
    Scope(key=Key("a/x")),
    Scope(field=(0, "n1")),
    Scope(prefix="a/", field=(0, "n1")),
)
REPLICAS = 2
WHICH = st.integers(0, 1 << 20)
NUMBERS = itertools.count()

Told = tuple[Revision, EventType, str, bytes, bytes | None]


class Client:
    """A watch as its owner sees it, driven by the test: what came through the ring, then what the pump gave."""

    def __init__(self, number: int, store: Store, after: Revision, scope: Scope) -> None:
        self.replica = number
        self.after = after
        self.scope = scope
        self.told: list[Told] = []
        self.watcher: Watcher = store.watch(after=after, scope=scope, sink=self)

    def event(self, event: Event) -> bool:
        body = event.previous.body if event.previous is not None else None
        self.told.append((event.revision, event.type, event.entry.key, event.entry.body, body))
        return True

    def bookmark(self, bookmark: Bookmark) -> bool:
        return True

    def catch_up(self) -> None:
        while self.watcher.wake is Wake.BEHIND:
            for event in self.watcher.pull():
                self.event(event)
            self.watcher.join()


class Archive:
    """Every entry that the log ever had, and the states that follow from them."""

    def __init__(self, server: Server, resource: str) -> None:
        self._server = server
        self._commands = Commands(resource)
        self.records: list[log.Record] = []

    def read(self) -> None:
        after = f"({self.records[-1].id.decode()}" if self.records else "-"
        for raw in self._server("XRANGE", self._commands.keys.log, after, "+"):
            record = log.decode(raw)
            before = self.records[-1].id if self.records else b"-"
            assert record.predecessor == before
            assert not self.records or record.revision > self.records[-1].revision
            self.records.append(record)

    @property
    def last(self) -> Revision:
        return self.records[-1].revision

    @property
    def floor(self) -> Revision:
        return keys.revision(self._server("HGET", self._commands.keys.meta, "floor"))

    def at(self, revision: Revision) -> dict[str, tuple[Revision, bytes]]:
        state: dict[str, tuple[Revision, bytes]] = {}
        for record in self.records:
            if record.revision > revision:
                break
            state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = (record.revision, record.value)
        return state

    def names(self, revision: Revision) -> bool:
        return any(record.revision == revision for record in self.records)

    def events(self, after: Revision, scope: Scope) -> list[Told]:
        found: list[Told] = []
        state: dict[str, tuple[Revision, bytes]] = {}
        for record in self.records:
            held = state.pop(record.key, None)
            if record.value is not None:
                state[record.key] = (record.revision, record.value)
            if record.kind == log.FENCE or record.revision <= after:
                continue
            value_ = record.value if record.value is not None else held and held[1]
            assert value_ is not None
            if admits(scope, record.key, value_, held and held[1]):
                change = EventType(int(record.kind))
                body = splice(value_, record.revision)
                found.append((record.revision, change, record.key, body, splice(held[1], held[0]) if held else None))
        return found

    def stored(self) -> dict[str, tuple[Revision, bytes]]:
        names = self._commands.keys
        values = self._server("HGETALL", names.objects)
        flat = self._server("HGETALL", names.revisions)
        rows = dict(zip(flat[::2], flat[1::2], strict=True))
        return {
            key.decode(): (keys.revision(rows[key].split()[0]), data)
            for key, data in zip(values[::2], values[1::2], strict=True)
        }


def admits(scope: Scope, key: str, new: bytes, old: bytes | None) -> bool:
    if scope.key is not None:
        return key == scope.key
    if not key.startswith(scope.prefix):
        return False
    if scope.field is None:
        return True
    nodes = {index_func.read(data)[1][0] for data in (new, old) if data is not None}
    return scope.field[1] in nodes


class StoreOnValkey(RuleBasedStateMachine):
    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.resource = f"promises{next(NUMBERS)}.example.com/things"
        self.run(install(self.server, self.resource))
        self.replicas: list[Stores] = [self.run(self.opened()) for _ in range(REPLICAS)]
        self.archive = Archive(self.server, self.resource)
        self.archive.read()
        self.clients: list[Client] = []
        self.acknowledged = Revision(0)

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(story)

    async def opened(self) -> Stores:
        options = patient(self.server.url)
        stores = await open_stores(options, {self.resource: index_func})
        await stores.ready()
        return stores

    def store(self, which: int) -> Store:
        return self.replicas[which % REPLICAS][self.resource]

    # Writes

    @rule(which=WHICH, key=st.sampled_from(KEYS), node=st.sampled_from(NODES), text=st.sampled_from("xyz"))
    def put(self, which: int, key: str, node: str, text: str) -> None:
        self.run(self._put(self.store(which), key, value(key, text, node=node)))

    async def _put(self, store: Store, key: str, data: bytes) -> None:
        await store.barrier()
        held = store.view().get(key)
        length = len(self.archive.records)
        entry = await store.commit(Write(Key(key), data, held.revision if held else Revision(0), "u"), dry_run=False)
        self.archive.read()
        assert store.view().get(key) is entry
        if held is not None and held.body == splice(data, held.revision):
            assert (entry.revision, len(self.archive.records)) == (held.revision, length)
        else:
            self._was_written(entry, data, length)

    def _was_written(self, entry: Entry, data: bytes | None, length: int) -> None:
        record = self.archive.records[-1]
        assert len(self.archive.records) == length + 1
        assert (record.revision, record.key, record.value) == (entry.revision, entry.key, data)
        assert entry.revision > self.acknowledged
        self.acknowledged = entry.revision

    @rule(which=WHICH, key=st.sampled_from(KEYS))
    def delete(self, which: int, key: str) -> None:
        self.run(self._delete(self.store(which), key))

    async def _delete(self, store: Store, key: str) -> None:
        await store.barrier()
        held = store.view().get(key)
        length = len(self.archive.records)
        if held is None:
            with pytest.raises(Moved):
                await store.commit(Write(Key(key), None, Revision(self.archive.last)), dry_run=False)
            return
        entry = await store.commit(Write(Key(key), None, held.revision), dry_run=False)
        self.archive.read()
        self._was_written(entry, None, length)
        assert entry.body == held.at(entry.revision).body

    @rule(key=st.sampled_from(KEYS), count=st.integers(2, 12))
    def race(self, key: str, count: int) -> None:
        """Write one object at one revision from many writers: one wins, the others get the current state."""
        self.run(self._race(key, count))

    async def _race(self, key: str, count: int) -> None:
        held = self.archive.at(self.archive.last).get(key)
        expected = held[0] if held else Revision(0)
        number = next(NUMBERS)
        writes = [Write(Key(key), value(key, f"race {number} {at}"), expected) for at in range(count)]
        attempts = [self.store(at).commit(write, dry_run=False) for at, write in enumerate(writes)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        self.archive.read()
        won = [result for result in results if isinstance(result, Entry)]
        assert len(won) == 1
        for result in results:
            if isinstance(result, (KeyExists, Moved)):
                assert result.entry is not None
                assert (result.entry.revision, result.entry.body) == (won[0].revision, won[0].body)
            else:
                assert result is won[0]
        self.acknowledged = won[0].revision

    @rule(which=WHICH, key=st.sampled_from(KEYS), data=st.sampled_from([None, value("x", "dry")]))
    def rehearse(self, which: int, key: str, data: bytes | None) -> None:
        """A dry run says what the real one would, and changes nothing."""
        self.run(self._rehearse(self.store(which), key, data))

    async def _rehearse(self, store: Store, key: str, data: bytes | None) -> None:
        before = self.archive.stored(), len(self.archive.records)
        held = before[0].get(key)
        for expected in {Revision(0), self.archive.last, held[0] if held else Revision(0)}:
            if data is None and not expected:
                continue
            write = Write(Key(key), data, expected)
            (said,) = await asyncio.gather(store.commit(write, dry_run=True), return_exceptions=True)
            if isinstance(said, KeyExists):
                assert held is not None
                assert (expected, said.entry.revision) == (0, held[0])
            elif isinstance(said, Moved):
                assert (said.entry.revision if said.entry else None) == (held[0] if held else None) != expected
            else:
                assert isinstance(said, Entry)
                assert expected == (held[0] if held else 0)
                wanted = data if data is not None else held and held[1]
                assert wanted is not None
                assert said.body == (splice(wanted, expected) if expected else wanted)
        self.archive.read()
        assert (self.archive.stored(), len(self.archive.records)) == before

    # Reads

    @rule(which=WHICH)
    def read_the_newest(self, which: int) -> None:
        store = self.store(which)
        assert self.run(store.barrier()) == self.archive.last
        self._agrees(store, self.archive.last)

    @rule(which=WHICH, back=WHICH)
    def read_the_past(self, which: int, back: int) -> None:
        store = self.store(which)
        self.run(store.barrier())
        revision = self.archive.records[-1 - back % len(self.archive.records)].revision
        if revision >= store.floor:
            self._agrees(store, revision)
        else:
            self._is_gone(store, revision)

    def _agrees(self, store: Store, revision: Revision) -> None:
        view = store.view_at(revision)
        state = self.archive.at(revision)
        assert view.revision == revision
        assert [(entry.key, entry.body) for entry in view.scan()] == [
            (key, splice(state[key][1], state[key][0])) for key in sorted(state, key=str.encode)
        ]
        assert view.count("a/") == sum(key.startswith("a/") for key in state)

    @rule(which=WHICH, back=WHICH, off=st.integers(1, 1 << 33))
    def read_what_never_was(self, which: int, back: int, off: int) -> None:
        """Numbers between the ends of epochs, of foreign stores, of the future."""
        store = self.store(which)
        self.run(store.barrier())
        revision = Revision(self.archive.records[-1 - back % len(self.archive.records)].revision + off)
        if revision > self.archive.last:
            with pytest.raises(Future) as caught:
                store.view_at(revision)
            assert caught.value.current == self.archive.last
        elif not self.archive.names(revision):
            self._is_gone(store, revision)

    @rule(which=WHICH, revision=st.sampled_from([1, 5, 10**6, 10**12]))
    def read_another_servers_past(self, which: int, revision: int) -> None:
        self._is_gone(self.store(which), Revision(revision))

    def _is_gone(self, store: Store, revision: Revision) -> None:
        with pytest.raises(Compacted):
            store.view_at(revision)
        with pytest.raises(Compacted):
            Client(0, store, revision, Scope())

    # Watches

    @rule(which=WHICH, back=WHICH, scope=st.sampled_from(SCOPES))
    def watch(self, which: int, back: int, scope: Scope) -> None:
        store = self.store(which)
        known = [record.revision for record in self.archive.records if record.revision >= store.floor]
        if known and len(self.clients) < 8:
            self.run(self._watch(which % REPLICAS, known[-1 - back % len(known)], scope))

    async def _watch(self, number: int, after: Revision, scope: Scope) -> None:
        """From a revision that another replica may have given out: this one may not have reached it."""
        client = Client(number, self.store(number), after, scope)
        client.catch_up()
        self.clients.append(client)

    @precondition(lambda self: self.clients)
    @rule()
    def everyone_was_told(self) -> None:
        self.run(self._everyone_was_told())

    async def _everyone_was_told(self) -> None:
        for number in range(REPLICAS):
            await self.store(number).barrier()
        for client in self.clients:
            wanted = self.archive.events(client.after, client.scope)
            await eventually(lambda client=client, wanted=wanted: self._told(client) >= len(wanted))  # type: ignore[misc]
            assert client.told == wanted
            assert client.watcher.wake is None

    def _told(self, client: Client) -> int:
        client.catch_up()
        return len(client.told)

    # Time

    @rule(back=st.integers(0, 6))
    def compact(self, back: int) -> None:
        """The floor rises, for everyone, at a moment that they do not know of."""
        wanted = self.archive.records[-1 - back % len(self.archive.records)].id.decode()
        self.run(self._everyone_was_told())
        self.server("FCALL", "sl1_floor", 5, *Commands(self.resource).keys.all, wanted, 0, 0)
        assert self.archive.floor >= keys.revision(wanted) or back

    @rule(which=WHICH)
    def restart_a_replica(self, which: int) -> None:
        number = which % REPLICAS
        self.run(self._everyone_was_told())
        self.clients = [client for client in self.clients if client.replica != number]
        self.run(self.replicas[number].close())
        self.replicas[number] = self.run(self.opened())
        store = self.store(number)
        assert (store.applied, store.floor) == (self.archive.last, self.archive.floor)

    @rule(kill=st.booleans())
    def restart_the_server(self, kill: bool) -> None:
        """No watch ends, no revision is forgotten, a new epoch begins."""
        self.run(self._restart_the_server(kill))

    async def _restart_the_server(self, kill: bool) -> None:
        await asyncio.to_thread(self.server.kill if kill else self.server.stop)
        await asyncio.to_thread(self.server.start)
        for stores in self.replicas:
            store = stores[self.resource]
            await eventually(lambda store=store: store.store_state() is None)  # type: ignore[misc]
            await store.barrier()
        self.archive.read()
        assert self.archive.records[-1].kind == log.FENCE

    def teardown(self) -> None:
        try:
            self.run(self._everyone_was_told())
            self.run(self._everything_agrees())
        finally:
            for stores in self.replicas:
                self.run(stores.close())
            self.runner.close()

    async def _everything_agrees(self) -> None:
        state = self.archive.at(self.archive.last)
        assert self.archive.stored() == state
        for number in range(REPLICAS):
            assert {entry.key: entry.revision for entry in self.store(number).view().scan()} == {
                key: revision for key, (revision, _) in state.items()
            }


def test_the_store_keeps_its_promises_on_valkey(own_server: Server) -> None:
    class Machine(StoreOnValkey):
        server = own_server

    run_state_machine_as_test(Machine, settings=settings(max_examples=12, stateful_step_count=40, deadline=None))
