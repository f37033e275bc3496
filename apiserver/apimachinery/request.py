"""Data about a request: its target, its user, its warnings, its audit annotations."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from binascii import a2b_qp
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from apiserver.apimachinery.errors import GroupResource
from apiserver.apimachinery.selectors import NONE_GIVEN, Given
from kubetext import names

_NOTHING: Mapping[str, tuple[str, ...]] = MappingProxyType({})


PROBES = ("/livez", "/readyz", "/healthz")
"""The paths of health checks, and their prefixes."""


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """A request's path and method as Kubernetes reads them. Authorization and dispatch use the same value.

    * `path` is the decoded URL path. For a non-resource request `verb` is the lower-case method and only `path` counts.
    * `parts` are the path segments from the resource on: resource, name, subresource and at most one surplus segment.
    * `forced_watch` marks the deprecated `/watch/` form.
    * `selectors` are those that authorization may use.
    * `notes` hold what filters found out about this value, by the object that looks it up. Equal targets share one value.

    Upstream: kubernetes/apiserver `pkg/endpoints/request/requestinfo.go`.
    """

    path: str
    verb: str
    method: str
    is_resource: bool = False
    prefix: str = ""
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    parts: tuple[str, ...] = ()
    forced_watch: bool = False
    selectors: Given = NONE_GIVEN
    notes: dict[object, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.resource)

    @property
    def probe(self) -> bool:
        """Whether this is a health check. Health checks never wait (kubernetes/apiserver `pkg/apis/flowcontrol/bootstrap`: the flow schema
        `probes` is exempt)."""
        return not self.is_resource and self.path.startswith(PROBES)

    @property
    def long_running(self) -> bool:
        return self.is_resource and self.verb == "watch"


@dataclass(frozen=True, slots=True)
class User:
    """The authenticated user of a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True, slots=True)
class Decision:
    """An authorizer's answer. Neither `allowed` nor `denied` means no opinion, which refuses too unless another authorizer allows.

    `reason` is shown to the client of a refused request.
    """

    allowed: bool
    denied: bool = False
    reason: str = ""


ANONYMOUS = User("system:anonymous", groups=("system:unauthenticated",))
MASTERS = "system:masters"
COLLECTOR, EMPTIER = (
    f"system:serviceaccount:kube-system:{name}" for name in ("generic-garbage-collector", "namespace-controller")
)
CONTROLLERS: Mapping[str, tuple[str, ...]] = {
    COLLECTOR: ("get", "list", "watch", "patch", "update", "delete"),
    EMPTIER: ("get", "list", "watch", "update", "delete", "deletecollection"),
}
"""The users as which the controllers of a stand-alone server write, and their permitted verbs (kubernetes/kubernetes
`plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go`)."""
NODES = "system:nodes"
NODE_NAME = "authentication.kubernetes.io/node-name"
"""The extra attribute of a service account that names the node where its token is used."""
_NODE, _SERVICE_ACCOUNT = "system:node:", "system:serviceaccount:"


def node_name(user: User) -> str | None:
    """Return the name of the node as which a user acts; "" for a node's user without a node name; None for all other users.

    Upstream: kubernetes/kubernetes `pkg/auth/nodeidentifier/default.go`.
    """
    if NODES not in user.groups or not user.name.startswith(_NODE):
        return None
    return user.name.removeprefix(_NODE)


def node_of(name: str) -> str | None:
    """Return the node that has this user name (kubernetes/apiserver `pkg/endpoints/filters/impersonation/mode.go` isNodeUsername)."""
    node = name.removeprefix(_NODE)
    return node if node != name and not names.dns_subdomain(node) else None


def service_account(name: str) -> tuple[str, str] | None:
    """Return namespace and name of a service account's user name (kubernetes/apiserver `pkg/authentication/serviceaccount/util.go`)."""
    if not name.startswith(_SERVICE_ACCOUNT):
        return None
    parts = name.removeprefix(_SERVICE_ACCOUNT).split(":")
    if len(parts) != 2 or names.dns_label(parts[0]) or names.dns_subdomain(parts[1]):
        return None
    return parts[0], parts[1]


