"""Identify the sender: front proxy, client certificate, bearer token, token in a WebSocket's subprotocol, anonymous, in this order.

This is the only reader of identity headers (`tests/structure` checks that). They count only from a peer whose certificate the front
proxy's CA signed and whose common name is allowed. Filters after this one never see them. The caller passes one function per CA bundle
that verifies certificates. A handshake proves only that the client holds the key of its certificate. Tokens are reviewed elsewhere;
this is the only thing that the filter waits for.

Upstream: kubernetes/apiserver `pkg/endpoints/filters/authentication.go`, `pkg/authentication/authenticatorfactory/delegating.go` (the
order), `pkg/authentication/request/{headerrequest,x509,bearertoken,websocket,union}/`,
`pkg/authentication/group/authenticated_group_adder.go`.
"""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from aiohttp import web
from multidict import CIMultiDictProxy

from apiserver import collectors, metrics
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import ANONYMOUS, User, percent_decoded
from apiserver.cluster.errors import ClusterError
from apiserver.cluster.tokens import BadToken
from apiserver.config.config import RequestHeader
from apiserver.filters.state import Handler, Peer, Request
from apiserver.wire import websocket

logger = logging.getLogger(__name__)

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"
COMMON_NAME, ORGANIZATION, UID = "2.5.4.3", "2.5.4.10", "1.3.6.1.4.1.57683.2"
"""Attributes of a certificate's subject."""
TOKEN_AFTER_SPACE = "the provided Authorization header contains extra space before the bearer token, and is ignored"
CACHED_PEERS = 4096
CACHED_USERS, CACHED_HEADER_BYTES = 4096, 4096
FAILURE_SECONDS = 10.0
"""How long a failed verification is cached: a certificate may become valid soon."""


class NotAuthentic(Exception):
    """The credentials are invalid. The text is for the log; clients do not see it."""


class NoCredentials(NotAuthentic):
    """The request has no credentials, and anonymous requests are not allowed."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of a certificate: object identifiers and values of its attributes, in order. `fingerprint` is SHA-256 in hex."""

    attributes: tuple[tuple[str, str], ...]
    fingerprint: str

    @property
    def common_name(self) -> str:
        """The last common name, as Go reads a subject with several."""
        return next(iter(reversed(self.values(COMMON_NAME))), "")

    @property
    def organizations(self) -> tuple[str, ...]:
        return tuple(self.values(ORGANIZATION))

    def values(self, oid: str) -> list[str]:
        return [value for name, value in self.attributes if name == oid]


@dataclass(frozen=True, slots=True)
class Verified:
    """A peer's subject after a chain to a bundle was found, and when that chain ends (seconds since the epoch)."""

    subject: Subject
    until: float


Verifier = Callable[[Peer, float], Verified]
"""Finds a chain that is valid at a time; raises NotAuthentic."""


NO_HEADERS = RequestHeader(
    ca_file="", allowed_names=(), username_headers=(), group_headers=(), uid_headers=(), extra_prefixes=()
)
"""The headers of an unknown front proxy: no request names a user."""


@dataclass(frozen=True, slots=True)
class Trust:
    """The CA bundles in force, as verifiers, and the front proxy's names. Each change makes a new Trust.

    A method without a bundle (None) abstains.
    """

    client: Verifier | None
    proxy: Verifier | None
    names: RequestHeader = NO_HEADERS


class TokenReviewer(Protocol):
    async def review(self, token: str, *, source: str = "") -> User:
        """Return the token's owner, with the groups that the reviewer knows. Raises BadToken, and ClusterError if nobody can tell."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A bearer token to review, and the errors of the credentials before it.

    `subprotocols` are those that a WebSocket's client offers beside the token.
    """

    token: str
    failures: tuple[str, ...]
    subprotocols: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Credentials:
    """The result for a peer's certificates under one Trust, until a time. `user` is None without a common name or with an error."""

    until: float
    proxy: bool
    user: User | None
    user_ends: float
    failures: tuple[str, ...]


