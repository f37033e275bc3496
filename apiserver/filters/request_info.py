"""The only router: turns a raw request target into a RequestInfo, and a RequestInfo into an endpoint of a served kind.

Authorization judges the same RequestInfo that dispatch uses. So both functions are pure, and neither repairs a path: a path that does
not match as it was sent does not exist. Upstream: kubernetes/apiserver `pkg/endpoints/request/requestinfo.go` (parse),
`pkg/server/handler.go` and emicklei/go-restful `curly.go` (route).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, Literal, TypeVar, cast

from aiohttp import HttpVersion11, web

from apiserver.apimachinery import errors, selectors
from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.apimachinery.request import Query, RequestInfo, percent_decoded
from apiserver.filters.state import Handler, Request
from apiserver.kinds.served import Kinds
from apiserver.runtime.workers import Workers
from apiserver.schema.resource import Resource, Subresource
from apiserver.wire import negotiation, websocket
from apiserver.wire.patches import media_type
from kubetext import names, strconv
from kubetext.quoting import go_quote

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
NAME = "metadata.name"
SEGMENTS = 9
"""Segments of a path with a meaning of their own: `apis`, group, version, `watch`, `namespaces`, namespace, resource, name,
subresource. The rest counts as one segment.
"""
REMEMBERED, REMEMBERED_LENGTH, REMEMBERED_TERMS = 2048, 256, 8
"""The number of cached targets, the longest one, and the most terms of its selectors: a term takes fifty times its length in memory.
Informers, creates and polls send the same few targets all the time.
"""


def request_info(handler: Handler) -> Handler:
    """Parse the target and keep the result. A path that upstream cannot parse gets its 500.

    Only a watch may turn its connection into a WebSocket. Any other change of protocol is refused: what follows would have the rights
    of this request, and nothing would judge it. After such a request, no other one is read from the connection.
    """

    def parsing(request: Request) -> Awaitable[web.StreamResponse]:
        method, target = request.method, request.raw_path
        if request.foreign:
            raise bare("505 HTTP Version Not Supported: unsupported protocol version")
        upgrade = "Upgrade" in request.headers
        if upgrade and not _asks_for_websocket(request):
            raise bare(NO_UPGRADE)
        if "Transfer-Encoding" in request.headers and not _only_chunked(request):
            raise TextError(501, UNSUPPORTED_ENCODING, headers={"Connection": "close"}, nosniff=False)
        if len(target) <= REMEMBERED_LENGTH and ("?" not in target or _few_terms(target)):
            request.info = known(method, target)
        else:
            request.info = parse(method, target, request.exchange.query)
        if upgrade:
            if not request.info.long_running:
                raise bare(NO_UPGRADE)
            request.last = request.exchange.upgrades = True
            request.exchange.subprotocols = websocket.subprotocols(request.headers)
        return handler(request)

    known = lru_cache(REMEMBERED)(parse)
    return parsing


NO_UPGRADE = "400 Bad Request: only watches can be upgraded, and only to WebSockets"
UNSUPPORTED_ENCODING = "Unsupported transfer encoding"


def _asks_for_websocket(request: Request) -> bool:
    """Return whether the filter and the parser, which decides where the request ends, both read it so."""
    return (
        request.method == "GET"
        and request.upgrade
        and not request.body_exists
        and websocket.is_upgrade(request.headers)
    )


def _only_chunked(request: Request) -> bool:
    """Return whether the body has no other encoding (golang/go `src/net/http/transfer.go` parseTransferEncoding)."""
    encodings = request.headers.getall("Transfer-Encoding", ())
    return request.version < HttpVersion11 or (len(encodings) == 1 and encodings[0].lower() == "chunked")


def naming_selectors(handler: Handler, *, workers: Workers) -> Handler:
    """Find the single object that a list is about, before authorization.

    Selectors that do not matter to authorization are not parsed here: refusing a request must be cheap.
    """
    return _with_selectors(handler, workers, lambda _, given: given.narrows_authorization and NAME in given.field_text)


def large_selectors(handler: Handler, *, workers: Workers, selects: Callable[[Request], bool]) -> Handler:
    """Parse the other large selectors, of requests that are allowed.

    `selects` returns whether the endpoint of a request uses selectors. It raises StatusError if the request is refused whatever they
    say.
    """
    return _with_selectors(handler, workers, lambda request, _: selects(request))


def _with_selectors(
    handler: Handler, workers: Workers, concerns: Callable[[Request, selectors.Given], bool]
) -> Handler:
    def looking(request: Request) -> Awaitable[web.StreamResponse]:
        if len(request.raw_path) > selectors.AT_ONCE:
            given = request.exchange.query.selectors
            if given.large and not given.known and concerns(request, given):
                return reading(request, given)
        return handler(request)

    async def reading(request: Request, given: selectors.Given) -> web.StreamResponse:
        request.exchange.heavy = True
        await workers.run(given.read)
        request.info = narrowed(request.info, request.exchange.query)
        return await handler(request)

    return looking


def _few_terms(target: str) -> bool:
    """Return whether the selectors in it have few terms. Their commas may be escaped."""
    return target.count(",") + target.count("%2") < REMEMBERED_TERMS


_Found = TypeVar("_Found")


class Notes(Generic[_Found]):
    """Results about a RequestInfo, of one kind. They are kept in the RequestInfo, for as long as that is."""

    def get(self, info: RequestInfo) -> _Found | None:
        return info.notes.get(self)

    def keep(self, info: RequestInfo, found: _Found) -> _Found:
        info.notes[self] = found
        return found


# ---------------------------------------------------------------------------------------------------------------- parsing


def split_target(target: str) -> tuple[str, str]:
    """Return the raw path and the raw query of a request target, which may be a path or a whole URL."""
    path, _, query = target.partition("?")
    if not path.startswith("/"):
        scheme, found, rest = path.partition("://")
        if found and scheme.isalnum():
            slash = rest.find("/")
            path = rest[slash:] if slash >= 0 else ""
    return path, query


def decode_path(raw: str) -> str:
    """Percent-decode a path once. Go's server answers a malformed escape with its bare 400 and closes the connection."""
    if "%" not in raw:
        return raw
    decoded = percent_decoded(raw)
    if decoded is None:
        raise bare("400 Bad Request")
    return decoded.decode("utf-8", "replace")


