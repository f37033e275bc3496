"""A backup that is taken while objects change holds one version of each resource, and is restored whole or not at all."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from apiserver.runtime.progress import Silent
from apiserver.storage import functions
from apiserver.storage.backup import file_format, restoring, snapshot
from apiserver.storage.backup.file_format import BadBackup, Kept, Reader, verify
from apiserver.storage.backup.restoring import Restore, RestoreRefused
from apiserver.storage.functions import Commands, Head
from apiserver.storage.operations import administration, rights
from apiserver.storage.pipeline import Connection, Disconnected, Rejected
from apiserver.storage.store import Store, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.errors import Compacted
from apiserver.watchcache.hub import Wake
from apiserver.watchcache.scope import Scope
from tests.fixtures.clusters import Cluster
from tests.fixtures.clusters import resources_of as cluster_resources
from tests.fixtures.processes import free_port
from tests.fixtures.valkey import Open, Server, eventually, follow, install, patient, value
from tests.unit.storage.test_schemas import Ear, call, head_of, old_store

ABSENT = Revision(0)


async def backed_up(server: Server, *only: str) -> bytes:
    out = io.BytesIO()
    await snapshot.backup(patient(server.url), out, sluice="test", only=only, progress=Silent())
    return out.getvalue()


async def restored(server: Server, data: bytes, *only: str, dry_run: bool = False) -> list[str]:
    return await Restore(patient(server.url), io.BytesIO(data), only, Silent()).run(dry_run=dry_run)


def contents(data: bytes) -> dict[str, Kept]:
    return {part.key: part for part in Reader(io.BytesIO(data)).parts() if isinstance(part, Kept)}


async def write(store: Store, name: str, text: str, expected: Revision = ABSENT) -> Revision:
    made = await store.commit(Write(Key(name), value(name, text), expected, f"uid-of-{name}"), dry_run=False)
    return made.revision


def flushed(server: Server, *resources: str) -> None:
    for resource in resources:
        server("DEL", *Commands(resource).keys.all)


def state(store: Store) -> dict[str, Any]:
    """The objects without their versions."""
    found: dict[str, Any] = {entry.key: json.loads(entry.value) for entry in store.view().scan()}
    for each in found.values():
        del each["metadata"]["resourceVersion"]
    return found


# ----------------------------------------------------------------------------------------------------------------- backups


async def test_backup_holds_what_is_stored(shared_server: Server, store: Store, resource: str) -> None:
    made = {name: await write(store, name, name) for name in ("a", "ns/b", "ns/c")}
    found = contents(await backed_up(shared_server, resource))
    assert {name: kept.version for name, kept in found.items()} == made
    assert found["ns/b"] == Kept("ns/b", made["ns/b"], "uid-of-ns/b", value("ns/b", "ns/b"))


async def test_backup_covers_resources_that_nobody_serves(own_server: Server) -> None:
    await install(own_server, "a.example.com/things", "b.example.com/others", "/namespaces")
    own_server("HSET", "{sl:no {name}}:m", "a", "b")
    own_server("SET", "{sl:g/string}:m", "a")
    reader = Reader(io.BytesIO(await backed_up(own_server)))
    assert [part.resource for part in reader.parts() if not isinstance(part, Kept)] == [
        "/namespaces", "a.example.com/things", "b.example.com/others",
    ]  # fmt: skip


async def test_backup_of_changing_objects_is_their_state_at_one_version(
    shared_server: Server, store: Store, resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects are created, changed and deleted between the steps of the scan; each state is compared with the history."""
    monkeypatch.setattr(snapshot, "SCAN_OBJECTS", 8)
    held: dict[str, Revision] = {}
    for at in range(600):  # more than a compact hash holds, so that a scan takes many steps
        held[f"o{at}"] = await write(store, f"o{at}", "first")
    history: list[tuple[Revision, str, bytes | None]] = [(r, name, value(name, "first")) for name, r in held.items()]
    asked = 0
    submit = Connection.call

    def calling(self: Connection, command: bytes) -> asyncio.Future[Any]:
        if b"sl1_scan" not in command:
            return submit(self, command)

        async def later() -> Any:
            nonlocal asked
            asked += 1
            for at in range(5):
                name = f"o{(asked * 37 + at * 101) % 700}"
                if name not in held:
                    held[name] = await write(store, name, "created")
                    history.append((held[name], name, value(name, "created")))
                elif at == 4:
                    gone = await store.commit(Write(Key(name), None, held.pop(name)), dry_run=False)
                    history.append((gone.revision, name, None))
                else:
                    held[name] = await write(store, name, f"changed {asked} {at}", held[name])
                    history.append((held[name], name, value(name, f"changed {asked} {at}")))
            return await submit(self, command)

        return asyncio.ensure_future(later())

    monkeypatch.setattr(Connection, "call", calling)
    data = await backed_up(shared_server, resource)
    monkeypatch.undo()
    assert asked > 20
    content = next(iter(Reader(io.BytesIO(data)).parts()))
    expected: dict[str, tuple[int, bytes]] = {}
    for revision, name, stored in sorted(history):
        if revision <= content.version:
            expected.pop(name, None)
            if stored is not None:
                expected[name] = (revision, stored)
    assert {name: (kept.version, kept.value) for name, kept in contents(data).items()} == expected


