"""Dependents in a server without a cluster: it collects them as kube-controller-manager does behind kube-apiserver."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from apiserver import app
from apiserver.admission.core.attributes import Attributes
from apiserver.audit.event import Event
from apiserver.audit.policy import Policy
from apiserver.audit.record import Auditor
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server, eventually

Object = dict[str, Any]
CLAIM = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
ABSENT = "11111111-1111-4111-8111-111111111111"


class Claims:
    """The claims of one namespace."""

    def __init__(self, server: Composed, namespace: str) -> None:
        self.server = server
        self.path = f"{server.v1}/namespaces/{namespace}/resourceclaims"

    async def create(self, name: str, *owners: Object, finalizers: Sequence[str] = ()) -> Object:
        """Answers with a reference to it."""
        metadata = {"name": name, "ownerReferences": owners, "finalizers": finalizers}
        answer = await self.server.ask("POST", self.path, {"metadata": metadata, "spec": CLAIM})
        assert answer.status == 201, answer.json
        api_version = f"{self.server.group}/v1"
        uid = answer.json["metadata"]["uid"]
        return {"apiVersion": api_version, "kind": "ResourceClaim", "name": name, "uid": uid}

    async def delete(self, name: str, policy: str) -> None:
        answer = await self.server.ask("DELETE", f"{self.path}/{name}", {"propagationPolicy": policy})
        assert answer.status == 200, answer.json

    async def patch(self, name: str, metadata: Mapping[str, Any]) -> None:
        answer = await self.server.ask("PATCH", f"{self.path}/{name}", {"metadata": metadata}, kind=MERGE_PATCH)
        assert answer.status == 200, answer.json

    async def all(self) -> dict[str, Object]:
        """Their metadata by name, once the controllers have nothing left to do."""
        control = self.server.app.control
        assert control is not None
        while True:
            await control.caught_up()
            if not control.collector.pending:
                break
            await eventually(lambda: not control.collector.pending)
        listed = (await self.server.ask("GET", self.path)).json["items"]
        return {item["metadata"]["name"]: item["metadata"] for item in listed}


def blocking(reference: Object) -> Object:
    return {**reference, "blockOwnerDeletion": True}


def owners(metadata: Object) -> list[str]:
    return [owner["name"] for owner in metadata.get("ownerReferences", [])]


@pytest.fixture
def claims(alone: Composed, request: pytest.FixtureRequest) -> Claims:
    return Claims(alone, "gc-" + request.node.originalname.replace("_", "-")[-50:].strip("-"))


async def test_deletion_that_orphans_removes_the_owner_from_its_dependents(claims: Claims) -> None:
    owner = await claims.create("owner")
    other = await claims.create("other")
    await claims.create("dependent", owner)
    await claims.create("shared", blocking(owner), other)

    await claims.delete("owner", "Orphan")

    left = await claims.all()
    assert {name: owners(metadata) for name, metadata in left.items()} == {
        "other": [],
        "dependent": [],
        "shared": ["other"],
    }


async def test_deletion_in_the_foreground_removes_dependents_first(claims: Claims) -> None:
    owner = await claims.create("owner")
    dependent = await claims.create("dependent", blocking(owner))
    await claims.create("grandchild", blocking(dependent))
    await claims.create("unblocking", owner)

    await claims.delete("owner", "Foreground")

    assert await claims.all() == {}


async def test_deletion_in_the_foreground_waits_for_a_dependent_with_a_finalizer(claims: Claims) -> None:
    owner = await claims.create("owner")
    await claims.create("dependent", blocking(owner), finalizers=["x.y/z"])

    await claims.delete("owner", "Foreground")

    left = await claims.all()
    assert left["owner"]["finalizers"] == ["foregroundDeletion"]
    assert left["dependent"]["deletionTimestamp"]
    await claims.patch("dependent", {"finalizers": None})
    assert await claims.all() == {}


async def test_foreground_deletion_does_not_wait_for_nonblocking_dependents(claims: Claims) -> None:
    owner = await claims.create("owner")
    await claims.create("dependent", owner, finalizers=["x.y/z"])

    await claims.delete("owner", "Foreground")

    left = await claims.all()
    assert list(left) == ["dependent"]
    assert left["dependent"]["deletionTimestamp"]


async def test_deletion_in_the_foreground_keeps_a_dependent_with_another_owner(claims: Claims) -> None:
    owner = await claims.create("owner")
    other = await claims.create("other")
    await claims.create("dependent", blocking(owner), other)

    await claims.delete("owner", "Foreground")

    left = await claims.all()
    assert {name: owners(metadata) for name, metadata in left.items()} == {"other": [], "dependent": ["other"]}


async def test_owners_in_a_circle_are_deleted_in_the_foreground(claims: Claims) -> None:
    first = await claims.create("first")
    second = await claims.create("second", blocking(first))
    await claims.patch("first", {"ownerReferences": [blocking(second)]})

    await claims.delete("first", "Foreground")

    assert await claims.all() == {}


async def test_deletion_in_the_background_is_followed_by_that_of_dependents(claims: Claims) -> None:
    owner = await claims.create("owner")
    other = await claims.create("other")
    dependent = await claims.create("dependent", owner)
    await claims.create("grandchild", dependent)
    await claims.create("shared", owner, other)

    await claims.delete("owner", "Background")

    left = await claims.all()
    assert {name: owners(metadata) for name, metadata in left.items()} == {"other": [], "shared": ["other"]}


async def test_dependent_with_the_finalizer_orphan_leaves_its_own_dependents(claims: Claims) -> None:
    owner = await claims.create("owner")
    dependent = await claims.create("dependent", owner, finalizers=["orphan"])
    await claims.create("grandchild", dependent)

    await claims.delete("owner", "Background")

    assert {name: owners(metadata) for name, metadata in (await claims.all()).items()} == {"grandchild": []}


Change = Callable[[Object], Object]


@pytest.mark.parametrize(
    "change",
    [
        lambda owner: {**owner, "uid": ABSENT},
        lambda owner: {**owner, "name": "elsewhere"},
        lambda owner: {**owner, "kind": "DeviceClass"},
    ],
    ids=["uid", "name", "kind"],
)
async def test_object_is_deleted_whose_owner_is_not_the_one_that_it_names(claims: Claims, change: Change) -> None:
    owner = await claims.create("owner")

    await claims.create("dependent", change(owner))

    assert list(await claims.all()) == ["owner"]


async def test_owner_in_another_namespace_does_not_exist(claims: Claims, alone: Composed) -> None:
    elsewhere = await Claims(alone, "gc-elsewhere").create("owner")

    await claims.create("dependent", elsewhere)

    assert await claims.all() == {}


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
async def test_object_with_an_owner_of_a_kind_that_is_not_served_is_left_alone(claims: Claims, policy: str) -> None:
    owner = await claims.create("owner")
    foreign = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ABSENT}
    await claims.create("dependent", foreign)
    await claims.create("shared", owner, foreign)

    await claims.delete("owner", policy)

    assert {name: owners(metadata) for name, metadata in (await claims.all()).items()} == {
        "dependent": ["p"],
        "shared": ["owner", "p"],
    }


async def test_object_of_the_cluster_may_own_objects_of_any_namespace(claims: Claims, alone: Composed) -> None:
    made = await alone.ask("POST", alone.classes, {"metadata": {"name": "class"}, "spec": {}})
    owner = {
        "apiVersion": f"{alone.group}/v1",
        "kind": "DeviceClass",
        "name": "class",
        "uid": made.json["metadata"]["uid"],
    }
    await claims.create("dependent", owner)
    assert list(await claims.all()) == ["dependent"]

    await alone.ask("DELETE", f"{alone.classes}/class")

    assert await claims.all() == {}


async def test_object_of_the_cluster_with_an_owner_in_a_namespace_is_left_alone(
    claims: Claims, alone: Composed
) -> None:
    owner = await claims.create("owner")
    made = await alone.ask(
        "POST", alone.classes, {"metadata": {"name": "class", "ownerReferences": [owner]}, "spec": {}}
    )
    assert made.status == 201

    await claims.delete("owner", "Background")

    await claims.all()
    assert (await alone.ask("GET", f"{alone.classes}/class")).status == 200


async def test_fields_that_the_collector_changes_get_no_other_manager(claims: Claims) -> None:
    """Upstream's collector writes as a manager of its own."""
    owner = await claims.create("owner")
    other = await claims.create("other")
    await claims.create("dependent", owner, other)

    await claims.delete("owner", "Orphan")

    managers = [entry["manager"] for entry in (await claims.all())["dependent"]["managedFields"]]
    assert "kube-controller-manager" not in managers, "it took fields away, and owns none"


