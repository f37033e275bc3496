"""Commands to the server: the function library, packing, one pipelined connection, typed answers.

Knows the words of `functions.lua` and of the wire, and which errors mean that nothing was executed. Knows no lineage, decides
about no retry: redis-py's own retries are off, because they would execute a write a second time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from apiserver.storage.errors import Unavailable
from apiserver.storage.options import StoreOptions
from apiserver.storage.redis_keys import RedisKeys
from apiserver.watchcache import keys
from apiserver.watchcache.entry import Revision
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

LIBRARY = "sluice1"
SCHEMA = "1"
CODE = Path(__file__).with_suffix(".lua").read_bytes()
NAMES = tuple(
    f"sl1_{name}" for name in ["put", "del", "batch", "head", "range", "scan", "digest", "fence", "floor", "init"]
)

BATCH_CHANGES = 64
"""`sl1_batch` takes so many."""

EPOCH_STEPS = 1 << 20
"""At most 16 seconds of epochs (docs/storage.md says what they are for)."""

_KEY_COUNT = 5


class Lost(Unavailable):
    """The keys of a resource are not (all) there: flushed, deleted, or another database. Nothing was executed."""


class Rejected(Unavailable):
    """The server answered, or was never asked: nothing was executed."""


class Foreign(Rejected):
    """The log does not end where the server process has left it, or below what was told: it must be taken over first."""

    def __init__(self) -> None:
        super().__init__("the log is not the one that this server process has left")


class Disconnected(StorageError):
    """The connection ended before the answer: what was sent may have been executed, or may be still."""


class Failed(StorageError):
    """An error that does not say whether anything was executed."""


# What the server says before it executes anything (valkey-io/valkey `src/server.c`, `src/script.c`).
_NOT_EXECUTED = (
    "OOM", "NOREPLICAS", "MISCONF", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "NOAUTH", "WRONGPASS", "NOPERM",
    "CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN", "CROSSSLOT", "ERR Function not found", "ERR sl1_batch takes",
    "ERR Can not execute a script with write flag", "ERR unknown command", "ERR wrong number of arguments",
)  # fmt: skip


def code_hash(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()[:16]


# ------------------------------------------------------------------------------------------------------------- connections


def open_wire(options: StoreOptions, name: str) -> AbstractConnection:
    """A redis-py connection, not yet connected. Raises ValueError on a URL that it cannot read."""
    settings: dict[str, Any] = dict(parse_url(options.url))
    kind: type[AbstractConnection] = settings.pop("connection_class", TcpConnection)
    given = {"username": options.username, "password": options.password}
    settings |= {setting: value for setting, value in given.items() if value is not None}
    settings |= {
        "client_name": name,
        "driver_info": None,
        "health_check_interval": 0,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": options.connect_seconds,
        "socket_timeout": None,
    }
    try:
        return kind(**settings)
    except TypeError as error:
        raise ValueError(f"the store's URL has a parameter that is not known: {error}") from None


async def connect(wire: AbstractConnection, *, seconds: float) -> None:
    """Connected, authenticated and named. Raises Rejected."""
    try:
        async with asyncio.timeout(seconds):
            await wire.connect()  # type: ignore[no-untyped-call]
    except TimeoutError:
        await disconnect(wire)
        raise Rejected(f"no connection to the store within {seconds:g} s") from None
    except (redis_errors.RedisError, OSError) as error:
        await disconnect(wire)
        raise Rejected(f"no connection to the store: {_text(error)}") from None
    except asyncio.CancelledError:
        await disconnect(wire)
        raise


async def disconnect(wire: AbstractConnection) -> None:
    try:
        await wire.disconnect(nowait=True)
    except (redis_errors.RedisError, OSError):
        pass


def _text(error: Exception) -> str:
    """What the server said, in full: redis-py takes the first word of errors that it knows away."""
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error)


def refusal(error: Exception) -> StorageError:
    """What an error reply means."""
    text = _text(error)
    return Rejected(text) if text.startswith(_NOT_EXECUTED) else Failed(text)


Answered = Callable[[Any], None]
"""Takes a reply, or a StorageError instead of one. Must not raise."""


class Connection:
    """One connection: commands leave in the order of `submit`, and each answer is handed on when it comes.

    Commands belong to the connection's own two tasks. Who waits for an answer and goes away changes nothing for the command.
    """

    def __init__(self, wire: AbstractConnection, *, loop: asyncio.AbstractEventLoop) -> None:
        self.client_id = 0
        self.broken: asyncio.Future[str] = loop.create_future()
        """Done when the connection is of no more use; says why."""
        self._wire = wire
        self._loop = loop
        self._wake = asyncio.Event()
        self._out: list[bytes] = []
        self._owed: deque[tuple[float, Answered]] = deque()
        self._tasks = (loop.create_task(self._send()), loop.create_task(self._read()))

    @classmethod
    async def open(cls, options: StoreOptions, name: str) -> Connection:
        wire = open_wire(options, name)
        await connect(wire, seconds=options.connect_seconds)
        connection = cls(wire, loop=asyncio.get_running_loop())
        try:
            async with asyncio.timeout(options.connect_seconds):
                connection.client_id = int(await connection.call(pack("CLIENT", "ID")))
        except TimeoutError:
            await connection.close("no answer")
            raise Rejected(f"no answer from the store within {options.connect_seconds:g} s") from None
        except BaseException:
            await connection.close("not opened")
            raise
        return connection

    def submit(self, command: bytes, answered: Answered) -> None:
        """Send one packed command soon. `answered` is called exactly once, possibly at once."""
        if self.broken.done():
            answered(Rejected(self.broken.result()))
            return
        self._owed.append((self._loop.time(), answered))
        self._out.append(command)
        self._wake.set()

    def call(self, command: bytes) -> asyncio.Future[Any]:
        """The same for callers that wait."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def answered(reply: Any) -> None:
            if future.done():
                return
            if isinstance(reply, StorageError):
                future.set_exception(reply)
            else:
                future.set_result(reply)

        self.submit(command, answered)
        return future

    def owes_since(self) -> float | None:
        """When the oldest unanswered command was submitted (loop time)."""
        return self._owed[0][0] if self._owed else None

    async def drain(self, *, seconds: float) -> None:
        """Wait for what is owed, but not for long: every answer that still comes leaves one doubt less."""
        if self._owed and not self.broken.done():
            last = self.call(pack("PING"))
            await asyncio.wait([last, self.broken], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            abandon(last)

    async def close(self, reason: str = "closed") -> None:
        """Ends the connection; what was not answered is Disconnected, what was not even sent Rejected."""
        self._break(reason)
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await disconnect(self._wire)

    def _break(self, reason: str) -> None:
        if self.broken.done():
            return
        self.broken.set_result(reason)
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        owed, unsent = self._owed, len(self._out)
        self._owed, self._out = deque(), []
        sent = len(owed) - unsent
        for at, (_, answered) in enumerate(owed):
            answered(Disconnected(reason) if at < sent else Rejected(reason))

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            out, self._out = self._out, []
            try:
                await self._wire.send_packed_command(out, check_health=False)
            except (redis_errors.RedisError, OSError) as error:
                self._break(f"the connection to the store broke: {_text(error)}")
                return

    async def _read(self) -> None:
        read = self._wire.read_response
        while True:
            reply: Any
            try:
                reply = await read(disable_decoding=True, timeout=math.inf, disconnect_on_error=False)
            except redis_errors.ResponseError as error:
                reply = refusal(error)
            except (redis_errors.RedisError, OSError) as error:
                self._break(f"the connection to the store broke: {_text(error)}")
                return
            try:
                self._owed.popleft()[1](reply)
            except Exception:  # the task must not end silently: others wait for answers too
                logger.exception("an answer of the store could not be used")
                self._break("internal error")
                return


def abandon(future: asyncio.Future[Any]) -> None:
    """Nobody is going to wait for this answer. The command itself goes on."""
    if not future.cancel() and not future.cancelled():
        future.exception()


# ----------------------------------------------------------------------------------------------------------------- packing


def _words(words: Iterable[str | bytes | int]) -> bytes:
    out = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


def pack(*words: str | bytes | int) -> bytes:
    """Any command."""
    return b"*%d\r\n%b" % (len(words), _words(words))


class Mutation(NamedTuple):
    """One put (value) or delete (None) as `sl1_batch` takes it. All bytes: they go out as they are."""

    key: bytes
    expected: bytes
    """`-`: must be absent; an ID."""
    token: bytes
    uid: bytes
    """Of a delete: `old` asks for the value that is deleted."""
    value: bytes | None


class Commands:
    """The commands of one resource. Packing by hand takes a microsecond where redis-py's own way takes ten."""

    def __init__(self, resource: str) -> None:
        self.keys = RedisKeys.of(resource)
        self.log = self.keys.log.encode()
        self._put = self._call("sl1_put", arguments=7)
        self._del = self._call("sl1_del", arguments=6)
        self._batch = self._call("sl1_batch", arguments=0).partition(b"\r\n")[2]
        self.head = self._call("sl1_head", arguments=0, read=True)

    def _call(self, name: str, *, arguments: int, read: bool = False) -> bytes:
        words = ("FCALL_RO" if read else "FCALL", name, _KEY_COUNT, *self.keys.all)
        return b"*%d\r\n%b" % (len(words) + arguments, _words(words))

    def _with(self, name: str, *arguments: str | bytes | int, read: bool = False) -> bytes:
        return self._call(name, arguments=len(arguments), read=read) + _words(arguments)

    def change(self, epoch: bytes, deadline: bytes, change: Mutation) -> bytes:
        key, expected, token, uid, value = change
        if value is None:
            return b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
                self._del, len(epoch), epoch, len(deadline), deadline, len(key), key, len(expected), expected,
                len(token), token, len(uid), uid,
            )  # fmt: skip
        return (
            b"%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
                self._put, len(epoch), epoch, len(deadline), deadline, len(key), key, len(expected), expected,
                len(token), token, len(uid), uid, len(value), value,
            )
        )  # fmt: skip

    def batch(self, epoch: bytes, deadline: bytes, changes: Sequence[Mutation]) -> bytes:
        """Up to BATCH_CHANGES of them: one call takes the server and us less than as many single ones."""
        out = [
            b"*%d\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n"
            % (3 + _KEY_COUNT + 2 + 6 * len(changes), self._batch, len(epoch), epoch, len(deadline), deadline)
        ]
        for key, expected, token, uid, value in changes:
            kind, data = (b"del", b"") if value is None else (b"put", value)
            out.append(
                b"$3\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"
                % (kind, len(key), key, len(expected), expected, len(token), token, len(uid), uid, len(data), data)
            )
        return b"".join(out)

    def head_of(self, epoch: int) -> bytes:
        """`head` that also says where this epoch ended."""
        return self._with("sl1_head", epoch, read=True)

    def range(self, after: bytes, *, count: int, size: int) -> bytes:
        return self._with("sl1_range", after, count, size, read=True)

    def scan(self, cursor: bytes, *, count: int, newest: Revision | None = None) -> bytes:
        """`newest`: without the objects that were changed after it."""
        limit = () if newest is None else (keys.stream_id(newest),)
        return self._with("sl1_scan", cursor, count, *limit, read=True)

    def digest(self, cursor: bytes, *, count: int) -> bytes:
        return self._with("sl1_digest", cursor, count, read=True)

    def fence(self, run_id: str, highest_epoch: int) -> bytes:
        """`highest_epoch`: of this log, that the caller has ever met."""
        return self._with("sl1_fence", run_id, highest_epoch, _step())

    def floor(self, wanted: Revision, *, least_ms: int, keep: int) -> bytes:
        return self._with("sl1_floor", keys.stream_id(wanted), least_ms, keep)

    def init(self, run_id: str, marker: str) -> bytes:
        return self._with("sl1_init", run_id, SCHEMA, marker, _step())


