"""Answer reviews: the identity of a user, and what this server's authorizer allows users to do.

Upstream: kubernetes/kubernetes `pkg/registry/authorization/{subjectaccessreview,selfsubjectaccessreview,localsubjectaccessreview,
selfsubjectrulesreview}/rest.go`, `pkg/registry/authentication/selfsubjectreview/rest.go`,
`pkg/apis/authorization/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from apiserver.apimachinery import errors, fieldpath, meta
from apiserver.apimachinery.errors import GroupKind
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from apiserver.codecs.objects import canonical
from apiserver.filters import authorize
from apiserver.runtime.offload import CHANGE, run_sized
from apiserver.schema.resource import Object
from apiserver.standalone import reviews
from apiserver.verbs import ownership, rendering
from apiserver.verbs.context import Call, Services
from apiserver.verbs.create import sent

_NEITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_BOTH = "cannot be specified in combination with resourceAttributes"
_NOBODY = "at least one of user or group must be specified"
_ELSEWHERE = "must match metadata.namespace"


async def create(services: Services, call: Call) -> Any:
    """Answer the POST of a review with 201."""
    resource = call.resource
    answer = rendering.negotiate(services, call)
    review, wanted, size = await sent(services, call)
    if resource.plural == reviews.SELF.plural:
        made = {
            "metadata": {"creationTimestamp": meta.rfc3339(services.now())},
            "status": {"userInfo": _shown(call.user)},
        }
    elif resource.plural == reviews.SELF_RULES.plural:
        made = _rules(review, call.user)
    else:
        made = await _access(services, call, review, manager=wanted.field_manager, size=size)
    value = await CHANGE.run(canonical.encode, resource.shape, made)
    return await answer.single(value, code=201)


def _shown(user: User) -> Object:
    return {
        "username": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {name: list(values) for name, values in user.extra.items()},
    }


def _rules(review: Object, user: User) -> Object:
    if not (review.get("spec") or {}).get("namespace"):
        raise errors.bad_request("no namespace on request")
    found = authorize.rules(user)
    resources = [
        {"verbs": [*verbs], "apiGroups": [*groups], "resources": [*plurals]}
        for verbs, groups, plurals in found.resources
    ]
    paths = [{"verbs": [*verbs], "nonResourceURLs": [*urls]} for verbs, urls in found.paths]
    status = {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}
    return {"metadata": {}, "spec": {}, "status": status}


async def _access(services: Services, call: Call, review: Object, *, manager: str, size: int) -> Object:
    spec = review.get("spec") or {}
    review.pop("status", None)
    review = await ownership.owned(services, call, review, None, manager=manager, size=size)
    if wrong := await run_sized(CHANGE, size, _wrong, call, review):
        raise errors.invalid(GroupKind(call.resource.group, ""), "", wrong)
    own = call.resource.plural == reviews.SELF_ACCESS.plural
    user = call.user if own else _subject(spec)
    review["status"] = await _status(services, user, _info(spec))
    return review


def _wrong(call: Call, review: Object) -> list[FieldError]:
    return list(_errors(call, review, review.get("spec") or {}))


def _errors(call: Call, review: Object, spec: Mapping[str, Any]) -> Iterator[FieldError]:
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    written = None if path is None else {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
    if resource is not None and path is not None:
        yield fieldpath.invalid("spec.nonResourceAttributes", written, _BOTH)
    if resource is None and path is None:
        yield fieldpath.invalid("spec.resourceAttributes", None, _NEITHER)
    if call.resource.plural != reviews.SELF_ACCESS.plural and not spec.get("user") and not spec.get("groups"):
        yield fieldpath.invalid("spec.user", spec.get("user", ""), _NOBODY)
    for name in ("fieldSelector", "labelSelector"):
        yield from _wrong_selector(f"spec.resourceAttributes.{name}", (resource or {}).get(name))
    metadata, local = review["metadata"], call.resource.namespaced
    if any(name not in ("managedFields", "namespace") for name in metadata):
        shown = msgspec.json.decode(canonical.encode(call.resource.shape, review))["metadata"]
        yield fieldpath.invalid("metadata", shown, "must be empty except for namespace" if local else "must be empty")
    if local and resource is not None and resource.get("namespace", "") != metadata.get("namespace", ""):
        yield fieldpath.invalid("spec.resourceAttributes.namespace", resource.get("namespace", ""), _ELSEWHERE)
    if local and path is not None:
        yield fieldpath.invalid("spec.nonResourceAttributes", written, "disallowed on this kind of request")


def _wrong_selector(path: str, selector: Mapping[str, Any] | None) -> Iterator[FieldError]:
    if selector is None:
        return
    raw, requirements = selector.get("rawSelector", ""), selector.get("requirements") or ()
    if raw and requirements:
        yield fieldpath.invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        yield fieldpath.required(f"{path}.requirements", why)


def _subject(spec: Mapping[str, Any]) -> User:
    return User(
        spec.get("user", ""),
        uid=spec.get("uid", ""),
        groups=tuple(spec.get("groups") or ()),
        extra={name.lower(): tuple(values or ()) for name, values in (spec.get("extra") or {}).items()},
    )


def _info(spec: Mapping[str, Any]) -> RequestInfo:
    """Return the request that the review describes, as authorization sees it."""
    asked = spec.get("resourceAttributes")
    if asked is None:
        path = spec["nonResourceAttributes"]
        return RequestInfo(path.get("path", ""), path.get("verb", ""), "")
    names = ("group", "version", "namespace", "resource", "subresource", "name")
    return RequestInfo("", asked.get("verb", ""), "", is_resource=True, **{name: asked.get(name, "") for name in names})


async def _status(services: Services, user: User, info: RequestInfo) -> Object:
    try:
        decision, wrong = await services.decide(user, info), ""
    except ClusterError as e:
        decision, wrong = Decision(allowed=False), str(e)
    return {
        "allowed": decision.allowed,
        "denied": not decision.allowed and decision.denied,
        "reason": decision.reason,
        "evaluationError": wrong,
    }
