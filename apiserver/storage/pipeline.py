"""One pipelined connection to the server: packs commands by hand, returns answers in order, and classifies errors by execution.

redis-py connects, authenticates and names the connection. Then `Connection` takes over the transport, because redis-py's streams
and tasks cost more CPU than the rest of a round trip. It knows no command of Sluice and never retries. redis-py's own retries are
off, because they would execute a write a second time.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

import hiredis
from redis import exceptions as redis_errors
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.connection import Connection as TcpConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from apiserver.config import store_address
from apiserver.config.tls_flags import OPENSSL_CIPHERS
from apiserver.storage import access
from apiserver.storage.errors import Unavailable
from apiserver.storage.options import StoreOptions
from apiserver.watchcache.errors import StorageError

logger = logging.getLogger(__name__)

CLOSED = "Connection closed by server."
STALLED_SECONDS = 1.0
"""A timer that fires this much late shows that the process was suspended: the answer may be there, waiting to be read. So what waits for
an answer sets timers far shorter than its patience, or a suspension that is hardly longer than that would look like silence."""


class Rejected(Unavailable):
    """The server refused or was never asked: nothing was executed."""


class Redirected(Rejected):
    """A node of a cluster does not serve the keys now: another one has them, or they are being moved, or the cluster is down."""


class Disconnected(StorageError):
    """The connection ended before the answer: what was sent may have been executed, or may still be."""


class Failed(StorageError):
    """An error that does not say whether anything was executed."""


# Errors that the server returns before it executes anything (valkey-io/valkey `src/server.c`, `src/script.c`).
_NOT_EXECUTED = (
    "OOM", "NOREPLICAS", "MISCONF", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "NOAUTH", "WRONGPASS", "NOPERM",
    "CROSSSLOT", "ERR Function not found", "ERR sl1_batch takes",
    "ERR Can not execute a script with write flag", "ERR unknown command", "ERR wrong number of arguments",
)  # fmt: skip
_REDIRECTIONS = ("MOVED ", "ASK ", "TRYAGAIN ", "CLUSTERDOWN ")


def packed_words(words: Iterable[str | bytes | int]) -> bytes:
    out = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        out.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(out)


def pack(*words: str | bytes | int) -> bytes:
    """Pack any command."""
    return b"*%d\r\n%b" % (len(words), packed_words(words))


def open_wire(options: StoreOptions, name: str) -> AbstractConnection:
    """Make a redis-py connection, not yet connected. Raises ValueError for a URL that it cannot read, access.Unusable."""
    try:
        address = store_address.parse(options.url)
    except ValueError as error:
        raise ValueError(f"the store's URL {error}") from None
    if not address.url:
        raise ValueError("the store's URL names several servers, not one")
    options = access.with_password(options)
    settings: dict[str, Any] = dict(parse_url(address.url))
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
    if issubclass(kind, SSLConnection):
        settings.setdefault("ssl_ciphers", OPENSSL_CIPHERS)
    try:
        wire = kind(**settings)
    except TypeError as error:
        raise ValueError(f"the store's URL has a parameter that is not known: {error}") from None
    return wire


async def _secure(wire: SSLConnection, options: StoreOptions) -> None:
    """Give a connection its TLS context. Raises access.Unusable. Reading authorities would block the event loop for too long."""
    context = await asyncio.to_thread(access.tls_context, options)
    if context is None:
        await asyncio.to_thread(wire.ssl_context.get)
        return
    if wire.check_hostname is not context.check_hostname:
        context.check_hostname = wire.check_hostname
    wire.ssl_context.context = context


async def connect(wire: AbstractConnection, *, seconds: float) -> None:
    """Connect, authenticate and name the connection. Raises Rejected."""
    try:
        async with asyncio.timeout(seconds):
            await wire.connect()  # type: ignore[no-untyped-call]
            if await wire.can_read() or _transport(wire).is_closing():
                # Data that redis-py has read by then is lost for the new owner of the transport, and so is the notice of an end.
                raise redis_errors.ConnectionError("the server has closed it, or says more than it was asked")
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


def _transport(wire: AbstractConnection) -> asyncio.WriteTransport:
    assert wire._writer is not None
    return wire._writer.transport


def text(error: Exception) -> str:
    """Return the server's error in full: redis-py strips the first word of errors that it knows. Never empty."""
    code = getattr(error, "status_code", None)
    return f"{code} {error}" if code else str(error) or type(error).__name__


def refusal(said: str) -> StorageError:
    """Turn an error reply into an exception."""
    if said.startswith(_REDIRECTIONS):
        return Redirected(said)
    return Rejected(said) if said.startswith(_NOT_EXECUTED) else Failed(said)


Answered = Callable[[Any], None]
"""Takes a reply, or a StorageError instead of one. Must not raise."""