def _step() -> int:
    """How far an epoch that is about to begin lies above all that is known: who knows nothing of another takeover draws another."""
    return 1 + secrets.randbelow(EPOCH_STEPS)


# ----------------------------------------------------------------------------------------------------------------- answers


class Head(NamedTuple):
    epoch: int
    last: Revision
    floor: Revision
    own: bool
    """The server process has left the log as it is, and may write to it."""
    objects: int
    size: int
    """Bytes of all stored values."""
    now_ms: int
    """The server's clock."""
    fenced: int | None
    """The n at which the epoch that was asked about ended."""
    marker: str
    schema: str


class Range(NamedTuple):
    floor: Revision
    last: Revision
    entries: list[tuple[bytes, list[bytes]]]


class Scan(NamedTuple):
    cursor: bytes
    last: Revision
    rows: list[bytes]


class Fence(NamedTuple):
    epoch: int
    last: Revision
    started: bool


class Floor(NamedTuple):
    floor: Revision
    raised: bool
    more: bool


def found(reply: list[Any]) -> list[Any]:
    """The answer itself, when the resource is there. Raises Lost."""
    if reply[0] == b"LOST":
        raise Lost(f"the store lost its data: {reply[1].decode()}")
    return reply


def head(reply: list[Any]) -> Head:
    _, epoch, last, floor_, own, count, size, now, fenced, marker, schema = found(reply)
    return Head(
        int(epoch), keys.revision(last), keys.revision(floor_), own == b"1", int(count), int(size), int(now),
        int(fenced) if fenced else None, marker.decode(), schema.decode(),
    )  # fmt: skip


def own_head(reply: list[Any]) -> Head:
    """Raises Foreign when nothing must be believed of what the head says."""
    answer = head(reply)
    if not answer.own:
        raise Foreign
    return answer


def range_(reply: list[Any]) -> Range:
    _, floor_, last, entries = found(reply)
    return Range(keys.revision(floor_), keys.revision(last), entries)


def scan(reply: list[Any]) -> Scan:
    """Also of `digest`."""
    _, cursor, last, rows = found(reply)
    return Scan(cursor, keys.revision(last), rows)


def fence(reply: list[Any]) -> Fence:
    _, epoch, last, started = found(reply)
    return Fence(int(epoch), keys.revision(last), started == b"1")


def floor(reply: list[Any]) -> Floor:
    _, current, raised, more = found(reply)
    return Floor(keys.revision(current), raised == b"1", more == b"1")
