"""Metrics of the namespaces whose changes wait for a check, under upstream's names.

Upstream: kubernetes/client-go `util/workqueue/metrics.go`, kubernetes/component-base `metrics/prometheus/workqueue/metrics.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from apiserver import metrics

NAME = "admission_quota_controller"


class Workqueue:
    """A namespace is added once until work on it begins. `clock` is in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[str, float] = {}
        self._worked_on: dict[str, float] = {}
        """The times at which they were added, and at which work began."""
        self._adds = metrics.WORKQUEUE_ADDS.labels(NAME)
        self._waited = metrics.WORKQUEUE_QUEUE_SECONDS.labels(NAME)
        self._worked = metrics.WORKQUEUE_WORK_SECONDS.labels(NAME)
        metrics.WORKQUEUE_DEPTH.labels(NAME).set_function(lambda: len(self._waiting))
        metrics.WORKQUEUE_UNFINISHED.labels(NAME).set_function(lambda: sum(self._ages()))
        metrics.WORKQUEUE_LONGEST.labels(NAME).set_function(lambda: max(self._ages(), default=0))

    def add(self, namespace: str) -> None:
        if namespace not in self._waiting:
            self._waiting[namespace] = self._clock()
            self._adds.inc()

    @contextmanager
    def work(self, namespace: str) -> Iterator[None]:
        """Measure the work on a namespace."""
        now = self._worked_on[namespace] = self._clock()
        self._waited.observe(now - self._waiting.pop(namespace))
        try:
            yield
        finally:
            self._worked.observe(self._clock() - self._worked_on.pop(namespace))

    def _ages(self) -> list[float]:
        now = self._clock()
        return [now - since for since in self._worked_on.values()]
