"""Send events over HTTP to the server that a kubeconfig names.

Upstream: kubernetes/apiserver `plugin/pkg/audit/webhook/webhook.go`, `pkg/util/webhook/webhook.go`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random as randomness
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from apiserver.audit import failures
from apiserver.audit.budget import ByteBudget, memory_of_all
from apiserver.audit.event import Event
from apiserver.cluster.client import Client
from apiserver.cluster.credentials import Kubeconfig
from apiserver.cluster.errors import ClusterError, Refused
from apiserver.cluster.pace import Backoff
from apiserver.runtime.offload import WRITE_EVENTS, run_sized

PLUGIN = "webhook"
SECONDS = 30.0
"""For one of five attempts."""
LONGEST_PAUSE = 60.0
"""The longest Retry-After that is honoured."""
SENDING_BYTES = 64 << 20
"""The byte budget of events under way. Above it, callers wait."""
ANSWER_BYTES = 1 << 20
CHUNK_BYTES = 64 << 10
"""Bytes that are given to the connection in one step of the event loop."""
ACCEPT = "application/json, */*"
_BEGIN, _END = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[', b"]}\n"


class Webhook:
    """Returns from `process` when the webhook has accepted the events, or after five failed attempts, whatever their errors."""

    def __init__(
        self,
        config_file: str,
        environ: Mapping[str, str],
        *,
        backoff: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        random: Callable[[], float] = randomness.random,
    ) -> None:
        self._source = Kubeconfig(config_file, environ)
        self._backoff = Backoff(seconds=max(0.0, backoff))
        self._sleep, self._random = sleep, random
        self._budget = ByteBudget(SENDING_BYTES)
        self._sending: set[asyncio.Task[bool]] = set()
        self._stopping = False
        self._connecting = asyncio.Lock()
        self._client: Client | None = None
        self._finding: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Load the credentials before the first event. If that fails, each attempt loads them again."""
        self._finding = asyncio.create_task(self._find())

    async def process(self, events: Sequence[Event]) -> bool:
        if self._stopping:
            failures.failed(PLUGIN, failures.SHUT_DOWN, events)
            return False
        size = memory_of_all(events)
        try:
            await self._budget.acquire(size)
        except asyncio.CancelledError:
            failures.failed(PLUGIN, failures.GIVEN_UP, events)
            raise
        sending = asyncio.create_task(self._send(events, size))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        return await asyncio.shield(sending)  # a client that disconnects does not cancel its events

    async def stop(self) -> None:
        self._stopping = True
        try:
            while self._sending or not self._budget.unused:
                await asyncio.wait(self._sending) if self._sending else await asyncio.sleep(0)
        finally:
            left = [*self._sending, *filter(None, (self._finding,))]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            if self._client is not None:
                await self._client.close()

    async def _send(self, events: Sequence[Event], size: int) -> bool:
        try:
            await self._attempts(await _body(events, size))
        except ClusterError as error:
            failures.failed(PLUGIN, str(error), events)
            return False
        except asyncio.CancelledError:
            failures.failed(PLUGIN, failures.SHUT_DOWN, events)
            raise
        finally:
            self._budget.release(size)
        return True

    async def _attempts(self, body: Sequence[bytes]) -> None:
        """Send until an attempt succeeds. Raises the last error."""
        pauses = self._backoff.pauses(self._random)
        while True:
            try:
                await self._attempt(body)
                return
            except ClusterError as error:
                pause = next(pauses, None)
                if pause is None:
                    raise
                asked = (error.retry_after if isinstance(error, Refused) else None) or 0.0
            await self._sleep(max(pause, min(asked, LONGEST_PAUSE)))

    async def _attempt(self, body: Sequence[bytes]) -> None:
        client = await self._connected()
        query = {"timeout": f"{SECONDS:g}s"}
        await client.fetch("POST", "", query=query, content=body, seconds=SECONDS, within=SECONDS, most=ANSWER_BYTES)

    async def _find(self) -> None:
        with contextlib.suppress(ClusterError):
            await self._connected()

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None:
                self._client = await Client.of(self._source, accept=ACCEPT, throttled=False)
            return self._client


async def _body(events: Sequence[Event], size: int) -> Sequence[bytes]:
    return await run_sized(WRITE_EVENTS, size, _written_down, events)


def _written_down(events: Sequence[Event]) -> Sequence[bytes]:
    """Encode an EventList in pieces of about CHUNK_BYTES."""
    return list(_chunks(_pieces(events)))


def _pieces(events: Sequence[Event]) -> Iterable[bytes]:
    before = _BEGIN
    for event in events:
        yield before
        yield from event.item()
        before = b","
    yield _END


def _chunks(pieces: Iterable[bytes]) -> Iterable[bytes]:
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        for at in range(0, len(piece), CHUNK_BYTES):
            part = piece[at : at + CHUNK_BYTES]
            gathered.append(part)
            size += len(part)
            if size >= CHUNK_BYTES:
                yield b"".join(gathered)
                gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)
