"""Every error a client can receive, as the Status object that upstream sends for it.

    StatusError             an API error: rendered as a `Status` in the client's media type
    TextError               an error that upstream writes as plain text, outside content negotiation

Raise near the cause through a factory below; `filters.recover` renders, nothing else does.
Upstream: kubernetes/apimachinery `pkg/api/errors/errors.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery import excerpt
from apiserver.apimachinery.fieldpath import FieldError, FieldErrors
from kubetext.quoting import go_quote

MESSAGE_ROOM, CAUSES_ROOM, WORD_ROOM, SIGN_ROOM = 320 << 10, 320 << 10, 48 << 10, 8 << 10
"""Bytes (see `excerpt`) of a Status's message, of all its causes, of a name in its details, and of its reason, its outcome and what its
metadata say: together less than 1 MiB."""
TEXT_ROOM = 512 << 10
"""The same of an error that is plain text."""
FAILURE = "Failure"
"""The outcome of a request that failed."""


@dataclass(frozen=True, slots=True)
class GroupResource:
    """The plural name of a type inside its API group, as error messages print it."""

    group: str
    resource: str

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


@dataclass(frozen=True, slots=True)
class GroupKind:
    """A kind inside its API group, as validation errors print it."""

    group: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind


class StatusError(Exception):
    """An API error. `details=None` sends no details member, `{}` sends an empty one; an empty `reason` sends no reason. `metadata` is a
    list's, `outcome` the member `status`: what is not Failure comes from elsewhere.

    Whatever its texts repeat of a request, they are cut to what the longest answer has room for.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        outcome: str = FAILURE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = excerpt.cut(message, MESSAGE_ROOM)
        super().__init__(message)
        self.code = code
        self.reason = excerpt.cut(reason, SIGN_ROOM)
        self.message = message
        self.details = None if details is None else _bounded(details)
        self.metadata = _cut(metadata or {}, SIGN_ROOM)
        self.outcome = excerpt.cut(outcome, SIGN_ROOM)
        self.headers = dict(headers or {})

    def again(self) -> StatusError:
        """The same, never raised yet. One that was raised names the frames that it passed through, and with them all that their request
        held: whoever keeps an error keeps this."""
        return StatusError(
            self.code,
            self.reason,
            self.message,
            details=self.details,
            metadata=self.metadata,
            outcome=self.outcome,
            headers=self.headers,
        )

    @property
    def retry_after(self) -> int:
        """Seconds for the Retry-After header; 0 means that none is sent."""
        return int((self.details or {}).get("retryAfterSeconds", 0))

    def status(self) -> dict[str, Any]:
        """The `Status` object, members in upstream's order."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": self.outcome,
        }
        if self.message:
            body["message"] = self.message
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        body["code"] = self.code
        return body


class TextError(Exception):
    """An error written as text/plain by upstream's net/http layer; `headers` are sent beside Content-Type and nosniff.

    `nosniff=False` is for the few that upstream writes without `http.Error`.
    """

    def __init__(self, code: int, text: str, *, headers: Mapping[str, str] | None = None, nosniff: bool = True) -> None:
        text = excerpt.cut(text, TEXT_ROOM)
        super().__init__(text)
        self.code = code
        self.text = text
        self.headers = dict(headers or {})
        self.nosniff = nosniff


def _bounded(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same within the room that details have."""
    found = _cut(details, WORD_ROOM)
    causes = found.get("causes")
    if causes:
        found["causes"] = _bounded_causes(causes)
    return found


def _cut(members: Mapping[str, Any], room: int) -> dict[str, Any]:
    return {k: excerpt.cut(x, room) if isinstance(x, str) else x for k, x in members.items()}


