"""The tail of the log: entries in order, from one blocking read over the streams of all resources.

Redis reports no error for entries that were trimmed or flushed, so order alone proves nothing. Each entry names its predecessor,
and the follower compares that with the last entry that it was fed (`Follower.feed`). Redis reports no error for a missing end
either. A read that began when the log was known to hold more, and that brings nothing, proves it (`Follower.nothing`). Elapsed
time proves nothing: a process may have been suspended, and a session may have begun late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from apiserver.storage import pipeline
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Connection, Disconnected
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Key, Revision
from apiserver.watchcache.errors import StorageError

BLOCK_MS = 1000
SHORT_BLOCK_MS = 100
"""While a resource is being filled: the longest time until its log is followed."""
ENTRIES = 64
"""Per stream and read: 64 entries are applied in about a millisecond, and take at most 200 MB."""
LOOK_SECONDS = 1.0
"""Time between two looks whether the connection owes an answer for too long."""
SLICE_SECONDS = 0.004
PORTION_BYTES = 256 << 10
"""Entries fed between two looks at the clock, in bytes: the largest objects take some milliseconds each."""

RawEntry = tuple[bytes, Sequence[bytes]]
"""(ID, [name, value, …]), in a list, as Redis returns it."""

CREATE, UPDATE, DELETE, FENCE = b"0", b"1", b"2", b"9"
_KINDS = frozenset((CREATE, UPDATE, DELETE, FENCE))


class Malformed(StorageError):
    """The entry was not written by Sluice."""


class Record(NamedTuple):
    """One entry of the log. IDs stay bytes where they are only compared."""

    id: bytes
    kind: bytes
    key: Key
    previous: bytes
    """ID of the object's previous state; `-` on a create."""
    predecessor: bytes
    """ID of the entry before."""
    token: bytes
    value: bytes | None
    old: bytes | None

    @property
    def revision(self) -> Revision:
        return keys.revision(self.id)

    @property
    def cut(self) -> bool:
        """The old value was too long for the log, so the state before this entry is unknown."""
        return self.old is None and self.kind in (UPDATE, DELETE)


def decode(entry: RawEntry) -> Record:
    """Decode one entry. Its fields have the order in which `functions.lua` writes them. Raises Malformed."""
    id_, fields = entry
    if len(fields) < 10 or fields[0] != b"k" or fields[8] != b"w":
        raise Malformed(f"{id_!r} is no entry of this schema")
    kind, value, old = fields[3], None, None
    if len(fields) >= 12:
        if fields[10] == b"v":
            value = fields[11]
            old = fields[13] if len(fields) >= 14 else None
        else:
            old = fields[11]
    if kind not in _KINDS or (value is None) is (kind in (CREATE, UPDATE)):
        raise Malformed(f"{id_!r} of kind {kind!r} with a wrong set of values")
    try:
        name = Key(fields[1].decode())
    except UnicodeDecodeError:
        raise Malformed(f"{id_!r} has the key {fields[1]!r}, which is no text") from None
    return Record(id_, kind, name, fields[5], fields[7], fields[9], value, old)


def value_of(entry: RawEntry) -> bytes | None:
    """Return the value that an entry stores, None without one."""
    fields = entry[1]
    return fields[11] if len(fields) >= 12 and fields[10] == b"v" else None


class Follower(Protocol):
    """One resource, as the reader of its log sees it."""

    def position(self) -> bytes | None:
        """Return the ID to read on from; None while this log must not be read."""

    @property
    def announced(self) -> Revision:
        """The end of the log when it was last looked up."""

    def unread(self, values: Sequence[bytes]) -> list[bytes]:
        """Return the values that `prepare` must read in a thread before they are fed, because they are large; [] for most."""

    async def prepare(self, values: Sequence[bytes]) -> None:
        """Read these values in a thread."""

    def feed(self, entries: Sequence[RawEntry]) -> None:
        """Take the next entries, in order. Must not raise: the follower itself detects a gap and acts on it."""

    def nothing(self, announced: Revision) -> None:
        """Note that a read from `position`, which began when `announced` was known, brought nothing."""


class Tail:
    """Follows all logs over one connection of its own. Logs may come and go: a question asks about those of its moment."""

    def __init__(self, options: StoreOptions, followers: Mapping[str, Follower]) -> None:
        """`followers` by the names of their streams."""
        self._options = options
        self._followers = {name.encode(): follower for name, follower in followers.items()}

    def add(self, name: str, follower: Follower) -> None:
        """Follow one more stream, from the next question on."""
        self._followers[name.encode()] = follower

    def remove(self, name: str) -> None:
        """Stop to follow a stream. Its entries in the present answer are ignored."""
        self._followers.pop(name.encode(), None)

    async def run(self, verify: Callable[[bytes], None], idle: Callable[[], Awaitable[None]]) -> None:
        """Connect, pass the server's INFO to `verify`, and follow until the connection breaks (Disconnected).

        `idle` is awaited after each second without entries.
        """
        connection = await Connection.open(self._options, "sluice-tail")
        try:
            reading = _Reading(connection, self._followers, idle=idle, reply_seconds=self._options.reply_seconds)
            verify(await reading.info())
            await reading.run()
        finally:
            await connection.close()


class _Portion(NamedTuple):
    """Some entries of a stream, and the ID of the entry before them; None at the beginning of an answer."""

    name: bytes
    entries: Sequence[RawEntry]
    after: bytes | None


