"""The interface of audit backends: `log`, `webhook` and the wrappers around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from apiserver.audit.event import Event


class Backend(Protocol):
    """Upstream: kubernetes/apiserver `pkg/audit/types.go`. Used on the event loop only."""

    async def process(self, events: Sequence[Event]) -> bool:
        """Deliver events. Return False when some of them are lost and their request should be refused.

        Never raises: errors have been logged and counted.
        """

    def start(self) -> None:
        """Prepare for events."""

    async def stop(self) -> None:
        """Wait until all events are delivered or counted as lost. Later events are lost and counted."""
