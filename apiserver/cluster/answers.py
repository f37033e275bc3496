"""Cache answers for a while, and ask each question once at a time. Knows neither the questions nor the server.

Upstream: kubernetes/apiserver `pkg/authentication/token/cache/cached_token_authenticator.go`, kubernetes/apimachinery
`pkg/util/cache/lruexpirecache.go`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, Protocol, TypeVar

from apiserver.cluster.errors import ClusterError

SHARED_SECONDS = 30.0
"""How long one lookup may take, however many callers wait for it."""

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
_Done = TypeVar("_Done")
Question = Callable[[], Coroutine[Any, Any, tuple[Answer, float]]]
BYTES = 8 << 20
"""The byte budget of cached entries, as far as clients choose their length."""


class Starter(Protocol):
    def __call__(self, work: Coroutine[Any, Any, _Done], /) -> asyncio.Task[_Done]: ...


class Answers(Generic[Key, Answer]):
    """The `size` answers used last, of at most BYTES together, until they expire.

    Each key has one question under way at a time. The question belongs to no caller, so it goes on when its first caller leaves.
    """

    def __init__(self, start: Starter, *, size: int, clock: Callable[[], float]) -> None:
        """`start` runs a lookup and owns it."""
        self._start = start
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, Answer, int]] = OrderedDict()
        self._bytes = 0
        self._asked: dict[Key, asyncio.Task[Answer]] = {}

    def get(self, key: Key) -> Answer | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        ends, answer, _ = kept
        if self._clock() >= ends:
            self._forget(key)
            return None
        self._kept.move_to_end(key)
        return answer

    async def ask(self, key: Key, question: Question[Answer], *, size: int = 0) -> Answer:
        """Answer `question`, which also returns for how many seconds to cache its answer. Key and answer take `size` bytes.

        Raises what the question raises. Callers that wait together share an error; it is not cached.
        """
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = self._start(self._look(key, question, size))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if task.cancelled() and this is not None and not this.cancelling():
                raise ClusterError("the client is closed") from None  # the lookup was ended, not the caller
            raise

    async def _look(self, key: Key, question: Question[Answer], size: int) -> Answer:
        try:
            async with asyncio.timeout(SHARED_SECONDS):
                answer, seconds = await question()
        except TimeoutError:
            raise ClusterError(f"no answer within {SHARED_SECONDS:g} s") from None
        if seconds > 0:
            self._forget(key)
            self._kept[key] = self._clock() + seconds, answer, size
            self._bytes += size
            self._forget_old()
        return answer

    def _forget_old(self) -> None:
        """Drop the entries that were unused for longest: those above the limits, and expired ones."""
        now = self._clock()
        while self._kept:
            key, (ends, _, _) = next(iter(self._kept.items()))
            if now < ends and len(self._kept) <= self._size and self._bytes <= BYTES:
                return
            self._forget(key)

    def _forget(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._bytes -= kept[2]

    def __len__(self) -> int:
        return len(self._kept)