_SLASHES = "/" * 4096


def without_slashes(path: str) -> str:
    """Strip the slashes around a path, mostly a page at a time: `str.strip` takes 6 ms for a mebibyte of them."""
    start, end = 0, len(path)
    while path.startswith(_SLASHES, start, end):
        start += len(_SLASHES)
    while path.endswith(_SLASHES, start, end):
        end -= len(_SLASHES)
    return path[start:end].strip("/")


def bare(text: str) -> TextError:
    """Make the answer of Go's server to what never reaches a handler: the text alone, and the connection ends."""
    return TextError(int(text[:3]), text, headers={"Connection": "close"}, nosniff=False)


def parse(method: str, target: str, query: Query | None = None) -> RequestInfo:
    """Parse a request target. `query` is its query if it was parsed already. Raises TextError if it yields no RequestInfo."""
    raw_path, raw_query = split_target(target)
    path = decode_path(raw_path)
    trimmed = without_slashes(path)
    parts = trimmed.split("/", SEGMENTS) if trimmed else []
    grouped = bool(parts) and parts[0] == "apis"
    if len(parts) < (4 if grouped else 3) or not (grouped or parts[0] == "api"):
        return RequestInfo(path, method.lower(), method)
    group = parts[1] if grouped else ""
    first = 3 if grouped else 2
    rest = parts[first:]
    verb = _VERBS.get(method, "")
    forced = rest[0] in ("watch", "proxy")
    if forced:
        if len(rest) < 2:
            raise _unparsable(target)
        verb = rest[0]
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in ("status", "finalize"):
            rest = rest[2:]
    count = len(rest)
    name = rest[1] if count > 1 else ""
    given = selectors.NONE_GIVEN
    if not name and verb in ("get", "delete"):
        if query is None:
            query = Query(raw_query)
        given = query.selectors
        verb = "deletecollection" if verb == "delete" else _list_or_watch(query)
    info = RequestInfo(
        path,
        verb,
        method,
        is_resource=True,
        prefix=parts[0],
        group=group,
        version=parts[first - 1],
        namespace=namespace,
        resource=rest[0],
        subresource=rest[2] if count > 2 and verb != "proxy" else "",
        name=name,
        parts=tuple(rest),
        forced_watch=forced and verb == "watch",
        selectors=given,
    )
    return info if query is None or given.large else narrowed(info, query)


