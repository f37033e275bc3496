"""/livez, /readyz, /healthz with their named checks, /metrics, and /metrics/slis. All are behind the filters.

Liveness never depends on the store: a restart would not help. Readiness depends on the store only until memory has been filled once.
Otherwise a store outage would turn every replica unready and take the whole API group out of the cluster. The store's present state is
a check of its own, shown and not counted. Upstream: kubernetes/apiserver `pkg/server/healthz/healthz.go`, kubernetes/component-base
`metrics/prometheus/slis/routes.go`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from heapq import nsmallest

from aiohttp import web

from apiserver import collectors, metrics
from apiserver.apimachinery.errors import TextError
from apiserver.apimachinery.request import Query
from apiserver.filters.state import Request
from apiserver.runtime import workers
from kubetext.quoting import go_quote

logger = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
SHOWN = 100
"""The most names of unknown checks that an answer repeats."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `failure` returns the reason of a failure, or None.

    A check that is not `counted` is shown but fails no endpoint. If `public` is set, `?verbose` shows the reason to every client;
    upstream withholds all reasons.
    """

    name: str
    failure: Callable[[], str | None]
    counted: bool = True
    public: bool = False


Response = web.StreamResponse
Document = Callable[[Request], Awaitable[Response]]


def documents(name: str, checks: Sequence[Check]) -> dict[str, Document]:
    """Return the documents at `/<name>` and below it for each check. They accept every method."""

    async def all_checks(request: Request) -> web.Response:
        return _all(name, checks, request.exchange.query)

    def one_check(check: Check) -> Document:
        async def answer(_request: Request) -> web.Response:
            return _one(check)

        return answer

    paths: dict[str, Document] = {f"/{name}": all_checks}
    paths |= {f"/{name}/{check.name}": one_check(check) for check in checks}
    return paths


def _all(name: str, checks: Sequence[Check], query: Query) -> web.Response:
    excluded = set(query.all("exclude"))
    lines, failed = [], []
    for check in checks:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        reason = check.failure()
        _count(name, check, reason)
        if reason is None:
            lines.append(f"[+]{check.name} ok")
            continue
        shown = reason if check.public and "verbose" in query else "reason withheld"
        if check.counted:
            lines.append(f"[-]{check.name} failed: {shown}")
            failed.append(f"{check.name}: {reason}")
        else:
            lines.append(f"[-]{check.name} failed, not counted: {shown}")
    unknown = excluded - {check.name for check in checks}
    if unknown:
        listed = ",".join(map(go_quote, nsmallest(SHOWN, unknown)))
        if len(unknown) > SHOWN:
            listed += f",… {len(unknown) - SHOWN} more"
        lines.append(f"warn: some health checks cannot be excluded: no matches for {listed}")
    if failed:
        logger.warning("health check failed", extra={"endpoint": name, "failed": failed})
        raise TextError(500, "\n".join([*lines, f"{name} check failed"]) + "\n")
    text = "\n".join([*lines, f"{name} check passed"]) + "\n" if "verbose" in query else "ok"
    return web.Response(body=text.encode(), headers={"Content-Type": TEXT, "X-Content-Type-Options": "nosniff"})


def _count(endpoint: str, check: Check, reason: str | None) -> None:
    metrics.HEALTHCHECK.labels(check.name, endpoint).set(1 if reason is None else 0)
    metrics.HEALTHCHECKS.labels(check.name, endpoint, "success" if reason is None else "error").inc()


def _one(check: Check) -> web.Response:
    """Answer one check by itself, for users who may see reasons."""
    reason = check.failure()
    if reason is not None:
        raise TextError(500, f"internal server error: {reason}\n")
    return web.Response(body=b"ok", headers={"Content-Type": TEXT})


async def scrape(request: Request) -> web.StreamResponse:
    """Serve all metrics. Printing them would hold the event loop too long, hence the thread; megabytes are sent in pieces."""
    text = await workers.METRICS.run(collectors.exposition_text)
    return await request.exchange.respond(200, collectors.CONTENT_TYPE, text)


async def health_metrics(request: Request) -> web.StreamResponse:
    """Serve only the results of health checks, for frequent scrapes."""
    text = collectors.text_of(metrics.HEALTHCHECK, metrics.HEALTHCHECKS)
    return await request.exchange.respond(200, collectors.CONTENT_TYPE, text)
