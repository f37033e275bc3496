"""A store on several primaries: each resource is followed to the owner of its slot, and the loss of one primary stops no other."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import itertools
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from apiserver import metrics
from apiserver.config.store_address import Node
from apiserver.serving import pki
from apiserver.storage import patience
from apiserver.storage.bootstrap import follow_chain
from apiserver.storage.errors import OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands, Lost, head
from apiserver.storage.operations import administration, loading, rights
from apiserver.storage.operations.loading import Carried
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Rejected
from apiserver.storage.primaries import cluster as clusters
from apiserver.storage.primaries.cluster import View
from apiserver.storage.store import Store, Stores, Write
from apiserver.storage.upkeep import Upkeep
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.scope import Scope
from tests.fixtures.clusters import Cluster, Member, free_port_pair, resources_of, slot_of_resource
from tests.fixtures.processes import free_port
from tests.fixtures.proxy import Proxy
from tests.fixtures.sentinels import until
from tests.fixtures.valkey import PASSWORD, Open, Server, eventually, index_func, patient, value
from tests.unit.storage.test_store import Ear

_ORDER = itertools.count()


@pytest.fixture(scope="session")
def _shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("c"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def cluster(_shared: Cluster) -> Iterator[Cluster]:
    """Three primaries. No command of any test may ever name keys of two slots."""
    yield _shared
    for member in _shared.living:
        assert b"errorstat_CROSSSLOT" not in member("INFO", "errorstats")


@pytest.fixture
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For tests that kill nodes or add some."""
    made = Cluster(tmp_path_factory.mktemp("c"))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def replicated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three primaries with a replica each."""
    made = Cluster(tmp_path_factory.mktemp("c"), replicas=1)
    made.start()
    yield made
    made.stop()


@pytest_asyncio.fixture
async def behind_tls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Cluster, Path]]:
    """Three primaries that announce a proxy each, which speaks TLS to clients; the file of its authority."""
    folder = tmp_path_factory.mktemp("c")
    kit = pki.kit(folder, hosts=["127.0.0.1"], user="x", groups=[], now=dt.datetime.now(dt.UTC))
    authority = folder / "authority.pem"
    authority.write_bytes(kit.ca_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "serving.crt", folder / "serving.key")
    async with contextlib.AsyncExitStack() as stack:
        members = []
        for number in range(3):
            own = free_port_pair()
            proxy = Proxy(folder / f"n{number}" / "s", context=context)
            await proxy.start()
            stack.push_async_callback(proxy.stop)
            announced = {"cluster_announce_port": str(proxy.port), "cluster_announce_bus_port": str(own + 10_000)}
            members.append(Member(folder / f"n{number}", port=str(own), **announced))
        made = Cluster(folder, members=members)
        stack.callback(made.stop)
        await asyncio.to_thread(made.start)
        yield made, authority


def alone(url: str, **options: Any) -> StoreOptions:
    """The options for primaries without replicas, of which none can confirm a write."""
    return patient(url, durability="primary", **options)


def one_on_each() -> list[str]:
    """Three resources: one on each of the first primaries."""
    names = f"test{next(_ORDER)}.cluster.example.com"
    return [resources_of(*Cluster.share(number), names=names)[0] for number in range(3)]


async def create(store: Store, name: str) -> Revision:
    return (await store.commit(Write(Key(name), value(name), Revision(0), "u"), dry_run=False)).revision


async def created(store: Store, name: str) -> Revision:
    """Create an object as soon as the store can."""
    while True:
        try:
            return await create(store, name)
        except Unavailable:
            await asyncio.sleep(0.005)


class Load:
    """Creates objects one after the other until it is stopped, from one server; a watch sees them at another."""

    def __init__(self, writes: Store, reads: Store) -> None:
        self.acknowledged: dict[str, Revision] = {}
        self.unknown: set[str] = set()
        self.refused: list[str] = []
        self.ear = Ear()
        self.watch = reads.watch(after=reads.applied, scope=Scope(), sink=self.ear)
        assert self.watch.join()
        self._store = writes

    async def run(self) -> None:
        for number in itertools.count():
            name = f"n{number}"
            try:
                self.acknowledged[name] = await create(self._store, name)
            except Unavailable as error:
                self.refused.append(str(error))
                await asyncio.sleep(0.005)
            except (OutcomeUnknown, asyncio.CancelledError) as error:
                self.unknown.add(name)
                if isinstance(error, asyncio.CancelledError):
                    raise

    async def goes_on(self) -> None:
        """Wait until further writes are acknowledged."""
        until = len(self.acknowledged) + 20
        await eventually(lambda: len(self.acknowledged) >= until)

    async def check(self, *stores: Store) -> None:
        """Every acknowledged write is there under its version, nothing refused is, and the watch got all of it in order."""
        for store in stores:
            await barrier(store)
            held = {entry.key: entry.revision for entry in store.view().scan()}
            assert self.acknowledged.items() <= held.items()
            assert held.keys() - self.acknowledged.keys() <= self.unknown
        await eventually(lambda: len(self.ear.events) >= len(held))
        seen = [event.entry.revision for event in self.ear.events]
        assert seen == sorted(held.values())
        assert self.watch.wake is None


@contextlib.asynccontextmanager
async def loaded(writes: Store, reads: Store) -> AsyncIterator[Load]:
    load = Load(writes, reads)
    running = asyncio.create_task(load.run())
    try:
        await load.goes_on()
        yield load
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def barrier(store: Store) -> Revision:
    while True:
        try:
            return await store.barrier()
        except Unavailable:
            await asyncio.sleep(0.005)


async def fences(cluster: Cluster, resource: str) -> int:
    """The takeovers that the log holds, beside the entry of its creation. Fails for a chain that is not whole."""
    owner, commands = cluster.owner(slot_of_resource(resource)), Commands(resource)
    connection = await Connection.open(patient(owner.tcp_url), "test")
    try:
        await follow_chain(connection, commands, head(await connection.call(commands.head)))
    finally:
        await connection.close()
    entries = owner("XRANGE", commands.keys.log, "-", "+")
    return [fields[3] for _, fields in entries].count(b"9") - 1


async def two_servers(cluster: Cluster, opening: Open, *resources: str, **options: Any) -> tuple[Stores, Stores]:
    await administration.init(alone(cluster.url), resources)
    if len(cluster.members) == 3:
        options["durability"] = "primary"
    return await opening(cluster.url, *resources, **options), await opening(cluster.url, *resources, **options)


# ---------------------------------------------------------------------------------------------------------------------- routes


def test_slot_is_that_of_the_keys() -> None:
    """The slots of the design's measurements, which Valkey itself gave."""
    names = ("resourceslices", "resourceclaims", "deviceclasses")
    slots = [clusters.slot_of(f"resource.sluice.dev/{name}") for name in names]
    assert slots == [slot_of_resource(f"resource.sluice.dev/{name}") for name in names]
    assert clusters.slot_of("resource.sluice.dev/deviceclasses") == 4195


