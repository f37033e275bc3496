"""A patch type is one entry of the table in `app`, and has its place in the write loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver import app
from apiserver.admission.core.attributes import Attributes
from apiserver.apimachinery.options import CreateOptions, UpdateOptions
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.fieldmanager.writer import Writer
from apiserver.patching import merge_patch
from apiserver.schema.resource import Object
from apiserver.verbs.patch_type import PatchType
from apiserver.wire import as_json
from apiserver.wire.patches import read_merge_patch
from tests.fixtures.composed import JANE, MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server

FILL = "application/vnd.example.fill+json"


def fill(patch: bytes, live: Object, _: Writer) -> bytes:
    """Set missing members, and leave the rest: the patch merged the other way round."""
    return merge_patch.apply(as_json.dumps(live), patch)


class Watching:
    """A plugin that remembers what was asked of admission."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, object]] = []

    async def validate(self, attributes: Attributes) -> None:
        self.seen.append((attributes.operation, attributes.options))


@pytest.fixture
def admitted(monkeypatch: pytest.MonkeyPatch) -> Watching:
    """The type in the table that `app` composes, and who watches."""
    watching = Watching()
    type_ = PatchType(media=FILL, read=read_merge_patch, apply=fill, creates=True)
    monkeypatch.setattr(app, "PATCH_TYPES", [*app.PATCH_TYPES, type_])
    monkeypatch.setattr(app, "admission", lambda *of, **more: [watching])
    return watching


@pytest_asyncio.fixture
async def server(shared_server: Server, admitted: Watching) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


def device_class(name: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, **metadata}, "spec": {}}


async def test_an_entry_of_the_table_is_routed_documented_and_named(server: Composed) -> None:
    path = f"{server.classes}/a"
    made = (await server.ask("POST", server.classes, device_class("a", labels={"l": "1"}))).json
    filled = await server.ask("PATCH", path, {"metadata": {"labels": {"l": "2", "m": "3"}}}, kind=FILL)
    assert (filled.status, filled.json["metadata"]["labels"]) == (200, {"l": "1", "m": "3"})
    assert filled.json["metadata"]["uid"] == made["metadata"]["uid"]
    assert (await server.ask("PATCH", path, {}, kind="application/x+json")).status == 415
    named = (await server.ask("PATCH", path, {}, kind=f"{FILL},x")).json["message"]
    assert named.endswith(f", {FILL}")
    document = (await server.ask("GET", f"/openapi/v3{server.v1}")).json
    consumed = document["paths"][f"{server.classes}/{{name}}"]["patch"]["requestBody"]["content"]
    assert list(consumed) == sorted([*(kind.media for kind in app.PATCH_TYPES), "application/apply-patch+yaml"])


async def test_a_patch_that_creates_does_so_where_nothing_is(server: Composed, admitted: Watching) -> None:
    path = f"{server.classes}/a"
    made = await server.ask("PATCH", f"{path}?fieldManager=me", device_class("a"), kind=FILL)
    assert (made.status, made.json["metadata"]["generation"]) == (201, 1)
    assert (await server.ask("GET", path)).json == made.json
    again = await server.ask("PATCH", path, device_class("a"), kind=FILL)
    assert (again.status, again.json) == (200, made.json)
    assert admitted.seen == [("CREATE", CreateOptions(field_manager="me")), ("UPDATE", UpdateOptions())]
    dry = await server.ask("PATCH", f"{server.classes}/b?dryRun=All", device_class("b"), kind=FILL)
    assert (dry.status, "resourceVersion" in dry.json["metadata"]) == (201, False)
    assert (await server.ask("GET", f"{server.classes}/b")).status == 404


async def test_other_patches_and_parts_of_objects_are_not_created(server: Composed) -> None:
    assert (await server.ask("PATCH", f"{server.classes}/a", device_class("a"), kind=MERGE_PATCH)).status == 404
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
    assert (await server.ask("PATCH", f"{server.claims}/c/status", claim, kind=FILL)).status == 404


async def test_object_is_created_at_the_path_and_no_other(server: Composed) -> None:
    path = f"{server.classes}/a"
    nameless = await server.ask("PATCH", path, {"spec": {}}, kind=FILL)
    assert (nameless.status, "name must be provided" in nameless.json["message"]) == (400, True)
    foreign = await server.ask("PATCH", path, device_class("a", uid="u-1"), kind=FILL)
    assert foreign.status == 409
    assert foreign.json["message"].endswith(
        '"a": uid mismatch: the provided object specified uid u-1, and no existing object was found'
    )
    versioned = await server.ask("PATCH", path, device_class("a", resourceVersion="77"), kind=FILL)
    assert versioned.status == 201


async def test_one_of_many_creating_patches_creates_and_all_are_applied(server: Composed) -> None:
    async def one(i: int) -> int:
        answer = await server.ask("PATCH", f"{server.classes}/a", device_class("a", labels={f"l{i}": "x"}), kind=FILL)
        return answer.status

    codes = await asyncio.gather(*map(one, range(20)))
    assert sorted(codes) == [200] * 19 + [201]
    labels = (await server.ask("GET", f"{server.classes}/a")).json["metadata"]["labels"]
    assert labels == {f"l{i}": "x" for i in range(20)}


class Patchers:
    """Everybody may patch, and nothing else."""

    async def authorize(self, user: User, info: RequestInfo) -> Decision:
        return Decision(allowed=info.verb == "patch", reason="" if info.verb == "patch" else "no role says so")


async def test_user_who_may_only_patch_creates_nothing(shared_server: Server, admitted: Watching) -> None:
    async with composed(shared_server, authorizer=Patchers()) as server:
        answer = await server.ask("PATCH", f"{server.classes}/a", device_class("a"), kind=FILL, peer=JANE.peer)
    assert (answer.status, "X-Content-Type-Options" in answer.headers) == (403, False)
    assert answer.json["message"].endswith(
        'User "jane" cannot create resource "deviceclasses" in API group '
        f'"{server.v1.split("/")[2]}" at the cluster scope: no role says so'
    )
    assert admitted.seen == []


async def test_fields_that_such_a_patch_changes_belong_to_its_sender(server: Composed) -> None:
    path = f"{server.classes}/a?fieldManager="
    await server.ask("PATCH", f"{path}one", device_class("a", labels={"l": "1"}), kind=FILL)
    filled = await server.ask("PATCH", f"{path}two", {"metadata": {"labels": {"m": "2"}}}, kind=FILL)
    fields = {entry["manager"]: entry["fieldsV1"] for entry in filled.json["metadata"]["managedFields"]}
    assert fields == {
        "one": {"f:metadata": {"f:labels": {".": {}, "f:l": {}}}},
        "two": {"f:metadata": {"f:labels": {"f:m": {}}}},
    }