def _unparsable(target: str) -> TextError:
    text = f"unable to determine kind and namespace from url, {target}"
    return internal_error(target, f"failed to create RequestInfo: {text}")


def internal_error(target: str, text: str) -> TextError:
    """Make the plain-text 500 of upstream's `responsewriters.InternalError`."""
    return TextError(500, escape(f"Internal Server Error: {go_quote(target)}: {text}") + "\n")


def escape(text: str) -> str:
    """Escape as upstream's `sanitizer`: an error must not look like HTML."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _list_or_watch(query: Query) -> str:
    """Return the verb of a GET without a name."""
    watch = query.first("watch")
    return "list" if watch is None or watch.lower() in ("false", "0") else "watch"


def narrowed(info: RequestInfo, query: Query) -> RequestInfo:
    """Name the object if a field selector narrows a list or watch to one name. Undecodable options lose the selector, not the watch."""
    given = info.selectors
    if info.verb == "deletecollection" or info.name or NAME not in given.field_text or not _decodable(query):
        return info
    name = given.fields.requires(NAME) or ""
    return replace(info, name=name) if name and not names.path_segment(name) else info


def _decodable(query: Query) -> bool:
    """Return whether the other list options decode; only then does upstream use the field selector."""
    try:
        for option in ("timeoutSeconds", "limit"):
            if option in query:
                strconv.parse_int(query.text(option))
        _ = query.selectors.labels, query.selectors.fields
    except (ValueError, StatusError):
        return False
    return True


# ---------------------------------------------------------------------------------------------------------------- routing

Action = Literal["create", "update", "patch", "delete", "deletecollection", "get", "list", "watch"]

_COLLECTION: Mapping[str, Action] = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_EVERYWHERE: Mapping[str, Action] = {"GET": "list"}
_ITEM: Mapping[str, Action] = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PART: Mapping[str, Action] = {"GET": "get", "PUT": "update", "PATCH": "patch"}
_WATCH: Mapping[str, Action] = {"GET": "watch"}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The target of a request: an action on a kind or a subresource. `nameless`: the path has an empty name."""

    resource: Resource
    action: Action
    subresource: Subresource | None = None
    nameless: bool = False

    @property
    def routed(self) -> bool:
        """Whether upstream's router knows the path. Custom resources come and go, so a handler of their own finds them."""
        return self.resource.custom is None


PLAIN = frozenset({"", "*/*", "application/json"})
"""Accept headers of nearly all clients; every endpoint produces JSON."""


class Router:
    """Finds the endpoint of a request among the served kinds."""

    def __init__(self, kinds: Kinds, *, patches: Collection[str]) -> None:
        """`patches` are the media types that PATCH takes."""
        self._kinds = kinds
        self._patches = patches
        self._found: Notes[Endpoint] = Notes()

    def route(self, info: RequestInfo, *, accept: str, content_type: str) -> Endpoint | None:
        """Return the endpoint; None for a path outside the served groups. Raises upstream's errors in its order:
        404, 405, 415 (PATCH), 406.
        """
        endpoint = self._found.get(info)
        if endpoint is None:
            if info.group in self._kinds.custom_groups:
                return self._found.keep(info, find_custom(info, self._kinds))
            if not claimed(info.path, self._kinds.groups):
                return None
            endpoint = self._found.keep(info, find(info, self._kinds))
        if not endpoint.routed:
            return endpoint
        if endpoint.action == "patch":
            media_type(content_type, self._patches)
        if accept not in PLAIN:
            negotiation.check_route(accept, watchable=endpoint.action in ("list", "watch"))
        if endpoint.nameless:
            raise errors.bad_request("name must be provided")
        return endpoint


