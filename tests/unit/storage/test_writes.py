"""Writes on their way, with a server that the test plays: what is sent when, and what every answer leads to."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable
from typing import Any, cast

import pytest

from apiserver.storage import durability
from apiserver.storage.errors import KeyExists, Moved, OutcomeUnknown, Unavailable
from apiserver.storage.functions import Commands, Lost
from apiserver.storage.lineage import ServerClock, Session
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Answered, Connection, Disconnected, Failed, Rejected
from apiserver.storage.writes import BATCH_BYTES, FLIGHTS, MOST_WAITING, ResourceWrites, Write, Writer
from apiserver.watchcache import keys
from apiserver.watchcache.entry import NO_LABELS, Entry, Key, Revision, splice
from apiserver.watchcache.errors import StorageError
from tests.fixtures.valkey import eventually, value

ABSENT = Revision(0)
OPTIONS = StoreOptions(url="unix:///none")


def words(command: bytes) -> list[bytes]:
    """A packed command, unpacked."""
    count, _, rest = command[1:].partition(b"\r\n")
    found = []
    for _ in range(int(count)):
        size, _, rest = rest[1:].partition(b"\r\n")
        found.append(rest[: int(size)])
        rest = rest[int(size) + 2 :]
    assert not rest
    return found


class Sent:
    """A command that waits for the test's answer."""

    def __init__(self, command: bytes, answered: Answered) -> None:
        self.words = words(command)
        self.answer = answered

    @property
    def waits_for(self) -> int:
        """How many replicas WAIT asks for."""
        assert self.words[0] == b"WAIT", self.words
        return int(self.words[1])

    @property
    def name(self) -> str:
        return self.words[1].decode()

    @property
    def arguments(self) -> list[bytes]:
        return self.words[8:]

    @property
    def tokens(self) -> list[bytes]:
        if self.name == "sl1_batch":
            return self.arguments[5::6]
        return [self.arguments[4]]


class Wire:
    """In place of a Connection."""

    def __init__(self, client_id: int = 5) -> None:
        self.client_id = client_id
        self.sent: collections.deque[Sent] = collections.deque()
        self.replies: dict[bytes, Any] = {}
        """Answers to `call`, by the first word."""
        self.asked: list[list[bytes]] = []

    def submit(self, command: bytes, answered: Answered) -> None:
        self.sent.append(Sent(command, answered))

    def call(self, command: bytes) -> asyncio.Future[Any]:
        self.asked.append(words(command))
        future = asyncio.get_running_loop().create_future()
        reply = self.replies[self.asked[-1][0]]
        reply = reply.pop(0) if isinstance(reply, collections.UserList) else reply
        if isinstance(reply, StorageError):
            future.set_exception(reply)
        else:
            future.set_result(reply)
        return future


class FakeLog:
    """In place of a Replica."""

    def __init__(self, resource: str = "g/things") -> None:
        self.resource = resource
        self.commands = Commands(resource)
        self.epoch = b"7"
        self.applied = keys.revision("7-10")
        self.seen_from = keys.revision("7-0")
        self.faults: list[str] = []
        self.acks: list[Revision] = []
        self.held: dict[Key, Entry] = {}
        self.lost_revisions: set[Revision] = set()
        self.caught = asyncio.Event()
        self.caught.set()

    def entry(self, key: Key, revision: Revision, data: bytes) -> Entry:
        return Entry(key, revision, splice(data, revision), NO_LABELS, ())

    def current(self, key: Key) -> Entry | None:
        return self.held.get(key)

    def holds(self, revision: Revision) -> bool | None:
        return None if revision < self.seen_from else revision not in self.lost_revisions

    async def caught_up(self, revision: Revision) -> None:
        await self.caught.wait()

    def acknowledged(self, revision: Revision, _key: Key) -> None:
        self.acks.append(revision)

    def lost(self, reason: str) -> None:
        self.faults.append(reason)


