"""Tell refused clients of a priority level when to try again: later, the more are refused.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/dropped_requests_tracker.go`.
"""

from __future__ import annotations

from collections import deque

MOST_SECONDS = 32


class RetryAfter:
    """Seconds for one level. They double when many were refused lately, and fall by one when few were."""

    __slots__ = ("_changed", "_count", "_history", "_now", "seconds")

    def __init__(self) -> None:
        self.seconds = 1
        self._history: deque[tuple[int, int]] = deque()
        self._now = self._count = self._changed = 0

    def refused(self, now: int) -> None:
        """Count one refused request. `now` are whole seconds of a clock that starts above MOST_SECONDS."""
        if now == self._now:
            self._count += 1
            return
        self._history.append((self._now, self._count))
        oldest = self._now - min(2 * self.seconds, MOST_SECONDS)
        while self._history and self._history[0][0] < oldest:
            self._history.popleft()
        self._now, self._count = now, 1
        self._adapt(now)

    def _adapt(self, now: int) -> None:
        recent = sum(count for second, count in self._history if now - self.seconds <= second < now)
        if recent >= 3 * self.seconds and now - self._changed >= self.seconds:
            self.seconds = min(2 * self.seconds, MOST_SECONDS)
            self._changed = now
        elif recent < self.seconds and self.seconds > 1:
            self.seconds -= 1
