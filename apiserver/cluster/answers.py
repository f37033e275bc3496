"""Answers that are asked for once and kept for a while. Knows neither what is asked nor whom.

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
"""How long one lookup may take, however many wait for it."""

Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
_Done = TypeVar("_Done")


class Starter(Protocol):
    def __call__(self, work: Coroutine[Any, Any, _Done], /) -> asyncio.Task[_Done]: ...


class Answers(Generic[Key, Answer]):
    """The `size` answers used last. A question is under way once per key; it is nobody's, so it goes on when its first caller leaves."""

    def __init__(self, start: Starter, *, size: int, clock: Callable[[], float]) -> None:
        """`start` runs a lookup and owns it."""
        self._start = start
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, Answer]] = OrderedDict()
        self._asked: dict[Key, asyncio.Task[Answer]] = {}

    def get(self, key: Key) -> Answer | None:
        kept = self._kept.get(key)
        if kept is None:
            return None
        ends, answer = kept
        if self._clock() >= ends:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return answer

    async def ask(self, key: Key, question: Callable[[], Coroutine[Any, Any, tuple[Answer, float]]]) -> Answer:
        """The answer to `question`, which also says for how many seconds it may be kept. Raises what the question raises; errors are
        shared by those who wait, and not kept."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = self._start(self._look(key, question))
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            this = asyncio.current_task()
            if task.cancelled() and this is not None and not this.cancelling():
                raise ClusterError("the client is closed") from None  # the lookup was ended, not who waits for it
            raise

    async def _look(self, key: Key, question: Callable[[], Coroutine[Any, Any, tuple[Answer, float]]]) -> Answer:
        try:
            async with asyncio.timeout(SHARED_SECONDS):
                answer, seconds = await question()
        except TimeoutError:
            raise ClusterError(f"no answer within {SHARED_SECONDS:g} s") from None
        if seconds > 0:
            self._kept[key] = self._clock() + seconds, answer
            self._kept.move_to_end(key)
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return answer

    def __len__(self) -> int:
        return len(self._kept)
