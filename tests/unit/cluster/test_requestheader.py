"""The ConfigMap that says whom to trust: what counts, what is kept, what is followed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from apiserver.cluster.client import Client, ClusterError
from apiserver.cluster.requestheader import ClusterTrust, TrustSource, trusted
from apiserver.config.config import RequestHeader
from apiserver.serving import pki
from tests.unit.cluster.plane import NOW, Clock, Feed, Plane, Reply, answer, hang, status, until

COLLECTION = "/api/v1/namespaces/kube-system/configmaps"
PATH = f"{COLLECTION}/extension-apiserver-authentication"
ONE, TWO, THREE = (pki.make_ca(f"authority {n}", now=NOW).cert_pem.decode() for n in (1, 2, 3))
DATA = {
    "client-ca-file": ONE,
    "requestheader-client-ca-file": TWO,
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group","X-Other-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
NAMES = RequestHeader(
    ca_file="",
    allowed_names=("front-proxy-client",),
    username_headers=("x-remote-user",),
    group_headers=("x-remote-group", "x-other-group"),
    uid_headers=("x-remote-uid",),
    extra_prefixes=("x-remote-extra-",),
)
NOTHING = ClusterTrust()
TRUST = ClusterTrust(ONE.encode(), TWO.encode(), NAMES)


def config_map(data: dict[str, str] | None, version: int = 1) -> dict[str, Any]:
    metadata = {"name": "extension-apiserver-authentication", "resourceVersion": str(version)}
    return {"metadata": metadata} | ({"data": data} if data is not None else {})


def changed(**values: str | None) -> dict[str, str]:
    named = {key.replace("_", "-"): value for key, value in values.items()}
    return {key: value for key, value in {**DATA, **named}.items() if value is not None}


# ---------------------------------------------------------------------------------------------------------------- reading


def test_all_keys_are_read() -> None:
    assert trusted(DATA, NOTHING) == TRUST


def test_several_authorities_and_names_may_hold_during_a_rotation() -> None:
    data = changed(requestheader_client_ca_file=TWO + THREE, requestheader_allowed_names='["a", "b"]')
    found = trusted(data, TRUST)
    assert found.proxy_ca == (TWO + THREE).encode()
    assert found.names is not None
    assert found.names.allowed_names == ("a", "b")


@pytest.mark.parametrize("text", [None, "", "null", "[]"])
def test_a_list_may_be_empty(text: str | None) -> None:
    found = trusted(changed(requestheader_allowed_names=text, requestheader_uid_headers=text), TRUST)
    assert found.names is not None
    assert (found.names.allowed_names, found.names.uid_headers) == ((), ())


def test_the_client_ca_may_stand_alone_and_the_front_proxy_too() -> None:
    assert trusted({"client-ca-file": ONE}, NOTHING) == ClusterTrust(ONE.encode(), None, None)
    assert trusted(changed(client_ca_file=None), NOTHING) == ClusterTrust(None, TWO.encode(), NAMES)


@pytest.mark.parametrize("data", [{}, {"other": "x"}, {"client-ca-file": "", "requestheader-client-ca-file": ""}])
def test_a_config_map_that_turns_empty_is_no_update(data: dict[str, str]) -> None:
    assert trusted(data, TRUST) == TRUST


@pytest.mark.parametrize(
    "text",
    ["nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ONE.replace("M", "!", 5), "größte"],
)
@pytest.mark.parametrize("key", ["client_ca_file", "requestheader_client_ca_file"])
def test_a_bundle_that_cannot_be_read_keeps_the_one_before(
    key: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert trusted(changed(**{key: text}), TRUST) == TRUST
    assert [vars(record)["key"] for record in caplog.records] == [key.replace("_", "-")]


@pytest.mark.parametrize("text", ["[", "X-Remote-User", '"x"', "{}", "[1]", '["a", null]', "['a']", '["a"]]'])
@pytest.mark.parametrize("key", [key for key in DATA if key.startswith("requestheader-") and "-ca-" not in key])
def test_unreadable_list_keeps_all_names_and_never_means_all_users(
    key: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = {**DATA, "requestheader-client-ca-file": THREE, key: text}
    assert trusted(bad, TRUST) == ClusterTrust(ONE.encode(), THREE.encode(), NAMES)
    # Without names from before there is no front proxy at all.
    assert trusted(bad, NOTHING) == ClusterTrust(ONE.encode(), None, None)
    assert [vars(record)["key"] for record in caplog.records] == ["requestheader-*"] * 2


@pytest.mark.parametrize("key", [key for key in DATA if "headers" in key])
def test_a_header_without_a_name_is_no_header(key: str) -> None:
    assert trusted({**DATA, key: '[" "]'}, TRUST) == TRUST
    assert trusted({**DATA, key: '[""]'}, NOTHING).names is None


def test_names_without_their_authority_change_nothing() -> None:
    data = changed(requestheader_client_ca_file=None, requestheader_allowed_names="[]")
    assert trusted(data, TRUST) == TRUST
    assert trusted(data, NOTHING) == ClusterTrust(ONE.encode(), None, None)


# ---------------------------------------------------------------------------------------------------------------- the start


async def test_it_is_read_once_at_the_start(plane: Plane, client: Client) -> None:
    plane.on(PATH, answer(config_map(DATA)))
    source = TrustSource(client)
    assert source.current == NOTHING
    await source.first(10)
    assert source.current == TRUST


async def test_missing_config_map_is_tolerated(plane: Plane, client: Client) -> None:
    source = TrustSource(client)
    await source.first(10)
    assert source.current == NOTHING
    assert len(plane.seen) == 1


async def test_no_right_to_read_it_is_an_error_with_the_cure(plane: Plane, client: Client) -> None:
    plane.on(PATH, status(403, 'configmaps "extension-apiserver-authentication" is forbidden'))
    with pytest.raises(ClusterError) as raised:
        await TrustSource(client).first(10)
    assert str(raised.value) == (
        "unable to get configmap/extension-apiserver-authentication in kube-system, usually fixed by 'kubectl create rolebinding"
        " -n kube-system ROLEBINDING_NAME --role=extension-apiserver-authentication-reader --serviceaccount=YOUR_NS:YOUR_SA':"
        ' configmaps "extension-apiserver-authentication" is forbidden'
    )
    assert len(plane.seen) == 1


@pytest.mark.parametrize("failure", [status(401, "Unauthorized"), answer(b"?")])
async def test_permanent_failure_is_an_error_at_once(plane: Plane, client: Client, failure: Reply) -> None:
    plane.on(PATH, failure)
    with pytest.raises(ClusterError, match="unable to get configmap") as raised:
        await TrustSource(client).first(10)
    assert not raised.value.transient
    assert len(plane.seen) == 1


async def test_a_server_that_is_not_up_yet_is_waited_for(plane: Plane, client: Client, clock: Clock) -> None:
    plane.on(PATH, status(503, "starting"), status(500, "starting"), status(429, "starting"), answer(config_map(DATA)))
    source = TrustSource(client)
    await source.first(10)
    assert source.current == TRUST
    assert clock.slept == [1, 1, 1]


async def test_it_is_waited_for_no_longer_than_was_said(plane: Plane, client: Client, clock: Clock) -> None:
    await plane.stop()
    with pytest.raises(ClusterError, match=r"unable to get configmap.*connection refused") as raised:
        await TrustSource(client).first(10)
    assert raised.value.transient
    assert clock.slept == [1] * 9
    await plane.start()


# ---------------------------------------------------------------------------------------------------------------- following


async def test_changes_are_followed_and_bad_ones_are_not(plane: Plane, client: Client) -> None:
    feed, source = Feed(), TrustSource(client)
    listed = {"metadata": {"resourceVersion": "5"}, "items": [config_map(DATA, 4)]}
    plane.on(COLLECTION, answer(listed), feed, hang)
    running = asyncio.create_task(source.run())
    await feed.opened.get()
    assert source.current == TRUST
    assert [seen.query["fieldSelector"] for seen in plane.asked(COLLECTION)] == [
        "metadata.name=extension-apiserver-authentication"
    ] * 2

    held = source.current
    bad: list[dict[str, str] | None] = [None, {}, DATA, changed(requestheader_allowed_names="[")]
    for version, data in enumerate(bad, 6):
        feed.event("MODIFIED", config_map(data, version))
    feed.event("DELETED", config_map(DATA, 20))
    feed.event("ADDED", config_map(changed(client_ca_file=THREE), 21))
    await until(lambda: source.current is not held)
    assert source.current == ClusterTrust(THREE.encode(), TWO.encode(), NAMES)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_late_answer_does_not_replace_what_is_followed(plane: Plane, client: Client) -> None:
    feed, source, go = Feed(), TrustSource(client), asyncio.Event()

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        await go.wait()
        return await answer(config_map(changed(client_ca_file=THREE), 1))(request)

    plane.on(PATH, late)
    plane.on(COLLECTION, answer({"metadata": {"resourceVersion": "5"}, "items": [config_map(DATA, 4)]}), feed, hang)
    first = asyncio.create_task(source.first(10))
    await until(lambda: plane.asked(PATH))
    running = asyncio.create_task(source.run())
    await feed.opened.get()
    go.set()
    await first
    assert source.current == TRUST
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_update_that_says_the_same_is_the_same_object(plane: Plane, client: Client) -> None:
    source = TrustSource(client)
    plane.on(PATH, answer(config_map(DATA)))
    await source.first(10)
    held = source.current
    await source.first(10)
    assert source.current is held
