"""Failures of webhooks, as clients see them.

    CallFailure   it could not be asked, or its answer is of no use: failurePolicy says what becomes of the change
    Denial        it said no
    StatusError   anything else: the change is refused whatever failurePolicy says

Upstream: kubernetes/apiserver `pkg/util/webhook/error.go`, `pkg/admission/plugin/webhook/errors/statuserror.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.runtime.workers import BODIES
from kubetext.quoting import go_quote

LATE = "request did not complete within requested timeout"
NO_EXPLANATION = "without explanation"
HIGHEST_CODE = 999
"""The highest code of an answer. Upstream closes the connection instead of a higher one; Sluice answers 500."""
_METADATA = ("selfLink", "resourceVersion", "continue", "remainingItemCount")
_DETAILS = ("name", "group", "kind", "uid", "causes", "retryAfterSeconds")
_CAUSE = ("reason", "message", "field")
MANY_CAUSES = 500
"""A denial with more causes than these is made in a thread."""


class CallFailure(Exception):
    """Upstream's ErrCallingWebhook. `code` is the status that metrics tell."""

    def __init__(self, webhook: str, why: str, *, code: int = 503) -> None:
        super().__init__(f"failed calling webhook {go_quote(webhook)}: {why}")
        self.code = code

    def error(self) -> StatusError:
        """Where failurePolicy is Fail."""
        return errors.internal(str(self))


class Denial(Exception):
    """A webhook's no; `error` is what it said, as a client gets it."""

    def __init__(self, error: StatusError) -> None:
        super().__init__(error.message)
        self.error = error


async def denied(webhook: str, status: Mapping[str, Any] | None) -> Denial:
    """Return the denial of a Status of any size and content. A long one is read in a thread."""
    if len(((status or {}).get("details") or {}).get("causes") or ()) > MANY_CAUSES:
        return await BODIES.run_patiently(denial, webhook, status)
    return denial(webhook, status)


def denial(webhook: str, status: Mapping[str, Any] | None) -> Denial:
    """The same of a Status that is not long, or in a thread."""
    found = status or {}
    code = found.get("code") or 0
    by, said = f"admission webhook {go_quote(webhook)} denied the request", found.get("message") or found.get("reason")
    return Denial(
        StatusError(
            max(code, 400) if code <= HIGHEST_CODE else 500,
            found.get("reason") or "",
            f"{by}: {said}" if said else f"{by} {NO_EXPLANATION}",
            details=_details(found.get("details")),
            metadata=_told(found.get("metadata") or {}, _METADATA),
            outcome=stated if (stated := found.get("status")) and stated != "Success" else errors.FAILURE,
        )
    )


def _details(details: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """In the order of upstream's members, without empty ones."""
    if details is None:
        return None
    found = _told(details, _DETAILS)
    if "causes" in found:
        found["causes"] = [_told(cause or {}, _CAUSE) for cause in found["causes"]]
    return found


def _told(members: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Those of the names that say something, in their order. No number of remaining items is one too."""
    return {
        name: member
        for name in names
        if (member := members.get(name)) or (name == "remainingItemCount" and member is not None)
    }


def no_dry_run(webhook: str) -> StatusError:
    """Its side effects are not known to stay away in a dry run."""
    return errors.bad_request(f"admission webhook {go_quote(webhook)} does not support dry run")


def too_late(why: str = "") -> StatusError:
    """The time of the request is over."""
    return errors.timeout(f"{LATE} - {why}" if why else LATE)
