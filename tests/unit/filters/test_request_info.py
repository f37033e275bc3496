"""Paths: what upstream's parser and router make of them, word for word."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from typing import cast

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.apimachinery.request import RequestInfo
from apiserver.apimachinery.selectors import Given
from apiserver.filters.request_info import (
    REMEMBERED,
    Endpoint,
    Router,
    claimed,
    large_selectors,
    naming_selectors,
    parse,
    split_target,
)
from apiserver.filters.state import Request
from apiserver.kinds.served import Kinds
from apiserver.runtime import offload
from apiserver.runtime.workers import Workers
from apiserver.schema.resource import Resource, Subresource
from apiserver.schema.types import Struct
from tests.fixtures.cases import each_case
from tests.fixtures.cpu import Spent
from tests.unit.filters.chain import connect

G = "things.example.com"
V1 = f"/apis/{G}/v1"


def kind(name: str, *, namespaced: bool, status: bool = False) -> Resource:
    parts = [Subresource(name="status", owns=("status",))] if status else []
    return Resource(
        kind=name.title(), plural=f"{name}s", singular=name, namespaced=namespaced, group=G, subresources=parts,
        shape=Struct(name=name.title(), fields=()),
    )  # fmt: skip


PATCHES = "application/json-patch+json", "application/merge-patch+json"
KINDS = Kinds([kind("node", namespaced=False), kind("claim", namespaced=True, status=True)])


def reach(
    method: str, target: str, *, accept: str = "", content_type: str = "application/merge-patch+json"
) -> Endpoint:
    endpoint = Router(KINDS, patches=PATCHES).route(parse(method, target), accept=accept, content_type=content_type)
    assert endpoint is not None
    return endpoint


def refused(method: str, target: str, *, accept: str = "", content_type: str = "application/merge-patch+json") -> int:
    with pytest.raises(StatusError) as caught:
        reach(method, target, accept=accept, content_type=content_type)
    return caught.value.code


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        ("/a/b?x=1", "/a/b", "x=1"),
        ("//a//b/", "//a//b/", ""),
        ("/a?b?c", "/a", "b?c"),
        ("https://host:6443/a/b?x", "/a/b", "x"),
        ("http://host", "", ""),
        ("/x://y", "/x://y", ""),
        ("*", "*", ""),
    ],
)
def test_a_target_is_a_path_or_a_whole_url(target: str, path: str, query: str) -> None:
    assert split_target(target) == (path, query)


@pytest.mark.parametrize(
    "path", ["/", "", "/api", "/api/v1", "/apis", f"/apis/{G}", V1, f"{V1}/", "/healthz/ping", "/foo/bar/baz", "//"]
)
def test_short_paths_and_foreign_ones_are_no_resource_requests(path: str) -> None:
    info = parse("GET", path)
    assert (info.is_resource, info.verb, info.path) == (False, "get", path)


def test_a_request_without_resource_has_its_method_as_verb() -> None:
    assert [parse(m, "/version").verb for m in ("GET", "HEAD", "POST", "OPTIONS")] == ["get", "head", "post", "options"]


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("POST", "/nodes", "create"),
        ("GET", "/nodes", "list"),
        ("HEAD", "/nodes", "list"),
        ("GET", "/nodes/x", "get"),
        ("HEAD", "/nodes/x", "get"),
        ("PUT", "/nodes/x", "update"),
        ("PATCH", "/nodes/x", "patch"),
        ("DELETE", "/nodes/x", "delete"),
        ("DELETE", "/nodes", "deletecollection"),
        ("OPTIONS", "/nodes", ""),
        ("GET", "/nodes?watch=1", "watch"),
        ("GET", "/nodes?watch", "watch"),
        ("GET", "/nodes?watch=", "watch"),
        ("GET", "/nodes?watch=no", "watch"),
        ("GET", "/nodes?watch=0", "list"),
        ("GET", "/nodes?watch=FALSE", "list"),
        ("GET", "/nodes?watch=0&watch=1", "list"),
        ("GET", "/nodes/x?watch=1", "get"),
        ("GET", "/watch/nodes", "watch"),
        ("POST", "/watch/nodes/x", "watch"),
        ("GET", "/proxy/nodes/x/y", "proxy"),
    ],
)
def test_the_verb_comes_from_method_path_and_watch(method: str, path: str, verb: str) -> None:
    assert parse(method, V1 + path).verb == verb


@pytest.mark.parametrize(
    ("path", "namespace", "resource", "name", "subresource", "parts"),
    [
        ("/nodes", "", "nodes", "", "", ("nodes",)),
        ("/nodes/", "", "nodes", "", "", ("nodes",)),
        ("/nodes//", "", "nodes", "", "", ("nodes",)),
        ("/nodes/x//", "", "nodes", "x", "", ("nodes", "x")),
        ("/nodes/x/status/y/z", "", "nodes", "x", "status", ("nodes", "x", "status", "y", "z")),
        ("/namespaces/ns/claims/x/status", "ns", "claims", "x", "status", ("claims", "x", "status")),
        ("/namespaces/ns", "ns", "namespaces", "ns", "", ("namespaces", "ns")),
        ("/namespaces/ns/status", "ns", "namespaces", "ns", "status", ("namespaces", "ns", "status")),
        ("/namespaces/ns/finalize", "ns", "namespaces", "ns", "finalize", ("namespaces", "ns", "finalize")),
        ("/namespaces", "", "namespaces", "", "", ("namespaces",)),
        ("/namespaces//claims", "", "claims", "", "", ("claims",)),
        ("//nodes", "", "", "nodes", "", ("", "nodes")),
        ("/nodes//status", "", "nodes", "", "status", ("nodes", "", "status")),
        ("/./nodes", "", ".", "nodes", "", (".", "nodes")),
        ("/nodes/%2E%2E", "", "nodes", "..", "", ("nodes", "..")),
        ("/nodes/a%2Fb", "", "nodes", "a", "b", ("nodes", "a", "b")),
        ("/nodes/a%25b", "", "nodes", "a%b", "", ("nodes", "a%b")),
        ("/nodes/a+b", "", "nodes", "a+b", "", ("nodes", "a+b")),
        ("/nodes/%C3%A4", "", "nodes", "ä", "", ("nodes", "ä")),
        ("/watch/namespaces/ns/claims/x", "ns", "claims", "x", "", ("claims", "x")),
        ("/proxy/nodes/x/y", "", "nodes", "x", "", ("nodes", "x", "y")),
    ],
)
def test_segments_are_taken_as_they_are(
    path: str, namespace: str, resource: str, name: str, subresource: str, parts: tuple[str, ...]
) -> None:
    info = parse("GET", V1 + path)
    assert info.is_resource
    assert (info.prefix, info.group, info.version) == ("apis", G, "v1")
    assert (info.namespace, info.resource, info.name, info.subresource, info.parts) == (
        namespace, resource, name, subresource, parts,
    )  # fmt: skip


def test_the_core_group_has_no_group_segment() -> None:
    info = parse("GET", "/api/v1/namespaces/ns/pods/x")
    assert (info.prefix, info.group, info.version, info.namespace, info.resource, info.name) == (
        "api",
        "",
        "v1",
        "ns",
        "pods",
        "x",
    )


@pytest.mark.parametrize("slashes", [1, 4095, 4096, 4097, 10_000, 1 << 20])
def test_however_many_slashes_are_around_a_path_they_do_not_count(slashes: int) -> None:
    many = "/" * slashes
    with Spent() as spent:
        found = [parse("GET", target).parts for target in (many, f"{many}apis/{G}/v1/nodes{many}")]

    assert found == [(), ("nodes",)]
    assert spent.below(0.004)


def test_a_doubled_first_slash_is_parsed_but_belongs_to_no_group() -> None:
    info = parse("GET", f"/{V1}/nodes")
    assert info.is_resource
    assert info.resource == "nodes"
    assert not claimed(info.path, {G})
    assert Router(KINDS, patches=PATCHES).route(info, accept="", content_type="") is None


@pytest.mark.parametrize("path", ["/watch", "/watch/", "/proxy", "/watch?x=<1>"])
def test_a_bare_verb_in_the_path_is_upstreams_text_500(path: str) -> None:
    with pytest.raises(TextError) as caught:
        parse("GET", V1 + path)
    shown = (V1 + path).replace("<", "&lt;").replace(">", "&gt;")
    assert caught.value.code == 500
    assert caught.value.text == (
        f'Internal Server Error: "{shown}": failed to create RequestInfo: '
        f"unable to determine kind and namespace from url, {shown}\n"
    )
    assert caught.value.nosniff


@pytest.mark.parametrize("path", ["/a%", "/a%2", "/a%zz", "/%%20"])
def test_a_malformed_escape_is_gos_bare_400_and_the_end_of_the_connection(path: str) -> None:
    with pytest.raises(TextError) as caught:
        parse("GET", path)
    assert (caught.value.code, caught.value.text, caught.value.headers) == (
        400,
        "400 Bad Request",
        {"Connection": "close"},
    )


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("fieldSelector=metadata.name%3Dx", "x"),
        ("fieldSelector=metadata.name%3D%3Dx", "x"),
        ("fieldSelector=spec.a%3Db,metadata.name%3Dx", "x"),
        ("fieldSelector=metadata.name%3Dx,metadata.name%3Dy", "x"),
        ("fieldSelector=metadata.name!%3Dx", ""),
        ("fieldSelector=metadata.name%3D..", ""),
        ("fieldSelector=metadata.name%3Da/b", ""),
        ("fieldSelector=metadata.name%3Da%25b", ""),
        ("fieldSelector=metadata.name%3Dx&fieldSelector=metadata.name%3Dy", "x"),
        ("fieldSelector=metadata.name%3Dx&limit=5&timeoutSeconds=-3", "x"),
        ("fieldSelector=metadata.name%3Dx&limit=abc", ""),
        ("fieldSelector=metadata.name%3Dx&timeoutSeconds=", ""),
        ("fieldSelector=metadata.name%3Dx&labelSelector=((", ""),
        ("fieldSelector=metadata.name%3Dx,,bad", ""),
        ("fieldSelector=metadata.name%3Dx&watch=1", "x"),
    ],
)
def test_a_selector_for_one_name_names_the_request_if_all_options_decode(query: str, name: str) -> None:
    info = parse("GET", f"{V1}/nodes?{query}")
    assert info.name == name
    assert info.verb == ("watch" if "watch=1" in query else "list")
    assert info.parts == ("nodes",)


def test_selectors_reach_authorization_raw_except_on_the_deprecated_path() -> None:
    query = "fieldSelector=bogus(&labelSelector=a%3Db&labelSelector=c"
    for method, path in (("GET", "/nodes"), ("GET", "/namespaces/n/claims"), ("DELETE", "/nodes")):
        info = parse(method, f"{V1}{path}?{query}")
        assert info.selectors == Given("a=b", "bogus(")
    assert parse("GET", f"{V1}/watch/nodes?{query}").selectors == Given()
    assert parse("GET", f"{V1}/nodes/x?{query}").selectors == Given()


@pytest.mark.parametrize(
    ("method", "path", "action"),
    [
        ("GET", "/nodes", "list"),
        ("GET", "/nodes?watch=1", "watch"),
        ("POST", "/nodes", "create"),
        ("DELETE", "/nodes", "deletecollection"),
        ("GET", "/nodes/x", "get"),
        ("PUT", "/nodes/x", "update"),
        ("PATCH", "/nodes/x", "patch"),
        ("DELETE", "/nodes/x/", "delete"),
        ("GET", "/nodes?fieldSelector=metadata.name%3Dx", "list"),
        ("GET", "/claims", "list"),
        ("GET", "/claims?watch=1", "watch"),
        ("GET", "/namespaces//claims", "list"),
        ("POST", "/namespaces//claims", "create"),
        ("GET", "/namespaces//claims/x", "get"),
        ("POST", "/namespaces/ns/claims", "create"),
        ("DELETE", "/namespaces/ns/claims", "deletecollection"),
        ("GET", "/namespaces/ns/claims/x/status", "get"),
        ("PUT", "/namespaces/ns/claims/x/status", "update"),
        ("PATCH", "/namespaces/ns/claims/x/status", "patch"),
        ("GET", "/watch/nodes", "watch"),
        ("GET", "/watch/nodes/x", "watch"),
        ("GET", "/watch/claims", "watch"),
        ("GET", "/watch/namespaces/ns/claims", "watch"),
        ("GET", "/watch/namespaces/ns/claims/x", "watch"),
        ("GET", "/watch/namespaces//claims/x", "watch"),
    ],
)
def test_the_routes_that_exist(method: str, path: str, action: str) -> None:
    endpoint = reach(method, V1 + path)
    assert endpoint.action == action
    assert (endpoint.subresource is not None) == ("/status" in path)


@each_case(
    ("method", "path"),
    itertools.product(["GET", "POST", "OPTIONS"], [
        "/nonsense", "/nonsense/x", "/nodes/x/status", "/nodes/x/y", "/nodes/x/y/z", "/Nodes", "/node", "//nodes",
        "/namespaces", "/namespaces/ns", "/namespaces/ns/", "/namespaces/ns/nonsense", "/namespaces/ns/nodes", "/namespaces//nodes",
        "/namespaces/ns/nodes/x", "/claims/x", "/claims/x/status", "/namespaces/ns/claims/x/status/y",
        "/namespaces/ns/claims/x/spec", "/proxy/nodes", "/proxy/nodes/x", "/./nodes", "/nodes/..%2fx", "/nodes/a%2Fb",
        "/watch/nonsense", "/watch/claims/x", "/watch/namespaces/ns/claims/x/status", "/watch/namespaces/ns/nodes",
        "/watch/nodes/x/y", "/watch/watch/nodes", "/namespaces/ns//claims",
    ]),
)  # fmt: skip
def test_unknown_route_is_404_for_every_method(method: str, path: str) -> None:
    assert refused(method, V1 + path) == 404


def test_another_version_of_the_group_is_404() -> None:
    assert refused("GET", f"/apis/{G}/v9/nodes") == 404
    assert (
        Router(KINDS, patches=PATCHES).route(parse("GET", f"/apis/{G}x/v1/nodes"), accept="", content_type="") is None
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/nodes"), ("PATCH", "/nodes"), ("HEAD", "/nodes"), ("OPTIONS", "/nodes"), ("TRACE", "/nodes"),
        ("POST", "/nodes/x"), ("HEAD", "/nodes/x"), ("POST", "/claims"), ("DELETE", "/claims"),
        ("DELETE", "/namespaces/ns/claims/x/status"), ("POST", "/watch/nodes"), ("DELETE", "/watch/nodes/x"), ("HEAD", "/watch/nodes"),
    ],
)  # fmt: skip
def test_a_known_path_with_another_method_is_405(method: str, path: str) -> None:
    assert refused(method, V1 + path) == 405


def test_404_and_405_come_before_media_types_and_415_before_406() -> None:
    assert refused("PATCH", f"{V1}/nonsense/x", accept="text/html", content_type="text/plain") == 404
    assert refused("PATCH", f"{V1}/nodes", accept="text/html", content_type="text/plain") == 405
    assert refused("PATCH", f"{V1}/nodes/x", accept="text/html", content_type="text/plain") == 415
    assert refused("PATCH", f"{V1}/nodes/x", accept="text/html") == 406
    assert refused("GET", f"{V1}/nodes/x", accept="text/html", content_type="text/plain") == 406


@pytest.mark.parametrize(
    "path", ["/namespaces/ns/claims//status", "/namespaces/ns/claims//status?fieldSelector=metadata.name%3Dx"]
)
def test_an_item_without_name_is_400_and_never_found_through_a_selector(path: str) -> None:
    assert refused("GET", V1 + path) == 400


TARGETS = st.lists(
    st.sampled_from(
        ["apis", "api", G, "v1", "v2", "watch", "proxy", "namespaces", "ns", "status", "finalize", "nodes", "claims", "x", "",
         ".", "..", "%2e%2e", "%2F", "%25", "%C3%A4"]
    ),
    max_size=10,
).map("/".join)  # fmt: skip
QUERIES = st.sampled_from(
    ["", "?watch=1", "?watch=0", "?fieldSelector=metadata.name%3Dx", "?fieldSelector=metadata.name%3Dx&watch"]
)
ROUTER = Router(KINDS, patches=PATCHES)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])


@given(METHODS, st.booleans(), TARGETS, QUERIES)
def test_dispatched_request_is_exactly_the_authorized_one(method: str, below: bool, target: str, query: str) -> None:
    try:
        info: RequestInfo = parse(method, f"{V1 if below else ''}/{target}{query}")
        endpoint = ROUTER.route(info, accept="", content_type="application/merge-patch+json")
    except (StatusError, TextError):
        return
    if endpoint is None:
        assert not info.path.startswith(f"/apis/{G}/")
        return
    assert endpoint.action == info.verb
    assert endpoint.resource.plural == info.resource
    assert (endpoint.subresource.name if endpoint.subresource else "") == info.subresource
    assert len(info.parts) <= 3
    if not info.selectors.field_text:
        assert info.name == (info.parts[1] if len(info.parts) > 1 else "")
    assert info.path.startswith(f"{V1}/")


def test_endpoint_is_the_same_when_a_target_is_routed_again() -> None:
    router = Router(KINDS, patches=PATCHES)
    for i in range(2 * REMEMBERED + 5):
        info = parse("GET" if i % 2 else "DELETE", f"{V1}/nodes/n{i}")
        for _ in range(2):
            endpoint = router.route(info, accept="", content_type="")
            assert endpoint is not None
            assert endpoint.action == ("get" if i % 2 else "delete")


def test_router_keeps_no_request() -> None:
    info = parse("GET", f"{V1}/nodes/a")
    held = sys.getrefcount(info)
    assert Router(KINDS, patches=PATCHES).route(info, accept="", content_type="") is not None
    assert sys.getrefcount(info) == held


@pytest.mark.parametrize(
    ("query", "shared"),
    [
        ("", True),
        ("?labelSelector=a,b", True),
        (f"?labelSelector={'x' * 1000}", False),
        *((f"?labelSelector={comma.join('abcdefghijkl')}", False) for comma in (",", "%2C", "%2c")),
    ],
)
async def test_equal_targets_share_one_result_unless_they_are_long(query: str, shared: bool) -> None:
    """A term of a selector takes fifty times its length once it is read."""
    seen: list[RequestInfo] = []

    async def noting(request: Request) -> web.StreamResponse:
        seen.append(request.info)
        return web.Response()

    connection = connect(noting)
    for _ in range(2):
        assert (await connection.ask("GET", f"{V1}/nodes{query}")).status == 200
    assert (seen[0] is seen[1]) is shared


MANY = [f"v{at}" for at in range(2000)]


class Elsewhere:
    """In the place of a pool: notes what it was asked to do."""

    def __init__(self) -> None:
        self.read = 0

    async def run(self, call: Callable[[], None]) -> None:
        self.read += 1
        call()


@pytest.mark.parametrize(
    "selector", [f"labelSelector=a+in+({','.join(MANY)})", f"fieldSelector=metadata.name%3Dx,{'%3D,'.join(MANY)}%3D"]
)
@pytest.mark.parametrize("fails", [False, True])
async def test_long_selector_is_read_in_a_thread_and_freed_after_the_request(
    selector: str, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[object] = []
    freed: list[object] = []
    monkeypatch.setattr(offload, "free", freed.extend)

    async def list_(request: Request) -> web.StreamResponse:
        query = request.exchange.query
        seen.extend((query.selectors.labels, query.selectors.fields))
        query.options["list"] = seen
        if fails:
            raise StatusError(400, "BadRequest", "no")
        return web.Response()

    pool = Elsewhere()
    reading = cast("Workers", pool)
    selecting = large_selectors(list_, workers=reading, selects=lambda _: True)
    handler = naming_selectors(selecting, workers=reading)
    answer = await connect(handler).ask("GET", f"{V1}/nodes?{selector}")
    assert answer.status == (400 if fails else 200)
    assert pool.read == 1
    assert len(seen) == 2
    assert freed[-3:] == [*seen, {"list": seen}]
