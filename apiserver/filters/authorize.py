"""Authorize requests: ask an authorizer, and phrase the refusal.

If the authorizer cannot be asked, the request is not allowed and ends with 500. Upstream: kubernetes/apiserver
`pkg/endpoints/filters/authorization.go`, `pkg/server/options/authorization.go` (the order),
`pkg/endpoints/handlers/responsewriters/errors.go`, `pkg/authorization/path/path.go`; the rules of `Local` are those of
kubernetes/kubernetes `plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from aiohttp import web

from apiserver import collectors, metrics
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import CONTROLLERS, MASTERS, Decision, Level, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from apiserver.filters.authenticate import AUTHENTICATED, UNAUTHENTICATED
from apiserver.filters.request_info import escape, internal_error
from apiserver.filters.state import Handler, Request
from kubetext.quoting import go_quote

logger = logging.getLogger(__name__)

DECISION, REASON = "authorization.k8s.io/decision", "authorization.k8s.io/reason"
"""The annotations with the decision and its reason."""


class Authorizer(Protocol):
    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        """Decide about a request. Raises ClusterError if nobody can tell."""


def authorize(handler: Handler, *, authorizer: Authorizer, clock: Callable[[], float]) -> Handler:
    allowed, denied, no_opinion, error = (
        (metrics.AUTHORIZATION_ATTEMPTS.labels(result), metrics.AUTHORIZATION_SECONDS.labels(result))
        for result in ("allowed", "denied", "no-opinion", "error")
    )
    results = (allowed, denied, no_opinion, error)
    metrics.FILTER_SECONDS.adopt(collectors.Total([seconds for _, seconds in results]), "authorization")

    async def authorizing(request: Request) -> web.StreamResponse:
        user, info = request.user, request.info
        started = clock()
        try:
            decision = await authorizer.authorize(user, info)
        except ClusterError as e:
            _count(error, clock() - started)
            logger.error("authorization failed", extra={"error": str(e)[:1024], "audit_id": request.audit_id[:64]})
            request.exchange.annotations.add(REASON, "internal error")
            raise internal_error(request.raw_path, str(e)) from e
        result = allowed if decision.allowed else denied if decision.denied else no_opinion
        _count(result, clock() - started)
        request.decision = decision
        request.exchange.annotations.update(_ALLOWED_NOTES if decision is _ALLOWED else _notes(decision))
        if not decision.allowed:
            raise forbidden(user, info, decision.reason)
        return await handler(request)

    return authorizing


def _notes(decision: Decision) -> dict[str, tuple[str, Level]]:
    said = "allow" if decision.allowed else "forbid"
    return {DECISION: (said, Level.METADATA), REASON: (decision.reason, Level.METADATA)}


async def require(authorizer: Authorizer, user: User, info: RequestInfo) -> None:
    """Raise 403 unless the user may do that too, and 500 if nobody can tell.

    Upstream: withAuthorization in `pkg/endpoints/handlers/create.go`.
    """
    try:
        decision = await authorizer.authorize(user, info)
    except ClusterError as e:
        raise errors.internal(str(e)) from e
    if not decision.allowed:
        raise refusal(user, info, decision.reason)


async def why_not(authorizer: Authorizer, user: User, info: RequestInfo) -> str | None:
    """Return None if the user may do that too, else the refusal's text. A failing authorizer counts as a refusal.

    Upstream: checkAuthorization in kubernetes/kubernetes `pkg/registry/resource/utils.go`.
    """
    try:
        decision = await authorizer.authorize(user, info)
    except ClusterError as e:
        return refusal(user, info, str(e)).message
    return None if decision.allowed else refusal(user, info, decision.reason).message


def _count(children: tuple[collectors.Value, collectors.Distribution], seconds: float) -> None:
    attempts, latency = children
    attempts.inc()
    latency.observe(seconds)


def forbidden(user: User, info: RequestInfo, reason: str = "") -> StatusError:
    """Make the 403 of a filter."""
    error = refusal(user, info, reason)
    error.headers["X-Content-Type-Options"] = "nosniff"
    return error


def refusal(user: User, info: RequestInfo, reason: str = "") -> StatusError:
    """Make a 403 in upstream's words."""
    why = escape(_cannot(user, info)) + (f": {reason}" if reason else "")
    return errors.forbidden(info.group_resource, info.name, why)


