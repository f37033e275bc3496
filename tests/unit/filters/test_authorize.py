"""Who may do what without asking anybody, and the words of a refusal."""

from __future__ import annotations

import pytest

from apiserver.apimachinery.request import ANONYMOUS, User
from apiserver.filters.authorize import Decision, Local, authorize, forbidden
from apiserver.filters.request_info import parse
from apiserver.filters.state import Handler
from tests.unit.filters.chain import ADMIN, JANE, V1, as_user, connect, ok

G = "things.example.com"
NOBODY = User("ghost")


async def allowed(user: User, method: str, path: str) -> bool:
    return (await Local().authorize(user, parse(method, path))).allowed


PUBLIC = ["/healthz", "/livez", "/readyz", "/version", "/version/"]
DISCOVERY = [
    "/api",
    "/api/",
    "/api/v1",
    "/apis",
    "/apis/",
    "/apis/x",
    "/apis/x/v1",
    "/openapi",
    "/openapi/v2",
    "/openapi/v3/apis/x/v1",
]
CLOSED = [
    "/",
    "/metrics",
    "/healthz/ping",
    "/readyz/store",
    "/index.html",
    "/apisx",
    "/openapis",
    "/foo",
    "/version/x",
    "/logs",
]


@pytest.mark.parametrize("path", [*PUBLIC, *DISCOVERY, *CLOSED, f"{V1}/nodes", "//apis/x/v1/nodes"])
async def test_administrators_may_do_everything(path: str) -> None:
    assert await allowed(ADMIN, "DELETE", path)


@pytest.mark.parametrize("path", [*PUBLIC, *DISCOVERY])
async def test_the_authenticated_may_look_around(path: str) -> None:
    assert await allowed(JANE, "GET", path)
    assert not await allowed(JANE, "POST", path) or path in ("/healthz", "/livez", "/readyz")


@pytest.mark.parametrize("path", CLOSED)
async def test_the_authenticated_may_do_no_more(path: str) -> None:
    assert not await allowed(JANE, "GET", path)


@pytest.mark.parametrize("path", PUBLIC)
async def test_the_anonymous_see_health_and_version(path: str) -> None:
    assert await allowed(ANONYMOUS, "GET", path)


@pytest.mark.parametrize("path", [*DISCOVERY, *CLOSED])
async def test_the_anonymous_see_nothing_else(path: str) -> None:
    assert not await allowed(ANONYMOUS, "GET", path)


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_health_is_open_to_everybody_with_any_method(method: str, path: str) -> None:
    assert await allowed(NOBODY, method, path)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("path", ["/nodes", "/nodes/x", "/namespaces/n/claims/x/status", "/watch/nodes"])
async def test_objects_are_for_administrators(method: str, path: str) -> None:
    assert not await allowed(JANE, method, V1 + path)


@pytest.mark.parametrize(
    ("method", "path", "name", "verb", "resource", "where"),
    [
        ("GET", "/nodes", "", "list", "nodes", "at the cluster scope"),
        ("GET", "/nodes?watch=1", "", "watch", "nodes", "at the cluster scope"),
        ("GET", "/watch/nodes", "", "watch", "nodes", "at the cluster scope"),
        ("GET", "/nodes/x", "x", "get", "nodes", "at the cluster scope"),
        ("GET", "/nodes?fieldSelector=metadata.name%3Dx", "x", "list", "nodes", "at the cluster scope"),
        ("OPTIONS", "/nodes", "", "", "nodes", "at the cluster scope"),
        ("GET", "/nodes/x<y&", "x<y&", "get", "nodes", "at the cluster scope"),
        ("DELETE", "/namespaces/n/nodes", "", "deletecollection", "nodes", 'in the namespace "n"'),
        ("PUT", "/namespaces/n/nodes/x/status", "x", "update", "nodes/status", 'in the namespace "n"'),
    ],
)
def test_a_refusal_names_who_what_and_where(
    method: str, path: str, name: str, verb: str, resource: str, where: str
) -> None:
    error = forbidden(User("u"), parse(method, V1 + path))
    quoted = f'"{name}" ' if name else ""
    cannot = f'User "u" cannot {verb} resource "{resource}" in API group "{G}" {where}'
    assert (error.code, error.reason, error.message) == (403, "Forbidden", f"nodes.{G} {quoted}is forbidden: {cannot}")
    assert error.details == {**({"name": name} if name else {}), "group": G, "kind": "nodes"}
    assert error.headers == {"X-Content-Type-Options": "nosniff"}


def test_a_refused_path_has_empty_details() -> None:
    error = forbidden(User("u"), parse("POST", "/x%3Cy&z"))
    assert error.message == 'forbidden: User "u" cannot post path "/x&lt;y&amp;z"'
    assert error.details == {}


def test_an_odd_user_is_quoted_and_escaped() -> None:
    error = forbidden(User('a<b>&c"d'), parse("GET", f"{V1}/nodes"))
    assert error.message.startswith(f'nodes.{G} is forbidden: User "a&lt;b&gt;&amp;c\\"d" cannot list')


def test_the_authorizers_reason_follows_unescaped() -> None:
    error = forbidden(User("u"), parse("GET", f"{V1}/nodes"), "because <of> that")
    assert error.message.endswith("at the cluster scope: because <of> that")


def behind(user: User) -> Handler:
    return as_user(authorize(ok, authorizer=Local(), clock=lambda: 0.0), user)


async def test_the_filter_lets_through_or_refuses() -> None:
    assert (await connect(behind(ADMIN)).ask("GET", f"{V1}/nodes")).text == "fine"
    refused = await connect(behind(JANE)).ask("GET", f"{V1}/nodes", {"Accept": "application/yaml"})
    assert (refused.status, refused.headers["X-Content-Type-Options"]) == (403, "nosniff")
    assert refused.headers["Content-Type"] == "application/yaml"
    head = await connect(behind(JANE)).ask("HEAD", f"{V1}/nodes")
    assert (head.status, head.body) == (403, b"")


async def test_another_authorizers_reason_reaches_the_client() -> None:
    class Never:
        async def authorize(self, user: User, info: object) -> Decision:
            return Decision(allowed=False, reason="closed on Sundays")

    answer = await connect(as_user(authorize(ok, authorizer=Never(), clock=lambda: 0.0), ADMIN)).ask(
        "GET", f"{V1}/nodes"
    )
    assert answer.json["message"].endswith(": closed on Sundays")