_NONE_YET: Final = object()
"""No whole reply has come."""


class Connection(asyncio.Protocol):
    """One connection: commands leave in the order of `submit`, and each answer is passed on when it comes.

    Commands belong to the connection. A caller that stops waiting for an answer does not cancel the command.
    """

    def __init__(self, wire: AbstractConnection, *, loop: asyncio.AbstractEventLoop) -> None:
        """Take over the transport of a connected `wire`."""
        self.client_id = 0
        self.broken: asyncio.Future[str] = loop.create_future()
        """Done when the connection is unusable; the result is the reason."""
        self.redirected: asyncio.Future[str] = loop.create_future()
        """Done when the server does not serve some keys any more, or not now (`Redirected`); the result is its error."""
        self._wire = wire
        self._loop = loop
        self._replies = hiredis.Reader(replyError=refusal, notEnoughData=_NONE_YET)
        self._owed: deque[tuple[float, Answered]] = deque()
        self._writable = True
        self._unsent: deque[bytes] = deque()
        """Commands that wait until the transport is writable; they are the last ones of `_owed`."""
        self._answering = False
        """A call of `_answer` is scheduled."""
        self._ended: str | None = None
        """The reason why no more answers will come."""
        self._transport = _transport(wire)
        self._transport.set_protocol(self)

    @classmethod
    async def open(cls, options: StoreOptions, name: str) -> Connection:
        try:
            wire = open_wire(options, name)
            if isinstance(wire, SSLConnection):
                await _secure(wire, options)
        except (access.Unusable, ssl.SSLError, OSError) as unusable:
            raise Rejected(f"no connection to the store: {unusable}") from None
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
        """Send one packed command. `answered` is called exactly once, possibly at once."""
        if self.broken.done():
            answered(Rejected(self.broken.result()))
            return
        self._owed.append((self._loop.time(), answered))
        if self._writable:
            self._transport.write(command)
        else:
            self._unsent.append(command)

    def call(self, command: bytes) -> asyncio.Future[Any]:
        """Send one packed command and return a future of its reply."""
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
        """Return when the oldest unanswered command was submitted (loop time), or None."""
        return self._owed[0][0] if self._owed else None

    async def drain(self, *, seconds: float) -> None:
        """Wait briefly for owed answers: each one that comes resolves the outcome of a write."""
        if self._owed and not self.broken.done():
            last = self.call(pack("PING"))
            await asyncio.wait([last, self.broken], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            abandon(last)

    async def close(self, reason: str = "closed") -> None:
        """Close the connection. Unanswered commands get Disconnected, unsent ones Rejected."""
        self._break(reason)
        await disconnect(self._wire)

    def _break(self, reason: str) -> None:
        if self.broken.done():
            return
        self.broken.set_result(reason)
        if self._owed:
            self._transport.abort()  # otherwise it stays open until the server reads, and sends commands whose callers have left
        owed, sent = self._owed, len(self._owed) - len(self._unsent)
        self._owed, self._unsent = deque(), deque()
        for at, (_, answered) in enumerate(owed):
            answered(Disconnected(reason) if at < sent else Rejected(reason))

    # Called by the transport. Answers are passed on in a step of their own, because the loop measures only its own steps.

    def data_received(self, data: bytes) -> None:
        if not self.broken.done():
            self._replies.feed(data)
            self._answer_soon()

    def eof_received(self) -> None:
        self._end(CLOSED)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(CLOSED if exc is None else text(exc))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = self._ended is None
        while self._writable and self._unsent:
            self._transport.write(self._unsent.popleft())

    def _end(self, why: str) -> None:
        self._writable = False
        if self._ended is None:
            self._ended = f"the connection to the store broke: {why}"
            self._answer_soon()  # after everything that has come before

    def _answer_soon(self) -> None:
        if not self._answering:
            self._answering = True
            self._loop.call_soon(self._answer)

    def _answer(self) -> None:
        """Pass on the answers that have come."""
        self._answering = False
        while not self.broken.done():
            try:
                reply = self._replies.gets()
            except hiredis.HiredisError as error:
                self._break(f"the connection to the store broke: {error}")
                return
            if reply is _NONE_YET:
                break
            if not self._owed:
                self._break("the connection to the store broke: an answer to nothing")
                return
            if isinstance(reply, Redirected) and not self.redirected.done():
                self.redirected.set_result(str(reply))
            try:
                self._owed.popleft()[1](reply)
            except Exception:  # other callers wait for answers too
                logger.exception("an answer of the store could not be used")
                self._break("internal error")
        if self._ended is not None:
            self._break(self._ended)


def abandon(future: asyncio.Future[Any]) -> None:
    """Stop waiting for this answer. The command itself goes on."""
    if not future.cancel() and not future.cancelled():
        future.exception()
