"""In which way one may act as somebody else, and what must be allowed for that.

Four ways are bound to what is done meanwhile: who acts like that must be allowed to be the other one (`impersonate:user-info`), and to do
what the request does as such a one (`impersonate-on:user-info:list`). A node or a service account is acted as by its name alone, and has
the groups that all of its sort have. The old way, the verb `impersonate`, allows everything that the other one may do.
Upstream: kubernetes/apiserver `pkg/endpoints/filters/impersonation/{constrained_impersonation,mode,cache}.go`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from apiserver import metrics
from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.request import (
    ANONYMOUS,
    MASTERS,
    NODE_NAME,
    NODES,
    RequestInfo,
    User,
    node_of,
    service_account,
)
from apiserver.cluster.errors import ClusterError
from apiserver.filters.authenticate import AUTHENTICATED, UNAUTHENTICATED
from apiserver.filters.authorize import Authorizer, forbidden
from kubetext import names
from kubetext.quoting import go_quote

STEP_SECONDS = 0.002
"""How long attributes are judged before others have their turn: there is room for thousands in headers, and who is
allowed everything waits for none."""
MANY = 4
"""Groups, or values of extra attributes, from which on it is asked first whether all are allowed."""
REMEMBERED = 10_000
"""Of how many senders it is known in which way they acted last."""
AUTHENTICATION = "authentication.k8s.io"
NODE_KEYS = "authentication.kubernetes.io/associated-node-keys"


@dataclass(frozen=True, slots=True)
class Way:
    """One of the ways. The old one has no name."""

    name: str
    applies: Callable[[User, User], bool]
    """Whether the second may act as the first like that at all."""

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"

    @property
    def label(self) -> str:
        """What metrics call it."""
        return self.name or "legacy"


def _as_own_node(wanted: User, sender: User) -> bool:
    node = node_of(wanted.name)
    if node is None or not _only_named(wanted) or service_account(sender.name) is None:
        return False
    return sender.extra.get(NODE_NAME) == (node,)


def _as_any_node(wanted: User, sender: User) -> bool:
    return _only_named(wanted) and node_of(wanted.name) is not None


def _as_service_account(wanted: User, sender: User) -> bool:
    return _only_named(wanted) and service_account(wanted.name) is not None


def _as_a_user(wanted: User, sender: User) -> bool:
    return node_of(wanted.name) is None and service_account(wanted.name) is None


def _only_named(wanted: User) -> bool:
    return not (wanted.uid or wanted.groups or wanted.extra)


OWN_NODE = Way("associated-node", _as_own_node)
OLD = Way("", lambda wanted, sender: True)
ALL: Sequence[Way] = (
    OWN_NODE,
    Way("arbitrary-node", _as_any_node),
    Way("serviceaccount", _as_service_account),
    Way("user-info", _as_a_user),
    OLD,
)


class Ways:
    """Tries them in their order, behind the one in which the sender acted last."""

    def __init__(self, authorizer: Authorizer, ways: Sequence[Way]) -> None:
        self._authorizer = authorizer
        self._ways = ways
        self._last: dict[int, Way] = {}
        """By the hash of the sender's name: two who share one only change the order for each other."""

    async def become(self, sender: User, wanted: User, info: RequestInfo) -> tuple[User, str]:
        """Who acts from now on: what is wanted, with the groups that such a one has anyway. And the verb of the way, "" for the old one.
        Raises the 403 of the first way."""
        began = perf_counter()
        known = hash(sender.name)
        last = self._last.get(known)
        refused: StatusError | None = None
        for way in self._ways if last is None else (last, *(way for way in self._ways if way is not last)):
            if not way.applies(wanted, sender):
                continue
            try:
                await _Questions(self._authorizer, way, sender).ask(wanted, info)
            except StatusError as e:
                refused = refused or e.again()
                continue
            if way is not last:
                self._remember(known, way)
            _count(way.label, "allowed", perf_counter() - began)
            user = with_default_groups(wanted, node=bool(way.name) and node_of(wanted.name) is not None)
            return user, way.verb if way.name else ""
        _count("", "denied", perf_counter() - began)
        assert refused is not None, "the old way applies to everybody"
        raise refused

    def _remember(self, known: int, way: Way) -> None:
        if known not in self._last and len(self._last) >= REMEMBERED:
            del self._last[next(iter(self._last))]
        self._last[known] = way


