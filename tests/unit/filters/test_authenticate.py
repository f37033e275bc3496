"""Identity of a request's sender. Traps T2 and T3: every way in which somebody could pass for the front proxy is tried."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from apiserver import metrics
from apiserver.apimachinery.request import ANONYMOUS, User
from apiserver.cluster.errors import ClusterError
from apiserver.cluster.tokens import BadToken
from apiserver.config.config import RequestHeader
from apiserver.filters.authenticate import (
    CREDENTIAL_ID,
    FAILURE_SECONDS,
    Trust,
    Verified,
    authenticate,
    proxied_user,
    unescape_key,
)
from apiserver.filters.state import Peer, Request
from apiserver.serving.x509 import chains
from tests.fixtures.authorities import NOW, SERVER, Holder, issue
from tests.fixtures.connection import Answer, Connection
from tests.fixtures.websocket import handshake
from tests.unit.filters.chain import outer

HEADER = RequestHeader(
    ca_file="", allowed_names=("front-proxy",), username_headers=("x-remote-user",), group_headers=("x-remote-group",),
    uid_headers=("x-remote-uid",), extra_prefixes=("x-remote-extra-",),
)  # fmt: skip
USERS, PROXIES = issue("users ca", ca=True), issue("proxies ca", ca=True)
SPOOFED = {"X-Remote-User": "root", "X-Remote-Group": "system:masters"}


class Reviewer:
    """Knows one token; counts how often it was asked."""

    def __init__(self, answer: Callable[[str], Awaitable[User]] | None = None) -> None:
        self.asked: list[str] = []
        self._answer = answer

    async def review(self, token: str, *, source: str = "") -> User:
        self.asked.append(token)
        await asyncio.sleep(0)
        if self._answer is not None:
            return await self._answer(token)
        if token != "good":
            raise BadToken("invalid bearer token")
        extra = {"authentication.kubernetes.io/node-name": ("n1",)}
        return User("system:serviceaccount:ns:sa", "u-2", ("system:serviceaccounts",), extra)


class Rig:
    """The filter in front of a handler that keeps whom it served."""

    def __init__(
        self, *, header: RequestHeader = HEADER, anonymous: bool = True, tokens: Reviewer | None = None
    ) -> None:
        self.trust = Trust(client=chains.verifier(USERS.pem), proxy=chains.verifier(PROXIES.pem), names=header)
        self.time = NOW.timestamp()
        self.served: list[User] = []
        self.handler = outer(
            authenticate(
                self._serve,
                trust=lambda: self.trust,
                tokens=tokens,
                anonymous=anonymous,
                now=lambda: self.time,
                clock=lambda: 0.0,
            )
        )

    async def _serve(self, request: Request) -> web.StreamResponse:
        self.served.append(request.user)
        return web.Response(text=",".join(request.exchange.subprotocols))

    async def ask(
        self,
        headers: dict[str, str] | list[tuple[str, str]] | None = None,
        *,
        peer: Peer | None = None,
        path: str = "/x",
    ) -> Answer:
        return await Connection(self.handler, peer=peer).ask("GET", path, headers)

    async def user(
        self, headers: dict[str, str] | list[tuple[str, str]] | None = None, *, peer: Peer | None = None
    ) -> User:
        answer = await self.ask(headers, peer=peer)
        assert answer.status == 200, answer.text
        return self.served[-1]

    async def refused(
        self, headers: dict[str, str] | list[tuple[str, str]] | None = None, *, peer: Peer | None = None
    ) -> None:
        answer = await self.ask(headers, peer=peer)
        assert answer.status == 401
        assert answer.json == {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
            "reason": "Unauthorized", "code": 401,
        }  # fmt: skip
        assert "WWW-Authenticate" not in answer.headers
        assert not self.served


def proxy(**how: object) -> Holder:
    return issue("front-proxy", PROXIES, **how)  # type: ignore[arg-type]


def jane() -> Holder:
    return issue("jane", USERS, groups=("devs", "ops"))


# ---------------------------------------------------------------------------------------------------------------- nobody


async def test_without_credentials_one_is_anonymous() -> None:
    assert await Rig().user() == User("system:anonymous", groups=("system:unauthenticated",))


async def test_anonymous_requests_can_be_refused() -> None:
    await Rig(anonymous=False).refused()


# ---------------------------------------------------------------------------------------------------------------- certificates


async def test_a_client_certificate_names_user_groups_and_itself() -> None:
    holder = jane()
    user = await Rig().user(peer=holder.peer)
    assert (user.name, user.uid, user.groups) == ("jane", "", ("devs", "ops", "system:authenticated"))
    [credential] = user.extra[CREDENTIAL_ID]
    assert credential.startswith("X509SHA256=")
    assert len(credential) == len("X509SHA256=") + 64


async def test_a_uid_in_the_subject_is_the_users() -> None:
    assert (await Rig().user(peer=issue("jane", USERS, uids=("u-1",)).peer)).uid == "u-1"


async def test_two_uids_are_no_authentication() -> None:
    await Rig().refused(peer=issue("jane", USERS, uids=("a", "b")).peer)


async def test_certificate_without_a_name_authenticates_no_user() -> None:
    rig = Rig()
    rig.trust = replace(rig.trust, proxy=None)
    assert (await rig.user(peer=issue("", USERS, groups=("system:masters",)).peer)).name == "system:anonymous"


@pytest.mark.parametrize(
    "holder",
    [
        lambda: issue("jane", USERS, ends=-0.1),
        lambda: issue("jane", USERS, usages=(SERVER,)),
        lambda: issue("jane", issue("users ca", ca=True)),
        lambda: issue("jane"),
    ],
    ids=["expired", "of a server", "of a CA of that name", "self-signed"],
)
async def test_a_certificate_that_does_not_hold_is_no_anonymity(holder: object) -> None:
    made: Holder = holder()  # type: ignore[operator]
    await Rig().refused(peer=made.peer)
    await Rig().refused(SPOOFED, peer=made.peer)


# ---------------------------------------------------------------------------------------------------------------- the front proxy


async def test_the_front_proxy_names_the_user() -> None:
    headers = [
        ("X-Remote-User", "jane"), ("X-Remote-Uid", "u-1"), ("X-Remote-Group", "a,b"), ("x-remote-group", "c"), ("X-Remote-Group", ""),
        ("X-Remote-Extra-Example.com%2fScope", "View"), ("X-REMOTE-EXTRA-Example.com%2FScope", "Edit"), ("X-Remote-Extra-Plain", "ä"),
    ]  # fmt: skip
    user = await Rig().user(headers, peer=proxy().peer)
    assert (user.name, user.uid, user.groups) == ("jane", "u-1", ("a,b", "c", "system:authenticated"))
    assert user.extra == {"example.com/scope": ("View", "Edit"), "plain": ("ä",)}


async def test_authentication_groups_from_the_proxy_are_not_doubled() -> None:
    rig = Rig()
    anonymous = {"X-Remote-User": "system:anonymous", "X-Remote-Group": "system:unauthenticated"}
    assert (await rig.user(anonymous, peer=proxy().peer)).groups == ("system:unauthenticated",)
    named = {"X-Remote-User": "jane", "X-Remote-Group": "system:authenticated"}
    assert (await rig.user(named, peer=proxy().peer)).groups == ("system:authenticated",)


async def test_the_aggregators_groupless_callers_become_authenticated() -> None:
    user = await Rig().user({"X-Remote-User": "system:kube-aggregator"}, peer=proxy().peer)
    assert user.groups == ("system:authenticated",)


@pytest.mark.parametrize("headers", [{}, {"X-Remote-User": ""}, {"X-Remote-Group": "system:masters"}])
async def test_proxy_that_names_no_user_is_no_user_itself(headers: dict[str, str]) -> None:
    await Rig().refused(headers, peer=proxy().peer)


async def test_an_empty_list_of_names_allows_any_name_of_the_proxys_ca() -> None:
    rig = Rig(header=replace(HEADER, allowed_names=()))
    assert (await rig.user({"X-Remote-User": "jane"}, peer=issue("whoever", PROXIES).peer)).name == "jane"


async def test_the_first_header_with_a_value_names_the_user() -> None:
    rig = Rig(header=replace(HEADER, username_headers=("x-first", "x-second")))
    assert (await rig.user([("X-Second", "b"), ("X-First", ""), ("X-First", "c")], peer=proxy().peer)).name == "b"


async def test_other_configured_headers_are_read_and_the_usual_ones_are_not() -> None:
    rig = Rig(header=replace(HEADER, username_headers=("x-who",), group_headers=("x-team",), uid_headers=()))
    headers = [
        ("X-Remote-User", "root"),
        ("X-Who", "jane"),
        ("X-Remote-Group", "system:masters"),
        ("X-Team", "devs"),
        ("X-Remote-Uid", "1"),
    ]
    user = await rig.user(headers, peer=proxy().peer)
    assert (user.name, user.uid, user.groups) == ("jane", "", ("devs", "system:authenticated"))


async def test_a_name_that_is_no_text_is_refused() -> None:
    rig = Rig()
    connection = Connection(rig.handler, peer=proxy().peer)
    connection.feed(b"GET /x HTTP/1.1\r\nHost: s\r\nX-Remote-User: r\xffoot\r\n\r\n")
    assert (await connection.answer()).status == 401


# ------------------------------------------------------------------------------------------------ bypasses: T2, T3

CASES = {"plain": "X-Remote-User", "lower": "x-remote-user", "mixed": "x-ReMoTe-UsEr"}


@pytest.mark.parametrize("name", CASES.values(), ids=CASES)
async def test_headers_of_a_client_without_certificate_are_not_read(name: str) -> None:
    user = await Rig().user({name: "root", "X-Remote-Group": "system:masters", "X-Remote-Extra-A": "b"})
    assert user.name == "system:anonymous"
    assert user.groups == ("system:unauthenticated",)
    assert not user.extra


@pytest.mark.parametrize("name", CASES.values(), ids=CASES)
async def test_headers_of_an_ordinary_client_are_not_read(name: str) -> None:
    user = await Rig().user([(name, "root"), ("X-Remote-Group", "system:masters"), (name, "admin")], peer=jane().peer)
    assert (user.name, user.groups) == ("jane", ("devs", "ops", "system:authenticated"))


async def test_a_client_certificate_with_the_proxys_name_is_a_client() -> None:
    holder = issue("front-proxy", USERS)
    assert (await Rig().user(SPOOFED, peer=holder.peer)).name == "front-proxy"


async def test_certificate_of_the_proxys_ca_with_another_name_is_no_user() -> None:
    await Rig().refused(SPOOFED, peer=issue("other-proxy", PROXIES).peer)
    await Rig().refused(SPOOFED, peer=issue("", PROXIES).peer)
    await Rig().refused(SPOOFED, peer=issue("FRONT-PROXY", PROXIES).peer)


async def test_a_name_hidden_in_front_of_another_does_not_count() -> None:
    """Go reads the last common name of a subject; a certificate with two must not pass as the first."""
    await Rig().refused(SPOOFED, peer=issue("jane", PROXIES, before="front-proxy").peer)


@pytest.mark.parametrize(
    "how",
    [{"ends": -0.1}, {"starts": 0.5}, {"usages": (SERVER,)}, {"critical_nonsense": True}],
    ids=["old", "young", "server", "odd"],
)
async def test_invalid_proxy_certificate_is_no_user(how: dict[str, object]) -> None:
    await Rig().refused(SPOOFED, peer=proxy(**how).peer)


async def test_chain_to_the_other_bundle_presented_along_does_not_help() -> None:
    leaf = issue("front-proxy", USERS)
    peer = Peer.of(leaf.der, (PROXIES.der, proxy().der))
    assert (await Rig().user(SPOOFED, peer=peer)).name == "front-proxy"
    foreign = issue("front-proxy", issue("proxies ca", ca=True))
    await Rig().refused(SPOOFED, peer=Peer.of(foreign.der, (PROXIES.der,)))


async def test_missing_proxy_bundle_trusts_no_proxy() -> None:
    rig = Rig(header=replace(HEADER, allowed_names=()))
    rig.trust = replace(rig.trust, proxy=None)
    await rig.refused(SPOOFED, peer=proxy().peer)
    assert (await rig.user(SPOOFED, peer=jane().peer)).name == "jane"


async def test_without_any_bundle_certificates_say_nothing() -> None:
    rig = Rig()
    rig.trust = Trust(client=None, proxy=None)
    assert (await rig.user(SPOOFED, peer=proxy().peer)).name == "system:anonymous"


async def test_one_bundle_in_both_roles_keeps_them_apart_by_name() -> None:
    rig = Rig()
    rig.trust = Trust(client=chains.verifier(USERS.pem), proxy=chains.verifier(USERS.pem), names=HEADER)
    assert (await rig.user({"X-Remote-User": "joe"}, peer=issue("front-proxy", USERS).peer)).name == "joe"
    assert (await rig.user(SPOOFED, peer=jane().peer)).name == "jane"
    assert (await rig.user(peer=issue("front-proxy", USERS).peer)).name == "front-proxy"


# ---------------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize("value", ["Bearer abc", "bearer abc", "BEARER abc def", "  Bearer abc"])
async def test_token_that_cannot_be_checked_is_no_authentication(value: str) -> None:
    await Rig().refused({"Authorization": value})


@pytest.mark.parametrize("value", ["Bearer good", "bearer good", "BEARER good and more", "  Bearer good  "])
async def test_a_good_token_names_its_user(value: str) -> None:
    user = await Rig(tokens=Reviewer()).user({"Authorization": value})
    assert (user.name, user.uid) == ("system:serviceaccount:ns:sa", "u-2")
    assert user.groups == ("system:serviceaccounts", "system:authenticated")
    assert user.extra == {"authentication.kubernetes.io/node-name": ("n1",)}


async def test_a_bad_token_is_no_anonymity() -> None:
    await Rig(tokens=Reviewer()).refused({"Authorization": "Bearer bad"})


async def test_token_that_cannot_be_reviewed_gets_401_and_is_never_anonymous() -> None:
    async def unreachable(_token: str) -> User:
        raise ClusterError("connection refused")

    await Rig(tokens=Reviewer(unreachable)).refused({"Authorization": "Bearer good"})


async def test_only_the_first_header_with_a_token_counts() -> None:
    reviewer = Reviewer()
    headers = [("Authorization", "Bearer bad"), ("Authorization", "Bearer good")]
    await Rig(tokens=reviewer).refused(headers)
    assert reviewer.asked == ["bad"]


WATCH = "/apis/g.example.com/v1/things?watch=1"
BEARER = "base64url.bearer.authorization.k8s.io."
GOOD_TOKEN = f"{BEARER}Z29vZA"


def offering(*protocols: str, **more: str) -> list[tuple[str, str]]:
    """The headers of a WebSocket's client that offers them, in a header for each of the arguments."""
    return [*handshake(**more), *(("Sec-WebSocket-Protocol", protocol) for protocol in protocols)]