HEAD = [b"OK", b"7", b"7-10", b"7-0", b"1", b"0", b"0", b"1000000", b"", b"marker", b"1"]


class Stage:
    """A writer with one queue and a session that the test plays."""

    def __init__(self, options: StoreOptions = OPTIONS) -> None:
        self.options = options
        self.loop = asyncio.get_running_loop()
        self.writer = Writer(options, boot_id="boot", loop=self.loop)
        self.log = FakeLog()
        self.resource_writes: ResourceWrites = self.writer.writes_of(self.log)
        self.session = self.attach("run", client_id=5)
        self.tasks: list[asyncio.Task[None]] = []

    def attach(self, run_id: str, *, client_id: int) -> Session:
        self.writes, self.reads, self.bulk = Wire(client_id), Wire(), Wire()
        clock = ServerClock(self.loop)
        clock.heard(1_000_000)
        reads, writes, bulk_ = (cast(Connection, wire) for wire in (self.reads, self.writes, self.bulk))
        self.session = Session(run_id, clock, reads, writes, bulk_, heads={}, refusals=[], missing={})
        self.session.need = durability.needed(self.options)
        self.session.in_step = 2
        self.writer.attach(self.session)
        return self.session

    def commit(self, name: str, data: bytes | None = b"", expected: Revision = ABSENT) -> asyncio.Future[Entry]:
        return self.writer.submit(
            self.resource_writes, Write(Key(name), value(name) if data == b"" else data, expected, "u")
        )

    async def sent(self) -> Sent:
        await eventually(lambda: self.writes.sent)
        return self.writes.sent.popleft()

    def resume(self) -> asyncio.Task[None]:
        task = self.loop.create_task(self.writer.run(self.session))
        self.tasks.append(task)
        return task

    def see(self, sent: Sent, revision: Revision, at: int = 0) -> Entry:
        """The log brings the write."""
        entry = self.log.entry(Key("x"), revision, value("x"))
        self.writer.seen(sent.tokens[at], entry)
        return entry

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


R11, R12 = keys.revision("7-11"), keys.revision("7-12")


# -------------------------------------------------------------------------------------------------------------------- sending


async def test_one_write_is_a_put_and_several_of_one_turn_are_a_batch() -> None:
    stage = Stage()
    stage.commit("a")
    put = await stage.sent()
    assert put.name == "sl1_put"
    epoch, deadline, *rest = put.arguments
    assert (epoch, rest) == (b"7", [b"a", b"-", b"boot.1", b"u", value("a")])
    assert 1_002_000 <= int(deadline) < 1_004_000
    for name in "bcd":
        stage.commit(name)
    stage.commit("e", None, R11)
    batch = await stage.sent()
    assert batch.name == "sl1_batch"
    assert batch.tokens == [b"boot.2", b"boot.3", b"boot.4", b"boot.5"]
    assert batch.arguments[-6:] == [b"del", b"e", b"7-11", b"boot.5", b"old", b""]


async def test_writes_gather_while_enough_batches_are_under_way() -> None:
    stage = Stage()
    under_way = []
    for at in range(FLIGHTS):
        stage.commit(f"a{at}")
        under_way.append(await stage.sent())
    for at in range(100):
        stage.commit(f"b{at}")
    for _ in range(5):
        await asyncio.sleep(0)
    assert not stage.writes.sent
    under_way[0].answer([b"OK", b"7-11"])
    assert len((await stage.sent()).tokens) == 64
    under_way[1].answer([b"OK", b"7-12"])
    assert len((await stage.sent()).tokens) == 36