async def test_collector_deletes_through_admission(shared_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str, str]] = []

    class Watching:
        async def validate(self, attributes: Attributes) -> None:
            seen.append((attributes.operation, attributes.name, attributes.user.name))

    monkeypatch.setattr(app, "admission", lambda *_, **__: [Watching()])
    async with composed(shared_server, alone=True) as server:
        claims = Claims(server, "gc-admission")
        owner = await claims.create("owner")
        await claims.create("dependent", owner)

        await claims.delete("owner", "Background")

        assert await claims.all() == {}
    assert ("DELETE", "dependent", "system:serviceaccount:kube-system:generic-garbage-collector") in seen


async def test_collection_goes_on_where_the_process_before_ended(shared_server: Server) -> None:
    group = "restarted.example.com"
    async with composed(shared_server, "--group", group) as without:
        before = Claims(without, "gc-restart")
        before.server.group = group
        before.path = before.path.replace(without.v1, f"/apis/{group}/v1")
        owner = await before.create("owner", finalizers=["x.y/z"])
        await before.create("dependent", blocking(owner))
        orphaned = await before.create("orphaned")
        await before.create("orphan", orphaned)
        await before.delete("owner", "Foreground")
        await before.delete("orphaned", "Orphan")
        await before.create("lost", {**owner, "uid": ABSENT})

    async with composed(shared_server, "--group", group, alone=True) as after:
        claims = Claims(after, "gc-restart")
        claims.path = before.path

        left = await claims.all()

        assert {name: owners(metadata) for name, metadata in left.items()} == {"owner": [], "orphan": []}
        assert left["owner"]["finalizers"] == ["x.y/z"]


