"""An AdmissionReview: the question as bytes, and what the answer says. Sends nothing.

Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/request/admissionreview.go`, kubernetes/api `admission/{v1,v1beta1}/types.go`,
kubernetes/apimachinery `pkg/runtime/serializer/{json,versioning}`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import msgspec
import orjson

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.webhooks import answers
from apiserver.admission.webhooks.answers import GROUP, KIND
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.apimachinery.request import User
from apiserver.codecs.json import rawjson
from apiserver.patching import json_patch
from apiserver.runtime.offload import READ_REVIEW, run_sized
from apiserver.schema.resource import Object, Resource
from kubetext.quoting import go_quote

Version = Literal["v1", "v1beta1"]
VERSIONS: Sequence[Version] = ("v1", "v1beta1")
JSON_PATCH = "JSONPatch"


class Match(Protocol):
    """The match of a request: the version in which its objects are sent."""

    @property
    def resource(self) -> Resource: ...


class Views(Protocol):
    """How objects look as JSON in a version, with kind and apiVersion."""

    async def atext(self, obj: Object, resource: Resource) -> bytes: ...


class BadAnswer(Exception):
    """A webhook's answer is of no use. `prefix` is what upstream puts before the text."""

    prefix: ClassVar[str]


class Undecodable(BadAnswer):
    """It is no AdmissionReview of the version that was sent."""

    prefix = "failed to call webhook"


class InvalidResponse(BadAnswer):
    """It is an AdmissionReview that breaks the rules for one."""

    prefix = "received invalid webhook response"


class UndecodablePatch(BadAnswer):
    """Its patch is no list of operations."""

    prefix = "received undecodable patch in webhook response"


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A webhook's response.

    `status` is the Status of a denial as sent, None without one. `patch` is JSON text of `patch_type`, or empty.
    """

    allowed: bool
    status: Mapping[str, Any] | None
    warnings: Sequence[str]
    audit_annotations: Mapping[str, str]
    patch: bytes
    patch_type: str

    def operations(self) -> json_patch.Patch:
        """The patch, taken apart. Raises UndecodablePatch with Go's text, and StatusError 413 for more operations than are applied."""
        try:
            return json_patch.parse(self.patch)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise UndecodablePatch(answers.why_no_patch(self.patch)) from None


def version_for(accepted: Sequence[str]) -> Version | None:
    """The version in which to ask: the first of `admissionReviewVersions` that is known here."""
    return next((known for version in accepted for known in VERSIONS if version == known), None)


# ------------------------------------------------------------------------------------------------------------------ the question


async def request(attributes: Attributes, match: Match, *, version: Version, uid: str, views: Views) -> bytes:
    """The review of a change, byte for byte as kube-apiserver sends it. `uid` is that of this one call."""
    resource, new, old = match.resource, attributes.object, attributes.old
    shown = b"null" if new is None else await views.atext(new, resource)
    before = b"null" if old is None else await views.atext(old, resource)
    return b"".join((_head(attributes, resource, version, uid), shown, b',"oldObject":', before, _tail(attributes)))


def _head(attributes: Attributes, resource: Resource, version: Version, uid: str) -> bytes:
    asked, subresource = attributes.resource, attributes.subresource
    members: dict[str, Any] = {"uid": uid, "kind": _kind(resource), "resource": _resource(resource)}
    if subresource:
        members["subResource"] = subresource
    members["requestKind"], members["requestResource"] = _kind(asked), _resource(asked)
    if subresource:
        members["requestSubResource"] = subresource
    if attributes.name:
        members["name"] = attributes.name
    if attributes.namespace:
        members["namespace"] = attributes.namespace
    members["operation"] = attributes.operation
    members["userInfo"] = _user(attributes.user)
    review = {"kind": KIND, "apiVersion": f"{GROUP}/{version}", "request": members}
    return _json(review)[:-2] + b',"object":'


def _tail(attributes: Attributes) -> bytes:
    rest = {"dryRun": attributes.dry_run, "options": _options(attributes.options)}
    return b"," + _json(rest)[1:] + b"}\n"