async def test_each_resource_is_served_by_the_owner_of_its_slot(cluster: Cluster, opening: Open) -> None:
    resources = one_on_each()
    first, second = await two_servers(cluster, opening, *resources)
    for member, resource in zip(cluster.members, resources, strict=True):
        revision = await create(first[resource], "a")
        assert await second[resource].barrier() == revision
        assert member("EXISTS", Commands(resource).keys.log) == 1
    assert first.store_state() is first.why_not_ready() is None


async def test_cluster_behind_tls_is_found_from_one_node_and_written(
    behind_tls: tuple[Cluster, Path], opening: Open
) -> None:
    cluster, authority = behind_tls
    resources = one_on_each()
    seed = cluster.url.replace("redis+", "rediss+", 1).partition(",")[0]
    await administration.init(alone(seed, ca_file=authority), resources)
    first = await opening(seed, *resources, durability="primary", ca_file=authority)
    second = await opening(seed, *resources, durability="primary", ca_file=authority)
    for member, resource in zip(cluster.members, resources, strict=True):
        revision = await create(first[resource], "a")
        assert await second[resource].barrier() == revision
        assert member("EXISTS", Commands(resource).keys.log) == 1
    with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
        await administration.check(alone(seed), resources)


@pytest.mark.parametrize("way", ["move", "move_key_by_key"], ids=["atomic", "key by key"])
async def test_moved_slot_loses_nothing_and_starts_one_epoch(cluster: Cluster, opening: Open, way: str) -> None:
    resources = one_on_each()
    moving, other = resources[0], resources[1]
    first, second = await two_servers(cluster, opening, *resources)
    watch = second[other].watch(after=second[other].applied, scope=Scope(), sink=Ear())
    assert watch.join()
    async with loaded(first[moving], second[moving]) as load:
        for moves, target in enumerate((cluster.members[1], cluster.members[2], cluster.members[0]), 1):
            slot = slot_of_resource(moving)
            if way == "move":
                await asyncio.to_thread(cluster.move, [slot], target)
            else:
                await asyncio.to_thread(cluster.move_key_by_key, slot, target, pause=0.05)
            await load.goes_on()
            await create(first[other], f"meanwhile {moves}")
            await barrier(second[moving])
            assert await fences(cluster, moving) == moves
    await load.check(first[moving], second[moving])
    assert await fences(cluster, other) == 0
    assert watch.wake is None