MAX_PARAMETERS = 10_000
"""Pairs above which Go reads none at all (golang/go `src/net/url/url.go` urlmaxqueryparams)."""


class Query:
    """The query string as Go reads it: pairs split on `&`, `+` is a blank, malformed pairs are dropped.

    Bytes that are not UTF-8 become U+FFFD here; Go keeps them until it writes JSON. Names with other characters than letters and digits are
    left out: no parameter has such a name.
    """

    __slots__ = ("_all", "_first", "_raw", "_selectors", "options")

    def __init__(self, raw: str) -> None:
        self._raw: dict[str, list[str]] = {}
        """Values as they were sent. Most values of a long query are never read."""
        self._first: dict[str, str | None] = {}
        self._all: dict[str, Sequence[str]] = {}
        self._selectors: Given | None = None
        self.options: dict[object, Any] = {}
        """Parsed options, by parser (`options`)."""
        if not raw or raw.count("&") >= MAX_PARAMETERS:
            return
        pairs = [pair.partition("=") for pair in raw.split("&") if pair and ";" not in pair]
        names = [name for name, _, _ in pairs]
        if "%" in raw:
            names = _decoded_names(names)
        found = self._raw
        for name, (_, _, value) in zip(names, pairs, strict=True):
            if name in found:
                found[name].append(value)
            elif name.isascii() and name.isalnum():
                found[name] = [value]

    def first(self, name: str) -> str | None:
        """Return the first value, or None if the parameter is absent."""
        if name not in self._raw:
            return None
        if name not in self._first:
            self._first[name] = next(self._values(name), None)
        return self._first[name]

    def text(self, name: str) -> str:
        return self.first(name) or ""

    def all(self, name: str) -> Sequence[str]:
        if name not in self._raw:
            return ()
        if name not in self._all:
            self._all[name] = tuple(self._values(name))
        return self._all[name]

    def _values(self, name: str) -> Iterator[str]:
        return (value for sent in self._raw[name] if (value := _unescape(sent)) is not None)

    @property
    def selectors(self) -> Given:
        """`labelSelector` and `fieldSelector`, each parsed once."""
        if self._selectors is None:
            self._selectors = Given(self.text("labelSelector"), self.text("fieldSelector")) if self._raw else NONE_GIVEN
        return self._selectors

    def let_go(self) -> list[Any]:
        """Remove and return parsed values that may be large, so that the caller frees them."""
        held = [*self.selectors.let_go(), self.options]
        self.options = {}
        return held

    def __contains__(self, name: str) -> bool:
        return self.first(name) is not None


NO_QUERY = Query("")
"""The query of a target without one, which most have."""
_REMEMBERED, _REMEMBERED_LENGTH, _REMEMBERED_TERMS = 512, 128, 8
"""Limits of the cache, as in `request_info`: a term of a selector takes fifty times its length."""
_known = lru_cache(_REMEMBERED)(Query)


def query_of(raw: str) -> Query:
    """Return the query of a target. Short equal queries share one object: a manager writes with the same few all the time."""
    if not raw:
        return NO_QUERY
    if len(raw) > _REMEMBERED_LENGTH or raw.count(",") + raw.count("%2") >= _REMEMBERED_TERMS:
        return Query(raw)
    return _known(raw)


def percent_decoded(text: str) -> bytes | None:
    """Return a text of one line with every escape replaced by its byte, in one pass over any number of them; None if one is malformed.

    `=41` in quoted-printable text means the same as `%41` in a URL, and Python decodes it in C. Only a valid escape becomes two bytes
    shorter.
    """
    raw = text.encode("utf-8", "surrogateescape")
    escapes = raw.count(b"%")
    decoded = a2b_qp(raw.replace(b"=", b"=3D").replace(b"%", b"=")) if escapes else raw
    return decoded if len(decoded) == len(raw) - 2 * escapes else None


def _unescape(text: str) -> str | None:
    """Return the decoded text; None for a malformed escape."""
    if "%" not in text and text.isascii():
        return text.replace("+", " ")
    decoded = percent_decoded(text.replace("+", " "))
    return None if decoded is None else _readable(decoded)


