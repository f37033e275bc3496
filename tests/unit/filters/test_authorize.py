"""Rights that need no question to the cluster, and the text of a refusal."""

from __future__ import annotations

import pytest
from aiohttp import web

from apiserver import metrics
from apiserver.apimachinery.request import ANONYMOUS, Decision, Level, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from apiserver.filters.authorize import DECISION, REASON, Authorizer, Delegated, Local, authorize, forbidden
from apiserver.filters.request_info import parse
from apiserver.filters.state import Handler, Request
from tests.unit.filters.chain import ADMIN, JANE, V1, as_user, connect, ok

G = "things.example.com"
NOBODY = User("ghost")


HEALTH = ("/healthz", "/readyz", "/livez")


async def allowed(user: User, method: str, path: str) -> bool:
    authorizer = Delegated(Local(), always_allowed=HEALTH)
    return (await authorizer.authorize(user, parse(method, path))).allowed


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
async def test_health_is_open_to_every_client_and_method(method: str, path: str) -> None:
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
def test_refusal_names_user_verb_and_resource(
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


@pytest.mark.parametrize(
    ("path", "what", "where", "details"),
    [
        (f"{V1}//nodes", f'.{G} "nodes" is forbidden', "at the cluster scope", {"name": "nodes", "group": G}),
        (f"{V1}/watch//nodes", f'.{G} "nodes" is forbidden', "at the cluster scope", {"name": "nodes", "group": G}),
        (
            f"{V1}/namespaces/n//nodes",
            f'.{G} "nodes" is forbidden',
            'in the namespace "n"',
            {"name": "nodes", "group": G},
        ),
        ("/api/v1//pods", "forbidden", "at the cluster scope", {"name": "pods"}),
        ("/api/v1/namespaces/n//pods", "forbidden", 'in the namespace "n"', {"name": "pods"}),
    ],
)
def test_refused_path_with_an_empty_segment_has_upstreams_words(
    path: str, what: str, where: str, details: dict[str, str]
) -> None:
    error = forbidden(User("u"), parse("GET", path))
    verb = "watch" if "/watch/" in path else "get"
    group = G if G in what else ""
    assert error.message == f'{what}: User "u" cannot {verb} resource "" in API group "{group}" {where}'
    assert error.details == details


def test_an_odd_user_is_quoted_and_escaped() -> None:
    error = forbidden(User('a<b>&c"d'), parse("GET", f"{V1}/nodes"))
    assert error.message.startswith(f'nodes.{G} is forbidden: User "a&lt;b&gt;&amp;c\\"d" cannot list')


def test_the_authorizers_reason_follows_unescaped() -> None:
    error = forbidden(User("u"), parse("GET", f"{V1}/nodes"), "because <of> that")
    assert error.message.endswith("at the cluster scope: because <of> that")


# ---------------------------------------------------------------------------------------------------------------- asking another


class Scripted:
    """An authorizer with scripted answers, which remembers the questions."""

    def __init__(self, answer: Decision | ClusterError) -> None:
        self.answer = answer
        self.asked: list[tuple[User, RequestInfo]] = []

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        self.asked.append((user, info))
        if isinstance(self.answer, ClusterError):
            raise self.answer
        return self.answer


DOWN = ClusterError('Post "https://k/apis": <gone> & lost')


async def asked(user: User, method: str, path: str, *, always_allowed: tuple[str, ...] = HEALTH) -> bool:
    inner = Scripted(Decision(allowed=False))
    decision = await Delegated(inner, always_allowed=always_allowed).authorize(user, parse(method, path))
    assert decision.allowed != bool(inner.asked)
    return bool(inner.asked)


@pytest.mark.parametrize("path", [f"{V1}/nodes", "/metrics", "/healthz/ping", V1])
async def test_masters_need_no_question(path: str) -> None:
    assert not await asked(ADMIN, "DELETE", path)
    assert await asked(JANE, "DELETE", path)


@pytest.mark.parametrize("path", HEALTH)
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
async def test_always_allowed_requests_need_no_question(method: str, path: str) -> None:
    assert not await asked(ANONYMOUS, method, path)


@pytest.mark.parametrize(
    "path", ["/healthz/", "/healthz/ping", "/Healthz", "//healthz", "/healthzz", "/", "/readyz/store"]
)
async def test_path_that_only_resembles_an_allowed_one_is_authorized(path: str) -> None:
    assert await asked(ANONYMOUS, "GET", path)


@pytest.mark.parametrize(
    ("allowed_path", "path", "covered"),
    [
        ("/healthz*", "/healthz", True),
        ("/healthz*", "/healthz/ping", True),
        ("/healthz*", "/healthzz", True),
        ("/healthz/*", "/healthz", False),
        ("/healthz/*", "/healthz/ping", True),
        ("healthz", "/healthz", True),
        ("/", "/", True),
        ("/", "/x", False),
        ("*", "/anything", True),
        ("/*", "/anything", True),
        ("/*", f"{V1}/nodes", False),
        ("/apis/*", f"{V1}/nodes", False),
        ("/apis/*", V1, True),
    ],
)
async def test_a_star_at_the_end_makes_a_prefix_of_paths_without_resource(
    allowed_path: str, path: str, covered: bool
) -> None:
    assert await asked(ANONYMOUS, "GET", path, always_allowed=(allowed_path,)) is not covered


async def test_nothing_need_be_always_allowed() -> None:
    assert await asked(ANONYMOUS, "GET", "/healthz", always_allowed=())


# ---------------------------------------------------------------------------------------------------------------- the filter


def behind(user: User, authorizer: Authorizer | None = None) -> Handler:
    inner = authorizer or Delegated(Local(), always_allowed=HEALTH)
    return as_user(authorize(ok, authorizer=inner, clock=lambda: 0.0), user)


async def test_the_filter_lets_through_or_refuses() -> None:
    assert (await connect(behind(ADMIN)).ask("GET", f"{V1}/nodes")).text == "fine"
    refused = await connect(behind(JANE)).ask("GET", f"{V1}/nodes", {"Accept": "application/yaml"})
    assert (refused.status, refused.headers["X-Content-Type-Options"]) == (403, "nosniff")
    assert refused.headers["Content-Type"] == "application/yaml"
    head = await connect(behind(JANE)).ask("HEAD", f"{V1}/nodes")
    assert (head.status, head.body) == (403, b"")


@pytest.mark.parametrize("denied", [False, True])
async def test_another_authorizers_reason_reaches_the_client(denied: bool) -> None:
    never = Scripted(Decision(allowed=False, denied=denied, reason="closed on Sundays"))
    answer = await connect(behind(JANE, never)).ask("GET", f"{V1}/nodes")
    assert answer.json["message"].endswith("at the cluster scope: closed on Sundays")


async def test_failing_authorizer_gets_500_in_plain_text_and_permits_nothing() -> None:
    answer = await connect(behind(JANE, Scripted(DOWN))).ask("GET", f"{V1}/nodes?labelSelector=a%3Cb&x=<1>")
    assert answer.status == 500
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.text == (
        f'Internal Server Error: "{V1}/nodes?labelSelector=a%3Cb&amp;x=&lt;1&gt;": '
        'Post "https://k/apis": &lt;gone&gt; &amp; lost\n'
    )


async def test_masters_and_health_do_not_wait_for_an_authorizer_that_cannot_say() -> None:
    authorizer = Delegated(Scripted(DOWN), always_allowed=HEALTH)
    assert (await connect(behind(ADMIN, authorizer)).ask("GET", f"{V1}/nodes")).status == 200
    assert (await connect(behind(ANONYMOUS, authorizer)).ask("GET", "/readyz")).status == 200
    assert (await connect(behind(JANE, authorizer)).ask("GET", V1)).status == 500


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Decision(allowed=True), "allowed"),
        (Decision(allowed=False, denied=True), "denied"),
        (Decision(allowed=False), "no-opinion"),
        (DOWN, "error"),
    ],
)
async def test_decisions_are_counted_by_their_result(answer: Decision | ClusterError, result: str) -> None:
    def counts() -> dict[str, float]:
        results = ("allowed", "denied", "no-opinion", "error")
        return {name: metrics.AUTHORIZATION_ATTEMPTS.labels(name).value for name in results}

    before = counts()
    await connect(behind(JANE, Scripted(answer))).ask("GET", f"{V1}/nodes")
    assert {name: value - before[name] for name, value in counts().items() if value != before[name]} == {result: 1}


@pytest.mark.parametrize(
    ("answer", "notes"),
    [
        (Decision(allowed=True, reason="by role"), {DECISION: "allow", REASON: "by role"}),
        (Decision(allowed=False, denied=True, reason="no"), {DECISION: "forbid", REASON: "no"}),
        (ClusterError("secret"), {REASON: "internal error"}),
    ],
)
async def test_decision_is_noted_on_the_request(answer: Decision | ClusterError, notes: dict[str, str]) -> None:
    seen: list[Request] = []

    def remembering(handler: Handler) -> Handler:
        async def remember(request: Request) -> web.StreamResponse:
            seen.append(request)
            return await handler(request)

        return remember

    inner = authorize(ok, authorizer=Scripted(answer), clock=lambda: 0.0)
    await connect(as_user(remembering(inner), JANE)).ask("GET", f"{V1}/gadgets")
    assert seen[0].exchange.annotations.seen_at(Level.METADATA) == notes
    assert seen[0].decision == (answer if isinstance(answer, Decision) else None)