async def test_slot_that_moves_without_traffic_is_followed(cluster: Cluster, opening: Open) -> None:
    resource = one_on_each()[0]
    [stores, _] = await two_servers(cluster, opening, resource)
    followed = metrics.STORE_FAILOVERS.labels("cluster").value
    before = await create(stores[resource], "a")
    watch = stores[resource].watch(after=before, scope=Scope(), sink=(ear := Ear()))
    assert watch.join()
    await asyncio.to_thread(cluster.move, [slot_of_resource(resource)], cluster.members[2])
    await eventually(lambda: stores[resource].applied > before and stores.store_state() is None)  # the fence came
    revision = await created(stores[resource], "b")
    await eventually(lambda: [event.revision for event in ear.events] == [revision])
    assert watch.wake is None
    assert metrics.STORE_FAILOVERS.labels("cluster").value >= followed + 1


async def test_session_outlives_the_checks_of_its_server(
    cluster: Cluster, opening: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The checks of the server, of memory against the store, and of the slot's owner."""
    monkeypatch.setattr(clusters, "FOLLOW_SECONDS", 0.02)
    resource = one_on_each()[0]
    [stores, _] = await two_servers(cluster, opening, resource, monitor_seconds=0.05, check_seconds=0.05)
    done = metrics.CONSISTENCY_CHECKS.labels(metrics.resource_label(resource), "success")
    monitored = count_calls(monkeypatch, Upkeep, "monitor")
    followed = count_calls(monkeypatch, clusters.Cluster, "left")
    await create(stores[resource], "a")
    before = done.value
    await eventually(lambda: len(monitored) >= 3 and len(followed) >= 3 and done.value >= before + 2)
    assert stores.store_state() is None
    assert "store not available" not in caplog.text


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[None]:
    """A list that grows with every call of a method."""
    calls, method = list[None](), getattr(owner, name)

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(None)
        return method(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


async def test_resource_is_added_and_removed_while_others_go_on(cluster: Cluster, opening: Open) -> None:
    served, missing, present = one_on_each()
    await administration.init(alone(cluster.url), [served, present])
    stores = await opening(cluster.url, served, durability="primary")
    await stores.add(present, index_func)
    with pytest.raises(Lost):
        await stores.add(missing, index_func)
    await stores.add(missing, index_func, creates=True)
    for resource in (served, present, missing):
        await create(stores[resource], "a")
    await stores.remove(present)
    assert set(stores) == {served, missing}
    await create(stores[served], "b")
    await stores.add(present, index_func)
    assert [entry.key for entry in stores[present].view().scan()] == ["a"]


async def test_creatable_resource_is_created_beside_those_of_other_primaries(cluster: Cluster, opening: Open) -> None:
    there, new, _ = one_on_each()
    await administration.init(alone(cluster.url), [there])
    stores = await opening(cluster.url, there, new, creatable={new}, durability="primary")
    await create(stores[new], "a")


async def test_serving_user_may_do_all_that_a_cluster_needs(cluster: Cluster, opening: Open) -> None:
    resource = one_on_each()[0]
    await administration.init(alone(cluster.url), [resource])
    for member in cluster.members:
        member("ACL", "SETUSER", rights.SERVING_USER, "reset", "on", ">pw", *rights.SERVING.split())
    url = cluster.url.replace(f"//:{PASSWORD.replace(' ', '%20')}@", f"//{rights.SERVING_USER}:pw@")
    store = (await opening(url, resource, durability="primary"))[resource]
    await create(store, "a")
    await asyncio.to_thread(cluster.move, [slot_of_resource(resource)], cluster.members[1])
    await created(store, "b")
    for member in cluster.members:
        assert b"errorstat_NOPERM" not in member("INFO", "errorstats")
    told = await administration.check(alone(url), [resource])
    assert [line for line in told if "may not ask" not in line] == []
    assert await administration.check(alone(cluster.url), [resource]) == []


# ---------------------------------------------------------------------------------------------------------------------- faults


async def test_primary_that_is_down_takes_only_its_own_resources_along(own_cluster: Cluster, opening: Open) -> None:
    resources = one_on_each()
    first, second = await two_servers(own_cluster, opening, *resources)
    before = {resource: await create(first[resource], "before") for resource in resources}
    down, gone = own_cluster.members[1], resources[1]
    watch = second[gone].watch(after=before[gone], scope=Scope(), sink=(ear := Ear()))
    assert watch.join()
    down.kill()
    for stores in (first, second):
        await eventually(stores.store_state)
        state = stores.store_state() or ""
        assert f"127.0.0.1:{down.port}" in state
        assert gone in state
        assert not any(other in state for other in resources if other != gone)
        assert stores.why_not_ready() is None
    with pytest.raises(Unavailable):
        await create(first[gone], "refused")
    with pytest.raises(Unavailable):
        await second[gone].barrier()
    assert [entry.key for entry in first[gone].view().scan()] == ["before"]
    for resource in (resources[0], resources[2]):
        assert await second[resource].barrier() == before[resource]
        await create(first[resource], "meanwhile")
    [fault] = await administration.check(alone(own_cluster.url), resources)
    assert fault.startswith(f"127.0.0.1:{down.port}: no connection")
    await asyncio.to_thread(down.start)
    revision = await created(first[gone], "after")
    await eventually(lambda: [event.revision for event in ear.events] == [revision])
    assert watch.wake is None
    await eventually(lambda: first.store_state() is second.store_state() is None)


async def test_cluster_that_is_down_as_a_whole_is_waited_for(own_cluster: Cluster, opening: Open) -> None:
    """With full coverage the nodes answer CLUSTERDOWN while one of them is down."""
    resources = one_on_each()
    first, _ = await two_servers(own_cluster, opening, *resources)
    for member in own_cluster.members:
        member("CONFIG", "SET", "cluster-require-full-coverage", "yes")
    before = await create(first[resources[0]], "a")
    own_cluster.members[1].kill()
    await eventually(lambda: "CLUSTERDOWN" in (first.store_state() or ""))
    for resource in resources:
        with pytest.raises(Unavailable):
            await create(first[resource], "refused")
    assert [entry.key for entry in first[resources[0]].view().scan()] == ["a"]
    await asyncio.to_thread(own_cluster.members[1].start)
    for resource in resources:
        await created(first[resource], "b")
    assert [entry.key for entry in first[resources[0]].view_at(before).scan()] == ["a"]


async def test_durability_of_all_counts_replicas_that_have_failed(replicated: Cluster, opening: Open) -> None:
    resources = one_on_each()
    await administration.init(patient(replicated.url), resources)
    stores = await opening(replicated.url, *resources, durability="all", monitor_seconds=0.1)
    await create(stores[resources[0]], "a")
    replica = replicated.members[3]
    replica.kill()
    await asyncio.to_thread(until, lambda: b"fail" in replicated.members[0]("CLUSTER", "NODES"))
    await eventually(lambda: "replicas in step" in (stores.store_state() or ""))
    await create(stores[resources[1]], "a")
    with pytest.raises(Unavailable):
        await create(stores[resources[0]], "refused")
    await asyncio.to_thread(replica.start)
    await created(stores[resources[0]], "again")


async def test_resource_of_a_primary_that_is_down_is_not_waited_for(
    own_cluster: Cluster, opening: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiserver.storage.store.JOIN_SECONDS", 0.2)
    served, gone, _ = one_on_each()
    await administration.init(alone(own_cluster.url), [served, gone])
    stores = await opening(own_cluster.url, served, durability="primary")
    own_cluster.members[1].kill()
    with pytest.raises(Unavailable, match="no connection"):
        await stores.add(gone, index_func)
    assert set(stores) == {served}
    await create(stores[served], "a")


async def test_new_primary_without_library_is_named_until_it_has_it(
    own_cluster: Cluster, opening: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clusters, "LIBRARY_SECONDS", 0.05)
    resource, other = one_on_each()[:2]
    [stores, _] = await two_servers(own_cluster, opening, resource, other)
    new = await asyncio.to_thread(own_cluster.add)
    await eventually(lambda: "a primary of the cluster cannot serve" in caplog.text)
    named = next(record for record in caplog.records if "cannot serve" in record.message)
    assert named.__dict__["node"] == f"127.0.0.1:{new.port}"
    assert "sluice store init" in named.__dict__["reason"]
    assert stores.store_state() is None  # nothing lies there yet
    [line] = await administration.check(alone(own_cluster.url), [resource, other])
    assert line.startswith(f"127.0.0.1:{new.port}: the function library is not loaded")

    await asyncio.to_thread(own_cluster.move, [slot_of_resource(resource)], new)
    await eventually(lambda: "the function library is not loaded" in (stores.store_state() or ""))
    assert (stores.store_state() or "").startswith(f"127.0.0.1:{new.port}: ")
    await create(stores[other], "goes on")
    done = await administration.init(alone(own_cluster.url), [resource, other])
    assert any(line.startswith(f"127.0.0.1:{new.port}: function library") for line in done)
    await created(stores[resource], "a")
    assert await fences(own_cluster, resource) == 1


def _kill(cluster: Cluster, primary: Member, _replica: Member) -> None:
    primary.kill()


def _fail_over(_cluster: Cluster, _primary: Member, replica: Member) -> None:
    replica("CLUSTER", "FAILOVER")


def _take_over(_cluster: Cluster, _primary: Member, replica: Member) -> None:
    replica("CLUSTER", "FAILOVER", "TAKEOVER")


@pytest.mark.parametrize(
    "fault", [_kill, _fail_over, _take_over], ids=lambda fault: fault.__name__.strip("_").replace("_", " ")
)
async def test_promoted_replica_is_followed_in_one_new_epoch(
    replicated: Cluster, opening: Open, fault: Callable[[Cluster, Member, Member], None]
) -> None:
    resources = one_on_each()
    failing = resources[0]
    first, second = await two_servers(replicated, opening, *resources)
    primary, replica = replicated.members[0], replicated.members[3]
    async with loaded(first[failing], second[failing]) as load:
        await asyncio.to_thread(fault, replicated, primary, replica)
        await eventually(lambda: replica.info("role") == "master")
        if fault is _kill:
            await asyncio.to_thread(primary.start)  # as a replica, which the next writes need
        await load.goes_on()
        await create(first[resources[1]], "meanwhile")
        await barrier(second[failing])
    assert replicated.owner(slot_of_resource(failing)) is replica
    assert await fences(replicated, failing) == 1
    for stores in (first, second):
        await barrier(stores[failing])
    # The replica has confirmed every acknowledged write.
    views = [{e.key: e.revision for e in stores[failing].view().scan()} for stores in (first, second)]
    assert views[0] == views[1]
    assert load.acknowledged.items() <= views[0].items()


# ------------------------------------------------------------------------------------------------------------- administration


async def test_init_loads_the_library_on_every_primary_and_creates_once(own_cluster: Cluster) -> None:
    new = await asyncio.to_thread(own_cluster.add)
    resources = one_on_each()
    done = await administration.init(alone(own_cluster.url), resources)
    assert sum("function library" in line for line in done) == 4
    assert any(line.startswith(f"127.0.0.1:{new.port}: function library") for line in done)
    for member, resource in zip(own_cluster.members, resources, strict=False):
        assert f"127.0.0.1:{member.port}: {resource}: created" in done
    again = await administration.init(alone(own_cluster.url), resources)
    assert sorted(line.rpartition(": ")[2] for line in again) == ["already there"] * 3
    told = await administration.info(alone(own_cluster.url), resources)
    assert sum("Valkey" in line or "Redis" in line for line in told) == 4
    await patience.wait(alone(own_cluster.url), seconds=0, tell=print)


async def test_init_creates_nothing_while_a_primary_is_down(own_cluster: Cluster) -> None:
    resources = one_on_each()
    own_cluster.members[2].kill()
    with pytest.raises(Rejected, match=f"127.0.0.1:{own_cluster.members[2].port}: no connection"):
        await administration.init(alone(own_cluster.url), resources)
    assert own_cluster.members[0]("EXISTS", Commands(resources[0]).keys.meta) == 0


async def test_check_warns_of_a_cluster_that_one_primary_can_stop(cluster: Cluster) -> None:
    resources = one_on_each()
    await administration.init(alone(cluster.url), resources)
    cluster.members[1]("CONFIG", "SET", "cluster-require-full-coverage", "yes")
    try:
        [warning] = await administration.check(alone(cluster.url), resources)
    finally:
        cluster.members[1]("CONFIG", "SET", "cluster-require-full-coverage", "no")
    assert f"127.0.0.1:{cluster.members[1].port}: cluster-require-full-coverage is on" in warning


async def test_node_of_a_cluster_is_refused_under_a_plain_url(cluster: Cluster, opening: Open) -> None:
    url, resource = cluster.members[0].tcp_url, one_on_each()[0]
    for command in (administration.init, administration.check, administration.info):
        with pytest.raises(Rejected, match=r"a node of a cluster.*redis\+cluster://"):
            await command(patient(url), [resource])
    stores = await opening(url, resource, wait=False)
    await eventually(lambda: "redis+cluster://" in (stores.why_not_ready() or ""))
    assert cluster.members[0]("EXISTS", Commands(resource).keys.meta) == 0


async def test_server_outside_a_cluster_is_refused_under_its_url(opening: Open, tcp_server: Server) -> None:
    url = f"redis+cluster://:{PASSWORD.replace(' ', '%20')}@127.0.0.1:{tcp_server.settings['port']}"
    for command in (administration.init, administration.check, administration.info):
        with pytest.raises(Rejected, match=r"no node of a cluster.*redis://"):
            await command(patient(url), [])
    stores = await opening(url, "a/b", wait=False)
    await eventually(lambda: "no node of a cluster" in (stores.why_not_ready() or ""))


@pytest.fixture
def tcp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("v"), port=str(free_port()), bind="127.0.0.1")
    made.start()
    yield made
    made.stop()


async def test_objects_are_imported_and_exported_across_primaries(cluster: Cluster, opening: Open) -> None:
    resources = one_on_each()
    [stores, _] = await two_servers(cluster, opening, *resources)
    async with loading.opened(alone(cluster.url), resources) as load:
        for resource in resources:
            assert await load.put(resource, [Carried(Key("a"), "u", value("a"))]) == []
            found = [row async for rows in load.values(resource) for row in rows]
            assert found == [(Key("a"), value("a"))]
            assert await load.count(resource) == 1
    for resource in resources:
        await barrier(stores[resource])
        assert [entry.key for entry in stores[resource].view().scan()] == ["a"]


# ----------------------------------------------------------------------------------------------------------------- the views

A, B, C, D = (Node("127.0.0.1", port) for port in range(1, 5))


def row(first: int, last: int, *members: Node) -> list[Any]:
    return [first, last, *([node.host.encode(), node.port, b"id", []] for node in members)]


def test_answer_names_owners_and_replicas() -> None:
    view = View.parse([row(0, 9, A, C), row(10, 20, B)], A)
    assert [view.owner(slot) for slot in (0, 9, 10, 20, 21)] == [A, A, B, B, None]
    assert view.nodes == {A, B, C}


@pytest.mark.parametrize("host", [None, b"", b"?"])
def test_unknown_host_is_that_of_the_node_that_was_asked(host: bytes | None) -> None:
    assert View.parse([[0, 9, [host, 7, b"id", []]]], Node("h", 1)).owner(3) == Node("h", 7)


class Told(clusters.Cluster):
    """A cluster whose nodes say what the test lets them say."""

    def __init__(self, said: dict[Node, list[Any] | None]) -> None:
        super().__init__(patient("redis+cluster://127.0.0.1:1"))
        self.said = said
        self.asked: list[Node] = []

    async def call(self, node: Node, *commands: bytes) -> list[Any]:
        self.asked.append(node)
        if (said := self.said.get(node)) is None:
            raise Rejected("dead")
        return [said] * len(commands)


async def learnt(told: Told) -> Told:
    """Twice: the first answer names the nodes that the second question goes to."""
    for _ in range(2):
        await told.learn()
        told._learnt = -1.0
    return told


async def test_owner_is_the_node_that_most_nodes_name() -> None:
    new, old = [row(0, 9, B, A, C)], [row(0, 9, A, B, C)]
    told = await learnt(Told({A: old, B: new, C: new}))
    assert await told.owner(3) == B
    assert told.left(3, A) == B
    assert told.left(3, B) is None


async def test_owner_of_two_halves_is_the_one_that_claims_the_slot() -> None:
    told = await learnt(Told({A: [row(0, 9, B, A)], B: [row(0, 9, B, A)]}))
    told.said = {A: [row(0, 9, B, A)], B: [row(0, 9, A, B)]}
    await told.learn()
    assert [told.left(3, node) for node in (A, B)] == [None, None]
    told.said = {A: [row(0, 9, B, A)], B: [row(0, 9, B, A)]}
    assert await told.owner(3) == B


async def test_slot_without_primary_is_named() -> None:
    told = Told({A: [row(0, 9, A)]})
    with pytest.raises(Rejected, match="slot 10 of the cluster has no primary"):
        await told.owner(10)


async def test_hosts_of_the_url_are_asked_when_no_known_node_answers() -> None:
    told = await learnt(Told({A: [row(0, 9, B)], B: [row(0, 9, B)]}))
    assert told.asked == [A, B]
    told.said = {A: [row(0, 9, C)], C: [row(0, 9, C)]}
    assert await told.owner(3) == C
    assert told.asked[2:] == [B, A]


async def test_nodes_that_do_not_answer_are_named() -> None:
    with pytest.raises(Rejected, match=r"no node of the cluster answers \(127.0.0.1:1: dead\)"):
        await Told({}).owner(3)


def test_primaries_without_slots_are_known_from_shards() -> None:
    def member(port: int, role: str, health: str) -> list[Any]:
        told = {
            "id": b"i",
            "port": port,
            "tls-port": port + 10,
            "ip": b"10.0.0.1",
            "endpoint": b"?",
            "role": role.encode(),
        }
        told["health"] = health.encode()
        return [part for name, text in told.items() for part in (name.encode(), text)]

    shards = [
        [b"slots", [0, 9], b"nodes", [member(1, "master", "online")], b"id", b"x"],
        [b"slots", [], b"nodes", [member(2, "master", "online"), member(3, "replica", "online")], b"id", b"y"],
        [b"slots", [], b"nodes", [member(4, "master", "fail")], b"id", b"z"],
    ]
    for tls, port in ((False, 2), (True, 12)):
        found = clusters._shards(shards, A, tls=tls)
        assert [m.node for shard in found for m in shard.members if m.primary and not shard.slots] == [
            Node("10.0.0.1", port)
        ]
