"""Where events go, as the filter sees it; `log`, `webhook` and what stands before them are backends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from apiserver.audit.event import Event


class Backend(Protocol):
    """Upstream: kubernetes/apiserver `pkg/audit/types.go`. Used on the event loop only."""

    async def process(self, events: Sequence[Event]) -> bool:
        """False when some of them are lost and whoever caused them should be refused. Raises nothing: what went wrong has been logged and
        counted."""

    def start(self) -> None:
        """From now on events come."""

    async def stop(self) -> None:
        """Returns when everything that came has gone where it belongs, or is given up. Nothing comes afterwards, or is lost, counted."""
