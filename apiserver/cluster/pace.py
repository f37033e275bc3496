"""How often and how soon kube-apiserver is asked. Knows neither requests nor tasks: it only counts.

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
    """`steps` attempts; the pauses between them start at `seconds` and grow by `factor`, each longer by up to `jitter` of itself."""

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


LANE_WAITING, WAITING = 256, 2048
"""Questions that wait for their turn: for one asker, and for all. More are refused at once."""


ROUNDING = 1e-6
"""Of a question: who slept as long as it was told must not be told to sleep for nothing."""


class Throttle:
    """client-go's token bucket: a burst, and behind it one question after another at the rate; among those that wait, one of each lane
    in turn. A lane is whoever makes us ask: who asks much waits for itself and delays nobody else by more than one question.

    The order is that of start-time fair queueing: each question of a lane is marked one later than the one before it, and the first of a
    lane that was silent as if it came now.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()
        self._now = 0.0
        self._last: dict[str, tuple[float, int]] = {}
        """Of each lane that waits: the mark of its newest question, and how many wait."""
        self._waiting: list[tuple[float, int]] = []
        self._count = 0

    def enter(self, lane: str) -> Turn | None:
        """A place in the queue; None when too many wait already."""
        mark, waiting = self._last.get(lane, (0.0, 0))
        if waiting >= LANE_WAITING or len(self._waiting) >= WAITING:
            return None
        self._count += 1
        turn = Turn(self, lane, (max(mark, self._now) + 1, self._count))
        self._last[lane] = turn.place[0], waiting + 1
        insort(self._waiting, turn.place)
        return turn

    def seconds(self, turn: Turn) -> float:
        """How long until its turn comes if nobody overtakes it; 0: it is now, and taken."""
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
        """It had its turn, or gave up."""
        del self._waiting[bisect_left(self._waiting, turn.place)]
        mark, waiting = self._last[turn.lane]
        if waiting > 1:
            self._last[turn.lane] = mark, waiting - 1
        else:
            del self._last[turn.lane]


@dataclass(frozen=True, slots=True)
class Turn:
    """One question's place in the queue of a throttle: leave it in any case."""

    throttle: Throttle
    lane: str
    place: tuple[float, int]

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, *_: object) -> None:
        self.throttle.leave(self)

    def seconds(self) -> float:
        return self.throttle.seconds(self)
