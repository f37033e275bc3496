"""Acting as somebody else: each requested attribute is authorized for the sender with the verb `impersonate`.

Ignoring these headers would let the caller act with more rights than it asked for. Upstream: kubernetes/apiserver
`pkg/endpoints/filters/impersonation/{impersonation,constrained_impersonation,mode}.go` (the legacy rules, the newer error texts).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from dataclasses import replace
from time import perf_counter

from aiohttp import web
from multidict import CIMultiDictProxy

from apiserver.apimachinery import errors
from apiserver.apimachinery.fieldpath import go_quote
from apiserver.apimachinery.request import ANONYMOUS, RequestInfo, User, service_account
from apiserver.cluster.errors import ClusterError
from apiserver.filters.authenticate import AUTHENTICATED, UNAUTHENTICATED, unescape_key
from apiserver.filters.authorize import Authorizer, forbidden
from apiserver.filters.state import Handler, Request

logger = logging.getLogger(__name__)

_INITIALS, _PREFIX = (b"I", b"i"), b"impersonate-"
_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"
SHOWN_CHARACTERS = 8192
"""Of a user in an error, about."""
STEP_SECONDS = 0.002
"""How long attributes are judged before others have their turn: there is room for thousands in headers, and who is
allowed everything waits for none."""


def impersonate(handler: Handler, *, authorizer: Authorizer) -> Handler:
    def impersonating(request: Request) -> Awaitable[web.StreamResponse]:
        for header, _ in request.raw_headers:
            if header[:1] in _INITIALS and header[:12].lower() == _PREFIX:
                return as_another(request)
        return handler(request)

    async def as_another(request: Request) -> web.StreamResponse:
        await _become(request, authorizer)
        return await handler(request)

    return impersonating


async def _become(request: Request, authorizer: Authorizer) -> None:
    wanted = wanted_user(request.headers)
    if wanted is None:
        return
    sender, began = request.user, perf_counter()
    for info in attributes(wanted):
        if perf_counter() - began > STEP_SECONDS:
            await asyncio.sleep(0)
            began = perf_counter()
        try:
            decision = await authorizer.authorize(sender, info)
        except ClusterError as e:
            # Unlike for the request itself, upstream makes no 500 of it (mode.go checkAuthorization).
            raise forbidden(sender, info, str(e)) from e
        if not decision.allowed:
            raise forbidden(sender, info, decision.reason)
    request.impersonator, request.user = sender, with_default_groups(wanted)
    logger.debug(
        "impersonation", extra={"user": sender.name, "impersonated": wanted.name, "audit_id": request.audit_id[:64]}
    )


def wanted_user(headers: CIMultiDictProxy[str]) -> User | None:
    """The user that the headers ask for, None when they ask for none. Attributes without a name are 400."""
    name, uid = headers.get(_USER, ""), headers.get(_UID, "")
    groups = tuple(headers.getall(_GROUP, ()))
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header[: len(_EXTRA)].lower() == _EXTRA:
            extra.setdefault(unescape_key(header[len(_EXTRA) :].lower()), []).append(value)
    wanted = User(name, uid, groups, {key: tuple(values) for key, values in extra.items()})
    if name:
        return wanted
    if not (uid or groups or extra):
        return None
    error = errors.bad_request(f"requested {_go_syntax(wanted)} without impersonating a user name")
    error.headers["X-Content-Type-Options"] = "nosniff"
    raise error


def attributes(wanted: User) -> Iterator[RequestInfo]:
    """What the sender must be allowed to `impersonate`, one by one."""
    account = service_account(wanted.name)
    if account is not None:
        yield _attribute("serviceaccounts", account[1], namespace=account[0])
    else:
        yield _attribute("users", wanted.name)
    if wanted.uid:
        yield _attribute("uids", wanted.uid, group="authentication.k8s.io")
    for group in wanted.groups:
        yield _attribute("groups", group)
    for key, values in wanted.extra.items():
        for value in values:
            yield _attribute("userextras", value, group="authentication.k8s.io", subresource=key)


def _attribute(resource: str, name: str, *, group: str = "", namespace: str = "", subresource: str = "") -> RequestInfo:
    return RequestInfo(
        "", "impersonate", "", is_resource=True, group=group, version="v1", namespace=namespace, resource=resource,
        subresource=subresource, name=name,
    )  # fmt: skip


def with_default_groups(user: User) -> User:
    """The groups that the named user has anyway."""
    groups = user.groups
    account = service_account(user.name)
    if account is not None and not groups:
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{account[0]}")
    if user.name == ANONYMOUS.name:
        if UNAUTHENTICATED not in groups:
            groups = (*groups, UNAUTHENTICATED)
    elif AUTHENTICATED not in groups and UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(user, groups=groups)


def _go_syntax(user: User) -> str:
    """`%#v` of upstream's user.DefaultInfo, which its error shows, as far as that costs little."""
    shown: list[str] = []
    room = SHOWN_CHARACTERS
    for part in _go_parts(user):
        if room < 0:
            return "".join([*shown, "…"])
        shown.append(part)
        room -= len(part)
    return "".join(shown)


def _go_parts(user: User) -> Iterator[str]:
    yield f"&user.DefaultInfo{{Name:{go_quote(user.name)}, UID:{go_quote(user.uid)}, Groups:"
    yield from _go_slice(user.groups)
    yield ", Extra:map[string][]string"
    if not user.extra:
        yield "(nil)}"
        return
    before = "{"
    for key, values in sorted(user.extra.items()):
        yield f"{before}{go_quote(key)}:"
        yield from _go_slice(values)
        before = ", "
    yield "}}"


def _go_slice(values: tuple[str, ...]) -> Iterator[str]:
    if not values:
        yield "[]string(nil)"
        return
    before = "[]string{"
    for value in values:
        yield before + go_quote(value)
        before = ", "
    yield "}"