def authenticate(
    handler: Handler,
    *,
    trust: Callable[[], Trust],
    tokens: TokenReviewer | None,
    anonymous: bool,
    now: Callable[[], float],
    clock: Callable[[], float],
) -> Handler:
    """Authenticate requests. `now` is the wall clock (certificates), `clock` a monotonic one (latency). Without `tokens` every token is
    bad.
    """
    identify = Identify(trust=trust, anonymous=anonymous, now=now)
    reviewer = tokens or NoReviewer()
    good, none, bad = (
        (metrics.AUTHENTICATION_ATTEMPTS.labels(result), metrics.AUTHENTICATION_SECONDS.labels(result))
        for result in ("success", "failure", "error")
    )
    metrics.FILTER_SECONDS.adopt(collectors.Total((good[1], none[1], bad[1])), "authentication")

    def authenticating(request: Request) -> Awaitable[web.StreamResponse]:
        started = clock()
        try:
            found = identify(request)
        except NotAuthentic as e:
            raise refuse(request, e, started=started) from None
        if isinstance(found, Shown):
            return reviewing(request, found, started=started)
        return accept(request, found, started=started)

    async def reviewing(request: Request, shown: Shown, *, started: float) -> web.StreamResponse:
        try:
            user = await reviewer.review(shown.token, source=request.remote or "")
        except (BadToken, ClusterError) as e:
            raise refuse(request, NotAuthentic("; ".join((*shown.failures, str(e)))), started=started) from None
        if shown.subprotocols is not None:
            request.exchange.subprotocols = list(shown.subprotocols)
        return await accept(request, with_authenticated(user), started=started)

    def accept(request: Request, user: User, *, started: float) -> Awaitable[web.StreamResponse]:
        request.user = user
        _count(good, clock() - started)
        metrics.AUTHENTICATED_REQUESTS.labels(_bucket(user.name)).inc()
        return handler(request)

    def refuse(request: Request, error: NotAuthentic, *, started: float) -> StatusError:
        _count(none if isinstance(error, NoCredentials) else bad, clock() - started)
        about = {"error": str(error)[:1024], "source": request.remote}
        logger.warning("unable to authenticate the request", extra=about)
        return errors.unauthorized()

    return authenticating


class NoReviewer:
    """Refuses all tokens, if nobody can review them. Upstream ignores them in that case, so their senders are anonymous."""

    async def review(self, token: str, *, source: str = "") -> User:
        raise BadToken("no token authenticator is configured")


def _count(children: tuple[collectors.Value, collectors.Distribution], seconds: float) -> None:
    attempts, latency = children
    attempts.inc()
    latency.observe(seconds)


_INTERNAL = frozenset({"admin", "client", "kube_proxy", "kubelet", "system:serviceaccount:kube-system:default"})


def _bucket(name: str) -> str:
    """Return upstream's label value for the user in metrics; there are few."""
    if name in _INTERNAL:
        return name
    return "email_id" if "@" in name else "other"


