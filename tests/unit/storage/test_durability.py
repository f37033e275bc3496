"""`--store-durability` with a real primary and two real replicas: what an acknowledged write is worth, and one in doubt has one outcome."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from apiserver import metrics
from apiserver.storage import durability
from apiserver.storage.errors import KeyExists, Moved, OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands
from apiserver.storage.operations import administration, rights
from apiserver.storage.options import StoreOptions
from apiserver.storage.store import Store, Write
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Entry, Key, Revision
from tests.fixtures.processes import free_port
from tests.fixtures.valkey import PASSWORD, Open, Server, eventually, follow, install, patient, value
from tests.unit.storage.conftest import Patience

ABSENT = Revision(0)
T = TypeVar("T")


Opened = Callable[..., Awaitable[Store]]


class Trio:
    """A primary with two replicas, behind an address that leads to the primary of the moment."""

    def __init__(self, folder: Path) -> None:
        self.servers = [
            Server(folder / f"v{number}", port=str(free_port()), bind="127.0.0.1", masterauth=PASSWORD)
            for number in range(3)
        ]
        self._address = folder / "a"
        for server in self.servers:
            server.start()
        self.primary = self.servers[0]
        for replica in self.replicas:
            follow(replica, self.primary)
        self._lead()

    @property
    def replicas(self) -> list[Server]:
        return [server for server in self.servers if server is not self.primary]

    @property
    def url(self) -> str:
        return self.primary.url.replace(str(self.primary.socket), str(self._address))

    def _lead(self) -> None:
        self._address.unlink(missing_ok=True)
        self._address.symlink_to(self.primary.socket)

    def signal(self, number: signal.Signals) -> None:
        """Stop or continue both replicas."""
        for replica in self.replicas:
            replica.signal(number)

    def fail_over(self, new: Server) -> None:
        """Kill the primary, promote a replica, and let the other one follow that as soon as it runs."""
        old, others = self.primary, [server for server in self.replicas if server is not new]
        old.kill()
        new("REPLICAOF", "NO", "ONE")
        self.servers.remove(old)
        self.primary = new
        self._lead()
        for other in others:
            other("REPLICAOF", "127.0.0.1", new.settings["port"])

    def stop(self) -> None:
        for server in self.servers:
            server.stop()


@pytest.fixture
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    made = Trio(tmp_path_factory.mktemp("t"))
    yield made
    made.stop()


@pytest_asyncio.fixture
async def opened(trio: Trio, resource: str, opening: Open) -> Opened:
    await install(trio.primary, resource)

    async def opened(mode: str = durability.REPLICA, **options: Any) -> Store:
        stores = await opening(trio.url, resource, durability=mode, replicas=lambda: 2, **options)
        return stores[resource]

    return opened


async def create(store: Store, key: str) -> Entry:
    return await store.commit(Write(Key(key), value(key), ABSENT, "uid"), dry_run=False)


async def at_last(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask as a client does that repeats what was certainly not done."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await ask()
            except Unavailable:
                await asyncio.sleep(0.01)


async def created_at_last(store: Store, key: str) -> Entry:
    return await at_last(lambda: create(store, key))


async def held_up(
    replicas: Sequence[Server], store: Store, ask: Callable[[], Coroutine[Any, Any, Entry]]
) -> asyncio.Task[Entry]:
    """Stop replicas and start a write. Return its task once the primary has executed it.

    Where the machine stands still for seconds, the primary has not heard of its replicas and refuses the write: it is started again.
    """
    while True:
        before = store.applied
        for replica in replicas:
            replica.signal(signal.SIGSTOP)
        writing = asyncio.create_task(ask())
        await eventually(partial(_begun, writing, store, before))
        if not writing.done() or not isinstance(writing.exception(), Unavailable):
            return writing
        for replica in replicas:
            replica.signal(signal.SIGCONT)
        await at_last(store.barrier)


def _begun(writing: asyncio.Task[Entry], store: Store, before: Revision) -> bool:
    return writing.done() or store.applied > before


def length(server: Server, resource: str) -> int:
    return int(server("XLEN", Commands(resource).keys.log))


def row(server: Server, resource: str, key: str) -> Revision | None:
    """The version of an object that a server holds."""
    found = server("HGET", Commands(resource).keys.revisions, key)
    return None if found is None else keys.revision(found.split()[0])


# ---------------------------------------------------------------------------------------------------------- acknowledgements


def test_default_waits_for_a_replica_only_where_sentinels_know_some() -> None:
    sentinels = StoreOptions(url="redis+sentinel://h:1,h:2/main")
    assert durability.of(sentinels) == durability.REPLICA
    assert durability.of(StoreOptions(url="redis://h")) == durability.PRIMARY
    assert durability.of(StoreOptions(url="redis://h", durability="replica")) == durability.REPLICA


def test_all_needs_each_known_replica_and_at_least_one() -> None:
    known = [0]
    need = durability.needed(StoreOptions(url="redis://h", durability="all", replicas=lambda: known[0]))
    assert need() == 1
    known[0] = 4
    assert need() == 4


def test_replicas_in_step_are_online_and_were_heard_lately() -> None:
    info = (
        b"# Replication\r\nrole:master\r\nconnected_slaves:4\r\n"
        b"slave0:ip=h,port=1,state=online,offset=14,lag=0,type=replica\r\n"
        b"slave1:ip=h,port=2,state=online,offset=14,lag=2\r\n"
        b"slave2:ip=h,port=3,state=online,offset=14,lag=3\r\n"
        b"slave3:ip=h,port=4,state=wait_bgsave,offset=0,lag=0\r\n"
        b"slave_repl_offset:7\r\n"
    )
    assert durability.in_step(durability.parse(info)) == 2


async def test_acknowledged_write_is_on_a_replica(trio: Trio, resource: str, opened: Opened) -> None:
    store = await opened()
    for number in range(50):
        entry = await created_at_last(store, f"k{number}")
        assert entry.revision in {row(replica, resource, f"k{number}") for replica in trio.replicas}


async def test_acknowledged_write_of_all_is_on_each_replica(trio: Trio, resource: str, opened: Opened) -> None:
    store = await opened(durability.ALL)
    for number in range(20):
        entry = await created_at_last(store, f"k{number}")
        assert {row(replica, resource, f"k{number}") for replica in trio.replicas} == {entry.revision}


async def test_acknowledged_writes_survive_the_primary_when_replicas_were_behind(
    trio: Trio, resource: str, opened: Opened
) -> None:
    """Both replicas stop in the middle of many writes, the primary dies, and the one that is ahead is promoted."""
    store = await opened()
    acknowledged: dict[str, Revision] = {}

    async def write(number: int) -> None:
        entry = await create(store, f"k{number}")
        acknowledged[entry.key] = entry.revision

    writes = [asyncio.create_task(write(number)) for number in range(3000)]
    await eventually(lambda: len(acknowledged) > 100)
    trio.signal(signal.SIGSTOP)
    before = length(trio.primary, resource)
    await asyncio.wait(writes, timeout=0.2)
    confirmed = dict(acknowledged)
    trio.primary.kill()
    trio.signal(signal.SIGCONT)
    assert before > len(confirmed)
    best = max(trio.replicas, key=lambda replica: int(replica.info("slave_repl_offset")))
    held = {key: row(best, resource, key) for key in confirmed}
    assert held == confirmed
    for task in writes:
        task.cancel()
    await asyncio.gather(*writes, return_exceptions=True)


async def test_unconfirmed_write_gets_an_unknown_outcome_and_the_next_ones_a_refusal(
    trio: Trio, resource: str, opened: Opened, patience: Patience
) -> None:
    store = await opened()
    await created_at_last(store, "a")
    patience(0.5)
    unconfirmed = metrics.STORE_UNCONFIRMED_WRITES.only.value
    writing = await held_up(trio.replicas, store, lambda: create(store, "b"))
    with pytest.raises(OutcomeUnknown, match="of 1 at the primary"):
        await writing
    assert metrics.STORE_UNCONFIRMED_WRITES.only.value == unconfirmed + 1
    executed = length(trio.primary, resource)
    with pytest.raises(Unavailable, match="of 1 at the primary"):
        await create(store, "c")
    with pytest.raises(Unavailable, match="of 1 at the primary"):
        await store.barrier()
    assert length(trio.primary, resource) == executed
    assert "of 1 at the primary" in (store.store_state() or "")
    patience(60.0)
    trio.signal(signal.SIGCONT)
    await created_at_last(store, "c")
    with pytest.raises(KeyExists):
        await created_at_last(store, "b")


async def test_consistent_reads_fail_while_no_replica_is_in_step(trio: Trio, opened: Opened) -> None:
    store = await opened()
    entry = await created_at_last(store, "a")
    assert await at_last(store.barrier) >= entry.revision
    trio.signal(signal.SIGSTOP)

    await _until(store, refused=True)
    assert store.view().get(Key("a")) is entry
    trio.signal(signal.SIGCONT)
    await _until(store, refused=False)


async def _until(store: Store, *, refused: bool) -> None:
    async with asyncio.timeout(60):
        while await _refused(store) is not refused:  # noqa: ASYNC110 - each look is a question to the store
            await asyncio.sleep(0.05)


async def _refused(store: Store) -> bool:
    try:
        await store.barrier()
    except Unavailable as error:
        return "replicas in step 0 of 1" in str(error)
    return False


async def test_write_without_replicas_is_refused_before_it_is_executed(
    own_server: Server, resource: str, opening: Open
) -> None:
    await install(own_server, resource)
    before = length(own_server, resource)
    store = (await opening(own_server, resource, durability="replica"))[resource]
    session = store._link.session
    assert session is not None
    for in_step in (0, 1):  # the store itself counts
        session.heard(in_step)
        with pytest.raises(Unavailable, match="replicas in step 0 of 1"):
            await create(store, "a")
    many = await asyncio.gather(*(create(store, f"k{number}") for number in range(9)), return_exceptions=True)
    assert {type(error) for error in many} == {Unavailable}
    assert length(own_server, resource) == before


async def test_consistent_reads_and_refusals_of_all_servers_wait_until_replicas_have_what_they_rest_on(
    trio: Trio, resource: str, opened: Opened, patience: Patience
) -> None:
    """Otherwise a failover could bring back an object for which a client got 404."""
    one, other = await opened(), await opened()
    held = await created_at_last(one, "a")
    patience(0.3)
    deleting = await held_up(trio.replicas, one, lambda: change(one, "delete", held))
    with pytest.raises(OutcomeUnknown):
        await deleting
    await eventually(lambda: other.applied > held.revision)
    for ask in (other.barrier(), change(other, "delete", held), create(other, "b")):
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await ask
    trio.signal(signal.SIGCONT)
    patience(60.0)
    assert await at_last(other.barrier) > held.revision
    with pytest.raises(Moved):
        await at_last(lambda: change(other, "delete", held))
    for replica in trio.replicas:
        await eventually(partial(_as_told, replica, resource, "a", "delete", held))


async def test_missing_replica_stops_writes_of_all_alone(trio: Trio, resource: str, opened: Opened) -> None:
    one, all_ = await opened(), await opened(durability.ALL)
    trio.replicas[1].kill()
    await created_at_last(one, "a")
    await eventually(lambda: "replicas in step 1 of 2" in (all_.store_state() or ""))
    with pytest.raises(Unavailable):
        await create(all_, "b")
    with pytest.raises(Unavailable):
        await all_.barrier()
    await at_last(one.barrier)
    trio.replicas[1].start()
    follow(trio.replicas[1], trio.primary)
    await created_at_last(all_, "b")


async def test_store_state_names_the_missing_right_to_wait(trio: Trio, resource: str, opening: Open) -> None:
    await install(trio.primary, resource)
    for server in trio.servers:
        server("ACL", "SETUSER", rights.SERVING_USER, "reset", "on", ">pw", *rights.SERVING.split(), "-wait")
    url = f"redis://{rights.SERVING_USER}:pw@127.0.0.1:{trio.primary.settings['port']}"
    stores = await opening(url, resource, durability="replica", wait=False)
    await eventually(lambda: "needs WAIT" in (stores.store_state() or ""))
    trio.primary("ACL", "SETUSER", rights.SERVING_USER, "+wait")
    await created_at_last(stores[resource], "a")


# ------------------------------------------------------------------------------------------------------------------- in doubt


async def change(store: Store, what: str, held: Entry) -> Entry:
    """One change of the object `a`, or the creation of `b`."""
    if what == "create":
        return await create(store, "b")
    data = value("a", "new") if what == "update" else None
    return await store.commit(Write(held.key, data, held.revision, "uid"), dry_run=False)


CHANGES = ("create", "update", "delete")


@pytest.mark.parametrize("what", CHANGES)
async def test_write_that_was_seen_and_lost_happens_once_at_the_next_primary(
    trio: Trio, resource: str, opened: Opened, what: str
) -> None:
    """The log brought the write, no replica had it, the primary died: what was seen must not count."""
    store = await opened()
    held = await created_at_last(store, "a")
    key = "b" if what == "create" else "a"
    for replica in trio.replicas:
        await eventually(partial(_as_told, replica, resource, "a", "create", held))
    writing = await held_up(trio.replicas, store, lambda: change(store, what, held))
    lost = store.applied
    await asyncio.sleep(0)
    assert not writing.done()
    trio.primary.signal(signal.SIGSTOP)  # its sockets must not bring the write to the replicas
    await asyncio.to_thread(_lose, trio)
    attempts = chain((writing,), iter(lambda: change(store, what, held), None))
    entry = await at_last(lambda: next(attempts))
    assert entry.revision > lost
    for server in trio.servers:
        await eventually(partial(_as_told, server, resource, key, what, entry))


def _lose(trio: Trio) -> None:
    """Kill the primary before the stopped replicas have read what it sent them: their sockets are cut off first."""
    for replica in trio.replicas:
        replica.kill()
    trio.primary.kill()
    for replica in trio.replicas:
        replica.start()  # from its own disk, with what it had
    trio.fail_over(trio.replicas[0])


def _as_told(server: Server, resource: str, key: str, what: str, entry: Entry) -> bool:
    return row(server, resource, key) == (None if what == "delete" else entry.revision)


@pytest.mark.parametrize("what", CHANGES)
async def test_write_that_the_next_primary_has_is_confirmed_there(
    trio: Trio, resource: str, opened: Opened, what: str
) -> None:
    """One replica of two had the write when the primary died. It is found in the log, not executed again, and a deletion is no 404."""
    store = await opened(durability.ALL)
    held = await created_at_last(store, "a")
    new, behind = trio.replicas
    writing = await held_up([behind], store, lambda: change(store, what, held))
    key, there = ("b" if what == "create" else "a"), store.applied
    await eventually(lambda: row(new, resource, key) == (None if what == "delete" else there))
    assert not writing.done()
    trio.primary.kill()
    behind.signal(signal.SIGCONT)
    await asyncio.to_thread(trio.fail_over, new)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(writing), 0.5)  # one replica of two is not all
    third = Server(new.folder.parent / "v3", port=str(free_port()), bind="127.0.0.1", masterauth=PASSWORD)
    third.start()
    trio.servers.append(third)
    follow(third, new)
    entry = await asyncio.wait_for(writing, 60)
    assert entry.revision == there
    for server in trio.servers:
        await eventually(partial(_as_told, server, resource, key, what, entry))


async def test_session_that_ends_leaves_a_write_in_doubt_until_replicas_have_it(
    trio: Trio, resource: str, opened: Opened
) -> None:
    """WAIT knows nothing of writes of an earlier connection, so it must not be believed without a write of the new one."""
    store = await opened()
    await created_at_last(store, "a")
    writing = await held_up(trio.replicas, store, lambda: create(store, "b"))
    session = store._link.session
    assert session is not None
    trio.primary("CLIENT", "KILL", "ID", session.writes.client_id)
    await eventually(lambda: store._link.session not in (None, session))
    await eventually(lambda: trio.primary("CLIENT", "LIST").count(b"cmd=wait") == 1)
    assert not writing.done()
    trio.signal(signal.SIGCONT)
    entry = await asyncio.wait_for(writing, 60)
    assert entry.revision in {row(replica, resource, "b") for replica in trio.replicas}
    assert length(trio.primary, resource) == 3  # fence, a, b


async def test_deletion_in_doubt_is_repeated_without_404(
    trio: Trio, resource: str, opened: Opened, patience: Patience
) -> None:
    """A client that got 504 for a deletion repeats it only after replicas have it: 404 is then the truth."""
    store = await opened()
    held = await created_at_last(store, "a")
    patience(0.5)
    deleting = await held_up(trio.replicas, store, lambda: change(store, "delete", held))
    with pytest.raises(OutcomeUnknown):
        await deleting
    with pytest.raises(Unavailable):
        await change(store, "delete", held)
    trio.signal(signal.SIGCONT)
    async with asyncio.timeout(60):
        while True:
            try:
                await change(store, "delete", held)
            except Unavailable:
                await asyncio.sleep(0.01)
            except Moved:
                break
    assert None in {row(replica, resource, "a") for replica in trio.replicas}


# ------------------------------------------------------------------------------------------------------------- administration


async def test_check_and_info_tell_durability_and_replicas_in_step(trio: Trio, resource: str) -> None:
    options = patient(trio.url, durability="replica")
    await administration.init(options, [resource])
    await eventually(lambda: durability.in_step(durability.parse(trio.primary("INFO", "replication"))) == 2)
    assert await administration.check(options, [resource]) == []
    server, _ = await administration.info(options, [resource])
    assert server.endswith(", durability replica, 2 replicas in step (1 needed)")
    for replica in trio.replicas:
        replica.kill()
    await eventually(lambda: trio.primary.info("connected_slaves") == "0")
    told = await administration.check(options, [resource])
    assert told == [
        "warning: replicas in step 0 of 1 (--store-durability=replica): writes and consistent reads get 503"
    ]
