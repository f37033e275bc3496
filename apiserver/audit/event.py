"""An event: the facts about a request at one of its stages, and their encodings.

The long parts, the objects, stay in the pieces in which they were sent: nothing is joined to write an event. Upstream:
kubernetes/apiserver `pkg/apis/audit/v1/types.go`, `pkg/audit/format.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from apiserver.apimachinery.request import Json, Level, User
from apiserver.codecs.objects import canonical
from kubetext.quoting import go_quote

LEVELS: Mapping[Level, str] = {
    Level.NONE: "None",
    Level.METADATA: "Metadata",
    Level.REQUEST: "Request",
    Level.REQUEST_RESPONSE: "RequestResponse",
}
TRUNCATED = "audit.k8s.io/truncated"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stage(StrEnum):
    """The stage of a request."""

    REQUEST_RECEIVED = "RequestReceived"
    RESPONSE_STARTED = "ResponseStarted"
    """The headers are being sent: only for watches, and for requests that were refused before authentication."""
    RESPONSE_COMPLETE = "ResponseComplete"
    PANIC = "Panic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One stage of one request. `received` and `at` are microseconds since the epoch.

    `user` is None before authentication. `acting` is the impersonated user, `constraint` the verb of constrained impersonation.
    `object_ref` holds the known members of the reference; it is empty for requests without objects. `status` is that of the answer,
    None before the answer.
    """

    level: Level
    audit_id: str
    stage: Stage
    request_uri: str
    verb: str
    user: User | None
    acting: User | None
    constraint: str
    source_ips: Sequence[str]
    user_agent: str
    object_ref: Mapping[str, str]
    status: Mapping[str, Any] | None
    request_object: Json
    response_object: Json
    received: int
    at: int
    annotations: Mapping[str, str]

    def line(self) -> list[bytes]:
        """Encode the event as JSON, in pieces, without a line end."""
        return [b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",', *self.members()]

    def item(self) -> list[bytes]:
        """Encode the event as an item of an EventList."""
        return [b"{", *self.members()]

    def members(self) -> list[bytes]:
        """Encode everything after kind and apiVersion, including the closing brace."""
        pieces = [_members(self._about())]
        for name, value in ((b',"requestObject":', self.request_object), (b',"responseObject":', self.response_object)):
            if value:
                pieces += (name, *value)
        times: dict[str, Any] = {
            "requestReceivedTimestamp": micro_time(self.received),
            "stageTimestamp": micro_time(self.at),
        }
        if self.annotations:
            times["annotations"] = dict(sorted(self.annotations.items()))
        return [*pieces, b"," + _members(times) + b"}"]

    def _about(self) -> dict[str, Any]:
        about: dict[str, Any] = {
            "level": LEVELS[self.level],
            "auditID": self.audit_id,
            "stage": self.stage.value,
            "requestURI": self.request_uri,
            "verb": self.verb,
            "user": _user(self.user),
        }
        if self.acting is not None:
            about["impersonatedUser"] = _user(self.acting)
        if self.constraint:
            about["authenticationMetadata"] = {"impersonationConstraint": self.constraint}
        if self.source_ips:
            about["sourceIPs"] = list(self.source_ips)
        if self.user_agent:
            about["userAgent"] = self.user_agent
        if self.object_ref:
            about["objectRef"] = {name: self.object_ref[name] for name in _REFERENCE if self.object_ref.get(name)}
        if self.status is not None:
            about["responseStatus"] = {"metadata": {}, **self.status}
        return about

    def truncated(self) -> Event:
        """Return the event without its objects, annotated as truncated."""
        noted = {**self.annotations, TRUNCATED: "true"}
        return replace(self, request_object=(), response_object=(), annotations=noted)

    def legacy(self) -> str:
        """Format the event as one line of text, without a line end. The line holds no objects and no annotations."""
        user, acting = self.user, self.acting
        named = user is not None and user.name != ""
        received = _EPOCH + timedelta(microseconds=self.received)
        fraction = f"{received.microsecond:06}".rstrip("0")
        shown = {
            "id": self.audit_id,
            "stage": self.stage.value,
            "ip": self.source_ips[0] if self.source_ips else "<unknown>",
            "method": self.verb,
            "user": user.name if user is not None and named else "<none>",
            "groups": _groups(user.groups) if user is not None and named and user.groups else "<none>",
            "as": "<self>" if acting is None else acting.name,
            "asgroups": "<lookup>" if acting is None or not acting.groups else _groups(acting.groups),
            "user-agent": self.user_agent,
            "namespace": self.object_ref.get("namespace") or "<none>",
            "uri": self.request_uri,
        }
        members = " ".join(f"{name}={go_quote(value)}" for name, value in shown.items())
        code = "<deferred>" if self.status is None else str(self.status.get("code", 0))
        when = f"{received:%Y-%m-%dT%H:%M:%S}{'.' if fraction else ''}{fraction}Z"
        return f'{when} AUDIT: {members} response="{code}"'


_REFERENCE = ("resource", "namespace", "name", "uid", "apiGroup", "apiVersion", "resourceVersion", "subresource")


def micro_time(at: int) -> str:
    """Format a time with microseconds as Kubernetes does (kubernetes/apimachinery `pkg/apis/meta/v1/micro_time.go`)."""
    seconds, microseconds = divmod(at, 1_000_000)
    return f"{_second(seconds)}.{microseconds:06}Z"


@functools.lru_cache(maxsize=4)
def _second(at: int) -> str:
    return f"{_EPOCH + timedelta(seconds=at):%Y-%m-%dT%H:%M:%S}"


def _members(values: Mapping[str, Any]) -> bytes:
    return canonical.encode_value(values)[1:-1]


def _user(user: User | None) -> dict[str, Any]:
    if user is None:
        return {}
    extra = {key: list(values) for key, values in sorted(user.extra.items())}
    every = {"username": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}
    return {name: value for name, value in every.items() if value}


def _groups(groups: Sequence[str]) -> str:
    return ",".join(map(go_quote, groups))