class _Held(NamedTuple):
    """A portion that waits for `unread` values, its follower, and the position of that."""

    follower: Follower
    position: bytes | None
    portion: _Portion
    unread: list[bytes]


def _portions(reply: Iterable[tuple[bytes, Sequence[RawEntry]]]) -> Iterator[_Portion]:
    """Divide an answer into portions, stream by stream."""
    for name, entries in reply:
        start = size = 0
        for at, (_, fields) in enumerate(entries[:-1]):
            size += sum(map(len, fields))
            if size > PORTION_BYTES:
                yield _Portion(name, entries[start : at + 1], entries[start - 1][0] if start else None)
                start, size = at + 1, 0
        yield _Portion(name, entries[start:], entries[start - 1][0] if start else None)


_Answer = TypeVar("_Answer")
_Then = Callable[[], Awaitable[None]]


class _Reading:
    """One question after the other, over one connection.

    An answer is fed in the step of the loop that receives it, and the next question leaves in the same step. So no task gets a
    turn between the bytes and the watchers. The task of `run` does what takes time: `_then` is its work before the next question.
    """

    def __init__(
        self, connection: Connection, followers: Mapping[bytes, Follower], *, idle: _Then, reply_seconds: float
    ) -> None:
        self._connection = connection
        self._followers = followers
        self._idle = idle
        self._reply_seconds = reply_seconds
        self._loop = asyncio.get_running_loop()
        self._then: asyncio.Future[_Then] = self._loop.create_future()
        self._announced: dict[bytes, Revision] = {}
        """The ends of the streams that were asked about and have brought nothing."""
        self._left: Iterator[_Portion] = iter(())
        self._held: _Held | None = None
        """A portion with large values, which are read in a thread before it is fed."""
        self._seconds = self._due = 0.0

    async def info(self) -> Any:
        self._expect(self._reply_seconds)
        return await self._awaited(self._connection.call(pipeline.pack("INFO")))

    async def run(self) -> None:
        while True:
            self._then = self._loop.create_future()
            self._ask()
            then = await self._awaited(self._then)
            await then()

    def _ask(self) -> None:
        positions = {name: at for name, follower in self._followers.items() if (at := follower.position()) is not None}
        self._announced = {name: self._followers[name].announced for name in positions}
        if not positions:
            self._then.set_result(self._no_position)
            return
        block = BLOCK_MS if len(positions) == len(self._followers) else SHORT_BLOCK_MS
        self._expect(block / 1000 + self._reply_seconds)
        command = pipeline.pack(
            "XREAD", "COUNT", ENTRIES, "BLOCK", block, "STREAMS", *positions.keys(), *positions.values()
        )
        self._connection.submit(command, self._answered)

    def _answered(self, reply: Any) -> None:
        if self._connection.broken.done():
            return  # the task handles it
        try:
            if isinstance(reply, StorageError):
                raise Disconnected(f"the log cannot be read: {reply}")
            self._left = _portions(reply or ())
            if not self._feed():
                self._then.set_result(self._feed_on)
            elif reply:
                self._ask()
            else:
                self._then.set_result(self._idle)
        except Exception as error:  # noqa: BLE001  (it is raised in the task)
            self._then.set_exception(error)

    def _feed(self) -> bool:
        """Feed the rest of an answer. Return False when this step must end before the rest is fed."""
        since = self._loop.time()
        for portion in self._left:
            follower = self._followers.get(portion.name)
            self._announced.pop(portion.name, None)
            # A follower that was filled anew since the step before reads on from another position.
            if follower is not None and (portion.after is None or portion.after == follower.position()):
                if unread := follower.unread([value for entry in portion.entries if (value := value_of(entry))]):
                    self._held = _Held(follower, follower.position(), portion, unread)
                    return False
                follower.feed(portion.entries)
            if self._loop.time() - since > SLICE_SECONDS:
                return False
        for name, last in self._announced.items():
            if (follower := self._followers.get(name)) is not None:
                follower.nothing(last)
        return True

    async def _feed_on(self) -> None:
        while True:
            if self._held is not None:
                held, self._held = self._held, None
                await held.follower.prepare(held.unread)
                if held.follower.position() == held.position:  # else it was filled anew meanwhile
                    held.follower.feed(held.portion.entries)
            if self._feed():
                return
            if self._held is None:
                await asyncio.sleep(0)  # gives way

    async def _no_position(self) -> None:
        await asyncio.sleep(SHORT_BLOCK_MS / 1000)

    def _expect(self, seconds: float) -> None:
        """Set the time within which the next answer must come."""
        self._seconds, self._due = seconds, self._loop.time() + seconds

    async def _awaited(self, future: asyncio.Future[_Answer]) -> _Answer:
        """Wait for the future. Raises Disconnected when the connection breaks first, or owes an answer for too long.

        No timer is reset while answers come: when it fires, the present question may not be due. One that was asked before this process
        was suspended counts as asked after that.
        """
        broken, spared = self._connection.broken, 0.0
        try:
            while not future.done():
                now = self._loop.time()
                look = min(max(now, self._due, spared), now + LOOK_SECONDS)
                await asyncio.wait((future, broken), timeout=look - now, return_when=asyncio.FIRST_COMPLETED)
                if future.done():
                    break
                if broken.done():
                    raise Disconnected(broken.result())
                now = self._loop.time()
                if now - look > pipeline.STALLED_SECONDS:
                    spared = now + self._seconds
                elif now >= max(self._due, spared):
                    raise Disconnected(f"the log's connection has not answered for {self._seconds:g} s")
            return future.result()
        finally:
            pipeline.abandon(future)