@pytest.mark.parametrize(
    ("offered", "others"),
    [
        ((f"{GOOD_TOKEN}, binary.k8s.io",), "binary.k8s.io"),
        ((f"a ,{GOOD_TOKEN},b",), "a,b"),
        (("a", GOOD_TOKEN), "a"),
        ((GOOD_TOKEN, "a,b"), "a,b"),
    ],
)
async def test_subprotocol_token_names_its_user_and_is_not_passed_on(offered: tuple[str, ...], others: str) -> None:
    rig = Rig(tokens=Reviewer())
    answer = await rig.ask(offering(*offered), path=WATCH)
    assert (answer.status, answer.text) == (200, others)
    assert [user.name for user in rig.served] == ["system:serviceaccount:ns:sa"]


@pytest.mark.parametrize(
    "offered",
    [
        (f"{BEARER}YmFk, a",),
        (GOOD_TOKEN,),
        (f"{GOOD_TOKEN}, {GOOD_TOKEN}, a",),
        (GOOD_TOKEN, f"{GOOD_TOKEN}, a"),
        (f"{GOOD_TOKEN}==, a",),
        (f"{BEARER}Z29vZ, a",),
        (f"{BEARER}!, a",),
        (f"{BEARER}_w, a",),
    ],
    ids=["bad", "alone", "twice", "in two headers", "padded", "too short", "no base64", "no text"],
)
async def test_a_token_among_the_subprotocols_that_is_wrong_is_no_anonymity(offered: tuple[str, ...]) -> None:
    rig = Rig(tokens=Reviewer())
    assert (await rig.ask(offering(*offered), path=WATCH)).status == 401
    assert not rig.served