async def test_backup_of_a_log_that_is_trimmed_too_fast_fails(
    shared_server: Server, store: Store, resource: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(store, "a", "a")
    submit = Connection.call

    def calling(self: Connection, command: bytes) -> asyncio.Future[Any]:
        if b"sl1_scan" not in command:
            return submit(self, command)

        async def later() -> Any:
            answer = await submit(self, command)
            for at in range(3):
                last = await write(store, f"later{at}", "x")
            await call(shared_server, Commands(resource).floor(last, least_ms=0, keep=0))
            answer[2] = keys.stream_id(last).encode()
            return answer

        return asyncio.ensure_future(later())

    monkeypatch.setattr(Connection, "call", calling)
    with pytest.raises(snapshot.Interrupted, match="try again"):
        await backed_up(shared_server, resource)


async def test_backup_of_a_store_without_resources_is_refused(own_server: Server) -> None:
    with pytest.raises(Exception, match="holds no resource"):
        await backed_up(own_server)


# ---------------------------------------------------------------------------------------------------------------- restores


async def test_restored_objects_are_those_of_the_backup_under_new_versions(
    shared_server: Server, store: Store, resource: str, opening: Open
) -> None:
    made = [await write(store, name, name) for name in ("a", "b", "c")]
    data = await backed_up(shared_server, resource)
    lost = await write(store, "d", "after the backup")
    before, after = state(store), await head_of(shared_server, resource)
    del before[Key("d")]
    flushed(shared_server, resource)
    await restored(shared_server, data, resource)
    again = (await opening(shared_server, resource))[resource]
    assert state(again) == before
    versions = [entry.revision for entry in again.view().scan()]
    assert len(set(versions)) == 3
    assert min(versions) > max(*made, lost, after.last)
    assert again.applied >= max(versions)
    assert await write(again, "e", "later") > max(versions)


async def test_restore_puts_every_version_above_all_that_the_former_store_can_have_given_out(
    own_server: Server, resource: str
) -> None:
    """Its last takeover may lie two seconds ahead of the clock."""
    await install(own_server, resource)
    data = await backed_up(own_server, resource)
    ahead = functions.fence(await call(own_server, Commands(resource).fence("run", 0)))
    now = (await head_of(own_server, resource)).now_ms
    limit = keys.epoch_at(now, like=0) + 2048
    flushed(own_server, resource)
    await restored(own_server, data, resource)
    head = await head_of(own_server, resource)
    assert head.epoch > max(limit, ahead.epoch)
    assert head.floor == head.last


async def test_epoch_of_a_backup_that_lies_far_ahead_is_exceeded(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    far = (await head_of(own_server, resource)).epoch + (1 << 30)
    own_server("FUNCTION", "LOAD", "REPLACE", functions.CODE)
    await call(own_server, Commands(resource).fence("run", far))
    data = await backed_up(own_server, resource)
    flushed(own_server, resource)
    await restored(own_server, data, resource)
    assert (await head_of(own_server, resource)).epoch > far


async def test_backup_of_schema_1_is_restored_in_the_schema_of_the_store(
    own_server: Server, resource: str, opening: Open
) -> None:
    await old_store(own_server, resource, "a", "b")
    data = await backed_up(own_server, resource)
    flushed(own_server, resource)
    await install(own_server, resource)
    await restored(own_server, data)
    assert (await head_of(own_server, resource)).last < keys.EXACT_DOUBLES
    assert set(state((await opening(own_server, resource))[resource])) == {"a", "b"}


async def test_servers_that_run_meet_the_restored_objects_and_watches_end(
    own_server: Server, resource: str, opening: Open
) -> None:
    """They served the store that was lost, and then the empty one that `store init` made."""
    await install(own_server, resource)
    stores = await opening(own_server, resource, monitor_seconds=0.05)
    store = stores[resource]
    held = await write(store, "a", "a")
    data = await backed_up(own_server, resource)
    lost = await write(store, "b", "b")
    flushed(own_server, resource)
    await install(own_server, resource)
    await eventually(lambda: stores.store_state() is None and store.applied > lost and not state(store))
    empty = store.applied
    open_watch = store.watch(after=empty, scope=Scope(""), sink=Ear())
    await restored(own_server, data)
    await eventually(lambda: stores.store_state() is None and set(state(store)) == {"a"})
    assert open_watch.wake in (Wake.ENDED, Wake.DROPPED)
    for version in (held, lost, empty):
        with pytest.raises(Compacted):
            store.watch(after=version, scope=Scope(""), sink=Ear())
    assert await write(store, "c", "c") > empty


async def test_nothing_is_served_before_the_restore_is_complete(
    own_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted after some pages: no server sees any object, `store init` does not repair it, the same backup continues it."""
    other = "other.example.com/things"
    await install(own_server, resource, other)
    stores = await opening(own_server, resource, other)
    for at in range(30):
        await write(stores[resource], f"o{at}", "x")
    await write(stores[other], "a", "x")
    data, another = await backed_up(own_server), await backed_up(own_server, resource)
    await stores.close()
    flushed(own_server, resource, other)
    await install(own_server, resource, other)
    monkeypatch.setattr(restoring, "PAGE_OBJECTS", 4)
    monkeypatch.setattr(restoring, "PAGES", 0)
    sent = 0
    submit = Connection.call

    def calling(self: Connection, command: bytes) -> asyncio.Future[Any]:
        nonlocal sent
        sent += b"sl1_restore\r" in command
        if sent > 5:
            raise Disconnected("the test cuts it")
        return submit(self, command)

    monkeypatch.setattr(Connection, "call", calling)
    with pytest.raises(Disconnected):
        await restored(own_server, data)
    monkeypatch.undo()
    for name in (resource, other):
        objects = own_server("HLEN", Commands(name).keys.objects)
        if objects:
            with pytest.raises(functions.Lost):
                await head_of(own_server, name)
    with pytest.raises(Exception, match="is half there"):
        await install(own_server, resource, other)
    with pytest.raises(RestoreRefused, match="another backup"):
        await restored(own_server, another)
    await restored(own_server, data)
    again = await opening(own_server, resource, other)
    assert (len(state(again[resource])), len(state(again[other]))) == (30, 1)


async def test_store_with_objects_is_refused_and_stays_as_it_is(
    shared_server: Server, store: Store, resource: str
) -> None:
    await write(store, "a", "a")
    data = await backed_up(shared_server, resource)
    revision = await write(store, "b", "b")
    before = shared_server("HGETALL", Commands(resource).keys.meta)
    for dry_run in (True, False):
        with pytest.raises(RestoreRefused, match=rf"not empty: {resource} has 2 objects\. Restore into a new store"):
            await restored(shared_server, data, resource, dry_run=dry_run)
    assert shared_server("HGETALL", Commands(resource).keys.meta) == before
    assert store.applied == revision


async def test_object_that_is_created_after_the_look_stops_the_restore(
    own_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(own_server, resource)
    data = await backed_up(own_server, resource)
    store = (await opening(own_server, resource))[resource]
    look = Restore._look

    async def looking(self: Restore, *arguments: Any) -> set[str]:
        done = await look(self, *arguments)
        await write(store, "a", "meanwhile")
        return done

    monkeypatch.setattr(Restore, "_look", looking)
    with pytest.raises(RestoreRefused, match="created meanwhile"):
        await restored(own_server, data, resource)
    assert set(state(store)) == {"a"}


async def test_restore_that_is_repeated_is_refused(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    data = await backed_up(own_server)
    await restored(own_server, data)
    with pytest.raises(RestoreRefused, match="was restored from this backup already"):
        await restored(own_server, data)


async def test_store_without_the_library_is_refused(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    data = await backed_up(own_server)
    own_server("FLUSHALL")
    own_server("FUNCTION", "FLUSH")
    with pytest.raises(RestoreRefused, match="run `sluice store init`"):
        await restored(own_server, data)
    assert own_server("DBSIZE") == 0


async def test_dry_run_changes_nothing(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    data = await backed_up(own_server)
    flushed(own_server, resource)
    lines = await restored(own_server, data, dry_run=True)
    assert lines[-1] == f"{resource}: 0 objects to restore"
    assert own_server("DBSIZE") == 0


@pytest.mark.parametrize("damage", ["cut", "changed"])
async def test_damaged_backup_changes_nothing(own_server: Server, resource: str, opening: Open, damage: str) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource))[resource]
    for at in range(20):
        await write(store, f"o{at}", "some text")
    data = await backed_up(own_server)
    bad = data[:-20] if damage == "cut" else gzip.compress(gzip.decompress(data).replace(b"o19", b"o99"))
    own_server("FLUSHALL")
    with pytest.raises(BadBackup):
        await restored(own_server, bad)
    assert own_server("DBSIZE") == 0


async def test_file_that_changes_between_its_two_readings_shows_nothing(
    own_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install(own_server, resource)
    store = (await opening(own_server, resource))[resource]
    empty = await backed_up(own_server)
    await write(store, "a", "a")
    data = await backed_up(own_server)
    flushed(own_server, resource)
    file = io.BytesIO(data)
    restore = Restore(patient(own_server.url), file, (), Silent())
    look = Restore._look

    async def looking(self: Restore, *arguments: Any) -> set[str]:
        file.seek(0)
        file.truncate()
        file.write(empty)
        return await look(self, *arguments)

    monkeypatch.setattr(Restore, "_look", looking)
    with pytest.raises(BadBackup, match="was changed while it was read"):
        await restore.run(dry_run=False)
    with pytest.raises(functions.Lost):
        await head_of(own_server, resource)


async def test_restore_ends_when_the_replicas_have_it(
    resource: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that does not follow any more is reported."""
    primary, replica = (
        Server(tmp_path_factory.mktemp("v"), port=str(free_port()), repl_timeout="600") for _ in range(2)
    )
    primary.start()
    replica.start()
    try:
        await install(primary, resource)
        data = await backed_up(primary)
        await asyncio.to_thread(follow, replica, primary)
        flushed(primary, resource)
        lines = await restored(primary, data)
        assert lines[-1].startswith(f"{resource}: 0 objects restored")
        assert replica("HGET", Commands(resource).keys.meta, "restored") == primary(
            "HGET", Commands(resource).keys.meta, "restored"
        )
        monkeypatch.setattr(restoring, "REPLICATION_MS", 50)
        replica.signal(signal.SIGSTOP)
        flushed(primary, resource)
        lines = await restored(primary, data)
        assert lines[-1].startswith("warning: 0 of 1 replicas have the restored objects")
    finally:
        replica.stop()
        primary.stop()


async def test_only_the_named_resources_are_restored(own_server: Server, opening: Open) -> None:
    one, other = "a.example.com/things", "b.example.com/things"
    await install(own_server, one, other)
    stores = await opening(own_server, one, other)
    await write(stores[one], "a", "a")
    await write(stores[other], "a", "a")
    data = await backed_up(own_server)
    await stores.close()
    flushed(own_server, one)
    with pytest.raises(RestoreRefused, match=f"{other} has 1 objects"):
        await restored(own_server, data)
    with pytest.raises(RestoreRefused, match="the backup has no c/d: it has"):
        await restored(own_server, data, "c/d")
    await restored(own_server, data, one)
    head: Head = await head_of(own_server, one)
    assert head.objects == 1


async def test_values_that_are_no_objects_are_restored_as_they_are(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    commands, head = Commands(resource), await head_of(own_server, resource)
    values = {"a": b"no JSON\xff", "b": b'{"metadata":{"uid":7}}', "c": b'{"metadata":{"uid":"u"}}\n{"raw" : 1}'}
    for name, stored in values.items():
        change = functions.Mutation(name.encode(), b"-", b"t", b"-", stored)
        assert (await call(own_server, commands.change(b"%d" % head.epoch, b"9" * 14, change)))[0] == b"OK"
    data = await backed_up(own_server)
    flushed(own_server, resource)
    await restored(own_server, data)
    assert {name: own_server("HGET", commands.keys.objects, name) for name in values} == values
    assert own_server("HGET", commands.keys.revisions, "c").endswith(b" u")


def test_uids_are_those_of_the_metadata() -> None:
    assert snapshot.uid_of(json.dumps({"metadata": {"uid": "u", "name": "\ud800"}}).encode()) == "u"
    assert [snapshot.uid_of(stored) for stored in (b"", b"{}", b'{"metadata":{"uid":null}}', b"\xff")] == [""] * 4


# --------------------------------------------------------------------------------------------------------- earlier releases

CASES = Path(__file__).parents[3] / "cases/store"
KEPT = sorted(CASES.glob("backup-format-*.sluice"))
"""One backup of each format that a release wrote. They are never written again."""


def test_a_backup_of_every_format_is_kept() -> None:
    assert [file.name for file in KEPT] == [f"backup-format-{n}.sluice" for n in range(1, file_format.VERSION + 1)]


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
async def test_backups_of_earlier_releases_are_restored(own_server: Server, file: Path, opening: Open) -> None:
    data = await asyncio.to_thread(file.read_bytes)
    await install(own_server, *RESOURCES)
    await restored(own_server, data)
    slices, widgets = RESOURCES[2:]
    assert own_server("HGET", Commands(widgets).keys.objects, "default/corrupt") == b"no object\xff\n"
    sent = own_server("HGET", Commands(widgets).keys.objects, "default/w")
    assert (b'"x":1.50,' in sent, sent.endswith(b'\n{"sent" : true}\n')) == (True, True)
    assert own_server("HGET", Commands(widgets).keys.revisions, "default/w").endswith(b"-0000000000d0")
    store = (await opening(own_server, slices))[slices]
    found = state(store)
    assert set(found) == {"s0", "s1", "s2"}
    assert found["s1"]["metadata"]["managedFields"][0]["manager"] == "driver"
    assert {name: kept._replace(version=0) for name, kept in contents(data).items()} == {
        name: kept._replace(version=0) for name, kept in contents(await backed_up(own_server)).items()
    }


RESOURCES = (
    "/namespaces",
    "resource.sluice.dev/resourceclaims",
    "resource.sluice.dev/resourceslices",
    "example.com/widgets",
)


# ------------------------------------------------------------------------------------------------------------------ cluster


async def test_cluster_is_backed_up_and_restored_on_all_its_primaries(
    tmp_path_factory: pytest.TempPathFactory, opening: Open, own_server: Server
) -> None:
    """Its backup fits a store of one primary, too."""
    cluster = Cluster(tmp_path_factory.mktemp("c"))
    cluster.start()
    try:
        names = [cluster_resources(*cluster.share(number), names="backup.example.com")[0] for number in range(3)]
        options = patient(cluster.url)
        await administration.init(options, names)
        stores = await opening(cluster.url, *names, durability="primary")
        for name in names:
            await write(stores[name], "a", name)
        await stores.close()
        out = io.BytesIO()
        await snapshot.backup(options, out, sluice="test", only=(), progress=Silent())
        with pytest.raises(RestoreRefused, match="not empty"):
            await Restore(options, out, (), Silent()).run(dry_run=False)
        for member in cluster.members:
            member("FLUSHALL")
        await Restore(options, out, (), Silent()).run(dry_run=False)
        again = await opening(cluster.url, *names, durability="primary")
        await install(own_server, *names)
        await restored(own_server, out.getvalue())
        alone = await opening(own_server, *names)
        for name in names:
            assert {key: found["text"] for key, found in state(again[name]).items()} == {"a": name}
            assert state(alone[name]) == state(again[name])
        await again.close()
    finally:
        cluster.stop()


# ------------------------------------------------------------------------------------------------------------------- rights


async def test_user_for_backups_reads_everything_and_writes_nothing(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    own_server("ACL", "SETUSER", rights.BACKUP_USER, "reset", "on", ">pw", *rights.BACKUP.split())
    options = patient(f"unix://{own_server.socket}", username=rights.BACKUP_USER, password="pw")
    out = io.BytesIO()
    await snapshot.backup(options, out, sluice="test", only=(), progress=Silent())
    assert verify(io.BytesIO(out.getvalue()), Silent()).contents[0].resource == resource
    own_server("DEL", *Commands(resource).keys.all)
    with pytest.raises(Rejected, match="NOPERM"):
        await Restore(options, io.BytesIO(out.getvalue()), (resource,), Silent()).run(dry_run=False)
    assert own_server("DBSIZE") == 0


async def test_serving_user_restores_and_backs_up_the_resources_that_it_names(
    own_server: Server, resource: str
) -> None:
    await install(own_server, resource)
    own_server("ACL", "SETUSER", rights.SERVING_USER, "reset", "on", ">pw", *rights.SERVING.split())
    options = patient(f"unix://{own_server.socket}", username=rights.SERVING_USER, password="pw")
    with pytest.raises(Rejected, match="may not list the resources"):
        await snapshot.backup(options, io.BytesIO(), sluice="test", only=(), progress=Silent())
    out = io.BytesIO()
    await snapshot.backup(options, out, sluice="test", only=(resource,), progress=Silent())
    own_server("DEL", *Commands(resource).keys.all)
    await Restore(options, io.BytesIO(out.getvalue()), (), Silent()).run(dry_run=False)
    assert (await head_of(own_server, resource)).own
