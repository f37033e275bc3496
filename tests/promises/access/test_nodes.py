"""Rights of a node whose roles allow everything: it may use only its own objects."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.storage.store import Store
from tests.fixtures.authorities import Holder, issue
from tests.fixtures.composed import ADMIN, MERGE_PATCH, USERS, Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server

NODE, OTHER = (issue(f"system:node:{name}", USERS, groups=("system:nodes",)) for name in ("n1", "n2"))
NOBODYS = issue("system:node:", USERS, groups=("system:nodes",))
FALSE_NODE = issue("system:node:n1", USERS)
MASTER = issue("system:node:n1", USERS, groups=("system:nodes", "system:masters"))
RELATED = "no relationship found between node 'n1' and this object"
NARROWED = "can only list/watch/deletecollection resourceslices with nodeName field selector"
CREATED = "can only create ResourceSlice with the same NodeName as the requesting node"
DELETED = "can only delete ResourceSlice with the same NodeName as the requesting node"


class Everything:
    """Every role there is."""

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        return Decision(allowed=True)


@pytest_asyncio.fixture
async def server(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server, authorizer=Everything()) as made:
        for name, spec in (("mine", {"nodeName": "n1"}), ("theirs", {"nodeName": "n2"}), ("all", {"allNodes": True})):
            await create(made, name, **spec)
        yield made


def slices(server: Composed) -> str:
    return f"{server.v1}/resourceslices"


def resource_slice(name: str, **spec: Any) -> dict[str, Any]:
    pool = {"name": name or "pool", "generation": 1, "resourceSliceCount": 1}
    return {"metadata": {"name": name}, "spec": {"driver": "gpu.example.com", "pool": pool, **spec}}


async def create(server: Composed, name: str, *, holder: Holder | None = None, query: str = "", **spec: Any) -> Answer:
    return await server.ask("POST", slices(server) + query, resource_slice(name, **spec), peer=(holder or ADMIN).peer)


def refused(answer: Answer) -> str:
    assert (answer.status, answer.json["reason"]) == (403, "Forbidden"), answer.json
    message: str = answer.json["message"]
    return message


async def names(server: Composed) -> set[str]:
    return {item["metadata"]["name"] for item in (await server.ask("GET", slices(server))).json["items"]}


async def test_a_node_creates_slices_of_its_own_only(server: Composed) -> None:
    group = server.v1.split("/")[2]
    foreign: list[dict[str, Any]] = [{"nodeName": "n2"}, {"allNodes": True}, {"nodeName": "N1"}, {}]
    for query, spec in itertools.product(["?dryRun=All", ""], foreign):
        answer = await create(server, "new", holder=NODE, query=query, **spec)
        assert refused(answer) == f'resourceslices.{group} "new" is forbidden: {CREATED}'
    for query in ("?dryRun=All", ""):
        assert (await create(server, "new", holder=NODE, query=query, nodeName="n1")).status == 201


async def test_review_has_the_generated_name_as_far_as_it_is_known(server: Composed) -> None:
    group = server.v1.split("/")[2]
    sent = resource_slice("", allNodes=True) | {"metadata": {"generateName": "gpu-"}}
    answer = await server.ask("POST", slices(server), sent, peer=NODE.peer)
    assert refused(answer) == f'resourceslices.{group} "gpu-" is forbidden: {CREATED}'


async def test_a_node_neither_reads_nor_changes_what_is_not_its_own(server: Composed) -> None:
    for method, name in itertools.product(["GET", "PUT", "PATCH", "DELETE"], ["theirs", "all", "none"]):
        body = None if method in ("GET", "DELETE") else resource_slice(name, nodeName="n1")
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        answer = await server.ask(method, f"{slices(server)}/{name}", body, kind=kind, peer=NODE.peer)
        assert refused(answer).endswith(f": {RELATED}"), (method, name)
    assert await names(server) == {"mine", "theirs", "all"}


async def test_node_reads_changes_and_deletes_its_own_slices(server: Composed) -> None:
    path = f"{slices(server)}/mine"
    assert (await server.ask("GET", path, peer=NODE.peer)).status == 200
    devices = {"spec": {"devices": [{"name": "gpu-0"}]}}
    assert (await server.ask("PATCH", path, devices, kind=MERGE_PATCH, peer=NODE.peer)).status == 200
    given_away = await server.ask("PATCH", path, {"spec": {"nodeName": "n2"}}, kind=MERGE_PATCH, peer=NODE.peer)
    assert (given_away.status, given_away.json["details"]["causes"][0]["field"]) == (422, "spec.nodeName")
    owners = [{"apiVersion": "v1", "kind": "Node", "name": "n2", "uid": "u", "controller": True}]
    owned = await server.ask("PATCH", path, {"metadata": {"ownerReferences": owners}}, kind=MERGE_PATCH, peer=NODE.peer)
    assert owned.status == 200, "owners are nobody's to restrict"
    assert (await server.ask("DELETE", path, peer=NODE.peer)).status == 200
    assert await names(server) == {"theirs", "all"}


async def test_selectors_of_a_node_must_select_its_own_slices(server: Composed) -> None:
    of_others = ["", "spec.nodeName=n2", "spec.nodeName!=n1", "spec.driver=x", "metadata.name=mine", "spec.nodeName="]
    for method, query in (("GET", ""), ("GET", "watch=1&timeoutSeconds=1&"), ("DELETE", "")):
        for selector in of_others:
            path = f"{slices(server)}?{query}" + (f"fieldSelector={selector}" if selector else "")
            answer = await server.ask(method, path, peer=NODE.peer)
            assert refused(answer).endswith(f": {NARROWED}"), (method, query, selector)
    assert await names(server) == {"mine", "theirs", "all"}


async def test_it_lists_watches_and_deletes_its_own(server: Composed) -> None:
    for selector in ("spec.nodeName%3Dn1", "spec.nodeName%3D%3Dn1", "spec.driver%3Dgpu.example.com,spec.nodeName%3Dn1"):
        path = f"{slices(server)}?fieldSelector={selector}"
        listed = await server.ask("GET", path, peer=NODE.peer)
        assert [item["metadata"]["name"] for item in listed.json["items"]] == ["mine"]
    assert (await server.ask("GET", f"{path}&watch=1&timeoutSeconds=1", peer=NODE.peer)).status == 200
    assert (await server.ask("DELETE", path, peer=NODE.peer)).status == 200
    assert await names(server) == {"theirs", "all"}


async def test_a_collection_is_judged_object_by_object_too(server: Composed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check does not depend on the filter that let the request in."""
    monkeypatch.setattr("apiserver.filters.node_authorizer._is_narrowed", lambda *_: True)
    group = server.v1.split("/")[2]
    answer = await server.ask("DELETE", slices(server), peer=NODE.peer)
    assert refused(answer) == f'resourceslices.{group} "Unknown" is forbidden: {DELETED}'
    assert {"theirs", "all"} <= await names(server)


