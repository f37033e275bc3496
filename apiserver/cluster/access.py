"""Authorize requests by SubjectAccessReview and cache the answers. Without an answer the request is not allowed.

Upstream: kubernetes/apiserver `plugin/pkg/authorizer/webhook/webhook.go`, `pkg/endpoints/filters/authorization.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec

from apiserver import metrics
from apiserver.apimachinery import selectors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.apimachinery.selectors import Given
from apiserver.cluster.answers import Answers
from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError, Unreadable
from apiserver.cluster.pace import WEBHOOK, Throttle
from kubetext import names

PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
REMEMBERED = 8192
PROBE_FLOW = "\0probes"
"""The fair-queuing flow of health checks. It is not a valid user name, so no client shares it or makes it wait."""
ATTEMPT_SECONDS = 10.0
REMEMBERED_BYTES = 10_000
"""Bytes. Answers about longer attributes are not cached: clients choose them and could fill the memory. Longer selectors are left out
of the review. It then asks whether the user may see everything, which is never granted to a user who may see only a part.
"""

_FIELD_OPERATORS = {selectors.EQUALS: "In", selectors.NOT_EQUALS: "NotIn"}
_LABEL_OPERATORS = {
    selectors.EQUALS: "In",
    selectors.DOUBLE_EQUALS: "In",
    selectors.IN: "In",
    selectors.NOT_EQUALS: "NotIn",
    selectors.NOT_IN: "NotIn",
    selectors.EXISTS: "Exists",
    selectors.DOES_NOT_EXIST: "DoesNotExist",
}


class _Status(msgspec.Struct):
    allowed: bool = False
    denied: bool = False
    reason: str = ""


class _SubjectAccessReview(msgspec.Struct):
    status: _Status = msgspec.field(default_factory=_Status)


class Access:
    """A `filters.authorize.Authorizer`."""

    def __init__(
        self,
        client: Client,
        *,
        allow_seconds: float = 10.0,
        deny_seconds: float = 10.0,
        clock: Callable[[], float],
    ) -> None:
        """`allow_seconds` and `deny_seconds`: how long a yes and a no are cached."""
        self._client = client
        self._allow_seconds, self._deny_seconds = allow_seconds, deny_seconds
        self._throttle = Throttle(clock)
        self._answers: Answers[tuple[Any, ...], Decision] = Answers(client.start, size=REMEMBERED, clock=clock)

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        """Return the cluster's decision. Raises ClusterError."""
        # The key identifies the same review as its spec would, at less cost: every request pays for it.
        extra = frozenset(user.extra.items()) if user.extra else None
        key = (
            (
                user.name, user.uid, user.groups, extra, info.verb, info.group, info.version, info.resource,
                info.subresource, info.namespace, info.name, info.selectors.label_text, info.selectors.field_text,
            )
            if info.is_resource
            else (user.name, user.uid, user.groups, extra, info.verb, info.path)
        )  # fmt: skip
        decision = self._answers.get(key)
        if decision is None:
            size = _size(info) + sum(map(names.byte_length, _texts(user)))
            decision = await self._answers.ask(key, partial(self._review, user, info), size=size)
        if decision.denied and decision.allowed:
            raise ClusterError("webhook subject access review returned both allow and deny response")
        return decision

    async def _review(self, user: User, info: RequestInfo) -> tuple[Decision, float]:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec(user, info),
        }
        answer = await self._client.ask(
            "POST",
            PATH,
            query={"timeout": f"{ATTEMPT_SECONDS:g}s"},
            body=review,
            seconds=ATTEMPT_SECONDS,
            backoff=WEBHOOK,
            throttle=self._throttle,
            flow=PROBE_FLOW if info.probe else user.name,
            counted=_count,
        )
        try:
            status = msgspec.convert(answer, _SubjectAccessReview).status
        except msgspec.ValidationError as error:
            raise Unreadable(f"the SubjectAccessReview's answer cannot be read: {error}") from None
        seconds = 0.0
        if _size(info) < REMEMBERED_BYTES:
            seconds = self._allow_seconds if status.allowed else self._deny_seconds
        return Decision(status.allowed, status.denied, status.reason), seconds


def spec(user: User, info: RequestInfo) -> dict[str, Any]:
    """Make a SubjectAccessReviewSpec. Leaves empty attributes out, as Go does."""
    found: dict[str, Any] = {"user": user.name, "uid": user.uid, "groups": user.groups, "extra": dict(user.extra)}
    if info.is_resource:
        given = info.selectors
        if not given.narrows_authorization:
            given = selectors.NONE_GIVEN
        found["resourceAttributes"] = _filled(
            {
                "namespace": info.namespace,
                "verb": info.verb,
                "group": info.group,
                "version": info.version,
                "resource": info.resource,
                "subresource": info.subresource,
                "name": info.name,
                "fieldSelector": _selector(_field_requirements(given)),
                "labelSelector": _selector(_label_requirements(given)),
            }
        )
    else:
        found["nonResourceAttributes"] = _filled({"path": info.path, "verb": info.verb})
    return _filled(found)


def _filled(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def _selector(requirements: list[dict[str, Any]]) -> dict[str, Any]:
    return {"requirements": requirements} if requirements else {}


def _field_requirements(given: Given) -> list[dict[str, Any]]:
    """Return the terms. An unreadable selector has none: selectors only narrow, and the verb refuses this one later."""
    try:
        terms = given.fields.terms
    except StatusError:
        return []
    return [{"key": key, "operator": _FIELD_OPERATORS[operator], "values": [value]} for key, operator, value in terms]


def _label_requirements(given: Given) -> list[dict[str, Any]]:
    """Return the requirements except comparisons, which SubjectAccessReview cannot express; the question is then broader."""
    try:
        requirements = given.labels.requirements
    except StatusError:
        return []
    return [
        {"key": r.key, "operator": operator} | ({"values": r.values} if r.values else {})
        for r in requirements
        if (operator := _LABEL_OPERATORS.get(r.operator)) is not None
    ]


def _size(info: RequestInfo) -> int:
    """Return upstream's sum plus the selectors, which the client chooses as well."""
    return sum(
        map(
            names.byte_length,
            (
                info.namespace, info.verb, info.group, info.version, info.resource, info.subresource, info.name, info.path,
                info.selectors.field_text, info.selectors.label_text,
            ),
        )
    )  # fmt: skip


def _texts(user: User) -> Iterator[str]:
    yield from (user.name, user.uid, *user.groups)
    for key, values in user.extra.items():
        yield from (key, *values)


def _count(code: str, seconds: float) -> None:
    metrics.DELEGATED_AUTHZ_REQUESTS.labels(code).inc()
    metrics.DELEGATED_AUTHZ_SECONDS.labels(code).observe(seconds)