def _kind(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _resource(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _user(user: User) -> dict[str, Any]:
    found: dict[str, Any] = {
        "username": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": dict(sorted(user.extra.items())),
    }
    return {name: value for name, value in found.items() if value}


def _options(options: CreateOptions | UpdateOptions | DeleteOptions) -> dict[str, Any]:
    found: dict[str, Any] = {"kind": type(options).__name__, "apiVersion": "meta.k8s.io/v1"}
    if isinstance(options, DeleteOptions):
        found |= _delete_options(options)
    else:
        found["dryRun"] = ["All"] if options.dry_run else None
        found["fieldManager"], found["fieldValidation"] = options.field_manager, options.field_validation
    return {name: value for name, value in found.items() if value not in (None, "")}


def _delete_options(options: DeleteOptions) -> dict[str, Any]:
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    return {
        "gracePeriodSeconds": options.grace_period_seconds,
        "preconditions": {k: v for k, v in preconditions.items() if v is not None} if options.preconditions else None,
        "orphanDependents": options.orphan_dependents,
        "propagationPolicy": options.propagation_policy,
        "dryRun": list(options.dry_run_values) or None,
        "ignoreStoreReadErrorWithClusterBreakingPotential": True if options.ignore_read_error else None,
    }


def _json(value: Any) -> bytes:
    return rawjson.escaped(orjson.dumps(value))


# -------------------------------------------------------------------------------------------------------------------- the answer


async def received(data: bytes, *, version: Version, uid: str, mutating: bool) -> Response:
    """Do the same as `read`, in a thread if the answer is long or YAML."""
    size = len(data) if answers.begins_as_object(data) else sys.maxsize
    return await run_sized(READ_REVIEW, size, read, data, version=version, uid=uid, mutating=mutating)


def read(data: bytes, *, version: Version, uid: str, mutating: bool) -> Response:
    """Read the answer to a review of that version with that uid. Raises Undecodable and InvalidResponse."""
    review = _decoded(data, version)
    found = review.get("response")
    if found is None:
        raise InvalidResponse("webhook response was absent")
    patch, patch_type = answers.patch_of(found), found.get("patchType")
    if version == "v1":
        _check_identity(review, found, uid)
        (_check_patch if mutating else _check_no_patch)(patch, patch_type)
    return Response(
        allowed=found.get("allowed") or False,
        status=found.get("status"),
        warnings=[text or "" for text in found.get("warnings") or ()],
        audit_annotations={k: v or "" for k, v in (found.get("auditAnnotations") or {}).items()},
        patch=patch if mutating else b"",
        patch_type=(patch_type or "") if version == "v1" else JSON_PATCH,
    )


def _decoded(data: bytes, version: Version) -> dict[str, Any]:
    try:
        return answers.decoded(data, version)
    except answers.Unlike as problem:
        raise Undecodable(str(problem)) from None


def _check_identity(review: Mapping[str, Any], found: Mapping[str, Any], uid: str) -> None:
    stated = found.get("uid") or ""
    if stated != uid:
        raise InvalidResponse(f"expected response.uid={go_quote(uid)}, got {go_quote(stated)}")
    api_version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if api_version != f"{GROUP}/v1" or kind != KIND:
        group, slash, rest = api_version.partition("/")
        got = f"{group if slash else ''}/{rest if slash else group}, Kind={kind}"
        raise InvalidResponse(f"expected webhook response of {GROUP}/v1, Kind={KIND}, got {got}")


def _check_patch(patch: bytes, patch_type: str | None) -> None:
    if patch and patch_type is None:
        raise InvalidResponse("webhook returned response.patch but not response.patchType")
    if not patch and patch_type is not None:
        raise InvalidResponse("webhook returned response.patchType but not response.patch")
    if patch_type == "":
        raise InvalidResponse('webhook returned invalid response.patchType of ""')


def _check_no_patch(patch: bytes, patch_type: str | None) -> None:
    if patch:
        raise InvalidResponse("validating webhook may not return response.patch")
    if patch_type is not None:
        raise InvalidResponse("validating webhook may not return response.patchType")
