"""Read and write the headers `traceparent`, `tracestate` and `baggage` of W3C Trace Context.

Clients choose these headers, so that each is short enough to be read in one step, or is ignored.
Upstream: go.opentelemetry.io/otel `propagation/{trace_context,baggage}.go`, `trace/tracestate.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from multidict import CIMultiDictProxy

from apiserver.runtime.spans import Remote, Span

PARENT, STATE, BAGGAGE = "traceparent", "tracestate", "baggage"
SAMPLED, KNOWN_FLAGS = 1, 3
MOST_PARENT = 512
MOST_STATE = 32 * 514
"""32 members, the most that the specification allows, of the longest key and value."""
MOST_BAGGAGE = 8192
"""The specification's limit."""
MOST_MEMBERS = 32
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_STATE_MEMBER = re.compile(
    r"[a-z0-9][-_*/a-z0-9@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_BAGGAGE = re.compile(r"[\x21-\x7e\t ]+")


def written(place: Remote) -> dict[str, str]:
    """Return the headers that state a place in a trace."""
    found = {PARENT: f"00-{place.trace_id:032x}-{place.span_id:016x}-{place.flags:02x}"}
    if place.state:
        found[STATE] = place.state
    if place.baggage:
        found[BAGGAGE] = place.baggage
    return found


class PassedOn(Span):
    """The span of a request that is not recorded: its headers go on to webhooks and to kube-apiserver."""

    __slots__ = ("_headers", "_over")

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__()
        self._headers = headers
        self._over = False

    def headers(self) -> Mapping[str, str]:
        """Return the headers while the request lives: a task that it began may go on without it."""
        return {} if self._over else self._headers

    def end(self) -> None:
        self._over = True


def stated(headers: CIMultiDictProxy[str]) -> Remote | None:
    """Return the place in a trace that a request states; None for no place or an invalid one."""
    text = headers.get(PARENT)
    if text is None or len(text) > MOST_PARENT:
        return None
    match = _PARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags = (int(part, 16) for part in match.groups()[:4])
    if version == 255 or not trace_id or not span_id:
        return None
    if not version and (match[5] is not None or flags > KNOWN_FLAGS):
        return None
    return Remote(trace_id, span_id, flags & KNOWN_FLAGS, _state(headers.get(STATE, "")), baggage(headers))


def _state(text: str) -> str:
    """Return the valid state; empty if any of it is invalid."""
    if not text or len(text) > MOST_STATE:
        return ""
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    if len(members) > MOST_MEMBERS or len(keys) < len(members) or not all(map(_STATE_MEMBER.fullmatch, members)):
        return ""
    return ",".join(members)


def baggage(headers: CIMultiDictProxy[str]) -> str:
    """Return the baggage of a request; empty if it is too long, or is no text of ASCII."""
    text = ",".join(headers.getall(BAGGAGE, ()))
    return text if text and len(text) <= MOST_BAGGAGE and _BAGGAGE.fullmatch(text) else ""


def passed_on(headers: CIMultiDictProxy[str]) -> dict[str, str]:
    """Return the valid ones of the headers, for other servers."""
    found = stated(headers)
    if found is not None:
        return written(found)
    text = baggage(headers)
    return {BAGGAGE: text} if text else {}
