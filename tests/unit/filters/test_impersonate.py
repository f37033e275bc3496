"""Acting as somebody else: allowed by authorization for each attribute, refused otherwise, never ignored."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from apiserver.apimachinery.request import Decision, RequestInfo, User, service_account
from apiserver.cluster.errors import ClusterError
from apiserver.filters import acting
from apiserver.filters.authorize import Authorizer, Delegated, Local
from apiserver.filters.impersonate import impersonate
from apiserver.filters.state import Request
from tests.fixtures.connection import Answer
from tests.unit.filters.chain import ADMIN, JANE, V1, as_user, connect


class Recorder:
    """Allows what is listed and remembers what was asked."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed
        self.asked: list[str] = []
        self.senders: list[User] = []

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        place = f"{info.namespace}/" if info.namespace else ""
        text = f"{info.verb} {info.group_resource.group or 'core'} {resource} {place}{info.name}"
        self.asked.append(text)
        self.senders.append(user)
        return Decision(allowed=not self.allowed or text in self.allowed)


class Rig:
    def __init__(self, sender: User = ADMIN, authorizer: Authorizer | None = None, *, constrained: bool = True) -> None:
        self.served: list[User] = []
        inner = authorizer or Delegated(Local(), always_allowed=())
        self.handler = as_user(impersonate(self._serve, authorizer=inner, constrained=constrained), sender)

    async def _serve(self, request: Request) -> web.StreamResponse:
        self.served.append(request.user)
        return web.Response()

    async def ask(self, *headers: tuple[str, str]) -> Answer:
        return await connect(self.handler).ask("GET", f"{V1}/nodes", list(headers))

    async def user(self, *headers: tuple[str, str]) -> User:
        assert (await self.ask(*headers)).status == 200
        return self.served[-1]


async def test_request_without_these_headers_keeps_its_user() -> None:
    assert await Rig(JANE).user(("X-Remote-User", "root"), ("Impersonated", "x")) == JANE


async def test_an_administrator_becomes_the_named_user_with_nothing_else() -> None:
    assert await Rig().user(("Impersonate-User", "bob")) == User("bob", groups=("system:authenticated",))


async def test_groups_uid_and_extra_are_taken_over() -> None:
    user = await Rig().user(
        ("impersonate-user", "bob"), ("Impersonate-Group", "a,b"), ("IMPERSONATE-GROUP", "c"), ("Impersonate-Uid", "u-1"),
        ("Impersonate-Extra-Example.com%2fScope", "View"), ("Impersonate-Extra-example.com%2FScope", "Edit"),
    )  # fmt: skip
    assert user == User("bob", "u-1", ("a,b", "c", "system:authenticated"), {"example.com/scope": ("View", "Edit")})


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        ("bob", ("system:authenticated", "a"), ("system:authenticated", "a")),
        ("bob", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("system:anonymous", (), ("system:unauthenticated",)),
        ("system:anonymous", ("system:authenticated",), ("system:authenticated", "system:unauthenticated")),
        (
            "system:serviceaccount:ns:sa",
            (),
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        ("system:serviceaccount:ns:sa", ("a",), ("a", "system:authenticated")),
    ],
)
async def test_groups_of_all_users_are_added(name: str, groups: tuple[str, ...], expected: tuple[str, ...]) -> None:
    headers = [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)]
    assert (await Rig().user(*headers)).groups == expected


USER_INFO = "authentication.k8s.io"
ON = "things.example.com nodes "
"""The requests of these tests list these."""


async def test_each_impersonated_attribute_is_authorized_for_the_sender() -> None:
    recorder = Recorder()
    await Rig(JANE, recorder).user(
        ("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"), ("Impersonate-Uid", "u-1"),
        ("Impersonate-Extra-Example.com%2fScope", "view"),
    )  # fmt: skip
    assert recorder.asked == [
        f"impersonate-on:user-info:list {ON}",
        f"impersonate:user-info {USER_INFO} users bob",
        f"impersonate:user-info {USER_INFO} uids u-1",
        f"impersonate:user-info {USER_INFO} groups a",
        f"impersonate:user-info {USER_INFO} groups b",
        f"impersonate:user-info {USER_INFO} userextras/example.com/scope view",
    ]


OLD = (
    "impersonate core users bob",
    "impersonate authentication.k8s.io uids u-1",
    "impersonate core groups a",
    "impersonate authentication.k8s.io userextras/scope view",
)


async def test_legacy_impersonation_still_works_and_is_tried_first_next_time() -> None:
    recorder = Recorder(*OLD)
    rig = Rig(JANE, recorder)
    headers = (
        ("Impersonate-User", "bob"), ("Impersonate-Group", "a"), ("Impersonate-Uid", "u-1"), ("Impersonate-Extra-Scope", "view"),
    )  # fmt: skip
    user = await rig.user(*headers)
    assert user == User("bob", "u-1", ("a", "system:authenticated"), {"scope": ("view",)})
    assert recorder.asked == [f"impersonate-on:user-info:list {ON}", *OLD]
    recorder.asked.clear()
    assert await rig.user(*headers) == user
    assert recorder.asked == list(OLD)


