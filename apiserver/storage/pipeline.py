"""One pipelined connection to the server: commands packed by hand, answers in their order, and what an error says about execution.

Knows no command of ours. It decides about no retry, and redis-py's own are off, because they would execute a write a second time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from apiserver.storage.errors import Unavailable
from apiserver.storage.options import StoreOptions
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

STALLED_SECONDS = 1.0
"""A timer that rings so much too late says that this process stood still: the answer may have come, and wait to be read."""


class Rejected(Unavailable):
    """The server answered, or was never asked: nothing was executed."""


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


def packed_words(words: Iterable[str | bytes | int]) -> bytes:
    out = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


def pack(*words: str | bytes | int) -> bytes:
    """Any command."""
    return b"*%d\r\n%b" % (len(words), packed_words(words))


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
        raise Rejected(f"no connection to the store: {text(error)}") from None
    except asyncio.CancelledError:
        await disconnect(wire)
        raise


async def disconnect(wire: AbstractConnection) -> None:
    try:
        await wire.disconnect(nowait=True)
    except (redis_errors.RedisError, OSError):
        pass


def text(error: Exception) -> str:
    """What the server said, in full: redis-py takes the first word of errors that it knows away. Never empty."""
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error) or type(error).__name__


def refusal(error: Exception) -> StorageError:
    """What an error reply means."""
    said = text(error)
    return Rejected(said) if said.startswith(_NOT_EXECUTED) else Failed(said)


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
                self._break(f"the connection to the store broke: {text(error)}")
                return

    async def _read(self) -> None:
        read = self._wire.read_response
        while True:
            reply: Any
            try:
                reply = await read(disable_decoding=True, disconnect_on_error=False)
            except redis_errors.ResponseError as error:
                reply = refusal(error)
            except (redis_errors.RedisError, OSError) as error:
                self._break(f"the connection to the store broke: {text(error)}")
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