async def test_a_slice_that_this_memory_has_not_seen_yet_is_waited_for(
    server: Composed, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = server.stores[f"{server.v1.split('/')[2]}/resourceslices"]
    asked: list[Answer] = []
    barrier = Store.barrier

    async def behind(self: Store) -> Any:
        if self is store and not asked:
            asked.append(await create(server, "late", nodeName="n1"))
        return await barrier(self)

    monkeypatch.setattr(Store, "barrier", behind)
    assert (await server.ask("GET", f"{slices(server)}/late", peer=NODE.peer)).status == 200
    assert [answer.status for answer in asked] == [201]


async def test_node_user_without_a_node_name_writes_nothing(server: Composed) -> None:
    assert refused(await create(server, "new", holder=NOBODYS, nodeName="")).endswith(
        ': unknown node for user "system:node:"'
    )
    claim = {"metadata": {"name": "c"}, "spec": {}}
    answer = await server.ask("POST", server.claims, claim, peer=NOBODYS.peer)
    assert refused(answer).endswith(': could not determine node from user "system:node:"')


async def test_other_users_and_kinds_are_not_restricted(server: Composed) -> None:
    assert (await create(server, "new", holder=FALSE_NODE, nodeName="n2")).status == 201
    assert (await server.ask("GET", slices(server), peer=FALSE_NODE.peer)).status == 200
    device_class = {"metadata": {"name": "c"}, "spec": {}}
    assert (await server.ask("POST", server.classes, device_class, peer=NODE.peer)).status == 201
    assert (await server.ask("GET", server.claims, peer=NODE.peer)).status == 200


async def test_node_in_masters_reads_everything_and_is_restricted_in_writes(server: Composed) -> None:
    assert (await server.ask("GET", slices(server), peer=MASTER.peer)).status == 200
    assert refused(await create(server, "new", holder=MASTER, nodeName="n2")).endswith(f": {CREATED}")
    updated = await server.ask("PATCH", f"{slices(server)}/theirs", {}, kind=MERGE_PATCH, peer=MASTER.peer)
    assert refused(updated).endswith(": can only update ResourceSlice with the same NodeName as the requesting node")
    assert refused(await server.ask("DELETE", f"{slices(server)}/all", peer=MASTER.peer)).endswith(f": {DELETED}")


async def test_the_plugin_can_be_disabled(shared_server: Server) -> None:
    off = "--disable-admission-plugins=NodeRestriction"
    async with composed(shared_server, off, authorizer=Everything()) as server:
        assert (await create(server, "new", holder=NODE, nodeName="n2")).status == 201
        assert (await server.ask("GET", slices(server), peer=OTHER.peer)).status == 200
