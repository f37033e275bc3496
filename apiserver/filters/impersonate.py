"""Impersonation: read the wanted user from the headers. `acting` decides what the sender must be allowed for that.

Ignoring these headers would let the caller act with more rights than it asked for. Upstream: kubernetes/apiserver
`pkg/endpoints/filters/impersonation/constrained_impersonation.go`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterator

from aiohttp import web
from multidict import CIMultiDictProxy

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import User
from apiserver.filters.acting import ALL, LEGACY, Modes
from apiserver.filters.authenticate import unescape_key
from apiserver.filters.authorize import Authorizer
from apiserver.filters.state import Handler, Request
from kubetext import utf8
from kubetext.quoting import go_quote

logger = logging.getLogger(__name__)

_INITIALS, _PREFIX = (b"I", b"i"), b"impersonate-"
_USER, _GROUP, _UID, _EXTRA = "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "impersonate-extra-"
SHOWN_CHARACTERS = 8192
"""The approximate number of a user's characters in an error."""


def impersonate(handler: Handler, *, authorizer: Authorizer, constrained: bool) -> Handler:
    """Impersonate users. `constrained`: in the constrained modes as well."""
    modes = Modes(authorizer, ALL if constrained else (LEGACY,))

    def impersonating(request: Request) -> Awaitable[web.StreamResponse]:
        for header, _ in request.raw_headers:
            if header[:1] in _INITIALS and header[:12].lower() == _PREFIX:
                return as_another(request)
        return handler(request)

    async def as_another(request: Request) -> web.StreamResponse:
        await _become(request, modes)
        return await handler(request)

    return impersonating


async def _become(request: Request, modes: Modes) -> None:
    wanted = wanted_user(request.headers)
    if wanted is None:
        return
    sender = request.user
    user, constraint = await modes.become(sender, wanted, request.info)
    request.impersonator, request.user = sender, user
    if request.record is not None:
        request.record.acting, request.record.constraint = user, constraint
    logger.debug(
        "impersonation", extra={"user": sender.name, "impersonated": wanted.name, "audit_id": request.audit_id[:64]}
    )


def wanted_user(headers: CIMultiDictProxy[str]) -> User | None:
    """Return the user that the headers name, or None. Attributes without a name are answered with 400.

    Bytes that are not UTF-8 become U+FFFD, as in upstream's SubjectAccessReview.
    """
    name, uid = utf8.whole(headers.get(_USER, "")), utf8.whole(headers.get(_UID, ""))
    groups = tuple(map(utf8.whole, headers.getall(_GROUP, ())))
    extra: dict[str, list[str]] = {}
    for header, value in headers.items():
        if header[: len(_EXTRA)].lower() == _EXTRA:
            extra.setdefault(unescape_key(header[len(_EXTRA) :].lower()), []).append(utf8.whole(value))
    wanted = User(name, uid, groups, {key: tuple(values) for key, values in extra.items()})
    if name:
        return wanted
    if not (uid or groups or extra):
        return None
    error = errors.bad_request(f"requested {_go_syntax(wanted)} without impersonating a user name")
    error.headers["X-Content-Type-Options"] = "nosniff"
    raise error


def _go_syntax(user: User) -> str:
    """Format `%#v` of upstream's user.DefaultInfo, which its error shows, up to a length."""
    shown: list[str] = []
    left = SHOWN_CHARACTERS
    for part in _go_parts(user):
        if left < 0:
            return "".join([*shown, "…"])
        shown.append(part)
        left -= len(part)
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
