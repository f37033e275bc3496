"""Run admission in order: every mutating plugin, then (after validation of the object) every validating one.

Upstream: kubernetes/apiserver `pkg/admission/{chain,reinvocation}.go`, `pkg/admission/metrics/metrics.go`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar, runtime_checkable

from apiserver import metrics
from apiserver.admission.core.attributes import Attributes, Operation
from apiserver.schema.resource import Object

PREPARE_SECONDS = 0.5
"""The pause between two rounds of preparation."""


@runtime_checkable
class MutatingPlugin(Protocol):
    """Sees a change before its object is validated. It refuses with a StatusError, or returns a replacement. Runs in every round of a
    write.
    """

    async def admit(self, attributes: Attributes) -> Object | None:
        """Return the object that replaces `attributes.object`, whole, with kind and apiVersion. None leaves it as it is."""


@runtime_checkable
class ValidatingPlugin(Protocol):
    """Sees the final object, and refuses it with a StatusError or lets it pass."""

    async def validate(self, attributes: Attributes) -> None: ...


Plugin = MutatingPlugin | ValidatingPlugin
"""A plugin may be both."""
_Plugin = TypeVar("_Plugin", bound=Plugin)


@runtime_checkable
class Selective(Protocol):
    """A plugin that handles only some operations."""

    operations: Collection[Operation]


@runtime_checkable
class Prepared(Protocol):
    """A plugin with work that no request should wait for."""

    async def prepare(self) -> None:
        """Prepare new configurations for requests, and log their errors. Costs nothing if nothing is new."""


class Chain:
    """The plugins in the order in which they run.

    Each plugin is timed, and so is each step as a whole, if it has plugins.
    """

    def __init__(self, plugins: Sequence[Plugin] = (), *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.mutating = tuple(plugin for plugin in plugins if isinstance(plugin, MutatingPlugin))
        self.validating = tuple(plugin for plugin in plugins if isinstance(plugin, ValidatingPlugin))
        self._prepared = tuple(plugin for plugin in plugins if isinstance(plugin, Prepared))
        self._clock = clock
        self._admitting: dict[Operation, _Step[MutatingPlugin]] = {}
        self._judging: dict[Operation, _Step[ValidatingPlugin]] = {}

    async def prepare(self, sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> None:
        """Let plugins prepare new configurations until cancelled."""
        while True:
            await self.prepare_once()
            await sleep(PREPARE_SECONDS)

    async def prepare_once(self) -> None:
        """Let plugins prepare the present configurations."""
        for plugin in self._prepared:
            await plugin.prepare()

    async def admit(self, attributes: Attributes) -> None:
        """Run the mutating plugins. Their result is in `attributes.object`."""
        step = self._admitting.get(attributes.operation)
        if step is None:
            step = self._admitting[attributes.operation] = _Step("admit", attributes.operation, self.mutating)
        began = self._clock()
        try:
            now = await self._admit(attributes, step, began)
            reinvocation = attributes.reinvocation
            if reinvocation.wanted:
                reinvocation.again = True
                now = await self._admit(attributes, step, now)
        except Exception:
            step.rejected(self._clock() - began)
            raise
        step.observe(now - began)
        step.summarise(now - began)

    async def _admit(self, attributes: Attributes, step: _Step[MutatingPlugin], now: float) -> float:
        """Run one round that begins at `now`; return when it ended."""
        for plugin, observe in step.asked:
            before = now
            try:
                replaced = await plugin.admit(attributes)
            except Exception:
                step.rejected_by(plugin, self._clock() - before)
                raise
            now = self._clock()
            observe(now - before)
            if replaced is not None:
                attributes.become(replaced)
        return now

    async def validate(self, attributes: Attributes) -> None:
        """Run the validating plugins. Raises the error of the first one that refuses."""
        step = self._judging.get(attributes.operation)
        if step is None:
            step = self._judging[attributes.operation] = _Step("validate", attributes.operation, self.validating)
        began = now = self._clock()
        for plugin, observe in step.asked:
            before = now
            try:
                await plugin.validate(attributes)
            except Exception:
                now = self._clock()
                step.rejected_by(plugin, now - before)
                step.rejected(now - began)
                raise
            now = self._clock()
            observe(now - before)
        step.observe(now - began)
        step.summarise(now - began)


class _Step(Generic[_Plugin]):
    """One step of one operation: its plugins, and their metrics."""

    def __init__(self, kind: str, operation: Operation, plugins: Sequence[_Plugin]) -> None:
        self._labels = (kind, operation)
        self.asked = [(plugin, self._observer(plugin)) for plugin in plugins if _handles(plugin, operation)]
        labels = (*self._labels, "false")
        self.observe = metrics.ADMISSION_STEP_SECONDS.labels(*labels).observe
        self.summarise = metrics.ADMISSION_STEP_SUMMARY.labels(*labels).observe

    def _observer(self, plugin: _Plugin) -> Callable[[float], None]:
        return metrics.ADMISSION_CONTROLLER_SECONDS.labels(type(plugin).__name__, *self._labels, "false").observe

    def rejected(self, seconds: float) -> None:
        labels = (*self._labels, "true")
        metrics.ADMISSION_STEP_SECONDS.labels(*labels).observe(seconds)
        metrics.ADMISSION_STEP_SUMMARY.labels(*labels).observe(seconds)

    def rejected_by(self, plugin: _Plugin, seconds: float) -> None:
        metrics.ADMISSION_CONTROLLER_SECONDS.labels(type(plugin).__name__, *self._labels, "true").observe(seconds)


def _handles(plugin: Plugin, operation: Operation) -> bool:
    return not isinstance(plugin, Selective) or operation in plugin.operations
