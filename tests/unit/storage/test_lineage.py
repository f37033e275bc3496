"""Preflight, the takeover, the rights of the store's users, and the administrator's commands."""

from __future__ import annotations

import dataclasses
import re

import pytest
import pytest_asyncio

from apiserver.storage import durability, functions, lineage, pipeline, preflight
from apiserver.storage.functions import Commands, Head, Lost
from apiserver.storage.operations import administration, rights
from apiserver.storage.operations.administration import InitRefused
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected
from apiserver.storage.preflight import Server as Described
from apiserver.storage.store import Write, open_stores
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.valkey import Open, Server, eventually, forget, index_func, install, patient, value

OPTIONS = StoreOptions(url="unix:///none")
GOOD = Described(
    run_id="run",
    role="master",
    name="Valkey",
    version=(9, 1, 2),
    policy="noeviction",
    aof=True,
    aof_broken=False,
    cluster=False,
    used_memory=10,
    max_memory=0,
    loading=False,
)


# ------------------------------------------------------------------------------------------------------------------ preflight


def test_info_is_read_from_valkey_and_redis() -> None:
    valkey = (
        b"# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\nrun_id:abc\r\nrole:master\r\naof_enabled:1\r\n"
    )
    found = Described.parse(
        valkey + b"maxmemory_policy:noeviction\r\nused_memory:5\r\nmaxmemory:100\r\ncluster_enabled:0\r\n"
    )
    assert (found.name, found.version, found.run_id, found.aof, found.headroom) == (
        "Valkey",
        (9, 1, 2),
        "abc",
        True,
        0.95,
    )
    redis = Described.parse(
        b"redis_version:7.0.15\r\nrole:slave\r\nmaxmemory_policy:allkeys-lru\r\ncluster_enabled:1\r\n"
    )
    assert (redis.name, redis.version, redis.role, redis.policy) == ("Redis", (7, 0, 15), "slave", "allkeys-lru")
    assert (redis.cluster, redis.aof, redis.headroom) == (True, False, 1.0)


def test_a_good_server_is_not_refused() -> None:
    assert GOOD.refusals(OPTIONS) == []
    assert GOOD.warnings() == []


def test_server_that_the_url_does_not_fit_is_named_with_the_right_url() -> None:
    in_cluster, sentinel = dataclasses.replace(GOOD, cluster=True), dataclasses.replace(GOOD, sentinel=True)
    of_cluster = dataclasses.replace(OPTIONS, cluster=True)
    assert GOOD.misnamed(OPTIONS) == in_cluster.misnamed(of_cluster) == ""
    assert "redis+cluster://" in in_cluster.misnamed(OPTIONS)
    assert "redis://" in GOOD.misnamed(of_cluster)
    assert "redis+sentinel://" in sentinel.misnamed(OPTIONS)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"role": "slave"}, "not a primary"),
        ({"policy": "volatile-lru"}, "volatile-lru"),
        ({"aof": False}, "append-only"),
        ({"version": (7, 1)}, "too old"),
        ({"name": "Redis", "version": (6, 2, 9)}, "too old"),
    ],
)
def test_each_danger_is_a_reason_to_refuse(change: dict[str, object], reason: str) -> None:
    (found,) = dataclasses.replace(GOOD, **change).refusals(OPTIONS)  # type: ignore[arg-type]
    assert reason in found


def test_all_reasons_are_said_at_once() -> None:
    bad = dataclasses.replace(GOOD, role="slave", policy="allkeys-lru", aof=False)
    assert len(bad.refusals(OPTIONS)) == 3


def test_a_volatile_store_may_be_allowed() -> None:
    volatile = dataclasses.replace(OPTIONS, allow_volatile=True)
    assert dataclasses.replace(GOOD, aof=False).refusals(volatile) == []


def test_little_memory_left_is_a_warning() -> None:
    full = dataclasses.replace(GOOD, used_memory=95, max_memory=100)
    assert full.refusals(OPTIONS) == []
    assert "5%" in full.warnings()[0]


def test_a_clock_that_is_off_is_said() -> None:
    assert preflight.clock_refusals(0.9) == []
    assert "-1.5 s" in preflight.clock_refusals(-1.5)[0]


def test_a_resource_of_another_schema_is_refused() -> None:
    head = Head(7, Revision(1), Revision(1), True, 0, 0, 0, None, "marker", "9")
    assert "schema 9" in preflight.head_refusals("g/things", head)[0]
    assert "is not there" in preflight.head_refusals("g/things", Lost("no meta"))[0]


