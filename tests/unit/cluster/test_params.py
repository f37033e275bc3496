"""Objects that policies take as parameters: found by discovery, followed while a policy names their kind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver.cluster import params as module
from apiserver.cluster.client import Client
from apiserver.cluster.errors import ClusterError, NoSuchKind
from apiserver.cluster.params import NamedKind, ParamKind, Params
from tests.unit.cluster.plane import Clock, Feed, Plane, answer, hang, status, until

CORE = {
    "resources": [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "namespaces", "kind": "Namespace", "namespaced": False},
        {"name": "namespaces/status", "kind": "Other", "namespaced": False},
    ]
}
LIMITS = {"resources": [{"name": "limits", "kind": "Limit", "namespaced": False}]}


def objects(*items: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "5"}, "items": list(items)}


def thing(name: str, namespace: str = "", **rest: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": "6"} | ({"namespace": namespace} if namespace else {}),
        **rest,
    }


class Following:
    """Params that run, and which kinds are named."""

    def __init__(self, plane: Plane, client: Client) -> None:
        self.plane = plane
        self.named: set[NamedKind] = set()
        self.params = Params(client, lambda: self.named)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self.params.run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


@pytest_asyncio.fixture
async def following(plane: Plane, client: Client) -> AsyncIterator[Following]:
    plane.on("/api/v1", answer(CORE))
    plane.on("/apis/example.com/v1", answer(LIMITS))
    made = Following(plane, client)
    yield made
    await made.stop()


async def kind(following: Following, api_version: str, name: str) -> ParamKind:
    following.named.add((api_version, name))
    found = await following.params.kind(api_version, name)
    await found.synced()
    return found


async def test_objects_are_found_by_namespace_and_name_and_follow_the_server(following: Following) -> None:
    feed = Feed()
    following.plane.on(
        "/api/v1/configmaps", answer(objects(thing("a", "x", data={"k": "1"}), thing("a", "y"))), feed, hang
    )
    following.start()
    maps = await kind(following, "v1", "ConfigMap")
    assert maps.namespaced
    found = maps.get("x", "a")
    assert found is not None
    assert found["data"] == {"k": "1"}
    assert [o["metadata"]["namespace"] for o in maps.all("y")] == ["y"]
    assert maps.get("z", "a") is None
    assert not list(maps.all(""))
    assert not list(maps.all("z"))
    feed.event("ADDED", {"kind": "ConfigMap", "apiVersion": "v1", **thing("b", "y")})
    feed.event("DELETED", thing("a", "x"))
    await until(lambda: maps.get("x", "a") is None)
    assert sorted(o["metadata"]["name"] for o in maps.all("y")) == ["a", "b"]
    # Upstream's copies of kinds that it has types for know neither kind nor apiVersion, whether listed or watched.
    assert all("kind" not in o and "apiVersion" not in o for o in maps.all("y"))


async def test_object_that_the_copy_lacks_is_read_from_the_server(following: Following) -> None:
    plane = following.plane
    plane.on("/api/v1/configmaps", answer(objects()), hang)
    plane.on("/apis/example.com/v1/limits", answer(objects()), hang)
    maps, limits = await kind(following, "v1", "ConfigMap"), await kind(following, "example.com/v1", "Limit")
    where = "/api/v1/namespaces/x/configmaps/late"
    told = {"kind": "ConfigMap", "apiVersion": "v1", **thing("late", "x", data={"k": "1"})}
    plane.on(where, status(404, "not found"), status(403, "forbidden"), answer(told))
    assert [await maps.read("x", "late") for _ in range(3)] == [None, None, thing("late", "x", data={"k": "1"})]
    assert len(plane.asked(where)) == 3
    plane.on("/apis/example.com/v1/limits/late", answer(thing("late")))
    assert await limits.read("", "late") == {"apiVersion": "example.com/v1", "kind": "Limit", **thing("late")}
    await limits.close()
    await maps.close()


async def test_a_cluster_scoped_kind_of_another_server_has_no_namespaces(following: Following) -> None:
    following.plane.on("/apis/example.com/v1/limits", answer(objects(thing("small", most=3))), hang)
    limits = await kind(following, "example.com/v1", "Limit")
    assert not limits.namespaced
    expected = {"apiVersion": "example.com/v1", "kind": "Limit", **thing("small", most=3)}
    assert limits.get("", "small") == expected
    assert list(limits.all("anything")) == [expected]
    await limits.close()


@pytest.mark.parametrize(
    ("api_version", "name", "shown"),
    [
        ("v1", "Nope", "/v1, Kind=Nope"),
        ("v1", "Other", "/v1, Kind=Other"),
        ("example.com/v2", "Limit", "example.com/v2, Kind=Limit"),
        ("example.com/../v1", "Limit", "example.com/../v1, Kind=Limit"),
        ("broken.com/v1", "Limit", "broken.com/v1, Kind=Limit"),
    ],
)
async def test_kind_that_is_not_served_gets_upstreams_message(
    following: Following, api_version: str, name: str, shown: str
) -> None:
    following.plane.on("/apis/broken.com/v1", status(503, "the server is currently unable to handle the request"))
    with pytest.raises(NoSuchKind) as caught:
        await following.params.kind(api_version, name)
    assert str(caught.value) == f"failed to find resource referenced by paramKind: '{shown}'"


async def test_later_kind_is_found_and_a_missing_one_not_asked_for_each_time(
    following: Following, clock: Clock
) -> None:
    path = "/apis/late.com/v1"
    following.plane.on(path, status(404, "not yet"), answer(LIMITS))
    following.plane.on(f"{path}/limits", answer(objects()), hang)
    for _ in range(3):
        with pytest.raises(NoSuchKind):
            await following.params.kind("late.com/v1", "Limit")
    assert len(following.plane.asked(path)) == 1
    clock.now += 1
    found = await following.params.kind("late.com/v1", "limit")
    await found.close()
    assert len(following.plane.asked(path)) == 2


async def test_named_kinds_are_followed_early_and_dropped_with_their_last_policy(
    following: Following,
) -> None:
    feeds = [Feed(), Feed()]
    following.plane.on("/api/v1/configmaps", answer(objects()), feeds[0], answer(objects(thing("a", "x"))), feeds[1])
    following.named.add(("v1", "ConfigMap"))
    following.start()
    await feeds[0].opened.get()
    following.named.clear()
    await feeds[0].gone.wait()
    again = await kind(following, "v1", "ConfigMap")
    assert again.get("x", "a") is not None
    await following.stop()
    await feeds[1].gone.wait()


async def test_kind_that_cannot_be_listed_is_reported_as_not_synced(
    following: Following, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SYNC_SECONDS", 0.01)
    following.plane.on("/api/v1/configmaps", status(403, "no"))
    following.start()
    following.named.add(("v1", "ConfigMap"))
    found = await following.params.kind("v1", "ConfigMap")
    with pytest.raises(ClusterError) as caught:
        await found.synced()
    shown = "&ParamKind{APIVersion:v1,Kind:ConfigMap,}"
    assert str(caught.value) == f"paramKind kind `{shown}` not yet synced to use for admission"


async def test_no_more_kinds_are_followed_than_may_be(following: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KINDS", 1)
    following.plane.on("/api/v1/configmaps", answer(objects()), hang)
    following.start()
    await kind(following, "v1", "ConfigMap")
    with pytest.raises(ClusterError, match="more than 1 kinds of params"):
        await following.params.kind("v1", "Namespace")