class _Questions:
    """What has to be asked about one request in one way."""

    def __init__(self, authorizer: Authorizer, way: Way, sender: User) -> None:
        self._authorizer = authorizer
        self._way = way
        self._bound = bool(way.name)
        # What is allowed is so for the same service account on every node.
        self._sender = replace(sender, extra={NODE_KEYS: tuple(sorted(sender.extra))}) if way is OWN_NODE else sender
        self._began = perf_counter()

    async def ask(self, wanted: User, info: RequestInfo) -> None:
        """Raises the 403 of what is refused."""
        if self._bound:
            await self._require(replace(info, verb=f"impersonate-on:{self._way.name}:{info.verb}"))
        await self._require(self._identity(wanted.name))
        if wanted.uid:
            await self._require(self._attribute("uids", wanted.uid, group=AUTHENTICATION))
        await self._groups(wanted.groups)
        await self._extra(wanted.extra)

    def _identity(self, name: str) -> RequestInfo:
        account = service_account(name)
        if account is not None:
            return self._attribute("serviceaccounts", account[1], namespace=account[0])
        node = node_of(name) if self._bound else None
        if node is not None:
            return self._attribute("nodes", "*" if self._way is OWN_NODE else node)
        return self._attribute("users", name)

    async def _groups(self, groups: Sequence[str]) -> None:
        if self._bound:
            if "" in groups:
                raise self._refusal(
                    self._attribute("groups", ""), "impersonating the empty string group is not allowed"
                )
            if MASTERS in groups:
                why = f"impersonating the {MASTERS} group is not allowed"
                raise self._refusal(self._attribute("groups", MASTERS), why)
            if len(groups) >= MANY and await self._may(self._attribute("groups", "*")):
                return
        for group in groups:
            await self._require(self._attribute("groups", group))

    async def _extra(self, extra: Mapping[str, Sequence[str]]) -> None:
        if self._bound and extra:
            for why in _mistakes(extra):
                raise self._refusal(self._extra_attribute("", ""), why)
            many = len(extra) >= MANY or sum(map(len, extra.values())) >= MANY
            if many and await self._may(self._extra_attribute("*", "*")):
                return
        for key, values in extra.items():
            for value in values:
                await self._require(self._extra_attribute(key, value))

    def _extra_attribute(self, key: str, value: str) -> RequestInfo:
        return self._attribute("userextras", value, group=AUTHENTICATION, subresource=key)

    def _attribute(
        self, resource: str, name: str, *, group: str = "", namespace: str = "", subresource: str = ""
    ) -> RequestInfo:
        """Names and groups are of the core group in the old way."""
        return RequestInfo(
            "", self._way.verb, "", is_resource=True, group=AUTHENTICATION if self._bound else group, version="v1",
            namespace=namespace, resource=resource, subresource=subresource, name=name,
        )  # fmt: skip

    async def _may(self, info: RequestInfo) -> bool:
        return await self._why_not(info) is None

    async def _require(self, info: RequestInfo) -> None:
        reason = await self._why_not(info)
        if reason is not None:
            raise self._refusal(info, reason)

    async def _why_not(self, info: RequestInfo) -> str | None:
        """The reason of a refusal, None for what is allowed. Who cannot be asked has refused: unlike for the request itself, upstream makes
        no 500 of it (checkAuthorization)."""
        asked = perf_counter()
        if asked - self._began > STEP_SECONDS:
            await asyncio.sleep(0)
            self._began = asked = perf_counter()
        try:
            decision = await self._authorizer.authorize(self._sender, info)
            reason = None if decision.allowed else decision.reason
        except ClusterError as e:
            reason = str(e)
        labels = self._way.label, "allowed" if reason is None else "denied"
        metrics.IMPERSONATION_QUESTIONS.labels(*labels).inc()
        metrics.IMPERSONATION_QUESTION_SECONDS.labels(*labels).observe(perf_counter() - asked)
        return reason

    def _refusal(self, info: RequestInfo, reason: str) -> StatusError:
        return forbidden(self._sender, info, reason)


def _count(way: str, decision: str, seconds: float) -> None:
    metrics.IMPERSONATIONS.labels(way, decision).inc()
    metrics.IMPERSONATION_SECONDS.labels(way, decision).observe(seconds)


_KEY = fieldpath.ROOT.child("extra").child("key")
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def _mistakes(extra: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Why such attributes may only be acted with in the old way."""
    for key, values in extra.items():
        if not key:
            yield "impersonating the empty string key in extra is not allowed"
        wrong = [str(error) for error in _not_prefixed(key)]
        if wrong:
            text = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
            yield f"impersonating an invalid key in extra is not allowed: {text}"
        if key != key.lower():
            yield f"impersonating a non-lowercase key in extra is not allowed: {go_quote(key)}"
        if "" in values:
            yield "impersonating the empty string value in extra is not allowed"


def _not_prefixed(key: str) -> Iterator[FieldError]:
    """What is wrong with a path behind a domain (kubernetes/apimachinery `pkg/util/validation/validation.go` IsDomainPrefixedPath)."""
    host, _, path = key.partition("/")
    if not host or not path:
        yield fieldpath.invalid(_KEY, key, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for problem in names.dns_subdomain(host):
        yield fieldpath.invalid(_KEY, host, problem)
    if re.fullmatch(_PATH, path) is None:
        yield fieldpath.invalid(_KEY, path, f"Invalid path (regex used for validation is '{_PATH}')")


def with_default_groups(user: User, *, node: bool = False) -> User:
    """The groups that the named user has anyway. `node`: it is known to be one, and has no others."""
    groups = (NODES,) if node else user.groups
    account = service_account(user.name)
    if account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if user.name == ANONYMOUS.name:
        if UNAUTHENTICATED not in groups:
            groups = (*groups, UNAUTHENTICATED)
    elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(user, groups=groups)