@pytest.mark.parametrize("offered", ["a, b", f"{BEARER}, a", "Base64url.bearer.authorization.k8s.io.Z29vZA, a"])
async def test_subprotocols_without_a_token_are_no_credentials(offered: str) -> None:
    rig = Rig(tokens=Reviewer())
    assert (await rig.ask(offering(offered), path=WATCH)).status == 200
    assert rig.served == [ANONYMOUS]


async def test_subprotocols_of_a_request_that_does_not_upgrade_are_not_read() -> None:
    rig = Rig(tokens=Reviewer())
    assert (await rig.ask({"Sec-WebSocket-Protocol": f"{GOOD_TOKEN}, a"}, path=WATCH)).status == 200
    assert rig.served == [ANONYMOUS]


async def test_certificate_is_enough_and_the_subprotocol_token_stays() -> None:
    rig = Rig(tokens=Reviewer())
    answer = await rig.ask(offering(f"{GOOD_TOKEN}, a"), path=WATCH, peer=jane().peer)
    assert (answer.status, answer.text) == (200, f"{GOOD_TOKEN},a")
    assert [user.name for user in rig.served] == ["jane"]


async def test_a_token_that_is_no_text_is_refused_unasked() -> None:
    reviewer = Reviewer()
    connection = Connection(Rig(tokens=reviewer).handler)
    connection.feed(b"GET /x HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer g\xffood\r\n\r\n")
    assert (await connection.answer()).status == 401
    assert not reviewer.asked


