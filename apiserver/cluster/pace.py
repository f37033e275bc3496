"""How often and how soon kube-apiserver is asked. Knows neither requests nor tasks: it only counts.

Upstream: kubernetes/apimachinery `pkg/util/wait/backoff.go`, kubernetes/client-go `util/flowcontrol/throttle.go`.
"""

from __future__ import annotations

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


class Throttle:
    """client-go's token bucket: a burst, and behind it one request after another at the rate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._at = clock()

    def wait(self, most: float) -> float | None:
        """Takes a place and returns the seconds until its turn, or takes none and returns None when that would be more than `most`."""
        now = self._clock()
        self._left = min(BURST, self._left + (now - self._at) * REQUESTS_PER_SECOND)
        self._at = now
        seconds = max(0.0, (1 - self._left) / REQUESTS_PER_SECOND)
        if seconds > most:
            return None
        self._left -= 1
        return seconds
