"""Events that were lost: counted, and told in one line for all that were lost together."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from apiserver import metrics
from apiserver.audit.event import Event

logger = logging.getLogger(__name__)

SHOWN, SHOWN_CHARACTERS = 3, 1024
"""How many of the events are told, and how much of each; upstream tells all of all."""
SHUT_DOWN = "audit backend shut down"
GIVEN_UP = "the request was given up before there was room for its events"


def failed(plugin: str, error: str, events: Sequence[Event]) -> None:
    """Some events are not where `plugin` should have brought them. On the event loop only.

    Upstream: kubernetes/apiserver `pkg/audit/metrics.go` HandlePluginError.
    """
    metrics.AUDIT_ERRORS.labels(plugin).inc(len(events))
    shown = [event.legacy()[:SHOWN_CHARACTERS] for event in events[:SHOWN]]
    if len(events) > SHOWN:
        shown.append(f"… and {len(events) - SHOWN:,} more")
    told = "".join(f"{line}\n" for line in shown)
    # `task`: one plugin's flood must not hide what another one says (`logs`).
    about = {"task": f"audit-{plugin}"}
    logger.error(
        "Error in audit plugin '%s' affecting %d audit events: %s\nImpacted events:\n%s",
        plugin, len(events), error, told,
        extra=about,
    )  # fmt: skip