async def test_certificate_is_enough_and_the_token_beside_it_is_not_reviewed() -> None:
    reviewer = Reviewer()
    rig = Rig(tokens=reviewer)
    assert (await rig.user({"Authorization": "Bearer bad"}, peer=jane().peer)).name == "jane"
    headers = {"Authorization": "Bearer bad", "X-Remote-User": "joe"}
    assert (await rig.user(headers, peer=proxy().peer)).name == "joe"
    assert not reviewer.asked


@pytest.mark.parametrize(
    "holder",
    [
        lambda: issue("jane", USERS, ends=-0.1),
        lambda: issue("jane", USERS, uids=("a", "b")),
        lambda: issue("other-proxy", PROXIES),
        lambda: issue("jane"),
        lambda: issue("", USERS),
        proxy,
    ],
    ids=["expired", "two uids", "another name", "of nobody", "nameless", "proxy without user"],
)
async def test_a_good_token_helps_beside_a_certificate_that_does_not(holder: Callable[[], Holder]) -> None:
    rig = Rig(tokens=Reviewer())
    peer = holder().peer
    assert (await rig.user({"Authorization": "Bearer good"}, peer=peer)).name == "system:serviceaccount:ns:sa"
    rig.served.clear()
    await rig.refused({"Authorization": "Bearer bad"}, peer=peer)