class Identify:
    """The methods in order. The first success wins, and after an error the next method is tried. A request with an error is never
    anonymous.
    """

    def __init__(self, *, trust: Callable[[], Trust], anonymous: bool, now: Callable[[], float]) -> None:
        self._trusted = trust
        self._anonymous = anonymous
        self._now = now
        self._follow(trust())

    def _follow(self, trust: Trust) -> None:
        """Use another Trust and drop everything that was found under the last one."""
        self._trust = trust
        self._proxied = ProxiedUsers(trust.names)
        self._known: dict[bytes, _Credentials] = {}

    def __call__(self, request: Request) -> User | Shown:
        """Return the sender, or the token to review."""
        failures: tuple[str, ...] = ()
        if request.peer is not None:
            now = self._now()
            credentials = self._credentials(request.peer, now)
            if credentials.proxy:
                user = self._proxied.user(request)
                if user is not None:
                    request.exchange.relayed = True
                    return user
            if credentials.user is not None:
                metrics.CLIENT_CERTIFICATE_SECONDS.only.observe(credentials.user_ends - now)
                return credentials.user
            failures = credentials.failures
        token = bearer_token(request)
        if token is not None:
            return Shown(token, failures)
        if request.exchange.upgrades:
            try:
                shown = subprotocol_token(request.headers.getall("Sec-WebSocket-Protocol", ()), failures)
            except NotAuthentic as e:
                raise NotAuthentic("; ".join((*failures, str(e)))) from None
            if shown is not None:
                return shown
        if failures:
            raise NotAuthentic("; ".join(failures))
        if not self._anonymous:
            raise NoCredentials("no credentials provided")
        return ANONYMOUS

    def _credentials(self, peer: Peer, now: float) -> _Credentials:
        """Return the result for a peer. Verification costs more than the rest of the request, so it is cached while bundle and
        certificates allow.
        """
        trust = self._trusted()
        if trust is not self._trust:
            self._follow(trust)
        known = self._known.get(peer.key)
        if known is not None and now < known.until:
            return known
        self._known.pop(peer.key, None)
        while len(self._known) >= CACHED_PEERS:
            del self._known[next(iter(self._known))]
        credentials = self._known[peer.key] = _verify(peer, trust, now=now)
        return credentials


def _verify(peer: Peer, trust: Trust, *, now: float) -> _Credentials:
    until, proxy, user, user_ends = float("inf"), False, None, 0.0
    failures: list[str] = []
    if trust.proxy is not None:
        try:
            verified = trust.proxy(peer, now)
            _check_allowed(verified.subject.common_name, trust.names.allowed_names)
            until, proxy = verified.until, True
        except NotAuthentic as e:
            failures.append(str(e))
    if trust.client is not None:
        try:
            verified = trust.client(peer, now)
            user, user_ends = certificate_user(verified.subject), verified.until
            until = min(until, verified.until)
        except NotAuthentic as e:
            failures.append(str(e))
    if failures:
        until = min(until, now + FAILURE_SECONDS)
    return _Credentials(until, proxy, user, user_ends, tuple(failures))


def _check_allowed(name: str, allowed: Sequence[str]) -> None:
    """Check the common name. An empty list allows every name that the CA signed."""
    if allowed and name not in allowed:
        raise NotAuthentic(f"x509: subject with cn={name} is not in the allowed list")


# ---------------------------------------------------------------------------------------------------------------- certificates


def certificate_user(subject: Subject) -> User | None:
    """Return the user that a verified certificate names; None without a common name."""
    name = subject.common_name
    if not name:
        return None
    uids = subject.values(UID)
    if len(uids) > 1 or uids == [""]:
        raise NotAuthentic("the certificate's subject must hold one uid that is not empty, or none")
    extra = {CREDENTIAL_ID: (f"X509SHA256={subject.fingerprint}",)}
    return with_authenticated(User(name, uids[0] if uids else "", subject.organizations, extra))