def _bounded_causes(causes: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    kept: list[Mapping[str, str]] = []
    room = CAUSES_ROOM
    for cause in causes:
        cause = {k: excerpt.cut(x, CAUSES_ROOM // 2) for k, x in cause.items()}
        room -= sum(map(excerpt.cost, cause.values())) + _CAUSE_BYTES
        if room < 0:
            break
        kept.append(cause)
    return kept


_CAUSE_BYTES = 64
"""What a cause costs besides its texts."""


def _details(name: str, group: str, kind: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {}
    if name:
        details["name"] = name
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    return details | more


def not_found(resource: GroupResource, name: str) -> StatusError:
    return StatusError(
        404,
        "NotFound",
        f"{resource} {go_quote(name)} not found",
        details=_details(name, resource.group, resource.resource),
    )


def no_such_path() -> StatusError:
    """The router knows no such resource in a served group-version."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> StatusError:
    """The router knows the path, but not with this method."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def already_exists(resource: GroupResource, name: str, *, being_deleted: bool = False) -> StatusError:
    prefix = "object is being deleted: " if being_deleted else ""
    return StatusError(
        409,
        "AlreadyExists",
        f"{prefix}{resource} {go_quote(name)} already exists",
        details=_details(name, resource.group, resource.resource),
    )


def generate_name_conflict(resource: GroupResource, name: str, *, being_deleted: bool = False) -> StatusError:
    prefix = "object is being deleted: " if being_deleted else ""
    return StatusError(
        409,
        "AlreadyExists",
        f"{prefix}{resource} {go_quote(name)} already exists, the server was not able to generate a unique name for the object",
        details=_details(name, resource.group, resource.resource, retryAfterSeconds=1),
    )


def conflict(resource: GroupResource | GroupKind, name: str, cause: str) -> StatusError:
    kind = resource.resource if isinstance(resource, GroupResource) else resource.kind
    return StatusError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {resource} {go_quote(name)}: {cause}",
        details=_details(name, resource.group, kind),
    )


MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


def invalid(kind: GroupKind, name: str, errors: Sequence[FieldError]) -> StatusError:
    """422 for field errors. The message names each text once, `causes` lists every error; how many more there are is said last."""
    errors = errors if isinstance(errors, FieldErrors) else FieldErrors(errors)
    name = excerpt.cut(name, WORD_ROOM)
    texts = list(dict.fromkeys(str(e) for e in errors))
    if errors.more:
        texts.append(f"… {errors.more} more" if not errors.full else f"… more than {errors.more} more")
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
    message = f"{kind} {go_quote(name)} is invalid" + (f": {joined}" if joined else "")
    causes = [e.cause() for e in errors]
    details = _details(name, kind.group, kind.kind)
    return StatusError(422, "Invalid", message, details=details | ({"causes": causes} if causes else {}))


def unprocessable_patch() -> StatusError:
    """A patch that cannot be applied; upstream does not say why."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: GroupResource, name: str, why: str) -> StatusError:
    """A path has neither group nor resource. One with an empty segment may have a group alone. Upstream: NewForbidden in
    kubernetes/apimachinery `pkg/api/errors/errors.go`."""
    quoted = f"{go_quote(name)} " if name else ""
    what = f"{resource} {quoted}is forbidden" if resource.group or resource.resource else "forbidden"
    return StatusError(403, "Forbidden", f"{what}: {why}", details=_details(name, resource.group, resource.resource))


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}")


def not_acceptable_route(produced: Sequence[str]) -> StatusError:
    """The router's own 406, before the handler negotiates."""
    return StatusError(
        406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {', '.join(produced)}", details={}
    )


def not_convertible(message: str) -> StatusError:
    """406 of a representation that does not fit the result (Table, PartialObjectMetadata)."""
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )


def unsupported_media_type_route() -> StatusError:
    """The router's own 415, for PATCH."""
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def expired(message: str, *, continue_token: str = "") -> StatusError:
    return StatusError(410, "Expired", message, metadata={"continue": continue_token} if continue_token else None)


def request_entity_too_large(detail: str) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: {detail}")


def too_many_requests(message: str, *, retry_after: int) -> StatusError:
    return StatusError(429, "TooManyRequests", message, details={"retryAfterSeconds": retry_after})


def internal(message: str) -> StatusError:
    return StatusError(
        500, "InternalError", f"Internal error occurred: {message}", details={"causes": [{"message": message}]}
    )


def unreadable(resource: GroupResource, causes: Sequence[Mapping[str, str]]) -> StatusError:
    """A list of objects of which some cannot be read: a cause for each (`reason`, `message`, and the key as `field`)."""
    message = f"failed to read one or more {resource} from the storage"
    details = {"name": "list", "group": resource.group, "kind": resource.resource, "causes": causes}
    return StatusError(500, "StorageReadError", message, details=details)


def apply_conflict(message: str, conflicts: Sequence[tuple[str, str]]) -> StatusError:
    """Others manage what an apply would change; `conflicts` are pairs of a message and the path of a field."""
    causes = [{"reason": "FieldManagerConflict", "message": text, "field": path} for text, path in conflicts]
    return StatusError(409, "Conflict", message, details={"causes": causes})


def raw(message: str, code: int = 500) -> StatusError:
    """An error that carries no API status upstream: the bare text, no reason, no details."""
    return StatusError(code, "", message)


def service_unavailable(message: str, *, retry_after: int = 1) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, details={"retryAfterSeconds": retry_after})


def timeout(message: str) -> StatusError:
    """504 without Retry-After: the write may have happened, so a client must not repeat it blindly."""
    return StatusError(504, "Timeout", f"Timeout: {message}", details={})


def too_large_resource_version(wanted: int, current: int) -> StatusError:
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {wanted}, current: {current}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
    )