def test_the_library_is_known_by_its_code() -> None:
    listing = [b"library_name", b"sluice1", b"engine", b"LUA", b"functions", [], b"library_code", functions.CODE]
    assert preflight.library_refusals([listing]) == []
    listing[-1] = functions.CODE + b" "
    assert "function library is" in preflight.library_refusals([listing])[0]
    assert "not loaded" in preflight.library_refusals([])[0]


# ----------------------------------------------------------------------------------------------------------------- sessions


async def open_session(
    server: Server, *resources: str, epochs: dict[str, int] | None = None, first: bool = True
) -> lineage.Session:
    epochs = {} if epochs is None else epochs
    commands = {resource: Commands(resource) for resource in resources}
    return await lineage.open_session(patient(server.url), commands, epochs=epochs, first=first)


async def test_log_unchanged_since_its_last_process_is_continued(shared_server: Server, resource: str) -> None:
    await install(shared_server, resource)
    session = await open_session(shared_server, resource)
    assert not session.fenced
    assert (session.run_id, session.refusals, session.missing) == (shared_server.info("run_id"), [], {})
    assert abs(session.clock.now_ms() - session.heads[resource].now_ms) < 5000
    await session.close("done")
    assert "done" in await session.broken()


async def test_a_log_of_another_process_is_taken_over_under_a_higher_epoch(
    shared_server: Server, resource: str
) -> None:
    other = f"other.{resource}"
    await install(shared_server, resource, other)
    forget(shared_server)
    before = int(shared_server("HGET", Commands(resource).keys.meta, "epoch"))
    epochs = {resource: before + (1 << 30)}
    session = await open_session(shared_server, resource, other, epochs=epochs)
    assert session.fenced
    epoch = session.heads[resource].epoch
    assert before + (1 << 30) < epoch
    assert session.heads[resource].last == keys.revision(f"{epoch}-0")
    assert session.heads[other].epoch < before + (1 << 30)
    assert epochs == {resource: epoch, other: session.heads[other].epoch}
    await session.close("done")
    again = await open_session(shared_server, resource, epochs=epochs)
    assert not again.fenced
    await again.close("done")


async def test_a_log_below_an_epoch_that_was_met_elsewhere_is_raised_above_it(
    shared_server: Server, resource: str
) -> None:
    """A second primary was followed for a while: what it told lies above all that this log would tell."""
    await install(shared_server, resource)
    met = int(shared_server("HGET", Commands(resource).keys.meta, "epoch")) + 5
    session = await open_session(shared_server, resource, epochs={resource: met})
    assert session.fenced
    assert session.heads[resource].epoch > met
    await session.close("done")


async def test_first_session_is_refused_for_missing_parts_and_later_ones_not(
    shared_server: Server, resource: str
) -> None:
    await install(shared_server, resource)
    with pytest.raises(Rejected, match="nowhere"):
        await open_session(shared_server, resource, f"nowhere.{resource}")
    session = await open_session(shared_server, resource, f"nowhere.{resource}", first=False)
    assert list(session.missing) == [f"nowhere.{resource}"]
    assert list(session.heads) == [resource]
    await session.close("done")


async def test_a_session_ends_with_any_of_its_connections(shared_server: Server, resource: str) -> None:
    await install(shared_server, resource)
    for which in ("reads", "writes", "bulk"):
        session = await open_session(shared_server, resource)
        shared_server("CLIENT", "KILL", "ID", getattr(session, which).client_id)
        assert "broke" in await session.broken()
        await session.close("done")


async def test_refused_sessions_leave_no_connections_behind(shared_server: Server, resource: str) -> None:
    def connections() -> int:
        clients: bytes = shared_server("CLIENT", "LIST")
        return clients.count(b"name=sluice-")

    before = connections()
    for _ in range(3):
        with pytest.raises(Rejected):
            await open_session(shared_server, resource)
    await eventually(lambda: connections() <= before)