async def test_headers_of_the_proxy_do_not_count_beside_a_token() -> None:
    user = await Rig(tokens=Reviewer()).user({"Authorization": "Bearer good", **SPOOFED})
    assert user.name == "system:serviceaccount:ns:sa"
    await Rig(tokens=Reviewer()).refused({"Authorization": "Bearer bad", **SPOOFED})


@pytest.mark.parametrize("value", ["Basic abc", "Bearer", "", "abc", "Bearerabc x", "Bearer\tgood"])
async def test_other_schemes_are_no_credentials(value: str) -> None:
    reviewer = Reviewer()
    assert (await Rig(tokens=reviewer).user({"Authorization": value})).name == "system:anonymous"
    assert not reviewer.asked


async def test_a_blank_before_the_token_is_warned_of_and_ignored() -> None:
    answer = await Rig(anonymous=False, tokens=Reviewer()).ask({"Authorization": "Bearer  good"})
    assert answer.status == 401
    assert answer.headers["Warning"] == (
        '299 - "the provided Authorization header contains extra space before the bearer token, and is ignored"'
    )


async def test_the_token_does_not_reach_the_log(caplog: pytest.LogCaptureFixture) -> None:
    await Rig(tokens=Reviewer()).refused({"Authorization": "Bearer s3cret"})
    assert caplog.records
    assert "s3cret" not in str([vars(record) for record in caplog.records])


