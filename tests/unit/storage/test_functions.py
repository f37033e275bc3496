"""The function library on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver.config.parsers import MOST_OBJECT_BYTES
from apiserver.storage import functions, log
from apiserver.storage.functions import Commands, Lost, Mutation
from apiserver.storage.operations import administration
from apiserver.storage.pipeline import Connection, Rejected
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from tests.fixtures.valkey import Server, forget, install, patient

LATE = b"99999999999999"


class Library:
    """The functions of one resource, called one by one."""

    def __init__(self, connection: Connection, resource: str) -> None:
        self.connection = connection
        self.commands = Commands(resource)
        self.epoch = b""
        self.tokens = 0

    async def begin(self) -> None:
        self.epoch = b"%d" % (await self.head()).epoch

    async def head(self) -> functions.Head:
        return functions.head(await self.connection.call(self.commands.head))

    def token(self) -> bytes:
        self.tokens += 1
        return b"boot-id-of-12.%d" % self.tokens

    async def put(
        self,
        key: str,
        value: bytes | None,
        expected: bytes = b"-",
        *,
        token: bytes | None = None,
        epoch: bytes | None = None,
        deadline: bytes = LATE,
        need: bytes = b"",
    ) -> Any:
        # Rows as long as real ones: shorter make a hash that is scanned in one step, whatever count is asked for.
        uid = b"0a1b2c3d-1111-4222-8333-444455556666"
        change = Mutation(key.encode(), expected, token or self.token(), uid, value)
        return await self.connection.call(self.commands.change(epoch or self.epoch, deadline, change, need=need))

    async def delete(self, key: str, expected: bytes) -> Any:
        return await self.put(key, None, expected)

    async def entries(self, after: bytes = b"0-0", *, count: int = 1000, size: int = 1 << 30) -> list[log.Record]:
        reply = await self.connection.call(self.commands.range(after, count=count, size=size))
        return [log.decode(entry) for entry in functions.range_(reply).entries]


@pytest_asyncio.fixture
async def connection(shared_server: Server) -> AsyncIterator[Connection]:
    opened = await Connection.open(patient(shared_server.url), "test")
    yield opened
    await opened.close()


async def install_anew(library: Library, server: Server, schema: str) -> None:
    """Replace the resource by a new one of this schema."""
    server("DEL", *library.commands.keys.all)
    assert (await library.connection.call(library.commands.init("me", f"marker of {schema}", schema)))[0] == b"OK"
    await library.begin()


@pytest_asyncio.fixture
async def library(shared_server: Server, connection: Connection, resource: str) -> Library:
    await install(shared_server, resource)
    made = Library(connection, resource)
    await made.begin()
    return made


# ------------------------------------------------------------------------------------------------------------------- put, del


async def test_put_creates_and_the_log_shows_it(library: Library) -> None:
    before = await library.head()
    word, id_ = await library.put("ns/a", b"one", token=b"t1")
    assert word == b"OK"
    assert keys.revision(id_) == before.last + 1
    (record,) = await library.entries(keys.stream_id(before.last).encode())
    assert record == log.Record(
        id_,
        log.CREATE,
        Key("ns/a"),
        b"-",
        keys.stream_id(before.last).encode(),
        b"t1",
        b"one",
        None,
    )
    head = await library.head()
    assert (head.last, head.objects, head.size) == (keys.revision(id_), 1, 3)


async def test_an_update_carries_the_old_value_and_both_predecessors(library: Library) -> None:
    _, first = await library.put("a", b"one")
    _, other = await library.put("b", b"x")
    _, second = await library.put("a", b"three", first)
    record = (await library.entries(other))[0]
    assert (record.kind, record.previous, record.predecessor) == (log.UPDATE, first, other)
    assert (record.value, record.old, record.id) == (b"three", b"one", second)
    assert (await library.head()).size == 6


async def test_a_deletion_leaves_its_last_value_in_the_log_and_nothing_else(
    library: Library, shared_server: Server
) -> None:
    _, first = await library.put("a", b"one")
    word, gone = await library.delete("a", first)
    assert word == b"OK"
    record = (await library.entries(first))[0]
    assert (record.id, record.kind, record.previous, record.value, record.old) == (
        gone,
        log.DELETE,
        first,
        None,
        b"one",
    )
    head = await library.head()
    assert (head.objects, head.size, head.last) == (0, 0, keys.revision(gone))
    assert shared_server("EXISTS", library.commands.keys.objects, library.commands.keys.revisions) == 0


async def test_deletion_returns_the_deleted_object_on_request(library: Library) -> None:
    for batch in (False, True):
        _, first = await library.put("a", b"one")
        change = Mutation(b"a", first, library.token(), b"old", None)
        if batch:
            command = library.commands.batch(library.epoch, LATE, [change])
            word, _, value = (await library.connection.call(command))[1]
        else:
            word, _, value = await library.connection.call(library.commands.change(library.epoch, LATE, change))
        assert (word, value) == (b"OK", b"one")


async def test_a_create_of_what_exists_is_answered_with_it(library: Library) -> None:
    _, first = await library.put("a", b"one")
    assert await library.put("a", b"two") == [b"EXISTS", first, b"one"]


async def test_an_update_of_another_revision_is_answered_with_the_present_one(library: Library) -> None:
    _, first = await library.put("a", b"one")
    _, second = await library.put("a", b"two", first)
    assert await library.put("a", b"three", first) == [b"CONFLICT", second, b"two"]
    assert await library.delete("a", first) == [b"CONFLICT", second, b"two"]


async def test_an_update_of_what_is_absent_is_not_found(library: Library) -> None:
    last = (await library.head()).last
    assert await library.put("a", b"one", b"5-5") == [b"NOTFOUND"]
    assert await library.delete("a", b"*") == [b"NOTFOUND"]
    assert (await library.head()).last == last


async def test_a_star_expects_anything(library: Library) -> None:
    _, first = await library.put("a", b"one", b"*")
    _, second = await library.put("a", b"two", b"*")
    assert keys.revision(second) == keys.revision(first) + 1
    assert (await library.delete("a", b"*"))[0] == b"OK"


async def test_the_same_token_writes_once(library: Library) -> None:
    first = await library.put("a", b"one", token=b"same")
    assert await library.put("a", b"one", token=b"same") == [b"DUP", first[1]]
    assert len(await library.entries(first[1])) == 0


async def test_a_write_of_another_epoch_is_refused(library: Library) -> None:
    for epoch in (b"1", b"99999999999"):
        assert await library.put("a", b"one", epoch=epoch) == [b"EPOCH", library.epoch]
    assert (await library.head()).objects == 0


async def test_a_write_after_its_deadline_is_refused(library: Library) -> None:
    now = (await library.head()).now_ms
    word, then = await library.put("a", b"one", deadline=b"%d" % (now - 1))
    assert word == b"LATE"
    assert now <= int(then) < now + 5000


async def test_an_old_value_above_the_limit_is_left_out_and_the_floor_rises(library: Library) -> None:
    big = b"x" * (MOST_OBJECT_BYTES + 1)
    _, first = await library.put("a", big)
    assert keys.revision(first) > (await library.head()).floor
    _, second = await library.put("a", b"small", first)
    record = (await library.entries(first))[0]
    assert (record.old, record.cut) == (None, True)
    assert (await library.head()).floor == keys.revision(second)
    _, third = await library.put("a", big, second)
    assert (await library.entries(second))[0].old == b"small"
    assert (await library.head()).floor == keys.revision(second)
    _, gone = await library.delete("a", third)
    assert (await library.head()).floor == keys.revision(gone)


async def test_values_are_binary_and_keys_are_any_text(library: Library) -> None:
    raw = bytes(range(256))
    _, id_ = await library.put("nß/ü", raw)
    assert await library.put("nß/ü", b"x") == [b"EXISTS", id_, raw]


# ---------------------------------------------------------------------------------------------------------------------- batch


async def batch(library: Library, *changes: Mutation, epoch: bytes | None = None, deadline: bytes = LATE) -> Any:
    return await library.connection.call(library.commands.batch(epoch or library.epoch, deadline, changes))


async def test_each_change_of_a_batch_has_its_own_answer_and_entry(library: Library) -> None:
    _, first = await library.put("a", b"one")
    reply = await batch(
        library,
        Mutation(b"a", b"-", b"t1", b"u", b"two"),
        Mutation(b"b", b"-", b"t2", b"u", b"new"),
        Mutation(b"a", first, b"t3", b"u", None),
        Mutation(b"a", b"-", b"t4", b"u", b"again"),
        Mutation(b"c", b"*", b"t5", b"u", None),
    )
    assert [answer[0] for answer in reply[1:]] == [b"EXISTS", b"OK", b"OK", b"OK", b"NOTFOUND"]
    records = await library.entries(first)
    assert [(record.token, record.kind) for record in records] == [(b"t2", b"0"), (b"t3", b"2"), (b"t4", b"0")]
    assert [record.predecessor for record in records] == [first, records[0].id, records[1].id]
    assert (await library.head()).objects == 2


async def test_a_batch_is_refused_as_a_whole_for_its_epoch_and_deadline(library: Library) -> None:
    change = Mutation(b"a", b"-", b"t1", b"u", b"two")
    assert await batch(library, change, epoch=b"5") == [b"EPOCH", library.epoch]
    assert (await batch(library, change, change, deadline=b"5"))[0] == b"LATE"
    assert (await library.head()).objects == 0


async def test_writes_that_need_a_replica_are_refused_without_one(library: Library) -> None:
    first = await library.put("a", b"1")
    assert await library.put("b", b"1", need=b"1") == [b"FEW", b"0"]
    assert await library.put("a", None, first[1], need=b"1") == [b"FEW", b"0"]
    changes = [Mutation(b"k%d" % at, b"-", b"t.%d" % at, b"u", b"1") for at in range(functions.BATCH_CHANGES)]
    command = library.commands.batch(library.epoch, LATE, changes, need=b"1")
    assert await library.connection.call(command) == [b"FEW", b"0"]
    assert (await library.head()).last == keys.revision(first[1])
    command = library.commands.batch(library.epoch, LATE, changes, need=b"0")
    assert len(await library.connection.call(command)) == 1 + len(changes)


async def test_head_tells_the_replicas_in_step_when_asked(library: Library) -> None:
    reply = await library.connection.call(library.commands.head_in_step)
    assert functions.in_step(reply) == 0
    assert reply[11] == b"0"
    assert functions.head(reply)._replace(now_ms=0) == (await library.head())._replace(now_ms=0)
    assert len(await library.connection.call(library.commands.head)) == 11


async def test_touch_changes_nothing_and_needs_a_log_of_its_own(library: Library, shared_server: Server) -> None:
    await library.put("a", b"1")
    before, rows = await library.head(), shared_server("HGETALL", library.commands.keys.meta)
    functions.touched(await library.connection.call(library.commands.touch))
    assert (await library.head())._replace(now_ms=0) == before._replace(now_ms=0)
    assert shared_server("HGETALL", library.commands.keys.meta) == rows
    forget(shared_server)
    with pytest.raises(functions.Foreign):
        functions.touched(await library.connection.call(library.commands.touch))
    shared_server("DEL", library.commands.keys.meta)
    with pytest.raises(functions.Lost):
        functions.touched(await library.connection.call(library.commands.touch))


async def test_a_batch_of_too_many_changes_is_rejected(library: Library) -> None:
    changes = [Mutation(b"k%d" % at, b"-", b"t%d" % at, b"u", b"v") for at in range(functions.BATCH_CHANGES + 1)]
    with pytest.raises(Rejected):
        await batch(library, *changes)
    assert len(await batch(library, *changes[1:])) == 1 + functions.BATCH_CHANGES


# ------------------------------------------------------------------------------------------------------------- fence, epochs


async def test_a_fence_starts_a_higher_epoch_once_and_ends_the_one_before(
    library: Library, shared_server: Server
) -> None:
    _, first = await library.put("a", b"one")
    old = int(library.epoch)
    forget(shared_server)
    assert not (await library.head()).own
    assert await library.put("b", b"one") == [b"FOREIGN", first]
    assert await library.delete("a", first) == [b"FOREIGN", first]
    fence = functions.fence(await library.connection.call(library.commands.fence("another process", 0)))
    assert fence.started
    assert fence.epoch > old
    assert fence.last == keys.revision(f"{fence.epoch}-0")
    again = functions.fence(await library.connection.call(library.commands.fence("another process", 0)))
    assert again == fence._replace(started=False)
    record = (await library.entries(first))[0]
    assert (record.kind, record.predecessor) == (log.FENCE, first)
    asked = functions.head(await library.connection.call(library.commands.head_of(old)))
    assert (asked.own, asked.fenced) == (True, keys.parts(keys.revision(first))[1])
    assert functions.head(await library.connection.call(library.commands.head_of(old + 1_000_000))).fenced is None
    assert await library.put("b", b"one") == [b"EPOCH", b"%d" % fence.epoch]


async def test_a_fence_rises_above_what_the_caller_has_seen(library: Library) -> None:
    """Also when the process may write: a client has seen an epoch that this log does not know."""
    highest = int(library.epoch) + (1 << 30)
    fence = functions.fence(await library.connection.call(library.commands.fence("another process", highest)))
    assert highest < fence.epoch <= highest + functions.EPOCH_STEPS


async def test_log_that_was_replaced_is_not_written_to(library: Library, shared_server: Server) -> None:
    """The same process, the same connections, an older state: by whatever means it came there."""
    await library.put("a", b"one")
    names = library.commands.keys
    older = {key: shared_server("DUMP", key) for key in names.all}
    _, lost = await library.put("b", b"two")
    for key, dump in older.items():
        if dump is None:
            shared_server("DEL", key)
        else:
            shared_server("RESTORE", key, 0, dump, "REPLACE")
    assert (await library.put("c", b"three"))[0] == b"FOREIGN"
    assert not (await library.head()).own
    fence = functions.fence(await library.connection.call(library.commands.fence("run", 0)))
    assert (fence.started, fence.last > keys.revision(lost)) == (True, True)


async def test_no_id_is_given_out_twice_when_the_stream_alone_is_put_back(
    library: Library, shared_server: Server
) -> None:
    _, one = await library.put("a", b"one")
    stream = library.commands.keys.log
    older = shared_server("DUMP", stream)
    given = [(await library.put(name, b"x"))[1] for name in "bcd"]
    shared_server("RESTORE", stream, 0, older, "REPLACE")
    word, id_ = await library.put("e", b"x")
    assert (word, keys.revision(id_) > max(map(keys.revision, [one, *given]))) == (b"OK", True)


async def test_log_that_another_server_has_written_to_is_taken_over(library: Library, shared_server: Server) -> None:
    _, one = await library.put("a", b"one")
    shared_server("XADD", library.commands.keys.log, library.epoch.decode() + "-*", "k", "b")
    assert await library.put("b", b"two") == [b"FOREIGN", one]
    assert not (await library.head()).own
    fence = functions.fence(await library.connection.call(library.commands.fence("run", 0)))
    assert fence.started
    library.epoch = b"%d" % fence.epoch
    assert (await library.put("b", b"two"))[0] == b"OK"


async def test_a_primary_that_was_demoted_owns_no_log(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    connection = await Connection.open(patient(own_server.url), "test")
    library = Library(connection, resource)
    await library.begin()
    assert (await library.head()).own
    own_server("REPLICAOF", "127.0.0.1", "1")
    assert not (await library.head()).own
    await connection.close()


async def test_two_databases_of_one_process_do_not_mix_up_their_logs(
    library: Library, shared_server: Server, resource: str
) -> None:
    url = f"{shared_server.url}&db=5"
    await administration.init(patient(url), [resource])
    other = await Connection.open(patient(url), "test")
    beside = Library(other, resource)
    await beside.begin()
    for at in range(3):
        assert (await library.put(f"k{at}", b"one"))[0] == b"OK"
        assert (await beside.put(f"k{at}", b"one"))[0] == b"OK"
    await other.close()


@pytest.mark.parametrize("ahead", [0, 1 << 40])
async def test_epochs_hardly_repeat_although_takeovers_know_nothing_of_each_other(
    library: Library, shared_server: Server, ahead: int
) -> None:
    """Each starts from the same state, within the same moments, and is lost; also when the clock is far behind that state."""
    start = int(library.epoch) + ahead
    functions.fence(await library.connection.call(library.commands.fence("run", start)))
    older = {key: shared_server("DUMP", key) for key in library.commands.keys.all}
    epochs = set()
    for _ in range(20):
        shared_server("DEL", *older)
        for key, dump in older.items():
            if dump is not None:
                shared_server("RESTORE", key, 0, dump)
        forget(shared_server)
        fence = functions.fence(await library.connection.call(library.commands.fence("run", 0)))
        assert fence.epoch > start
        epochs.add(fence.epoch)
        assert fence.epoch <= max(start, keys.epoch_at(int(shared_server("TIME")[0]) * 1000, like=start)) + (4 << 10)
    assert len(epochs) > 14  # 190 pairs, of which one in 2,048 may meet: docs/storage.md


@pytest.mark.parametrize(
    ("schema", "limit", "calls"), [("1", (1 << 16) - (1 << 10), 16), ("2", (1 << 12) - (1 << 7), 2)]
)
async def test_the_epoch_rises_by_itself_before_n_leaves_its_bits(
    library: Library, shared_server: Server, schema: str, limit: int, calls: int
) -> None:
    """The log goes on without a gap: readers see an ordinary fence entry, writers receive the new epoch."""
    await install_anew(library, shared_server, schema)
    together = calls * functions.BATCH_CHANGES
    id_ = b""
    for first in range(0, limit, together):
        batches = [
            [Mutation(b"a", b"*", library.token(), b"u", b"x") for _ in range(functions.BATCH_CHANGES)]
            for _ in range(together // functions.BATCH_CHANGES)
        ]
        commands = [library.commands.batch(library.epoch, LATE, batch) for batch in batches]
        replies = await asyncio.gather(*map(library.connection.call, commands))
        id_ = replies[-1][-1][1]
        assert first + together == limit or (await library.head()).epoch == int(library.epoch)
    assert keys.parts(keys.revision(id_)) == (int(library.epoch), limit)
    head = await library.head()
    assert head.epoch > int(library.epoch)
    assert head.last == keys.revision(f"{head.epoch}-0")
    assert await library.put("b", b"one") == [b"EPOCH", b"%d" % head.epoch]
    assert (await library.entries(id_))[0].predecessor == id_
    library.epoch = b"%d" % head.epoch
    assert (await library.put("b", b"one"))[0] == b"OK"


# ----------------------------------------------------------------------------------------------------------------------- floor


async def raise_floor(library: Library, wanted: bytes, *, least_ms: int = 0, keep: int = 0) -> functions.Floor:
    reply = await library.connection.call(library.commands.floor(keys.revision(wanted), least_ms=least_ms, keep=keep))
    return functions.floor(reply)


async def test_the_floor_only_rises_and_what_is_below_goes(library: Library) -> None:
    ids = [(await library.put(f"k{at}", b"v"))[1] for at in range(5)]
    answer = await raise_floor(library, ids[2])
    assert answer == functions.Floor(keys.revision(ids[2]), raised=True, more=False)
    assert [record.id for record in await library.entries()] == ids[2:]
    assert not (await raise_floor(library, ids[1])).raised
    assert (await library.head()).floor == keys.revision(ids[2])


async def test_the_floor_is_not_raised_twice_in_a_short_time(library: Library) -> None:
    ids = [(await library.put(f"k{at}", b"v"))[1] for at in range(3)]
    assert (await raise_floor(library, ids[0], least_ms=60_000)).raised
    assert not (await raise_floor(library, ids[1], least_ms=60_000)).raised
    assert (await raise_floor(library, ids[1], least_ms=0)).raised


async def test_the_floor_never_takes_the_newest_entries(library: Library) -> None:
    ids = [(await library.put(f"k{at}", b"v"))[1] for at in range(5)]
    assert not (await raise_floor(library, ids[-1], keep=100)).raised
    assert (await raise_floor(library, ids[-1], keep=3)).floor == keys.revision(ids[1])


async def test_the_newest_entries_are_counted_across_epochs(library: Library) -> None:
    ids = [(await library.put(f"k{at}", b"v"))[1] for at in range(4)]
    fence = functions.fence(await library.connection.call(library.commands.fence("another", int(library.epoch) + 1)))
    library.epoch = b"%d" % fence.epoch
    newest = (await library.put("x", b"v"))[1]
    # Kept: the newest, the fence, and the last of the epoch before.
    assert (await raise_floor(library, newest, keep=3)).floor == keys.revision(ids[2])
    assert (await raise_floor(library, newest, keep=1)).floor == fence.last


async def test_a_floor_that_names_a_lost_write_is_the_last_entry_that_survived(library: Library) -> None:
    """A replica may ask for what it had seen and the store lost. The floor must be an entry, or nobody could read on from it."""
    last = (await library.put("a", b"v"))[1]
    epoch = int(library.epoch)
    functions.fence(await library.connection.call(library.commands.fence("another", int(library.epoch) + 1)))
    assert (await raise_floor(library, b"%d-77" % epoch)).floor == keys.revision(last)
    assert not (await raise_floor(library, b"%d-0" % (epoch + 10**6))).raised
    unknown = await raise_floor(library, b"%d-0" % (epoch - 1))
    assert (unknown.floor, unknown.raised) == (keys.revision(last), False)


async def test_a_floor_ahead_of_the_log_is_its_end(library: Library) -> None:
    last = (await library.put("a", b"v"))[1]
    assert (await raise_floor(library, b"%b-999" % library.epoch)).floor == keys.revision(last)


async def test_epochs_below_the_floor_are_forgotten(library: Library) -> None:
    old = int(library.epoch)
    fence = functions.fence(await library.connection.call(library.commands.fence("another", int(library.epoch) + 1)))
    library.epoch = b"%d" % fence.epoch
    newest = (await library.put("x", b"v"))[1]
    while (await raise_floor(library, newest)).more:
        pass
    assert functions.head(await library.connection.call(library.commands.head_of(old))).fenced is None


async def test_a_long_log_is_trimmed_in_steps(library: Library) -> None:
    value = b"v"
    for _ in range(0, 5120, 64):
        await batch(library, *(Mutation(b"k", b"*", library.token(), b"u", value) for _ in range(64)))
    last = (await library.head()).last
    first = await raise_floor(library, keys.stream_id(last).encode())
    assert (first.floor, first.raised, first.more) == (last, True, True)
    second = await raise_floor(library, keys.stream_id(last).encode())
    assert (second.raised, second.more) == (False, False)
    assert [record.revision for record in await library.entries()] == [last]


# ---------------------------------------------------------------------------------------------------------- range, scan, digest


async def test_a_range_is_limited_by_count_and_by_bytes(library: Library) -> None:
    ids = [(await library.put(f"k{at:03}", b"v" * 1000))[1] for at in range(100)]
    start = keys.stream_id(keys.revision(ids[0]) - 1).encode()
    assert [record.id for record in await library.entries(start, count=70)] == ids[:70]
    some = await library.entries(start, size=10_000)
    assert [record.id for record in some] == ids[: len(some)]
    assert 9 <= len(some) <= 11
    assert len(await library.entries(start, size=1)) == 1
    assert await library.entries(ids[-1]) == []


async def test_a_scan_meets_every_object_with_its_revision(library: Library) -> None:
    values = {f"ns/k{at}": b"value %d" % at for at in range(1500)}
    answers = await asyncio.gather(*(library.put(key, value) for key, value in values.items()))
    expected = {key.encode(): (answer[1], values[key]) for key, answer in zip(values, answers, strict=True)}
    for count in (7, 5000):
        met: dict[bytes, tuple[bytes, bytes]] = {}
        cursor = b"0"
        while True:
            chunk = functions.scan(await library.connection.call(library.commands.scan(cursor, count=count)))
            rows = iter(chunk.rows)
            met |= {key: (id_, value) for key, id_, value in zip(rows, rows, rows, strict=True)}
            cursor = chunk.cursor
            if cursor == b"0":
                break
        assert met == expected
        assert chunk.last == (await library.head()).last


async def test_a_digest_is_a_scan_without_values(library: Library) -> None:
    answers = await asyncio.gather(*(library.put(f"k{at}", b"v") for at in range(300)))
    expected = {f"k{at}".encode(): answer[1] for at, answer in enumerate(answers)}
    chunk = functions.scan(await library.connection.call(library.commands.digest(b"0", count=10_000)))
    assert dict(zip(chunk.rows[::2], chunk.rows[1::2], strict=True)) == expected


# ------------------------------------------------------------------------------------------------------------------ init, loss


async def test_a_new_resource_starts_with_a_fence_that_is_its_floor(library: Library, shared_server: Server) -> None:
    head = await library.head()
    assert (head.objects, head.size, head.schema) == (0, 0, functions.SCHEMA)
    assert head.last == head.floor == keys.revision(f"{head.epoch}-0")
    assert head.own
    (record,) = await library.entries()
    assert (record.kind, record.predecessor, record.token) == (log.FENCE, b"-", shared_server.info("run_id").encode())


async def test_init_leaves_what_is_there_and_refuses_what_is_half_there(
    library: Library, shared_server: Server
) -> None:
    await library.put("a", b"one")
    head = await library.head()
    again = await library.connection.call(library.commands.init("me", "other marker", functions.SCHEMA))
    assert again == [b"EXISTS", head.marker.encode(), functions.SCHEMA.encode()]
    shared_server("DEL", library.commands.keys.log)
    half = await library.connection.call(library.commands.init("me", "other marker", functions.SCHEMA))
    assert half[0] == b"HALF"
    assert library.commands.keys.log.encode() not in half
    assert library.commands.keys.objects.encode() in half


@pytest.mark.parametrize("which", ["objects", "revisions", "log", "meta"])
async def test_a_missing_key_is_a_loss_and_nothing_is_written(
    library: Library, shared_server: Server, which: str
) -> None:
    _, first = await library.put("a", b"one")
    shared_server("DEL", getattr(library.commands.keys, which))
    assert (await library.put("b", b"two"))[0] == b"LOST"
    assert (await library.delete("a", first))[0] == b"LOST"
    reply = await batch(library, Mutation(b"c", b"-", b"t", b"u", b"v"))
    assert b"LOST" in (reply[0], reply[1][0])
    with pytest.raises(Lost):
        await library.head()
    assert shared_server("EXISTS", getattr(library.commands.keys, which)) == 0


async def test_answer_for_a_missing_resource_raises_lost(connection: Connection) -> None:
    commands = Commands("nowhere.example.com/things")
    with pytest.raises(Lost):
        functions.head(await connection.call(commands.head))
    with pytest.raises(Lost):
        functions.range_(await connection.call(commands.range(b"0-0", count=1, size=1)))
    with pytest.raises(Lost):
        functions.scan(await connection.call(commands.scan(b"0", count=1)))
    with pytest.raises(Lost):
        functions.scan(await connection.call(commands.digest(b"0", count=1)))
    with pytest.raises(Lost):
        functions.fence(await connection.call(commands.fence("me", 1)))
    with pytest.raises(Lost):
        functions.floor(await connection.call(commands.floor(Revision(1), least_ms=0, keep=0)))


# -------------------------------------------------------------------------------------------------------------------- memory full


async def test_a_full_server_refuses_puts_and_takes_deletions(own_server: Server, resource: str) -> None:
    await install(own_server, resource)
    connection = await Connection.open(patient(own_server.url), "test")
    library = Library(connection, resource)
    await library.begin()
    _, first = await library.put("a", b"one")
    own_server("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises(Rejected, match="OOM"):
        await library.put("b", b"two")
    with pytest.raises(Rejected, match="OOM"):
        await batch(library, Mutation(b"a", first, b"t", b"u", None))
    assert (await library.head()).objects == 1
    assert (await library.delete("a", first))[0] == b"OK"
    assert (await raise_floor(library, first)).raised
    assert functions.fence(await connection.call(library.commands.fence("another", int(library.epoch) + 1))).started
    await connection.close()
