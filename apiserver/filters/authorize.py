"""May this user do this? Asks an authorizer and words the refusal.

Upstream: kubernetes/apiserver `pkg/endpoints/filters/authorization.go`, `pkg/endpoints/handlers/responsewriters/errors.go`,
`pkg/authorization/path/path.go`; the rules of `Local` are those of kubernetes/kubernetes
`plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.fieldpath import go_quote
from apiserver.apimachinery.request import MASTERS, RequestInfo, User
from apiserver.filters.authenticate import AUTHENTICATED, UNAUTHENTICATED
from apiserver.filters.request_info import escape
from apiserver.filters.state import Handler, Request


@dataclass(frozen=True, slots=True)
class Decision:
    """`allowed` False is both a denial and no opinion; `reason` is shown to the client of a refused request."""

    allowed: bool
    reason: str = ""


class Authorizer(Protocol):
    async def authorize(self, user: User, info: RequestInfo) -> Decision: ...


def authorize(handler: Handler, *, authorizer: Authorizer, clock: Callable[[], float]) -> Handler:
    outcomes = {
        outcome: (metrics.AUTHORIZATION_ATTEMPTS.labels(label), metrics.AUTHORIZATION_SECONDS.labels(label))
        for outcome, label in ((True, "allowed"), (False, "no-opinion"))
    }
    metrics.FILTER_SECONDS.adopt(metrics.Total([seconds for _, seconds in outcomes.values()]), "authorization")

    async def authorizing(request: Request) -> web.StreamResponse:
        user, info = request.user, request.info
        started = clock()
        decision = await authorizer.authorize(user, info)
        attempts, seconds = outcomes[decision.allowed]
        attempts.inc()
        seconds.observe(clock() - started)
        if not decision.allowed:
            raise forbidden(user, info, decision.reason)
        return await handler(request)

    return authorizing


def forbidden(user: User, info: RequestInfo, reason: str = "") -> StatusError:
    """403 in upstream's words."""
    why = escape(_cannot(user, info)) + (f": {reason}" if reason else "")
    error = errors.forbidden(info.group_resource, info.name, why) if info.resource else errors.forbidden_path(why)
    error.headers["X-Content-Type-Options"] = "nosniff"
    return error


def _cannot(user: User, info: RequestInfo) -> str:
    who = f"User {go_quote(user.name)} cannot {info.verb}"
    if not info.is_resource:
        return f"{who} path {go_quote(info.path)}"
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f"in the namespace {go_quote(info.namespace)}" if info.namespace else "at the cluster scope"
    return f"{who} resource {go_quote(resource)} in API group {go_quote(info.group)} {where}"


ALWAYS_ALLOWED = frozenset({"/healthz", "/livez", "/readyz"})
_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
_DISCOVERY = frozenset({"/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version", "/version/"})
_DISCOVERY_BELOW = ("/api/", "/apis/", "/openapi/")
_ALLOWED, _NO_OPINION = Decision(allowed=True), Decision(allowed=False)


class Local:
    """Decides without asking anybody: `system:masters` may do all, everybody may see what the roles system:discovery and
    system:public-info-viewer show, and nobody may do anything else."""

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        if MASTERS in user.groups:
            return _ALLOWED
        if info.is_resource:
            return _NO_OPINION
        path = info.path
        if path in ALWAYS_ALLOWED:
            return _ALLOWED
        if info.verb != "get":
            return _NO_OPINION
        authenticated = AUTHENTICATED in user.groups
        if path in _PUBLIC and (authenticated or UNAUTHENTICATED in user.groups):
            return _ALLOWED
        if authenticated and (path in _DISCOVERY or path.startswith(_DISCOVERY_BELOW)):
            return _ALLOWED
        return _NO_OPINION