async def test_without_the_feature_gate_only_the_old_way_is_asked_about() -> None:
    recorder = Recorder()
    user = await Rig(JANE, recorder, constrained=False).user(("Impersonate-User", "system:node:n1"))
    assert user == User("system:node:n1", groups=("system:authenticated",))
    assert recorder.asked == ["impersonate core users system:node:n1"]


async def test_a_service_account_is_authorized_in_its_namespace() -> None:
    recorder = Recorder()
    await Rig(JANE, recorder).user(("Impersonate-User", "system:serviceaccount:ns:sa"))
    assert recorder.asked == [
        f"impersonate-on:serviceaccount:list {ON}",
        f"impersonate:serviceaccount {USER_INFO} serviceaccounts ns/sa",
    ]
    recorder = Recorder()
    await Rig(JANE, recorder).user(("Impersonate-User", "system:serviceaccount:ns:sa"), ("Impersonate-Group", "a"))
    assert recorder.asked == ["impersonate core serviceaccounts ns/sa", "impersonate core groups a"]


async def test_impersonated_node_is_in_the_group_of_nodes_unless_legacy() -> None:
    recorder = Recorder()
    node = ("Impersonate-User", "system:node:n1")
    assert (await Rig(JANE, recorder).user(node)).groups == ("system:nodes", "system:authenticated")
    assert recorder.asked == [
        f"impersonate-on:arbitrary-node:list {ON}",
        f"impersonate:arbitrary-node {USER_INFO} nodes n1",
    ]
    assert (await Rig(JANE, Recorder("impersonate core users system:node:n1")).user(node)).groups == (
        "system:authenticated",
    )
    assert (
        (await Rig(JANE).ask(("Impersonate-User", "system:node:")))
        .json["message"]
        .startswith('nodes.things.example.com is forbidden: User "jane" cannot impersonate-on:user-info:list ')
    )


async def test_service_account_may_impersonate_the_node_on_which_it_runs() -> None:
    extra = {"authentication.kubernetes.io/node-name": ("n1",), "authentication.kubernetes.io/pod-name": ("p",)}
    agent = User("system:serviceaccount:ns:agent", extra=extra)
    recorder = Recorder(f"impersonate-on:associated-node:list {ON}", f"impersonate:associated-node {USER_INFO} nodes *")
    user = await Rig(agent, recorder).user(("Impersonate-User", "system:node:n1"))
    assert user == User("system:node:n1", groups=("system:nodes", "system:authenticated"))
    assert [sender.extra for sender in recorder.senders] == [
        {"authentication.kubernetes.io/associated-node-keys": tuple(sorted(extra))}
    ] * 2
    assert (await Rig(agent, recorder).ask(("Impersonate-User", "system:node:n2"))).status == 403
    assert (await Rig(User("agent", extra=extra), recorder).ask(("Impersonate-User", "system:node:n1"))).status == 403


async def test_many_groups_or_values_may_be_allowed_all_at_once() -> None:
    groups = [("Impersonate-Group", f"g{at}") for at in range(4)]
    extra = [("Impersonate-Extra-Example.com%2fA", f"v{at}") for at in range(4)]
    recorder = Recorder()
    await Rig(JANE, recorder).user(("Impersonate-User", "bob"), *groups, *extra)
    assert recorder.asked[2:] == [
        f"impersonate:user-info {USER_INFO} groups *",
        f"impersonate:user-info {USER_INFO} userextras/* *",
    ]
    await Rig(JANE, recorder).user(("Impersonate-User", "bob"), *groups[1:], *extra[1:])
    assert recorder.asked[6:] == [
        *(f"impersonate:user-info {USER_INFO} groups g{at}" for at in (1, 2, 3)),
        *(f"impersonate:user-info {USER_INFO} userextras/example.com/a v{at}" for at in (1, 2, 3)),
    ]


IN_EXTRA = "impersonating an invalid key in extra is not allowed: extra.key: Invalid value"


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (("Group", "system:masters"), "impersonating the system:masters group is not allowed"),
        (("Group", ""), "impersonating the empty string group is not allowed"),
        (("Extra-", "v"), "impersonating the empty string key in extra is not allowed"),
        (("Extra-Scope", "v"), f'{IN_EXTRA}: "scope": must be a domain-prefixed path (such as "acme.io/foo")'),
        (
            ("Extra-A.com%2fb%20c", "v"),
            f"{IN_EXTRA}: \"b c\": Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
        ),
        (("Extra-a%41.com%2fb", "v"), f'{IN_EXTRA}: "aA.com": a lowercase RFC 1123 subdomain must consist of '),
        (("Extra-a.com%2fB%41", "v"), 'impersonating a non-lowercase key in extra is not allowed: "a.com/bA"'),
        (("Extra-a.com%2fb", ""), "impersonating the empty string value in extra is not allowed"),
    ],
)
async def test_headers_that_only_legacy_impersonation_permits(header: tuple[str, str], why: str) -> None:
    new_ways = Rig(
        JANE, Recorder(f"impersonate-on:user-info:list {ON}", f"impersonate:user-info {USER_INFO} users bob")
    )
    name, value = header
    answer = await new_ways.ask(("Impersonate-User", "bob"), (f"Impersonate-{name}", value))
    assert answer.status == 403
    assert "cannot impersonate:user-info resource " in answer.json["message"]
    assert f"at the cluster scope: {why}" in answer.json["message"]
    assert (await Rig(JANE).ask(("Impersonate-User", "bob"), (f"Impersonate-{name}", value))).status == 403
    assert (await Rig(ADMIN).user(("Impersonate-User", "bob"), (f"Impersonate-{name}", value))).name == "bob"