def attempts(result: str) -> float:
    return metrics.AUTHENTICATION_ATTEMPTS.labels(result).value


async def test_attempts_are_counted_by_their_result() -> None:
    before = {result: attempts(result) for result in ("success", "failure", "error")}
    rig = Rig(tokens=Reviewer(), anonymous=False)
    await rig.ask({"Authorization": "Bearer good"})
    await rig.ask({"Authorization": "Bearer bad"})
    await rig.ask(peer=issue("jane").peer)
    await rig.ask()
    await rig.ask(peer=jane().peer)
    assert {result: attempts(result) - before[result] for result in before} == {"success": 2, "failure": 1, "error": 2}


# ---------------------------------------------------------------------------------------------------------------- rotation


async def test_rotated_ca_revokes_rights_on_an_open_connection() -> None:
    rig, holder = Rig(), jane()
    connection = Connection(rig.handler, peer=holder.peer)
    assert (await connection.ask("GET", "/x")).status == 200
    rig.trust = replace(rig.trust, client=chains.verifier(issue("next ca", ca=True).pem))
    assert (await connection.ask("GET", "/x")).status == 401
    rig.trust = replace(rig.trust, client=chains.verifier(USERS.pem))
    assert (await connection.ask("GET", "/x")).status == 200


async def test_a_certificate_that_expires_loses_its_rights_on_an_open_connection() -> None:
    rig, holder = Rig(), issue("jane", USERS, ends=1)
    connection = Connection(rig.handler, peer=holder.peer)
    assert (await connection.ask("GET", "/x")).status == 200
    rig.time += 86401
    assert (await connection.ask("GET", "/x")).status == 401


async def test_changed_names_of_the_proxy_count_from_the_next_request_on() -> None:
    rig, holder = Rig(), issue("front-proxy", PROXIES)
    connection = Connection(rig.handler, peer=holder.peer)
    headers = {"X-Remote-User": "jane", "X-Who": "joe"}
    assert (await connection.ask("GET", "/x", headers)).status == 200
    rig.trust = replace(rig.trust, names=replace(HEADER, username_headers=("x-who",)))
    assert (await connection.ask("GET", "/x", headers)).status == 200
    assert [user.name for user in rig.served] == ["jane", "joe"]
    rig.trust = replace(rig.trust, names=replace(HEADER, allowed_names=("another",)))
    assert (await connection.ask("GET", "/x", headers)).status == 401


async def test_verification_is_done_once_while_nothing_changes() -> None:
    rig, holder, calls = Rig(), jane(), itertools.count()

    def counting(peer: Peer, at: float) -> Verified:
        next(calls)
        return chains.verifier(USERS.pem)(peer, at)

    rig.trust = Trust(client=counting, proxy=None)
    for _ in range(3):
        await rig.user(peer=holder.peer)
    assert next(calls) == 1


async def test_a_certificate_that_was_too_young_is_looked_at_again() -> None:
    rig, holder = Rig(), issue("jane", USERS, starts=1)
    connection = Connection(rig.handler, peer=holder.peer)
    assert (await connection.ask("GET", "/x")).status == 401
    rig.time += 86401 + FAILURE_SECONDS
    assert (await connection.ask("GET", "/x")).status == 200


# ---------------------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("escaped", "key"),
    [
        ("a", "a"),
        ("a%2fb", "a/b"),
        ("a+b", "a+b"),
        ("%c3%a4", "ä"),
        ("%zz", "%zz"),
        ("a%", "a%"),
        ("%2", "%2"),
        ("%ff", "%ff"),
        ("%25", "%"),
    ],
)
def test_extra_keys_are_decoded_as_path_segments_and_kept_when_malformed(escaped: str, key: str) -> None:
    assert unescape_key(escaped) == key


def test_values_keep_the_order_of_prefixes_then_of_headers() -> None:
    header = replace(HEADER, extra_prefixes=("x-b-", "x-a-"))
    headers = CIMultiDictProxy(CIMultiDict([("X-Remote-User", "u"), ("X-A-k", "1"), ("X-B-k", "2"), ("X-A-k", "3")]))
    user = proxied_user(headers, header)
    assert user is not None
    assert user.extra == {"k": ("2", "1", "3")}