async def test_a_batch_is_bounded_in_bytes() -> None:
    stage = Stage()
    large = b"x" * (BATCH_BYTES // 2)
    for at in range(3):
        stage.commit(f"a{at}", large)
    assert len((await stage.sent()).tokens) == 2
    assert (await stage.sent()).name == "sl1_put"


async def test_each_resource_has_a_write_queue_of_its_own() -> None:
    stage = Stage()
    other = FakeLog("g/others")
    other.epoch = b"9"
    stage.commit("a")
    stage.writer.submit(stage.writer.writes_of(other), Write(Key("b"), value("b"), Revision(0)))
    first, second = await stage.sent(), await stage.sent()
    assert (first.arguments[0], second.arguments[0]) == (b"7", b"9")
    assert stage.writer.writes_of(stage.log) is stage.resource_writes


async def test_cancelled_write_that_was_not_sent_is_dropped() -> None:
    stage = Stage()
    gone, kept = stage.commit("a"), stage.commit("b")
    gone.cancel()
    assert (await stage.sent()).tokens == [b"boot.2"]
    assert not kept.done()


async def test_too_many_writes_under_way_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_WAITING >= 1000
    monkeypatch.setattr("apiserver.storage.writes.MOST_WAITING", 2)
    stage = Stage()
    stage.commit("a")
    stage.commit("b")
    with pytest.raises(Unavailable, match="too many"):
        stage.commit("c")


# -------------------------------------------------------------------------------------------------------------------- answers


@pytest.mark.parametrize("log_first", [True, False])
async def test_a_write_is_done_when_the_log_has_brought_it(log_first: bool) -> None:
    stage = Stage()
    future = stage.commit("a")
    put = await stage.sent()
    if log_first:
        entry = stage.see(put, R11)
        put.answer([b"OK", b"7-11"])
    else:
        put.answer([b"OK", b"7-11"])
        assert not future.done()
        entry = stage.see(put, R11)
    assert await future is entry
    assert stage.log.acks == [R11]


@pytest.mark.parametrize("word", [b"OK", b"DUP"])
async def test_a_log_that_lags_is_not_waited_for_for_ever(word: bytes) -> None:
    stage = Stage()
    stage.log.held[Key("gone")] = stage.log.entry(Key("gone"), R11, value("gone"))
    made, gone = stage.commit("a"), stage.commit("gone", None, R11)
    (await stage.sent()).answer([b"OK", [word, b"7-12"], [b"OK", b"7-13"]])
    stage.writer.sweep(stage.loop.time() + OPTIONS.lag_seconds / 2)
    assert not made.done()
    stage.writer.sweep(stage.loop.time() + OPTIONS.lag_seconds + 0.1)
    entry = await made
    assert (entry.key, entry.revision, entry.body) == ("a", R12, splice(value("a"), R12))
    last = await gone
    assert (last.revision, last.body) == (R12 + 1, splice(value("gone"), R12 + 1))


async def test_late_deletion_returns_the_deleted_object_however_old_memory_is() -> None:
    """This replica's log is late: it holds an older state than the one that was deleted, or none."""
    stage = Stage()
    stage.log.held[Key("a")] = stage.log.entry(Key("a"), R11, value("a", "older"))
    gone = [stage.commit("a", None, R12), stage.commit("b", None, R12)]
    sent = await stage.sent()
    assert sent.arguments[-8] == sent.arguments[-2] == b"old"
    sent.answer([b"OK", [b"OK", b"7-13", value("a", "newer")], [b"OK", b"7-14", value("b", "newer")]])
    stage.log.held[Key("a")] = stage.log.entry(Key("a"), keys.revision("7-15"), value("a", "another"))
    stage.writer.sweep(stage.loop.time() + OPTIONS.lag_seconds + 0.1)
    for name, future, revision in zip("ab", gone, (keys.revision("7-13"), keys.revision("7-14")), strict=True):
        assert (await future).body == splice(value(name, "newer"), revision)


async def test_refusals_carry_what_is_there() -> None:
    stage = Stage()
    futures = [stage.commit("a"), stage.commit("b", b"{}", R11), stage.commit("c", None, R11)]
    (await stage.sent()).answer(
        [b"OK", [b"EXISTS", b"7-12", value("there")], [b"CONFLICT", b"7-12", value("there")], [b"NOTFOUND"]]
    )
    exists, moved, gone = await asyncio.gather(*futures, return_exceptions=True)
    assert isinstance(exists, KeyExists)
    assert (exists.entry.revision, exists.entry.body) == (R12, splice(value("there"), R12))
    assert isinstance(moved, Moved)
    assert moved.entry is not None
    assert moved.entry.revision == R12
    assert isinstance(gone, Moved)
    assert gone.entry is None


async def test_an_error_before_the_execution_is_unavailable() -> None:
    stage = Stage()
    future = stage.commit("a")
    (await stage.sent()).answer(Rejected("MISCONF Errors writing to the AOF file"))
    with pytest.raises(Unavailable, match="MISCONF"):
        await future


async def test_a_full_server_is_asked_again_for_each_deletion_alone() -> None:
    stage = Stage()
    put, gone, other = stage.commit("a"), stage.commit("b", None, R11), stage.commit("c", None, R11)
    (await stage.sent()).answer(Rejected("OOM command not allowed when used memory > 'maxmemory'."))
    with pytest.raises(Unavailable, match="OOM"):
        await put
    for future in (gone, other):
        again = await stage.sent()
        assert again.name == "sl1_del"
        again.answer([b"OK", b"7-12"])
        stage.see(again, R12)
        assert (await future).revision == R12


async def test_loss_is_reported_to_the_log_and_nothing_was_executed() -> None:
    stage = Stage()
    future = stage.commit("a")
    (await stage.sent()).answer([b"LOST", b"no meta"])
    with pytest.raises(Lost):
        await future
    assert stage.log.faults == ["no meta"]


async def test_a_late_write_is_sent_again_by_the_servers_clock() -> None:
    stage = Stage()
    future = stage.commit("a")
    first = await stage.sent()
    first.answer([b"LATE", b"5000000"])
    second = await stage.sent()
    assert second.tokens == first.tokens
    assert 5_002_000 <= int(second.arguments[1]) < 5_004_000
    for _ in range(2):
        second.answer([b"LATE", b"5000000"])
        second = await stage.sent()
    second.answer([b"LATE", b"5000000"])
    with pytest.raises(Unavailable, match="clock"):
        await future


async def test_new_epoch_of_the_same_process_is_adopted_and_the_write_resent() -> None:
    stage = Stage()
    futures = [stage.commit("a"), stage.commit("b")]
    (await stage.sent()).answer([b"EPOCH", b"8"])
    assert len(stage.reads.sent) == 1, "one question for all"
    stage.reads.sent.popleft().answer([b"OK", b"8", *HEAD[2:]])
    again = await stage.sent()
    assert (again.arguments[0], stage.log.epoch, again.tokens) == (b"8", b"8", [b"boot.1", b"boot.2"])
    stage.see(again, R11)
    assert (await futures[0]).revision == R11


async def test_a_log_that_is_to_be_taken_over_ends_the_session() -> None:
    stage = Stage()
    future = stage.commit("a")
    (await stage.sent()).answer([b"EPOCH", b"8"])
    stage.reads.sent.popleft().answer([*HEAD[:4], b"0", *HEAD[5:]])
    with pytest.raises(Unavailable, match="not the one that this server process has left"):
        await future
    assert stage.session._given_up.done()


async def test_write_to_a_log_under_takeover_fails_and_ends_the_session() -> None:
    stage = Stage()
    futures = [stage.commit("a"), stage.commit("b")]
    (await stage.sent()).answer([b"FOREIGN", b"7-5"])
    for future in futures:
        with pytest.raises(Unavailable, match="not the one that this server process has left"):
            await future
    assert stage.session._given_up.done()


# --------------------------------------------------------------------------------------------------------------------- doubt


async def in_doubt(stage: Stage, *names: str) -> tuple[Sent, list[asyncio.Future[Entry]]]:
    futures = [stage.commit(name) for name in names]
    sent = await stage.sent()
    stage.writer.detach("broken")
    sent.answer(Disconnected("broken"))
    assert not any(future.done() for future in futures)
    return sent, futures


async def test_a_write_in_doubt_that_the_log_holds_is_done_and_not_sent_again() -> None:
    stage = Stage()
    sent, (future,) = await in_doubt(stage, "a")
    stage.attach("run", client_id=6)
    stage.reads.replies = {b"CLIENT": 1, b"FCALL_RO": HEAD}
    stage.log.caught.clear()
    stage.resume()
    await eventually(lambda: len(stage.reads.asked) == 2)
    assert stage.reads.asked[0] == [b"CLIENT", b"KILL", b"ID", b"5"]
    entry = stage.see(sent, R11)
    stage.log.caught.set()
    assert await future is entry
    await asyncio.sleep(0)
    assert not stage.writes.sent
    await stage.end()


@pytest.mark.parametrize("killed", [0, 1])
async def test_write_in_doubt_missing_in_the_log_is_resent_with_its_token(killed: int) -> None:
    stage = Stage()
    sent, (future, _) = await in_doubt(stage, "a", "b")
    stage.attach("run", client_id=6)
    stage.reads.replies = {b"CLIENT": killed, b"FCALL_RO": HEAD}
    stage.resume()
    again = await stage.sent()
    assert again.tokens == sent.tokens
    stage.see(again, R11)
    assert (await future).revision == R11
    await stage.end()


async def test_nothing_is_sent_again_before_it_can_not_execute_any_more() -> None:
    """The old connection cannot be killed: the server's clock must pass the deadline."""
    stage = Stage()
    await in_doubt(stage, "a")
    stage.attach("run", client_id=6)
    times = collections.UserList([[b"1001", b"0"], [b"1001", b"999000"], [b"1900", b"0"]])
    stage.reads.replies = {b"CLIENT": Rejected("NOPERM no permissions"), b"TIME": times, b"FCALL_RO": HEAD}
    stage.resume()
    await stage.sent()
    assert [asked[0] for asked in stage.reads.asked] == [b"CLIENT", b"TIME", b"TIME", b"TIME", b"FCALL_RO"]
    await stage.end()


async def test_another_server_process_cannot_execute_what_the_old_one_was_sent() -> None:
    stage = Stage()
    await in_doubt(stage, "a")
    stage.attach("another run", client_id=6)
    stage.reads.replies = {b"FCALL_RO": HEAD}
    stage.resume()
    await stage.sent()
    assert [asked[0] for asked in stage.reads.asked] == [b"FCALL_RO"]
    await stage.end()


async def test_every_connection_that_left_writes_in_doubt_is_killed() -> None:
    stage = Stage()
    await in_doubt(stage, "a")
    stage.attach("run", client_id=6)
    await in_doubt(stage, "b")
    stage.attach("run", client_id=7)
    stage.reads.replies = {b"CLIENT": 1, b"FCALL_RO": HEAD}
    stage.resume()
    await eventually(lambda: sum(len(sent.tokens) for sent in stage.writes.sent) == 2)
    assert {asked[3] for asked in stage.reads.asked if asked[0] == b"CLIENT"} == {b"5", b"6"}
    await stage.end()


async def test_a_search_that_breaks_off_goes_on_in_the_next_session() -> None:
    stage = Stage()
    sent, (future,) = await in_doubt(stage, "a")
    stage.attach("run", client_id=6)
    stage.reads.replies = {b"CLIENT": Disconnected("again")}
    with pytest.raises(Disconnected):
        await stage.resume()
    stage.attach("run", client_id=7)
    stage.reads.replies = {b"CLIENT": 1, b"FCALL_RO": HEAD}
    stage.resume()
    assert (await stage.sent()).tokens == sent.tokens
    assert not future.done()
    await stage.end()


async def test_an_error_that_says_nothing_is_looked_up_in_the_same_session() -> None:
    stage = Stage()
    stage.reads.replies = {b"FCALL_RO": HEAD}
    stage.resume()
    future = stage.commit("a")
    first = await stage.sent()
    first.answer(Failed("ERR something in the middle of the function"))
    second = await stage.sent()
    assert second.tokens == first.tokens
    stage.see(second, R11)
    assert (await future).revision == R11
    assert [asked[0] for asked in stage.reads.asked] == [b"FCALL_RO"]
    await stage.end()


async def test_a_log_that_does_not_reach_back_cannot_prove_anything() -> None:
    stage = Stage()
    _, (future,) = await in_doubt(stage, "a")
    stage.attach("run", client_id=6)
    stage.log.seen_from = keys.revision("7-11")
    stage.reads.replies = {b"CLIENT": 1, b"FCALL_RO": HEAD}
    stage.resume()
    with pytest.raises(OutcomeUnknown):
        await future
    await stage.end()


async def test_store_that_lost_its_data_does_not_know_what_happened() -> None:
    stage = Stage()
    _, (future,) = await in_doubt(stage, "a")
    stage.attach("run", client_id=6)
    stage.reads.replies = {b"CLIENT": 1, b"FCALL_RO": [b"LOST", b"no meta"]}
    stage.resume()
    with pytest.raises(OutcomeUnknown):
        await future
    assert stage.log.faults
    await stage.end()


async def test_outcome_that_cannot_be_learned_in_time_is_unknown() -> None:
    stage = Stage()
    _, (future,) = await in_doubt(stage, "a")
    now = stage.loop.time()
    stage.writer.sweep(now + OPTIONS.outcome_seconds - 0.1)
    assert not future.done()
    stage.writer.sweep(now + OPTIONS.outcome_seconds + 0.1)
    with pytest.raises(OutcomeUnknown):
        await future


async def test_without_a_session_writes_fail_at_once_and_so_do_those_that_wait() -> None:
    stage = Stage()
    waiting = stage.commit("a")
    stage.writer.detach("gone")
    with pytest.raises(Unavailable, match="gone"):
        await waiting
    with pytest.raises(Unavailable):
        stage.commit("b")


async def test_at_the_end_nothing_is_left_waiting() -> None:
    stage = Stage()
    sent, queued = stage.commit("a"), None
    await stage.sent()
    queued = stage.commit("b")
    stage.writer.close()
    with pytest.raises(OutcomeUnknown):
        await sent
    with pytest.raises(Unavailable):
        await queued


# -------------------------------------------------------------------------------------------------------------- confirmations

CONFIRMED = StoreOptions(url="unix:///none", durability="replica")


async def acknowledged(stage: Stage, name: str = "a") -> tuple[Sent, Sent, asyncio.Future[Entry]]:
    """A write that the primary has acknowledged, and the question to its replicas."""
    future = stage.commit(name)
    sent, wait = await stage.sent(), await stage.sent()
    assert wait.waits_for == 1
    sent.answer([b"OK", b"7-11"])
    return sent, wait, future


@pytest.mark.parametrize("log_first", [True, False])
async def test_write_is_done_once_the_log_and_replicas_have_it(log_first: bool) -> None:
    stage = Stage(CONFIRMED)
    sent, wait, future = await acknowledged(stage)
    assert sent.arguments[-1] == b"1", "replicas that must be in step"
    steps: list[Callable[[], object]] = [lambda: stage.see(sent, R11), lambda: wait.answer(1)]
    for step in steps if log_first else reversed(steps):
        assert not future.done()
        step()
    assert (await future).revision == R11


REFUSALS = {
    "exists": ([b"EXISTS", b"7-9", value("a")], KeyExists),
    "conflict": ([b"CONFLICT", b"7-9", value("a")], Moved),
    "absent": ([b"NOTFOUND"], Moved),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_refusal_waits_until_replicas_have_what_it_rests_on(name: str) -> None:
    answer, error = REFUSALS[name]
    stage = Stage(CONFIRMED)
    future = stage.commit("a")
    (await stage.sent()).answer(answer)
    touch, wait = stage.bulk.sent
    assert (touch.name, wait.waits_for) == ("sl1_touch", 1)
    touch.answer([b"OK", b"7-10"])
    assert not future.done()
    wait.answer(1)
    with pytest.raises(error):
        await future
    if name == "absent":
        return
    second = stage.commit("a")
    await stage.sent()
    (await stage.sent()).answer(answer)
    assert len(stage.bulk.sent) == 2, "replicas have all up to 7-10"
    with pytest.raises(error):
        await second


@pytest.mark.parametrize("broken", [False, True])
async def test_refusal_without_replicas_that_confirm_becomes_unavailable(broken: bool) -> None:
    stage = Stage(CONFIRMED)
    future = stage.commit("a")
    (await stage.sent()).answer([b"NOTFOUND"])
    touch, wait = stage.bulk.sent
    touch.answer(Disconnected("gone") if broken else [b"OK", b"7-10"])
    wait.answer(Disconnected("gone") if broken else 0)
    with pytest.raises(Unavailable, match="gone" if broken else "0 replicas of 1 have what this rests on"):
        await future


async def test_refusals_share_the_next_question_to_replicas() -> None:
    stage = Stage(CONFIRMED)
    futures = [stage.commit(name) for name in "abc"]
    batch, _ = await stage.sent(), await stage.sent()
    batch.answer([b"OK", *[[b"NOTFOUND"]] * 3])
    touch, wait = list(stage.bulk.sent)
    touch.answer([b"OK", b"7-10"])
    wait.answer(1)
    again, last = list(stage.bulk.sent)[2:]
    again.answer([b"OK", b"7-10"])
    last.answer(1)
    assert {type(error) for error in await asyncio.gather(*futures, return_exceptions=True)} == {Moved}


async def test_one_question_to_replicas_follows_the_batches_of_all_resources() -> None:
    stage = Stage(CONFIRMED)
    other = stage.writer.writes_of(FakeLog("g/others"))
    stage.commit("a")
    stage.writer.submit(other, Write(Key("b"), value("b"), ABSENT))
    names = [await stage.sent(), await stage.sent()]
    assert [sent.name for sent in names] == ["sl1_put", "sl1_put"]
    assert (await stage.sent()).waits_for == 1
    assert not stage.writes.sent


async def test_writes_gather_while_replicas_are_asked_twice() -> None:
    stage = Stage(CONFIRMED)
    first = await acknowledged(stage)
    await acknowledged(stage, "b")
    stage.commit("c")
    stage.commit("d")
    await asyncio.sleep(0)
    assert not stage.writes.sent
    first[1].answer(1)
    assert len((await stage.sent()).tokens) == 2


async def test_late_log_does_not_acknowledge_what_replicas_lack() -> None:
    stage = Stage(CONFIRMED)
    _, wait, future = await acknowledged(stage)
    stage.writer.sweep(stage.loop.time() + OPTIONS.lag_seconds + 0.1)
    assert not future.done()
    wait.answer(1)
    stage.writer.sweep(stage.loop.time() + OPTIONS.lag_seconds + 0.1)
    assert (await future).revision == R11


async def test_unconfirmed_write_is_unknown_and_the_queue_is_refused_until_replicas_answer() -> None:
    stage = Stage(CONFIRMED)
    _, wait, future = await acknowledged(stage)
    _, second_wait, second = await acknowledged(stage, "b")
    queued = stage.commit("c")
    await asyncio.sleep(0)
    wait.answer(0)
    with pytest.raises(OutcomeUnknown):
        await future
    with pytest.raises(Unavailable, match="did not confirm"):
        await queued
    second_wait.answer(0)
    with pytest.raises(OutcomeUnknown):
        await second
    probe = await stage.sent()
    assert probe.waits_for == 1
    refused = stage.commit("d")
    with pytest.raises(Unavailable, match="did not confirm"):
        await refused
    probe.answer(1)
    assert stage.session.shortage() == ""
    stage.commit("e")
    assert (await stage.sent()).name == "sl1_put"


async def test_too_few_replicas_in_step_refuse_a_write_that_was_not_executed() -> None:
    stage = Stage(CONFIRMED)
    futures = [stage.commit("a"), stage.commit("b")]
    (await stage.sent()).answer([b"FEW", b"0"])
    for future in futures:
        with pytest.raises(Unavailable, match="replicas in step 0 of 1"):
            await future


async def seen_and_in_doubt(stage: Stage) -> tuple[Sent, asyncio.Future[Entry]]:
    """The log brought an acknowledged write, and the session ended before replicas confirmed it."""
    sent, wait, future = await acknowledged(stage)
    stage.see(sent, R11)
    stage.writer.detach("broken")
    wait.answer(Disconnected("broken"))
    assert not future.done()
    stage.attach("another", client_id=6)
    stage.reads.replies = {b"FCALL_RO": HEAD}
    return sent, future


async def test_seen_write_that_the_next_primary_has_is_confirmed_behind_a_touch() -> None:
    stage = Stage(CONFIRMED)
    _, future = await seen_and_in_doubt(stage)
    stage.writes.replies = {b"FCALL": [b"OK", b"7-11"], b"WAIT": collections.UserList([0, 1])}
    stage.resume()
    assert (await future).revision == R11
    asked = [call[1] if call[0] == b"FCALL" else call[0] for call in stage.writes.asked]
    assert asked == [b"sl1_touch", b"WAIT"] * 2, "WAIT knows only what this connection wrote"
    assert not stage.writes.sent
    await stage.end()


async def test_seen_write_that_the_next_primary_lost_is_sent_again() -> None:
    stage = Stage(CONFIRMED)
    stage.log.lost_revisions.add(R11)
    sent, future = await seen_and_in_doubt(stage)
    stage.resume()
    again = await stage.sent()
    assert again.tokens == sent.tokens
    assert not stage.writes.asked
    wait = await stage.sent()
    again.answer([b"OK", b"8-1"])
    wait.answer(1)
    assert not future.done()
    entry = stage.see(again, keys.revision("8-1"))
    assert await future is entry
    await stage.end()


async def test_seen_write_below_the_floor_is_unknown() -> None:
    stage = Stage(CONFIRMED)
    stage.log.seen_from = R12
    _, future = await seen_and_in_doubt(stage)
    stage.resume()
    with pytest.raises(OutcomeUnknown):
        await future
    await stage.end()


async def test_confirmation_does_not_outlive_its_session() -> None:
    """Replicas of the old primary had it; those of the next one must have it, too."""
    stage = Stage(CONFIRMED)
    sent, wait, future = await acknowledged(stage)
    wait.answer(1)
    stage.writer.detach("broken")
    stage.attach("another", client_id=6)
    stage.reads.replies = {b"FCALL_RO": HEAD}
    stage.writes.replies = {b"FCALL": [b"OK", b"7-11"], b"WAIT": 1}
    stage.see(sent, R11)
    assert not future.done()
    stage.resume()
    assert (await future).revision == R11
    assert [b"WAIT", b"1"] in [call[:2] for call in stage.writes.asked]
    await stage.end()


async def test_durability_of_the_primary_asks_no_replica() -> None:
    stage = Stage()
    stage.commit("a")
    sent = await stage.sent()
    assert len(sent.arguments) == 7
    assert not stage.writes.sent
