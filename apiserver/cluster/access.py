"""May this user do this? Asks by SubjectAccessReview and remembers the answer; without an answer nobody may.

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
PROBES = "\0probes"
"""Whose lane health checks are in; nobody is called so. Others cannot make them wait."""
ATTEMPT_SECONDS = 10.0
REMEMBERED_BYTES = 10_000
"""Longer attributes are not remembered: they are the requester's, and could fill the memory. Selectors that are longer are not told: what
is asked is then whether everything may be seen, which nobody who may only see a part is allowed."""

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
        """For how many seconds a yes and a no are remembered."""
        self._client = client
        self._allow_seconds, self._deny_seconds = allow_seconds, deny_seconds
        self._throttle = Throttle(clock)
        self._answers: Answers[tuple[Any, ...], Decision] = Answers(client.start, size=REMEMBERED, clock=clock)

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        """Raises ClusterError."""
        # Says the same as the review's spec would, for less: this is the price of every request.
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
            lane=PROBES if info.probe else user.name,
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
    """A SubjectAccessReviewSpec: every attribute, empty ones left out as Go does."""
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
    """Nothing for a selector that cannot be read: selectors only narrow, and the verb refuses this one later."""
    try:
        terms = given.fields.terms
    except StatusError:
        return []
    return [{"key": key, "operator": _FIELD_OPERATORS[operator], "values": [value]} for key, operator, value in terms]


def _label_requirements(given: Given) -> list[dict[str, Any]]:
    """Without the comparisons, which SubjectAccessReview has no words for; the question is then the broader one."""
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
    """Upstream's sum, and the selectors, which are the requester's as well."""
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
