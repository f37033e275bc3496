"""The rate and the retries of requests to kube-apiserver. Knows neither requests nor tasks: it only counts.

Upstream: kubernetes/apimachinery `pkg/util/wait/backoff.go`, kubernetes/client-go `util/flowcontrol/throttle.go`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

REQUESTS_PER_SECOND, BURST = 200, 400
"""kubernetes/apiserver `pkg/server/options/authentication.go`, `authorization.go` getClient."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """`steps` attempts. The pauses between them start at `seconds` and grow by `factor`; a random `jitter` share is added to each."""

    seconds: float = 0.5
    factor: float = 1.5
    jitter: float = 0.2
    steps: int = 5

    def pauses(self, random: Callable[[], float]) -> Iterator[float]:
        pause = self.seconds
        for _ in range(self.steps - 1):
            yield pause * (1 + random() * self.jitter)
            pause *= self.factor


WEBHOOK = Backoff()
"""Upstream's for TokenReview and SubjectAccessReview."""
ONCE = Backoff(steps=1)


FLOW_WAITING, WAITING = 256, 2048
"""The most requests that wait: of one flow, and of all. More are refused at once."""


ROUNDING = 1e-6
"""Seconds of rounding error: a caller that slept for the returned time must not sleep again for nothing."""


class Throttle:
    """client-go's token bucket: a burst, then one request after another at the rate. Waiting requests are queued fairly by flow.

    A flow is the client that causes a request. A client with many requests waits for itself, and delays others by at most one request.
    The order is that of start-time fair queueing: each request of a flow is marked one later than the request before it. The first
    request of an idle flow is marked as if it came now.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()
        self._now = 0.0
        self._last: dict[str, tuple[float, int]] = {}
        """For each waiting flow: the mark of its newest request, and how many wait."""
        self._waiting: list[tuple[float, int]] = []
        self._count = 0

    def enter(self, flow: str) -> Turn | None:
        """Join the queue. None when too many requests wait already."""
        mark, waiting = self._last.get(flow, (0.0, 0))
        if waiting >= FLOW_WAITING or len(self._waiting) >= WAITING:
            return None
        self._count += 1
        turn = Turn(self, flow, (max(mark, self._now) + 1, self._count))
        self._last[flow] = turn.place[0], waiting + 1
        insort(self._waiting, turn.place)
        return turn

    def seconds(self, turn: Turn) -> float:
        """Return the seconds until this turn if nobody overtakes it. 0 takes the turn."""
        now = self._clock()
        self._left = min(BURST, self._left + (now - self._at) * REQUESTS_PER_SECOND)
        self._at = now
        missing = bisect_left(self._waiting, turn.place) + 1 - self._left
        if missing > ROUNDING:
            return missing / REQUESTS_PER_SECOND
        self._left -= 1
        self._now = max(self._now, turn.place[0] - 1)
        return 0.0

    def leave(self, turn: Turn) -> None:
        """Leave the queue, after the turn or instead of it."""
        del self._waiting[bisect_left(self._waiting, turn.place)]
        mark, waiting = self._last[turn.flow]
        if waiting > 1:
            self._last[turn.flow] = mark, waiting - 1
        else:
            del self._last[turn.flow]


@dataclass(frozen=True, slots=True)
class Turn:
    """One request's place in the queue of a throttle: leave it in any case."""

    throttle: Throttle
    flow: str
    place: tuple[float, int]

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self.throttle.leave(self)

    def seconds(self) -> float:
        return self.throttle.seconds(self)