def _decoded_names(names: list[str]) -> list[str]:
    """Return names of parameters with their escapes decoded. Malformed names keep a character that is neither letter nor digit.

    All are decoded in one pass, because one call for each takes ten times as long. No name has an `&`, before or after: `%26` becomes `..`,
    whose characters are no letters either.
    """
    raw = "&".join([*names, ""]).encode("utf-8", "surrogateescape").replace(b"%26", b"..")
    return a2b_qp(raw.replace(b"%", b"=")).decode("ascii", "replace").split("&")[:-1]


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


TOTAL_RUNES, SHORT_RUNES = 4096, 256
"""Budget of all warning texts of one response, and the length to which texts are cut once it would be exceeded (upstream's values)."""


class Warnings:
    """Texts for `Warning` response headers: each once, within upstream's budget.

    Upstream: kubernetes/apiserver `pkg/endpoints/filters/warning.go`, kubernetes/apimachinery `pkg/util/net/http.go`.
    """

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Add a text. Texts with control characters or broken UTF-8 are dropped: no header can carry them."""
        if text and not _UNSENDABLE.search(text):
            self._texts.setdefault(text)

    def headers(self) -> list[str]:
        """Return the header values, in the order in which the warnings were added.

        The text that would exceed the budget, and all before it, are sent cut. Later ones are cut too, until the budget is used up.
        """
        if not self._texts:
            return []
        texts = list(self._texts)
        totals = accumulate(map(len, texts))
        crossing = next((i for i, total in enumerate(totals) if total > TOTAL_RUNES), None)
        if crossing is None:
            return [_warning(t) for t in texts]
        out, used = [], 0
        for i, text in enumerate(texts):
            if i > crossing and used >= TOTAL_RUNES:
                break
            out.append(_warning(text[:SHORT_RUNES]))
            used += min(len(text), SHORT_RUNES)
        return out


_UNSENDABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Level(IntEnum):
    """How much audit records about a request, least first (kubernetes/apiserver `pkg/apis/audit/types.go` Level)."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


class Waits:
    """Seconds that a request has waited for webhooks and the like. Some latency metrics exclude them.

    Upstream: kubernetes/apiserver `pkg/endpoints/request/webhook_duration.go`.
    """

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0


class Annotations(dict[str, tuple[str, Level]]):
    """The audit annotations of a request: a value per key, and the least level that records it.

    Upstream: kubernetes/apiserver `pkg/audit/context.go` AddAuditAnnotations.
    """

    __slots__ = ()

    def add(self, key: str, value: str, level: Level = Level.METADATA) -> None:
        """Add an annotation. The first value of a key stays."""
        self.setdefault(key, (value, level))

    def seen_at(self, level: Level) -> dict[str, str]:
        """Return the annotations that a record of that level has."""
        return {key: value for key, (value, least) in self.items() if least <= level}


class Deferred(ABC):
    """JSON that is encoded when it is read, in any thread: about `size` bytes then, and few until then."""

    size: int

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """Yield the JSON in pieces."""


Json = Sequence[bytes] | Deferred
"""A JSON value in pieces; empty for no value."""


class Recording:
    """The parts of a request and its answer that audit records at a level.

    * `bare`: managedFields of objects are left out.
    * `reference` describes the sent object, by the names of an audit event's `objectRef`.
    * `begun` is called with the code of a long-running answer, before its headers are sent.

    Upstream: kubernetes/apiserver `pkg/audit/request.go`.
    """

    __slots__ = ("answer", "bare", "begun", "level", "reference", "sent")

    def __init__(self, level: Level, begun: Callable[[int], Awaitable[None]], *, bare: bool = False) -> None:
        self.level = level
        self.begun = begun
        self.bare = bare
        self.reference: Mapping[str, str] = _NO_REFERENCE
        self.sent: Sequence[bytes] = ()
        self.answer: Json = ()

    @property
    def wants_sent(self) -> bool:
        return self.level >= Level.REQUEST

    @property
    def wants_answer(self) -> bool:
        return self.level >= Level.REQUEST_RESPONSE


_NO_REFERENCE: Mapping[str, str] = MappingProxyType({})


def _warning(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{escaped}"'
