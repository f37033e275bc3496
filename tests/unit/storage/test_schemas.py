"""Stores that count in the older form go on as they are; new ones count below 2^53; the two are never confused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from apiserver.storage import functions, preflight
from apiserver.storage.functions import Commands, Head
from apiserver.storage.operations import administration
from apiserver.storage.pipeline import Connection
from apiserver.storage.store import Store, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import IndexFunc, Key, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Wake
from apiserver.watchcache.scope import Scope
from tests.fixtures.valkey import Open, Server, eventually, forget, install, patient, value

OLD_LIBRARY = (Path(__file__).parents[2] / "cases/store/functions-schema-1.lua").read_bytes()
"""The library of the version before schema 2."""
LATE = b"99999999999999"


class Ear:
    """A sink that takes everything."""

    def event(self, _event: object) -> bool:
        return True

    def bookmark(self, _bookmark: object) -> bool:
        return True


async def create(store: Store, name: str, text: str = "") -> Revision:
    made = await store.commit(Write(Key(name), value(name, text), Revision(0), "uid"), dry_run=False)
    return made.revision


async def call(server: Server, command: bytes) -> list[bytes]:
    connection = await Connection.open(patient(server.url), "test")
    try:
        reply: list[bytes] = await connection.call(command)
        return reply
    finally:
        await connection.close()


async def head_of(server: Server, resource: str) -> Head:
    return functions.head(await call(server, Commands(resource).head))


async def end_of_watch(store: Store, after: Revision) -> Wake:
    """Watch as clients do, who resume after a clean end."""
    while True:
        watcher = store.watch(after=after, scope=Scope(""), sink=Ear())
        await eventually(lambda watcher=watcher: watcher.wake in (Wake.EXPIRED, Wake.ENDED, Wake.DROPPED))  # type: ignore[misc]
        if watcher.wake is not Wake.ENDED:
            assert watcher.wake is not None
            return watcher.wake
        await eventually(lambda: not store.filling)


async def old_store(server: Server, resource: str, *names: str) -> list[Revision]:
    """Make a store as the version before did, with these objects. Return their versions."""
    server("FUNCTION", "LOAD", "REPLACE", OLD_LIBRARY)
    commands = Commands(resource)
    assert (await call(server, commands.init("run", "old marker", "1")))[0] == b"OK"
    epoch = server("HGET", commands.keys.meta, "epoch")
    made = []
    for name in names:
        change = functions.Mutation(name.encode(), b"-", b"old." + name.encode(), b"uid", value(name))
        word, id_ = await call(server, commands.change(epoch, LATE, change))
        assert word == b"OK"
        made.append(keys.revision(id_))
    return made


# ------------------------------------------------------------------------------------------------------------------- the forms


EPOCHS = [0, 1, 7, 1 << 35, (1 << 41) - 1, 1 << 41, 3_932_510_515_316, 1 << 46]


def ids() -> list[tuple[int, int]]:
    numbers = [0, 1, 4031, 4095, 4096, 65535]
    return [(epoch, n) for epoch, n in itertools.product(EPOCHS, numbers) if n < 4096 or epoch >= keys.SMALL_EPOCHS]


def test_every_id_has_a_revision_of_its_own_and_the_order_is_the_same() -> None:
    revisions = [keys.revision(f"{epoch}-{n}") for epoch, n in ids()]
    assert revisions == sorted(set(revisions))
    assert [keys.parts(revision) for revision in revisions] == ids()
    assert [keys.stream_id(revision) for revision in revisions] == [f"{epoch}-{n}" for epoch, n in ids()]
    assert [keys.revision(f"{epoch}-{n}".encode()) for epoch, n in ids()] == revisions


def test_revisions_of_new_stores_are_exact_as_doubles() -> None:
    small = [keys.revision(f"{epoch}-{n}") for epoch, n in ids() if epoch < keys.SMALL_EPOCHS]
    assert [int(float(revision)) for revision in small] == small
    assert max(small) == keys.EXACT_DOUBLES - 1 == 2**53 - 1


def test_entry_of_another_program_with_a_large_number_lies_above_the_log() -> None:
    assert keys.revision("30000000000-5000") > keys.revision("30000000000-4095")


def test_epochs_of_new_stores_stay_small_until_2094() -> None:
    first_of_2094 = 3_913_056_000_000
    assert keys.epoch_at(first_of_2094, like=0) < keys.SMALL_EPOCHS
    assert keys.epoch_at(first_of_2094 + 366 * 86_400_000, like=0) > keys.SMALL_EPOCHS


# ----------------------------------------------------------------------------------------------------------------- new stores


async def test_new_store_counts_below_2_to_the_53rd_at_the_servers_clock(shared_server: Server, resource: str) -> None:
    await install(shared_server, resource)
    head = await head_of(shared_server, resource)
    assert (head.schema, head.last < keys.EXACT_DOUBLES) == ("2", True)
    begun = keys.epoch_at(head.now_ms, like=head.epoch)
    assert begun - 60_000 < head.epoch <= begun + 2 * 1024


async def test_takeovers_of_a_new_store_lie_at_most_two_seconds_ahead(shared_server: Server, resource: str) -> None:
    await install(shared_server, resource)
    start = (await head_of(shared_server, resource)).epoch + (1 << 30)
    for met in range(start, start + 20):
        forget(shared_server)
        before = (await head_of(shared_server, resource)).epoch
        fence = functions.fence(await call(shared_server, Commands(resource).fence("run", met)))
        assert 1 <= fence.epoch - max(before, met) <= 2048


async def test_epoch_of_an_older_store_does_not_raise_a_new_one(shared_server: Server, resource: str) -> None:
    """A server that followed an older store at this address, of this version or of the one before, must not spoil the new one."""
    await install(shared_server, resource)
    before = await head_of(shared_server, resource)
    reply = await call(shared_server, Commands(resource).fence("run", 3_932_510_515_316))
    assert functions.fence(reply) == (before.epoch, before.last, False)
    forget(shared_server)
    fence = functions.fence(await call(shared_server, Commands(resource).fence("run", 3_932_510_515_316)))
    assert before.epoch < fence.epoch < keys.SMALL_EPOCHS


async def test_change_without_a_number_left_is_refused_until_a_takeover(shared_server: Server, resource: str) -> None:
    await install(shared_server, resource)
    commands, head = Commands(resource), await head_of(shared_server, resource)
    change = functions.Mutation(b"a", b"*", b"t.1", b"u", b"v")
    last = f"{head.epoch}-4095"
    shared_server(
        "XADD", commands.keys.log, last, "k", "", "t", "9", "m", "-", "p", keys.stream_id(head.last), "w", "x"
    )
    shared_server("HSET", commands.keys.meta, "last", last)
    forget(shared_server)
    fence = functions.fence(await call(shared_server, commands.fence("run", 0)))
    assert (await call(shared_server, commands.change(b"%d" % fence.epoch, LATE, change)))[0] == b"OK"


# -------------------------------------------------------------------------------------------------------------- existing stores


async def test_existing_store_goes_on_under_the_new_library(own_server: Server, resource: str, opening: Open) -> None:
    """Objects keep their versions, and later ones lie above them, in the same form."""
    made = await old_store(own_server, resource, "a", "b")
    await install(own_server, resource)
    store = (await opening(own_server, resource))[resource]
    assert [entry.revision for entry in store.view().scan()] == made
    assert min(made) > 1 << 57
    later = [await create(store, name) for name in "cd"]
    assert [*made, *later] == sorted([*made, *later])
    changed = await store.commit(Write(Key("a"), value("a", "changed"), made[0], "uid"), dry_run=False)
    assert changed.revision > later[-1]
    assert (await head_of(own_server, resource)).schema == "1"
    assert store.view_at(later[0]).get("d") is None


async def test_watch_of_an_existing_store_resumes_under_the_new_library(
    own_server: Server, resource: str, opening: Open
) -> None:
    made = await old_store(own_server, resource, "a", "b")
    await install(own_server, resource)
    store = (await opening(own_server, resource))[resource]
    watcher = store.watch(after=made[0], scope=Scope(""), sink=Ear())
    assert [event.entry.key for event in watcher.pull(10)] == ["b"]


async def test_further_resources_of_an_existing_store_count_as_it_does(
    own_server: Server, resource: str, opening: Open
) -> None:
    """Servers of the version before can follow them, too."""
    await old_store(own_server, resource)
    await install(own_server, resource, "by.example.com/init")
    assert (await head_of(own_server, "by.example.com/init")).schema == "1"
    made = await opening(own_server, resource, "by.example.com/server", creatable={"by.example.com/server"})
    await made.add("by.example.com/addition", IndexFunc(lambda _: ({}, ())), creates=True)
    for name in ("server", "addition"):
        assert (await head_of(own_server, f"by.example.com/{name}")).schema == "1"


async def test_check_warns_of_rounded_versions(own_server: Server, resource: str) -> None:
    await old_store(own_server, resource)
    await install(own_server, resource)
    assert any("JavaScript" in text for text in await administration.check(patient(own_server.url), [resource]))
    own_server("DEL", *Commands(resource).keys.all)
    await install(own_server, resource)
    assert await administration.check(patient(own_server.url), [resource]) == []


def test_log_of_schema_1_from_before_2026_is_refused() -> None:
    """Only a wrong clock made it, and its revisions could be those of schema 2."""
    floor = keys.revision("7-0")
    early = Head(1 << 42, keys.revision(f"{1 << 42}-0"), floor, True, 0, 0, 0, None, "marker", "1")
    assert "clock" in preflight.head_refusals("g/things", early)[0]
    assert preflight.head_refusals("g/things", early._replace(schema="2")) == []


@pytest.mark.parametrize("quiet", [True, False])
async def test_client_of_a_replaced_store_gets_an_end_and_versions_stay_small(
    own_server: Server, resource: str, opening: Open, *, quiet: bool
) -> None:
    """An operator exports, and imports into a new store at the same address, while servers run."""
    held = (await old_store(own_server, resource, "a"))[0]
    await install(own_server, resource)
    stores = await opening(own_server, resource, monitor_seconds=0.05)
    store = stores[resource]
    later = await create(store, "b")
    own_server("DEL", *Commands(resource).keys.all)
    await install(own_server, resource)
    await eventually(lambda: 0 < store.applied < keys.EXACT_DOUBLES and stores.store_state() is None)
    future = store.watch(after=Revision(9 * 10**18), scope=Scope(""), sink=Ear())
    if not quiet:
        assert await create(store, "c") < keys.EXACT_DOUBLES
    for revision in (held, later):
        assert await end_of_watch(store, revision) is Wake.EXPIRED
    assert future.wake is not Wake.EXPIRED
    forget(own_server)
    own_server("CLIENT", "KILL", "TYPE", "normal")
    await eventually(lambda: stores.store_state() is None)
    with pytest.raises(Compacted):
        store.view_at(Revision(5000))
    assert await create(store, "d") < keys.EXACT_DOUBLES