def claimed(path: str, groups: Container[str]) -> bool:
    """Return whether upstream's router for one of these groups claims the path, and so answers it with a Status."""
    if path.startswith("/api/"):
        return "" in groups
    if not path.startswith("/apis/"):
        return False
    _, _, group, *_ = path.split("/", 3)
    return group in groups


def find(info: RequestInfo, kinds: Kinds) -> Endpoint:
    """Return the endpoint of a path below a served group. Raises 404 and 405."""
    resource = kinds.at(info.group, info.version, info.resource)
    if resource is None or not info.is_resource:
        raise errors.no_such_path()
    action = _actions(info, resource).get(info.method)
    if action is None or not _has(resource, info, action):
        raise errors.method_not_allowed()
    if action == "list" and info.verb == "watch":
        action = "watch"
    nameless = len(info.parts) > 1 and not info.parts[1]
    if action != info.verb and not nameless:
        raise errors.no_such_path()  # the path reaches something else than what was authorized
    subresource = resource.subresource(info.subresource) if info.subresource else None
    return Endpoint(resource, action, subresource, nameless)


def find_custom(info: RequestInfo, kinds: Kinds) -> Endpoint:
    """Return the endpoint of a custom resource. Raises 404, which is a text for a path that belongs to none, 405 and 400.

    Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go` ServeHTTP.
    """
    resource = kinds.at(info.group, info.version, info.resource)
    if resource is None or bool(info.namespace) > resource.namespaced:
        raise TextError(404, "404 page not found\n")
    if resource.namespaced and not info.namespace and info.verb not in ("list", "watch"):
        raise TextError(404, "404 page not found\n")
    named = resource.group_resource
    if not info.subresource:
        if info.verb not in resource.verbs:
            raise errors.method_not_supported(named, info.verb)
        if info.verb in ("update", "patch") and not info.name:
            raise errors.bad_request("name must be provided")
        return Endpoint(resource, cast(Action, info.verb))
    subresource = resource.subresource(info.subresource)
    if subresource is None:
        raise errors.not_found(named, info.name)
    if info.verb not in subresource.verbs:
        raise errors.method_not_supported(named, info.verb)
    return Endpoint(resource, cast(Action, info.verb), subresource)


def _has(resource: Resource, info: RequestInfo, action: Action) -> bool:
    sub = resource.subresource(info.parts[2]) if len(info.parts) > 2 else None
    return action in (resource.verbs if sub is None else sub.verbs)


def _actions(info: RequestInfo, resource: Resource) -> Mapping[str, Action]:
    """Return the methods of the path's pattern. Raises the router's 404 if no pattern matches."""
    depth = len(info.parts)
    inside = _names_namespace(info)
    if info.verb == "proxy" or (inside and not resource.namespaced):
        raise errors.no_such_path()
    elsewhere = resource.namespaced and not inside
    if info.forced_watch:
        if depth > 2 or (depth > 1 and elsewhere) or "watch" not in resource.verbs:
            raise errors.no_such_path()
        return _WATCH
    if depth == 1 and elsewhere:
        if "list" not in resource.verbs:
            raise errors.no_such_path()
        return _EVERYWHERE
    if depth == 1:
        return _COLLECTION
    if elsewhere or depth > 3:
        raise errors.no_such_path()
    if depth == 2 and "get" in resource.verbs:
        return _ITEM
    if depth == 2 or resource.subresource(info.parts[2]) is None:
        raise errors.no_such_path()
    return _PART


def _names_namespace(info: RequestInfo) -> bool:
    """Return whether the path goes through `namespaces/{namespace}/`, whose namespace may be empty.

    A namespace itself is in none, although its name is the namespace of the request.
    """
    if info.namespace and info.parts[0] != "namespaces":
        return True
    group = f"{info.group}/" if info.group else ""
    start = f"/{info.prefix}/{group}{info.version}/{'watch/' if info.forced_watch else ''}namespaces/{info.namespace}/"
    return info.path.startswith(start if not info.namespace else f"{start}namespaces")