async def test_loading_store_is_only_waited_for_and_used_once_it_has_loaded(
    shared_server: Server, resource: str, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it says that its append-only file is off (tried on Valkey 9.1.2, with a file that takes seconds to load)."""
    await install(shared_server, resource)
    options, parse, loads = patient(shared_server.url), preflight.Server.parse, True

    def loading(text: bytes) -> preflight.Server:
        if loads:
            text = text.replace(b"loading:0", b"loading:1", 1).replace(b"aof_enabled:1", b"aof_enabled:0")
        return parse(text)

    monkeypatch.setattr(preflight.Server, "parse", loading)
    assert await administration.check(options, [resource]) == ["the store is loading its data"]
    for command in (administration.init, administration.info):
        with pytest.raises(Rejected, match=r"^the store is loading its data$"):
            await command(options, [resource])
    stores = await opening(shared_server, resource, wait=False, monitor_seconds=600.0)
    await eventually(lambda: stores.why_not_ready() == "the store is loading its data")
    loads = False
    await stores.ready()
    assert stores.store_state() is None


@pytest_asyncio.fixture
async def serving(own_server: Server, resource: str) -> StoreOptions:
    """As the user who serves, on a store that the administrator has installed."""
    await install(own_server, resource)
    own_server("ACL", "SETUSER", rights.SERVING_USER, "reset", "on", ">pw", *rights.SERVING.split())
    return patient(own_server.url, username=rights.SERVING_USER, password="pw")


async def test_serving_user_may_do_all_that_serving_needs(
    own_server: Server, resource: str, serving: StoreOptions
) -> None:
    forget(own_server)
    session = await lineage.open_session(serving, {resource: Commands(resource)}, epochs={}, first=True)
    library, epoch = Commands(resource), b"%d" % session.heads[resource].epoch
    change = functions.Mutation(b"a", b"-", b"t.1", b"u", value("a"))
    assert (await session.writes.call(library.change(epoch, b"99999999999999", change)))[0] == b"OK"
    assert (await session.writes.call(library.batch(epoch, b"99999999999999", [change, change])))[0] == b"OK"
    functions.touched(await session.writes.call(library.touch))
    assert await session.writes.call(durability.wait(0)) == 0
    assert functions.in_step(await session.reads.call(library.head_in_step)) == 0
    await session.bulk.call(library.floor(session.heads[resource].last, least_ms=0, keep=0))
    for question in (
        library.range(b"0-0", count=1, size=1),
        library.scan(b"0", count=1),
        library.digest(b"0", count=1),
    ):
        assert (await session.bulk.call(question))[0] == b"OK"
    suspects = {(session.run_id, session.writes.client_id)}
    await lineage.rule_out(session, suspects, 0)
    assert not suspects
    await session.close("done")
    stores = await open_stores(serving, {resource: index_func})
    await stores.ready()
    write = Write(Key("b"), value("b"), Revision(0), "uid")
    assert (await stores[resource].commit(write, dry_run=False)).key == "b"
    await stores.close()
    assert await administration.check(serving, [resource]) == NOT_ASKED
    assert len(await administration.info(serving, [resource])) == 2


OTHERS = (
    "FLUSHALL", "FLUSHDB", "CONFIG GET maxmemory", "CONFIG SET appendonly no", "CONFIG REWRITE", "DEBUG RELOAD", "SHUTDOWN NOSAVE",
    "REPLICAOF NO ONE", "FAILOVER", "SAVE", "BGSAVE", "BGREWRITEAOF", "FUNCTION FLUSH", "FUNCTION DELETE sluice1", "FUNCTION DUMP",
    "SCRIPT FLUSH", "ACL LIST", "ACL SETUSER sluice +@all", "MONITOR", "KEYS *", "SWAPDB 0 1", "EVAL return(1) 0", "CLIENT LIST",
    "CLIENT PAUSE 100", "MODULE LIST", "SLOWLOG RESET", "LATENCY RESET", "SUBSCRIBE a", "PUBLISH a b",
    "DEL OURS", "UNLINK OURS", "EXPIRE OURS 1", "RENAME OURS OURS2", "COPY OURS OURS2", "MOVE OURS 1", "DUMP OURS", "RESTORE OURS 0 x",
    "SET OURS x", "XDEL OURS 1-1", "XSETID OURS 9-9", "HINCRBY OURS a 1", "HSETNX OURS a 1", "LPUSH OURS a",
    "SET other x", "HSET other a b", "HGET other a", "XADD other * a b", "XREAD STREAMS other 0", "GET other",
)  # fmt: skip


async def test_serving_user_may_do_nothing_else(resource: str, serving: StoreOptions) -> None:
    for command in OTHERS:
        connection = await Connection.open(serving, "test")
        with pytest.raises(Rejected, match="NOPERM"):
            await connection.call(pipeline.pack(*command.replace("OURS", Commands(resource).keys.meta).split()))
        await connection.close()


@pytest.mark.parametrize(
    ("by_hand", "answer"),
    [
        ("HSET meta last 9-9", b"FOREIGN"),
        ("HDEL meta init", b"FOREIGN"),
        ("HDEL meta count", b"LOST"),
        ("HSET meta epoch 5", b"EPOCH"),
        ("XADD log 99999999999999-1 k b", b"FOREIGN"),
        ("HSET revisions z 1-1", b"LOST"),
        ("HDEL revisions a", b"LOST"),
        ("HDEL objects a", b"LOST"),
    ],
)
async def test_manual_write_of_the_serving_user_stops_the_next_write(
    own_server: Server, resource: str, serving: StoreOptions, by_hand: str, answer: bytes
) -> None:
    """The store has no way to allow a command to functions alone (docs/storage.md)."""

    def create(name: str) -> functions.Mutation:
        return functions.Mutation(name.encode(), b"-", f"{name}.1".encode(), b"u", value(name))

    forget(own_server)
    session = await lineage.open_session(serving, {resource: Commands(resource)}, epochs={}, first=True)
    library, epoch = Commands(resource), b"%d" % session.heads[resource].epoch
    assert (await session.writes.call(library.change(epoch, b"99999999999999", create("a"))))[0] == b"OK"
    command, key, *rest = by_hand.split()
    connection = await Connection.open(serving, "test")
    await connection.call(pipeline.pack(command, getattr(library.keys, key), *rest))
    await connection.close()
    assert (await session.writes.call(library.change(epoch, b"99999999999999", create("b"))))[0] == answer
    await session.close("done")


@pytest.mark.parametrize("right", ["hset", "hdel"])
async def test_nothing_is_in_the_log_that_could_not_be_written_down(
    own_server: Server, resource: str, serving: StoreOptions, right: str
) -> None:
    library, change = Commands(resource), functions.Mutation(b"a", b"-", b"t.1", b"u", value("a"))
    connection = await Connection.open(serving, "test")
    epoch = b"%d" % functions.head(await connection.call(library.head)).epoch
    own_server("ACL", "SETUSER", rights.SERVING_USER, f"-{right}")
    before = own_server("XLEN", library.keys.log)
    for command in (
        library.change(epoch, b"99999999999999", change),
        library.batch(epoch, b"99999999999999", [change, change]),
        library.fence("another", int(epoch) + 1),
    ):
        with pytest.raises(Rejected, match="NOPERM"):
            await connection.call(command)
    assert own_server("XLEN", library.keys.log) == before
    own_server("ACL", "SETUSER", rights.SERVING_USER, f"+{right}")
    assert (await connection.call(library.change(epoch, b"99999999999999", change)))[0] == b"OK"
    await connection.close()


async def test_init_refuses_the_serving_user(own_server: Server, resource: str, serving: StoreOptions) -> None:
    own_server("FUNCTION", "FLUSH")
    with pytest.raises(Rejected, match="NOPERM"):
        await administration.init(serving, [resource])


# ---------------------------------------------------------------------------------------------------------- administrator


async def test_init_creates_what_is_missing_and_says_so(own_server: Server) -> None:
    options = patient(own_server.url)
    loaded, made = await administration.init(options, ["g/things"])
    assert "loaded" in loaded
    assert made == "g/things: created"
    assert await administration.init(options, ["g/things", "g/others"]) == [
        "g/things: already there",
        "g/others: created",
    ]


async def test_init_replaces_another_version_of_the_library(own_server: Server) -> None:
    options = patient(own_server.url)
    await administration.init(options, [])
    own_server("FUNCTION", "LOAD", "REPLACE", functions.CODE + b"\n")
    assert "loaded" in (await administration.init(options, []))[0]
    assert await administration.check(options, []) == []


async def test_init_refuses_what_is_half_there_and_creates_the_rest(own_server: Server) -> None:
    options = patient(own_server.url)
    await install(own_server, "g/things")
    own_server("DEL", Commands("g/things").keys.log)
    with pytest.raises(InitRefused, match="g/things is half there"):
        await administration.init(options, ["g/things", "g/others"])
    assert await administration.check(options, ["g/others"]) == []


async def test_init_warns_of_dangerous_settings_and_refuses_a_replica(own_server: Server) -> None:
    options = patient(own_server.url)
    own_server("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    assert any(line.startswith("warning: maxmemory-policy") for line in await administration.init(options, []))
    own_server("REPLICAOF", "127.0.0.1", "1")
    with pytest.raises(Rejected, match="not a primary"):
        await administration.init(options, ["g/things"])


async def test_check_lists_everything_that_is_wrong(own_server: Server) -> None:
    options = patient(own_server.url)
    assert await administration.check(options, ["g/things"]) == [
        "the function library is not loaded: run `sluice store init` if it never was, else restore the store"
    ]
    await install(own_server, "g/things")
    assert await administration.check(options, ["g/things"]) == []
    own_server("HSET", Commands("g/things").keys.meta, "schema", "9")
    own_server("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
    own_server("CONFIG", "SET", "appendonly", "no")
    own_server("CONFIG", "SET", "maxmemory", own_server.info("used_memory"))
    found = await administration.check(options, ["g/things", "g/others"])
    for part in ("volatile-lru", "append-only", "schema 9", "g/others is not there", "warning: only "):
        assert any(part in line for line in found), part
    assert len(found) == 5


NOT_ASKED = [
    "warning: may not ask: appendfsync and no-appendfsync-on-rewrite unknown",
    "warning: may not ask: the rights of the user sluice unknown",
]
"""The warnings that the serving user always gets: it may not ask."""


async def test_init_and_check_warn_of_late_disk_writes_where_permitted(
    own_server: Server, resource: str, serving: StoreOptions
) -> None:
    options = patient(own_server.url)
    own_server("CONFIG", "SET", "appendfsync", "everysec", "no-appendfsync-on-rewrite", "yes")
    for command in (administration.init, administration.check):
        policy, rewrite = [line for line in await command(options, [resource]) if line.startswith("warning: ")]
        assert "appendfsync is everysec" in policy
        assert "no-appendfsync-on-rewrite is on" in rewrite
    assert await administration.check(dataclasses.replace(options, allow_volatile=True), [resource]) == []
    assert await administration.check(serving, [resource]) == NOT_ASKED


async def test_check_names_the_missing_rights_of_the_serving_user(
    own_server: Server, resource: str, serving: StoreOptions
) -> None:
    options = patient(own_server.url)
    assert await administration.check(options, [resource]) == []
    own_server("ACL", "SETUSER", rights.SERVING_USER, "-xread", "-client|kill", "-hset")
    assert await administration.check(options, [resource]) == [
        "warning: the user sluice of the store may not do all that serving needs: it lacks xread, client|kill, hset"
    ]
    assert await administration.check(serving, [resource]) == NOT_ASKED
    own_server("ACL", "SETUSER", rights.SERVING_USER, "resetkeys")
    [warning] = await administration.check(options, [resource])
    assert "fcall, fcall_ro, xread" in warning
    own_server("ACL", "DELUSER", rights.SERVING_USER)
    assert await administration.check(options, [resource]) == []


async def test_check_reports_where_a_log_breaks_off(own_server: Server) -> None:
    await install(own_server, "g/things", "g/others")
    connection = await Connection.open(patient(own_server.url), "test")
    library = Commands("g/things")
    head = functions.head(await connection.call(library.head))
    for at in range(4):
        change = functions.Mutation(b"k%d" % at, b"-", b"t.%d" % at, b"u", value("k"))
        await connection.call(library.change(b"%d" % head.epoch, b"99999999999999", change))
    await connection.close()
    assert await administration.check(patient(own_server.url), ["g/things", "g/others"]) == []
    own_server("XDEL", library.log, f"{head.epoch}-2")
    [warning] = await administration.check(patient(own_server.url), ["g/things", "g/others"])
    where = f"{head.epoch}-3 follows {head.epoch}-2, not {head.epoch}-1"
    assert warning.startswith(f"warning: somebody else changed the log of g/things: {where}.")


async def test_info_describes_every_resource(own_server: Server) -> None:
    await install(own_server, "g/things")
    connection = await Connection.open(patient(own_server.url), "test")
    library = Commands("g/things")
    head = functions.head(await connection.call(library.head))
    change = functions.Mutation(b"a", b"-", b"t.1", b"u", b"12345")
    await connection.call(library.change(b"%d" % head.epoch, b"99999999999999", change))
    await connection.close()
    server, things, others = await administration.info(patient(own_server.url), ["g/things", "g/others"])
    assert re.fullmatch(
        r"(Valkey|Redis) \d+\.\d+\.\d+, master, durability primary, 0 replicas in step \(0 needed\)", server
    )
    assert things == (
        f"g/things: schema 2, epoch {head.epoch}, last {head.epoch}-1 (resourceVersion {head.last + 1}), "
        f"floor {head.epoch}-0 (resourceVersion {head.last}), 1 objects, 5 bytes"
    )
    assert others == "g/others: not there"


async def test_administrator_without_a_server_gets_an_error(tmp_path: object) -> None:
    options = patient(f"unix://{tmp_path}/nobody")
    for command in (administration.init, administration.check, administration.info):
        with pytest.raises(Rejected, match="no connection"):
            await command(options, [])
