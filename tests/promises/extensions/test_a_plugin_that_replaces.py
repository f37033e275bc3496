"""An admission plugin is one file and one entry of the list in `app`: here one that replaces objects, and one that judges them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from apiserver import app
from apiserver.admission.core.attributes import Attributes
from apiserver.apimachinery import errors
from apiserver.apimachinery.options import CreateOptions, DeleteOptions, UpdateOptions
from apiserver.codecs.json import rawjson
from apiserver.schema.resource import Object
from tests.fixtures.composed import MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server

STATE = "state.example.com/seen"


class Stamp:
    """Replace every new object by another: annotated, and renamed or moved on request."""

    def __init__(self) -> None:
        self.metadata: Object = {}
        self.seen: list[Attributes] = []

    async def admit(self, attributes: Attributes) -> Object | None:
        self.seen.append(attributes)
        attributes.annotate(STATE, attributes.operation)
        if attributes.object is None:
            return None
        metadata = attributes.object["metadata"]
        notes = {**metadata.get("annotations", {}), STATE: attributes.operation.lower()}
        return {**attributes.object, "metadata": {**metadata, "annotations": notes, **self.metadata}}


class Judge:
    """Remembers what would be stored, and refuses what is marked."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Object | None]] = []

    async def validate(self, attributes: Attributes) -> None:
        obj = attributes.object if attributes.object is not None else attributes.old
        assert obj is not None
        self.seen.append((attributes.operation, attributes.name, attributes.object))
        if obj["metadata"].get("labels", {}).get("keep") == attributes.operation.lower():
            raise errors.forbidden(attributes.resource.group_resource, attributes.name, "kept")


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> tuple[Stamp, Judge]:
    """In the list that `app` composes."""
    stamp, judge = Stamp(), Judge()
    as_it_is = app.admission
    monkeypatch.setattr(app, "admission", lambda *of, **more: [*as_it_is(*of, **more), stamp, judge])
    return stamp, judge


@pytest_asyncio.fixture
async def server(shared_server: Server, plugins: tuple[Stamp, Judge]) -> AsyncIterator[Composed]:
    async with composed(shared_server) as made:
        yield made


def stamp_of(obj: Any) -> str:
    found: str = obj["metadata"]["annotations"][STATE]
    return found