class Kept:
    """A backend that keeps events as they are written."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    async def process(self, events: Sequence[Event]) -> bool:
        self.events += [json.loads(b"".join(event.line())) for event in events]
        return True

    def start(self) -> None:
        return None

    async def stop(self) -> None:
        return None


async def test_writes_of_the_collector_are_recorded(shared_server: Server) -> None:
    kept, clock = Kept(), itertools.count(1_700_000_000_000_000)
    auditor = Auditor(Policy({"rules": [{"level": "Metadata"}]}), kept, now=lambda: next(clock))
    async with composed(shared_server, alone=True, auditor=auditor) as server:
        claims = Claims(server, "gc-audit")
        owner = await claims.create("owner")
        await claims.create("dependent", owner)

        await claims.delete("owner", "Background")

        assert await claims.all() == {}
    collector = "system:serviceaccount:kube-system:generic-garbage-collector"
    recorded = [event for event in kept.events if event["user"]["username"] == collector]
    assert [(event["stage"], event["verb"], event["objectRef"]["name"]) for event in recorded] == [
        ("RequestReceived", "delete", "dependent"),
        ("ResponseComplete", "delete", "dependent"),
    ]
    assert recorded[-1]["requestURI"] == f"{claims.path}/dependent"
    assert recorded[-1]["responseStatus"]["code"] == 200
