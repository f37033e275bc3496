"""Identify the owner of a bearer token by TokenReview, and cache the answer, never the token.

Upstream: kubernetes/apiserver `plugin/pkg/authenticator/token/webhook/webhook.go`,
`pkg/authentication/token/cache/{cached_token_authenticator,stats}.go`.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from functools import partial

import msgspec

from apiserver import metrics
from apiserver.apimachinery.request import User
from apiserver.cluster.answers import Answers
from apiserver.cluster.client import Client
from apiserver.cluster.errors import Unreadable
from apiserver.cluster.pace import WEBHOOK, Throttle

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
REMEMBERED = 8192
REVIEW_SECONDS = 10.0
"""For all attempts together (upstream's TokenRequestTimeout)."""
INVALID = "invalid bearer token"
LONGEST = 64 << 10
"""Characters of a token. kube-apiserver is not asked about longer ones."""
ANSWER_BYTES = 1024
"""The assumed size of an answer: the cluster decides its length, the client only the number of answers."""


class BadToken(Exception):
    """The token has no owner. The text says why, for the log."""


class _UserInfo(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _Status(msgspec.Struct):
    authenticated: bool = False
    user: _UserInfo = msgspec.field(default_factory=_UserInfo)
    error: str = ""


class _TokenReview(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Tokens:
    def __init__(self, client: Client, *, ttl: float = 10.0, clock: Callable[[], float]) -> None:
        """`ttl`: for how many seconds an answer is cached, also a definite no; 0 caches nothing."""
        self._client = client
        self._ttl = ttl
        self._clock = clock
        # With a known key, an attacker could choose colliding tokens. The memory never holds a token.
        self._secret = secrets.token_bytes(32)
        # A throttle of its own, so that a flood of bad tokens does not take the turns of questions about good users.
        self._throttle = Throttle(clock)
        self._answers: Answers[bytes, User | BadToken] = Answers(client.start, size=REMEMBERED, clock=clock)
        self._hits, self._misses = (_Lookups(status) for status in ("hit", "miss"))
        self._blocked, self._in_flight = map(metrics.TOKEN_CACHE_ACTIVE_FETCHES.labels, ("blocked", "in_flight"))
        self._fetched, self._failed = map(metrics.TOKEN_CACHE_FETCHES.labels, ("ok", "error"))

    async def review(self, token: str, *, source: str = "") -> User:
        """Return the token's owner, without the group system:authenticated. `source` is the client's address.

        Raises BadToken for a definite no, ClusterError if nobody can tell.
        """
        started = self._clock()
        if len(token) > LONGEST:
            raise BadToken(INVALID)
        try:
            raw = token.encode()
        except UnicodeEncodeError:
            raise BadToken(INVALID) from None  # bytes that are not UTF-8 fit no TokenReview
        key = hmac.digest(self._secret, raw, "sha256")
        found = self._answers.get(key)
        if found is not None:
            self._hits.count(self._clock() - started)
        else:
            self._blocked.inc()
            try:
                found = await self._answers.ask(key, partial(self._fetch, token, source), size=ANSWER_BYTES)
            finally:
                self._blocked.dec()
                self._misses.count(self._clock() - started)
        if isinstance(found, BadToken):
            raise BadToken(*found.args)
        return found

    async def _fetch(self, token: str, source: str) -> tuple[User | BadToken, float]:
        self._in_flight.inc()
        counter = self._failed
        try:
            status = await self._ask(token, source)
            if status.authenticated:
                counter = self._fetched
                return _user(status.user), self._ttl
            if status.error:
                # Upstream treats this as an error, which may not occur with the next request.
                return BadToken(status.error), 0
            counter = self._fetched
            return BadToken(INVALID), self._ttl
        finally:
            self._in_flight.dec()
            counter.inc()

    async def _ask(self, token: str, source: str) -> _Status:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._client.ask(
            "POST",
            PATH,
            body=review,
            seconds=REVIEW_SECONDS,
            within=REVIEW_SECONDS,
            backoff=WEBHOOK,
            throttle=self._throttle,
            flow=source,
            counted=_count,
        )
        try:
            return msgspec.convert(answer, _TokenReview).status
        except msgspec.ValidationError as error:
            raise Unreadable(f"the TokenReview's answer cannot be read: {error}") from None


def _user(info: _UserInfo) -> User:
    # Extras name the pod and the node of a service account's token; they are passed on as they are.
    return User(info.username, info.uid, info.groups or (), info.extra or {})


def _count(code: str, seconds: float) -> None:
    metrics.DELEGATED_AUTHN_REQUESTS.labels(code).inc()
    metrics.DELEGATED_AUTHN_SECONDS.labels(code).observe(seconds)


class _Lookups:
    def __init__(self, status: str) -> None:
        self._total = metrics.TOKEN_CACHE_REQUESTS.labels(status)
        self._seconds = metrics.TOKEN_CACHE_SECONDS.labels(status)

    def count(self, seconds: float) -> None:
        self._total.inc()
        self._seconds.observe(seconds)