def with_authenticated(user: User) -> User:
    """Add `system:authenticated`, the group of all authenticated users."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return replace(user, groups=(*user.groups, AUTHENTICATED))


# ---------------------------------------------------------------------------------------------------------------- front proxy


class ProxiedUsers:
    """`proxied_user`, cached by the headers that it depends on: a proxy sends the same few users over and over."""

    def __init__(self, names: RequestHeader) -> None:
        self._names = names
        exact = (*names.username_headers, *names.group_headers, *names.uid_headers)
        self._exact = frozenset(name.encode() for name in exact)
        self._prefixes = tuple(prefix.encode() for prefix in names.extra_prefixes)
        beginnings = (*self._exact, *self._prefixes)
        self._initials = tuple({form for name in beginnings for form in (name[:1].lower(), name[:1].upper())})
        self._known: dict[tuple[tuple[bytes, bytes], ...], User | None] = {}

    def user(self, request: Request) -> User | None:
        """Return the user. Call only for a verified front proxy."""
        key = tuple([pair for pair in request.raw_headers if pair[0][:1] in self._initials and self._counts(pair[0])])
        if key in self._known:
            return self._known[key]
        user = proxied_user(request.headers, self._names)
        if sum(len(name) + len(value) for name, value in key) <= CACHED_HEADER_BYTES:
            if len(self._known) >= CACHED_USERS:
                self._known.clear()
            self._known[key] = user
        return user

    def _counts(self, header: bytes) -> bool:
        name = header.lower()
        return name in self._exact or name.startswith(self._prefixes)


def proxied_user(headers: CIMultiDictProxy[str], names: RequestHeader) -> User | None:
    """Return the user that the front proxy names, or None. Call only for a verified front proxy."""
    name = _first(headers, names.username_headers)
    if not name:
        return None
    groups = tuple(g for header in names.group_headers for g in headers.getall(header, ()) if g)
    user = User(name, _first(headers, names.uid_headers), groups, _extra(headers, names.extra_prefixes))
    if not all(map(_is_text, (user.name, user.uid, *user.groups, *(v for vs in user.extra.values() for v in vs)))):
        raise NotAuthentic("the front proxy's headers are not UTF-8")
    return with_authenticated(user)


def _first(headers: CIMultiDictProxy[str], names: Sequence[str]) -> str:
    for name in names:
        value = headers.get(name)
        if value:
            return value
    return ""


def _extra(headers: CIMultiDictProxy[str], prefixes: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    extra: dict[str, list[str]] = {}
    for prefix in prefixes:
        for header, value in headers.items():
            if header[: len(prefix)].lower() == prefix:
                extra.setdefault(unescape_key(header[len(prefix) :].lower()), []).append(value)
    return {key: tuple(values) for key, values in extra.items()}


def unescape_key(key: str) -> str:
    """Percent-decode a path segment; a malformed one stays as it is."""
    raw = percent_decoded(key) if "%" in key else None
    try:
        return key if raw is None else raw.decode()
    except UnicodeDecodeError:
        return key


def _is_text(value: str) -> bool:
    """Return whether the text can be encoded: aiohttp represents undecodable bytes as lone surrogates, which JSON cannot carry."""
    return value.isascii() or _SURROGATE.search(value) is None


_SURROGATE = re.compile("[\ud800-\udfff]")


# ---------------------------------------------------------------------------------------------------------------- tokens


def bearer_token(request: Request) -> str | None:
    """Return the bearer token of the request. Another scheme is not a credential."""
    header = request.headers.get("Authorization")
    if header is None:
        return None
    parts = header.strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer":
        return None
    token = parts[1]
    if not token:
        if len(parts) == 3:
            request.exchange.warnings.add(TOKEN_AFTER_SPACE)
        return None
    if not _is_text(token):
        raise NotAuthentic("the bearer token is not UTF-8")
    return token


BEARER_SUBPROTOCOL = "base64url.bearer.authorization.k8s.io."
_BASE64URL = re.compile("[A-Za-z0-9_-]*")


def subprotocol_token(headers: Sequence[str], failures: tuple[str, ...]) -> Shown | None:
    """Return the token among the subprotocols that a WebSocket's client offers, or None.

    Browsers cannot send an Authorization header with a WebSocket. The client must offer another subprotocol too, which the answer
    selects.
    """
    found: list[str] = []
    others: list[str] = []
    for protocol in (protocol for header in headers for protocol in websocket.split(header)):
        if protocol.startswith(BEARER_SUBPROTOCOL):
            found.append(protocol[len(BEARER_SUBPROTOCOL) :])
        else:
            others.append(protocol)
    if len(found) > 1:
        raise NotAuthentic("multiple base64.bearer.authorization tokens specified")
    encoded = found[0] if found else ""
    if not encoded:
        return None
    if _BASE64URL.fullmatch(encoded) is None or len(encoded) % 4 == 1:
        raise NotAuthentic("invalid base64.bearer.authorization token encoding")
    try:
        token = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
    except UnicodeDecodeError:
        raise NotAuthentic("invalid base64.bearer.authorization token") from None
    if not others:
        raise NotAuthentic("missing additional subprotocol")
    return Shown(token, failures, tuple(others))