def _cannot(user: User, info: RequestInfo) -> str:
    who = f"User {go_quote(user.name)} cannot {info.verb}"
    if not info.is_resource:
        return f"{who} path {go_quote(info.path)}"
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f"in the namespace {go_quote(info.namespace)}" if info.namespace else "at the cluster scope"
    return f"{who} resource {go_quote(resource)} in API group {go_quote(info.group)} {where}"


# ---------------------------------------------------------------------------------------------------------------- authorizers

_ALLOWED, _NO_OPINION = Decision(allowed=True), Decision(allowed=False)
_ALLOWED_NOTES = _notes(_ALLOWED)


class Delegated:
    """Asks another authorizer, except about `system:masters` and about public paths.

    `always_allowed` are paths without resource, for all methods; a `*` at the end makes a prefix, and a leading slash does not count.
    """

    def __init__(self, inner: Authorizer, *, always_allowed: Sequence[str]) -> None:
        self._inner = inner
        paths = [path.removeprefix("/") for path in always_allowed]
        self._paths = frozenset(path for path in paths if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in paths if path.endswith("*"))

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        if MASTERS in user.groups:
            return _ALLOWED
        if not info.is_resource:
            path = info.path.removeprefix("/")
            if path in self._paths or path.startswith(self._prefixes):
                return _ALLOWED
        return await self._inner.authorize(user, info)


_PUBLIC = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
_DISCOVERY = frozenset({"/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version", "/version/"})
_DISCOVERY_BELOW = ("/api/", "/apis/", "/openapi/")
_REVIEWS: Mapping[str, Sequence[str]] = {
    "authorization.k8s.io": ("selfsubjectaccessreviews", "selfsubjectrulesreviews"),
    "authentication.k8s.io": ("selfsubjectreviews",),
}
"""The reviews that the role system:basic-user may create, by group."""


class Local:
    """Decides by itself. Every user has the roles system:discovery, system:public-info-viewer and system:basic-user.

    The controllers of a stand-alone server may do their work. Everything else is refused.
    """

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        if info.is_resource:
            asks = info.verb == "create" and info.resource in _REVIEWS.get(info.group, ()) and not info.subresource
            allowed = (asks and AUTHENTICATED in user.groups) or info.verb in CONTROLLERS.get(user.name, ())
            return _ALLOWED if allowed else _NO_OPINION
        if info.verb != "get":
            return _NO_OPINION
        path = info.path
        authenticated = AUTHENTICATED in user.groups
        if path in _PUBLIC and (authenticated or UNAUTHENTICATED in user.groups):
            return _ALLOWED
        if authenticated and (path in _DISCOVERY or path.startswith(_DISCOVERY_BELOW)):
            return _ALLOWED
        return _NO_OPINION


class Rules(NamedTuple):
    """The permissions of a user: verbs with groups and resources, and verbs with paths."""

    resources: Sequence[tuple[Sequence[str], Sequence[str], Sequence[str]]]
    paths: Sequence[tuple[Sequence[str], Sequence[str]]]


def rules(user: User) -> Rules:
    """Return what `Local` and `Delegated` allow a user, in upstream's order (kubernetes/kubernetes
    `plugin/pkg/auth/authorizer/rbac/rbac.go` RulesFor).
    """
    master, authenticated = MASTERS in user.groups, AUTHENTICATED in user.groups
    resources: list[tuple[Sequence[str], Sequence[str], Sequence[str]]] = []
    paths: list[tuple[Sequence[str], Sequence[str]]] = []
    if master:
        resources.append((_ANY, _ANY, _ANY))
        paths.append((_ANY, _ANY))
    if verbs := CONTROLLERS.get(user.name):
        resources.append((verbs, _ANY, _ANY))
    if authenticated:
        resources += ((("create",), (group,), names) for group, names in _REVIEWS.items())
        paths.append((("get",), sorted((*_DISCOVERY, *(f"{path}*" for path in _DISCOVERY_BELOW)))))
    if authenticated or UNAUTHENTICATED in user.groups:
        paths.append((("get",), sorted(_PUBLIC)))
    return Rules(resources, paths)


_ANY = ("*",)