async def test_malformed_utf8_in_a_name_is_replaced_as_in_a_review() -> None:
    recorder = Recorder()
    user = await Rig(JANE, recorder).user(("Impersonate-User", "b\udcff"), ("Impersonate-Group", "\udce9\udcff"))
    assert (user.name, user.groups[0]) == ("b\ufffd", "\ufffd\ufffd")
    assert recorder.asked[1:] == [
        f"impersonate:user-info {USER_INFO} users b\ufffd", f"impersonate:user-info {USER_INFO} groups \ufffd\ufffd",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["system:serviceaccount:ns", "system:serviceaccount:NS:sa", "system:serviceaccount:a:b:c", "x:ns:sa"]
)
def test_name_that_only_resembles_a_service_account_is_a_user(name: str) -> None:
    assert service_account(name) is None


async def test_one_refused_attribute_refuses_the_request() -> None:
    recorder = Recorder(f"impersonate-on:user-info:list {ON}", f"impersonate:user-info {USER_INFO} users bob")
    rig = Rig(JANE, recorder)
    answer = await rig.ask(("Impersonate-User", "bob"), ("Impersonate-Group", "ops"))
    assert answer.status == 403
    assert answer.json["message"] == (
        'groups.authentication.k8s.io "ops" is forbidden: User "jane" cannot impersonate:user-info resource "groups" '
        'in API group "authentication.k8s.io" at the cluster scope'
    )
    assert answer.json["details"] == {"name": "ops", "group": "authentication.k8s.io", "kind": "groups"}
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not rig.served


async def test_others_than_administrators_are_refused_by_the_local_rules() -> None:
    answer = await Rig(JANE).ask(("Impersonate-User", "bob"))
    assert answer.json["message"] == (
        'nodes.things.example.com is forbidden: User "jane" cannot impersonate-on:user-info:list resource "nodes" '
        'in API group "things.example.com" at the cluster scope'
    )


async def test_an_authorizer_that_cannot_say_refuses_and_its_error_is_the_reason() -> None:
    class Down:
        async def authorize(self, user: User, info: RequestInfo) -> Decision:
            raise ClusterError("connection refused")

    rig = Rig(JANE, Down())
    answer = await rig.ask(("Impersonate-User", "bob"))
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden")
    assert answer.json["message"] == (
        'nodes.things.example.com is forbidden: User "jane" cannot impersonate-on:user-info:list resource "nodes" '
        'in API group "things.example.com" at the cluster scope: connection refused'
    )
    assert not rig.served


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        (
            ("Impersonate-Group", "a"),
            '&user.DefaultInfo{Name:"", UID:"", Groups:[]string{"a"}, Extra:map[string][]string(nil)}',
        ),
        (
            ("Impersonate-Uid", "u"),
            '&user.DefaultInfo{Name:"", UID:"u", Groups:[]string(nil), Extra:map[string][]string(nil)}',
        ),
        (
            ("Impersonate-Extra-K", "v"),
            '&user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"k":[]string{"v"}}}',
        ),
    ],
)
@pytest.mark.parametrize("sender", [ADMIN, JANE])
async def test_attributes_without_a_user_are_400_for_every_caller(
    header: tuple[str, str], shown: str, sender: User
) -> None:
    answer = await Rig(sender).ask(header)
    assert (answer.status, answer.json["reason"]) == (400, "BadRequest")
    assert answer.json["message"] == f"requested {shown} without impersonating a user name"


async def test_an_empty_user_alone_asks_for_nothing() -> None:
    assert await Rig(JANE).user(("Impersonate-User", "")) == JANE


@pytest.mark.parametrize("name", ["Impersonate-Group", "Impersonate-Extra-K", "Impersonate-Extra-K{}"])
async def test_thousands_of_impersonation_headers_are_shown_within_bounds(name: str) -> None:
    value = "\u200b" * 70
    answer = await Rig(JANE).ask(*((name.format(at), value) for at in range(4000)))
    message = answer.json["message"]
    assert answer.status == 400
    assert message.startswith('requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string')
    assert message.endswith("… without impersonating a user name")
    assert len(message) < 16_000


async def test_others_have_their_turn_while_thousands_of_attributes_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "STEP_SECONDS", 0.0)
    headers = [("Impersonate-User", "bob"), *((f"Impersonate-Extra-K{at}", "v") for at in range(3000))]
    asking = asyncio.ensure_future(Rig().user(*headers))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await asking).extra) == 3000
    assert turns > 3000
