"""Report lost events: count them, and log all that were lost together in one message."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from apiserver import metrics
from apiserver.audit.event import Event

logger = logging.getLogger(__name__)

SHOWN, SHOWN_CHARACTERS = 3, 1024
"""How many events a message shows, and how many characters of each; upstream shows all."""
SHUT_DOWN = "audit backend shut down"
GIVEN_UP = "the request was given up before there was room for its events"


def failed(plugin: str, error: str, events: Sequence[Event]) -> None:
    """Report events that `plugin` could not deliver. Call it on the event loop only.

    Upstream: kubernetes/apiserver `pkg/audit/metrics.go` HandlePluginError.
    """
    metrics.AUDIT_ERRORS.labels(plugin).inc(len(events))
    shown = [event.legacy()[:SHOWN_CHARACTERS] for event in events[:SHOWN]]
    if len(events) > SHOWN:
        shown.append(f"… and {len(events) - SHOWN:,} more")
    lines = "".join(f"{line}\n" for line in shown)
    # `task`: a flood of one plugin must not suppress the messages of another one (`logs`).
    about = {"task": f"audit-{plugin}"}
    logger.error(
        "Error in audit plugin '%s' affecting %d audit events: %s\nImpacted events:\n%s",
        plugin, len(events), error, lines,
        extra=about,
    )  # fmt: skip