async def test_result_of_a_plugin_is_stored_validated_and_answered(
    server: Composed, plugins: tuple[Stamp, Judge]
) -> None:
    stamp, judge = plugins
    path = f"{server.classes}/a"
    made = (await server.ask("POST", server.classes, {"metadata": {"name": "a"}, "spec": {}})).json
    assert stamp_of(made) == "create"
    assert (await server.ask("GET", path)).json == made
    put = (await server.ask("PUT", path, {"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {}})).json
    assert (stamp_of(put), put["metadata"]["labels"]) == ("update", {"l": "1"})
    patched = (await server.ask("PATCH", path, {"metadata": {"labels": {"l": "2"}}}, kind=MERGE_PATCH)).json
    assert (await server.ask("GET", path)).json == patched
    assert [(operation, name) for operation, name, _ in judge.seen] == [
        ("CREATE", "a"),
        ("UPDATE", "a"),
        ("UPDATE", "a"),
    ]
    shown = judge.seen[0][2]
    assert shown is not None
    assert (shown["kind"], shown["apiVersion"]) == ("DeviceClass", made["apiVersion"])
    assert (stamp_of(shown), shown["metadata"]["uid"]) == ("create", made["metadata"]["uid"])
    old = stamp.seen[-1].old
    assert old is not None
    assert (old["kind"], old["apiVersion"], old["metadata"]["resourceVersion"]) == (
        "DeviceClass",
        put["apiVersion"],
        put["metadata"]["resourceVersion"],
    )


async def test_plugins_see_everything_about_the_request(server: Composed, plugins: tuple[Stamp, Judge]) -> None:
    stamp, _ = plugins
    query = "?dryRun=All&fieldManager=me&fieldValidation=Strict"
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
    await server.ask("POST", server.claims + query, claim)
    await server.ask("POST", server.claims, claim)
    path = f"{server.claims}/c"
    await server.ask("PATCH", f"{path}/status{query}", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE_PATCH)
    await server.ask("DELETE", path + "?gracePeriodSeconds=3&propagationPolicy=Foreground", Impersonate_User="x")
    created, _, patched = stamp.seen
    assert created.options == CreateOptions(dry_run=True, field_manager="me", field_validation="Strict")
    assert (created.user.name, created.namespace, created.name, created.resource.kind) == (
        "admin",
        "ns",
        "c",
        "ResourceClaim",
    )
    assert patched.options == UpdateOptions(dry_run=True, field_manager="me", field_validation="Strict")
    assert (patched.operation, patched.subresource, patched.dry_run) == ("UPDATE", "status", True)
    await server.ask("DELETE", path + "?gracePeriodSeconds=3&propagationPolicy=Foreground")
    deleted = stamp.seen[-1]
    assert deleted.options == DeleteOptions(grace_period_seconds=3, propagation_policy="Foreground")
    assert (deleted.operation, deleted.name, deleted.object) == ("DELETE", "c", None)


async def test_deletions_pass_the_same_step_object_by_object(server: Composed, plugins: tuple[Stamp, Judge]) -> None:
    _, judge = plugins
    for name, labels in (("a", {}), ("b", {"keep": "delete"})):
        await server.ask("POST", server.classes, {"metadata": {"name": name, "labels": labels}, "spec": {}})
    judge.seen.clear()
    answer = await server.ask("DELETE", server.classes)
    assert answer.status == 403
    assert answer.json["message"].endswith(": kept")
    assert sorted(judge.seen, key=str) == [("DELETE", "", None)] * 2
    left = (await server.ask("GET", server.classes)).json["items"]
    assert [item["metadata"]["name"] for item in left] == ["b"]
    assert (await server.ask("DELETE", f"{server.classes}/b")).status == 403
    assert judge.seen[-1] == ("DELETE", "b", None)


async def test_generated_name_is_known_to_admission(server: Composed, plugins: tuple[Stamp, Judge]) -> None:
    stamp, judge = plugins
    made = (await server.ask("POST", server.classes, {"metadata": {"generateName": "g-"}, "spec": {}})).json
    assert stamp.seen[0] is not None
    assert judge.seen[0][1] == made["metadata"]["name"]
    assert made["metadata"]["name"].startswith("g-")


async def test_result_of_a_plugin_must_obey_the_rules(server: Composed, plugins: tuple[Stamp, Judge]) -> None:
    stamp, _ = plugins
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {}}}
    stamp.metadata = {"namespace": "elsewhere"}
    moved = await server.ask("POST", server.claims, claim)
    assert (moved.status, moved.json["message"]) == (
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    )
    stamp.metadata = {}
    assert (await server.ask("POST", server.claims, claim)).status == 201
    stamp.metadata = {"name": "other"}
    renamed = await server.ask("PUT", f"{server.claims}/c", claim)
    assert (renamed.status, renamed.json["details"]["causes"][0]["field"]) == (422, "metadata.name")
    stamp.metadata = {"labels": {"not valid": "x"}}
    assert (await server.ask("PUT", f"{server.claims}/c", claim)).status == 422


async def test_fields_that_a_plugin_changes_have_no_manager(server: Composed) -> None:
    path = f"{server.classes}/a?fieldManager=me"
    sent: Object = {"metadata": {"name": "a", "labels": {"k": "1"}}, "spec": {}}
    made = (await server.ask("POST", f"{server.classes}?fieldManager=me", sent)).json
    patch: Object = {"metadata": {"labels": {"l": "1"}}}
    for kind, made_by in ((MERGE_PATCH, 1), ("application/apply-patch+yaml", 2)):
        sent = {"apiVersion": made["apiVersion"], "kind": "DeviceClass", **patch}
        changed = (await server.ask("PATCH", path, sent, kind=kind)).json
        assert stamp_of(changed) == "update"
        fields = [entry["fieldsV1"] for entry in changed["metadata"]["managedFields"]]
        assert len(fields) == made_by
        assert all(list(x["f:metadata"]) == ["f:labels"] for x in fields)


async def test_managers_that_a_plugin_spoils_are_as_they_were(server: Composed, plugins: tuple[Stamp, Judge]) -> None:
    stamp, _ = plugins
    sent: Object = {"metadata": {"name": "a", "labels": {"l": "1"}}, "spec": {}}
    (entry,) = (await server.ask("POST", server.classes, sent)).json["metadata"]["managedFields"]
    entry_as_decoded = {**entry, "fieldsV1": rawjson.made(entry["fieldsV1"])}
    stamp.metadata = {"managedFields": [{**entry_as_decoded, "operation": "Steal"}]}
    spoiled = await server.ask("PUT", f"{server.classes}/a", sent)
    assert spoiled.json["metadata"]["managedFields"] == [entry]
    (warning,) = spoiled.headers.getall("Warning")
    assert (
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated"
        in warning
    )
    assert "please fix your requests: operation must be `Apply` or `Update`" in warning
    stamp.metadata = {"managedFields": [{**entry_as_decoded, "manager": "plugin"}]}
    taken = await server.ask("PUT", f"{server.classes}/a", sent)
    assert [x["manager"] for x in taken.json["metadata"]["managedFields"]] == ["plugin"]
    assert "Warning" not in taken.headers
