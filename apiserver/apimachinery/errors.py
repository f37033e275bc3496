"""Build every error that a client can receive, as the Status object that upstream sends for it.

    StatusError             an API error: rendered as a `Status` in the client's media type
    TextError               an error that upstream writes as plain text, outside content negotiation

Raise near the cause through a factory below. Only `filters.recover` renders errors.
Upstream: kubernetes/apimachinery `pkg/api/errors/errors.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apiserver.apimachinery import excerpt
from apiserver.apimachinery.fieldpath import FieldError, FieldErrors
from kubetext.quoting import go_quote

MESSAGE_LIMIT, CAUSES_LIMIT, WORD_LIMIT, SIGN_LIMIT = 320 << 10, 320 << 10, 48 << 10, 8 << 10
"""Limits in bytes (see `excerpt`): of a Status's message, of all its causes, of a name in its details, and of its reason, outcome and
metadata. Together they are less than 1 MiB."""
TEXT_LIMIT = 512 << 10
"""The limit of a plain text error."""
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
    """An API error.

    `details=None` sends no details member, `{}` sends an empty one. An empty `reason` sends no reason. `metadata` is list metadata.
    `outcome` is the member `status`: errors of this server have Failure, those that others send may differ.

    Texts from the request are cut to the limits of an answer.
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
        message = excerpt.cut(message, MESSAGE_LIMIT)
        super().__init__(message)
        self.code = code
        self.reason = excerpt.cut(reason, SIGN_LIMIT)
        self.message = message
        self.details = None if details is None else _bounded(details)
        self.metadata = _cut(metadata or {}, SIGN_LIMIT)
        self.outcome = excerpt.cut(outcome, SIGN_LIMIT)
        self.headers = dict(headers or {})

    def again(self) -> StatusError:
        """Return the same error without traceback, which code that keeps errors must store. A raised error refers to the frames that it
        passed through, and so to all objects of their request."""
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
        """Seconds for the Retry-After header; 0 sends none."""
        return int((self.details or {}).get("retryAfterSeconds", 0))

    def status(self) -> dict[str, Any]:
        """Return the `Status` object, with members in upstream's order."""
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
    """An error that upstream's net/http layer writes as text/plain. `headers` are sent besides Content-Type and nosniff.

    `nosniff=False` is for the few that upstream writes without `http.Error`.
    """

    def __init__(self, code: int, text: str, *, headers: Mapping[str, str] | None = None, nosniff: bool = True) -> None:
        text = excerpt.cut(text, TEXT_LIMIT)
        super().__init__(text)
        self.code = code
        self.text = text
        self.headers = dict(headers or {})
        self.nosniff = nosniff


def _bounded(details: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the details, cut to their limits."""
    found = _cut(details, WORD_LIMIT)
    causes = found.get("causes")
    if causes:
        found["causes"] = _bounded_causes(causes)
    return found


def _cut(members: Mapping[str, Any], limit: int) -> dict[str, Any]:
    return {k: excerpt.cut(x, limit) if isinstance(x, str) else x for k, x in members.items()}


def _bounded_causes(causes: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    kept: list[Mapping[str, str]] = []
    left = CAUSES_LIMIT
    for cause in causes:
        cause = {k: excerpt.cut(x, CAUSES_LIMIT // 2) for k, x in cause.items()}
        left -= sum(map(excerpt.cost, cause.values())) + _CAUSE_BYTES
        if left < 0:
            break
        kept.append(cause)
    return kept


_CAUSE_BYTES = 64
"""Bytes of a cause besides its texts."""


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
    """Return the router's 404 for a resource that a served group-version does not have."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def method_not_allowed() -> StatusError:
    """Return the router's 405 for a known path with another method."""
    return StatusError(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def method_not_supported(resource: GroupResource, verb: str) -> StatusError:
    """Return the 405 of a custom resource or a subresource of it. `verb` is that of the API, "" for methods without one."""
    return StatusError(
        405,
        "MethodNotAllowed",
        f"{verb} is not supported on resources of kind {go_quote(str(resource))}",
        details=_details("", resource.group, resource.resource),
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
    """Return 422 for field errors. The message has each text once, then the number of errors left out. `causes` lists every error."""
    errors = errors if isinstance(errors, FieldErrors) else FieldErrors(errors)
    name = excerpt.cut(name, WORD_LIMIT)
    texts = list(dict.fromkeys(str(e) for e in errors))
    if errors.more:
        texts.append(f"… {errors.more} more" if not errors.full else f"… more than {errors.more} more")
    joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""
    message = f"{kind} {go_quote(name)} is invalid" + (f": {joined}" if joined else "")
    causes = [e.cause() for e in errors]
    details = _details(name, kind.group, kind.kind)
    return StatusError(422, "Invalid", message, details=details | ({"causes": causes} if causes else {}))


def unprocessable_patch() -> StatusError:
    """Return 422 for a patch that cannot be applied. Upstream does not say why."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: GroupResource, name: str, why: str) -> StatusError:
    """Return 403. A path has neither group nor resource. A path with an empty segment may have a group alone.

    Upstream: NewForbidden in kubernetes/apimachinery `pkg/api/errors/errors.go`.
    """
    quoted = f"{go_quote(name)} " if name else ""
    what = f"{resource} {quoted}is forbidden" if resource.group or resource.resource else "forbidden"
    return StatusError(403, "Forbidden", f"{what}: {why}", details=_details(name, resource.group, resource.resource))


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    return StatusError(406, "NotAcceptable", f"only the following media types are accepted: {', '.join(accepted)}")


def not_acceptable_route(produced: Sequence[str]) -> StatusError:
    """Return the router's own 406, which precedes the handler's negotiation."""
    return StatusError(
        406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {', '.join(produced)}", details={}
    )


def not_convertible(message: str) -> StatusError:
    """Return 406 for a representation that does not fit the result (Table, PartialObjectMetadata)."""
    return StatusError(406, "NotAcceptable", message)


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    return StatusError(
        415,
        "UnsupportedMediaType",
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}",
    )


def unsupported_media_type_route() -> StatusError:
    """Return the router's own 415, for PATCH."""
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


def unreadable(resource: GroupResource, causes: Sequence[Mapping[str, str]], *, why: str = "") -> StatusError:
    """Return the error of a list with unreadable objects: a cause for each (`reason`, `message`, and the key as `field`). `why` ends its
    message."""
    message = f"failed to read one or more {resource} from the storage{why}"
    details = {"name": "list", "group": resource.group, "kind": resource.resource, "causes": causes}
    return StatusError(500, "StorageReadError", message, details=details)


def apply_conflict(message: str, conflicts: Sequence[tuple[str, str]]) -> StatusError:
    """Return 409 for an apply that would change fields of other managers. `conflicts` are pairs of a message and the path of a field."""
    causes = [{"reason": "FieldManagerConflict", "message": text, "field": path} for text, path in conflicts]
    return StatusError(409, "Conflict", message, details={"causes": causes})


def raw(message: str, code: int = 500) -> StatusError:
    """Return an error that carries no API status upstream: the bare text, no reason, no details."""
    return StatusError(code, "", message)


def service_unavailable(message: str, *, retry_after: int = 1) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, details={"retryAfterSeconds": retry_after})


def timeout(message: str) -> StatusError:
    """Return 504 without Retry-After: the write may have happened, so a client must not repeat it blindly."""
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
