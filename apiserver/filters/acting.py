"""Decide in which mode a user may impersonate another one, and which permissions that needs.

Four modes are constrained. The sender must be allowed to be the other user (`impersonate:user-info`), and to make this kind of request
as such a user (`impersonate-on:user-info:list`). Nodes and service accounts are impersonated by name alone, and have the groups that
all of their kind have. The legacy mode, the verb `impersonate`, allows everything that the other user may do. Upstream:
kubernetes/apiserver `pkg/endpoints/filters/impersonation/{constrained_impersonation,mode,cache}.go`.
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
"""How long attributes are judged in one step: headers may hold thousands of them, and a user who is allowed everything waits for no
answer.
"""
MANY = 4
"""From this many groups or extra values on, permission for all of them is asked first."""
REMEMBERED = 10_000
"""The number of senders whose last mode is remembered."""
AUTHENTICATION = "authentication.k8s.io"
NODE_KEYS = "authentication.kubernetes.io/associated-node-keys"


@dataclass(frozen=True, slots=True)
class Mode:
    """One mode of impersonation. The legacy mode has no name."""

    name: str
    applies: Callable[[User, User], bool]
    """Returns whether the second user may impersonate the first in this mode at all."""

    @property
    def verb(self) -> str:
        return f"impersonate:{self.name}" if self.name else "impersonate"

    @property
    def label(self) -> str:
        """The value of the mode in metrics."""
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


OWN_NODE = Mode("associated-node", _as_own_node)
LEGACY = Mode("", lambda wanted, sender: True)
ALL: Sequence[Mode] = (
    OWN_NODE,
    Mode("arbitrary-node", _as_any_node),
    Mode("serviceaccount", _as_service_account),
    Mode("user-info", _as_a_user),
    LEGACY,
)


class Modes:
    """Tries the modes in order, after the one that the sender used last."""

    def __init__(self, authorizer: Authorizer, modes: Sequence[Mode]) -> None:
        self._authorizer = authorizer
        self._modes = modes
        self._last: dict[int, Mode] = {}
        """By the hash of the sender's name: a collision only changes the order of the modes."""

    async def become(self, sender: User, wanted: User, info: RequestInfo) -> tuple[User, str]:
        """Return the impersonated user with its default groups, and the verb of the mode ("" for the legacy one).

        Raises the 403 of the first mode that applies.
        """
        began = perf_counter()
        known = hash(sender.name)
        last = self._last.get(known)
        refused: StatusError | None = None
        for mode in self._modes if last is None else (last, *(mode for mode in self._modes if mode is not last)):
            if not mode.applies(wanted, sender):
                continue
            try:
                await _Questions(self._authorizer, mode, sender).ask(wanted, info)
            except StatusError as e:
                refused = refused or e.again()
                continue
            if mode is not last:
                self._remember(known, mode)
            _count(mode.label, "allowed", perf_counter() - began)
            user = with_default_groups(wanted, node=bool(mode.name) and node_of(wanted.name) is not None)
            return user, mode.verb if mode.name else ""
        _count("", "denied", perf_counter() - began)
        assert refused is not None, "the legacy mode applies to everybody"
        raise refused

    def _remember(self, known: int, mode: Mode) -> None:
        if known not in self._last and len(self._last) >= REMEMBERED:
            del self._last[next(iter(self._last))]
        self._last[known] = mode


class _Questions:
    """The permission checks of one request in one mode."""

    def __init__(self, authorizer: Authorizer, mode: Mode, sender: User) -> None:
        self._authorizer = authorizer
        self._mode = mode
        self._bound = bool(mode.name)
        # A permission holds for the same service account on every node.
        self._sender = replace(sender, extra={NODE_KEYS: tuple(sorted(sender.extra))}) if mode is OWN_NODE else sender
        self._began = perf_counter()

    async def ask(self, wanted: User, info: RequestInfo) -> None:
        """Check all attributes. Raises the 403 of a refused one."""
        if self._bound:
            await self._require(replace(info, verb=f"impersonate-on:{self._mode.name}:{info.verb}"))
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
            return self._attribute("nodes", "*" if self._mode is OWN_NODE else node)
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
            for why in _errors(extra):
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
        """Describe an attribute. In the legacy mode, names and groups belong to the core group."""
        return RequestInfo(
            "", self._mode.verb, "", is_resource=True, group=AUTHENTICATION if self._bound else group, version="v1",
            namespace=namespace, resource=resource, subresource=subresource, name=name,
        )  # fmt: skip

    async def _may(self, info: RequestInfo) -> bool:
        return await self._why_not(info) is None

    async def _require(self, info: RequestInfo) -> None:
        reason = await self._why_not(info)
        if reason is not None:
            raise self._refusal(info, reason)

    async def _why_not(self, info: RequestInfo) -> str | None:
        """Return the reason of a refusal, None if it is allowed. An authorizer that fails counts as a refusal.

        Upstream answers 500 for the request itself in that case, but not for impersonation (checkAuthorization).
        """
        asked = perf_counter()
        if asked - self._began > STEP_SECONDS:
            await asyncio.sleep(0)
            self._began = asked = perf_counter()
        try:
            decision = await self._authorizer.authorize(self._sender, info)
            reason = None if decision.allowed else decision.reason
        except ClusterError as e:
            reason = str(e)
        labels = self._mode.label, "allowed" if reason is None else "denied"
        metrics.IMPERSONATION_QUESTIONS.labels(*labels).inc()
        metrics.IMPERSONATION_QUESTION_SECONDS.labels(*labels).observe(perf_counter() - asked)
        return reason

    def _refusal(self, info: RequestInfo, reason: str) -> StatusError:
        return forbidden(self._sender, info, reason)


def _count(mode: str, decision: str, seconds: float) -> None:
    metrics.IMPERSONATIONS.labels(mode, decision).inc()
    metrics.IMPERSONATION_SECONDS.labels(mode, decision).observe(seconds)


_KEY = fieldpath.ROOT.child("extra").child("key")
_PATH = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"


def _errors(extra: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield why such extra attributes need the legacy mode."""
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
    """Yield the errors of a domain-prefixed path (kubernetes/apimachinery `pkg/util/validation/validation.go` IsDomainPrefixedPath)."""
    host, _, path = key.partition("/")
    if not host or not path:
        yield fieldpath.invalid(_KEY, key, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    for problem in names.dns_subdomain(host):
        yield fieldpath.invalid(_KEY, host, problem)
    if re.fullmatch(_PATH, path) is None:
        yield fieldpath.invalid(_KEY, path, f"Invalid path (regex used for validation is '{_PATH}')")


def with_default_groups(user: User, *, node: bool = False) -> User:
    """Add the default groups of the user. `node`: the user is a node, which has no other groups."""
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
