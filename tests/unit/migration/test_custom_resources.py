"""Custom resources move into the store and out of it: all groups of the definitions, each object whole, in its stored version."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest_asyncio

from apiserver import apigroups
from apiserver.cluster.client import Client
from apiserver.cluster.errors import Refused
from apiserver.config import config
from apiserver.migration import sources
from apiserver.migration.exporting import Export
from apiserver.migration.importing import Import
from apiserver.migration.objects import Reader
from apiserver.storage.operations import loading
from apiserver.storage.operations.loading import Carried, Loading
from apiserver.watchcache.entry import split
from tests.fixtures.valkey import Server, install, patient

Object = dict[str, Any]
_NUMBERS = itertools.count()


def definition(group: str, plural: str, *, status: bool) -> Object:
    """Two versions: v1beta1 is stored and the older one in the order of versions; v1 knows less."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schemas = {"v1beta1": {"spec": free, "status": free}, "v1": {"status": free}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": plural.title(), "plural": plural},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == "v1beta1",
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": schema}},
                    **({"subresources": {"status": {}}} if status else {}),
                }
                for name, schema in schemas.items()
            ],
        },
    }


def made(group: str, plural: str, name: str = "a", **members: Any) -> Object:
    return {
        "apiVersion": f"{group}/v1beta1",
        "kind": plural.title(),
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "817",
            "generation": 7,
            "creationTimestamp": "2024-02-29T12:00:00Z",
            "deletionTimestamp": "2024-03-01T12:00:00Z",
            "deletionGracePeriodSeconds": 0,
            "finalizers": ["example.com/hold"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
            "managedFields": [
                {
                    "manager": "m",
                    "operation": "Update",
                    "apiVersion": f"{group}/v1beta1",
                    "time": "2024-02-29T12:00:01Z",
                    "fieldsType": "FieldsV1",
                    "fieldsV1": {"f:spec": {"f:n": {}}},
                }
            ],
        },
        "spec": {"n": 1, "x": 1.5, "none": None},
        "status": {"seen": True},
    } | members


class Plane:
    """A kube-apiserver that serves the definitions: objects by path. Writes are kept as they were sent, in order."""

    server = "https://plane"

    def __init__(self, groups: Mapping[str, tuple[str, ...]], objects: Mapping[str, Object]) -> None:
        self.groups, self.objects = groups, dict(objects)
        self.services: dict[str, str] = {}
        self.written: list[tuple[str, str, Object]] = []

    async def ask(self, method: str, path: str) -> Mapping[str, Any]:
        parts = path.split("/")
        if parts[2] == "apiregistration.k8s.io":
            service = self.services.get(parts[-1])
            return {"spec": {"service": {"namespace": "here", "name": service}} if service else {}}
        return {"resources": [{"name": plural, "verbs": ["get", "list"]} for plural in self.groups[parts[2]]]}

    async def fetch(self, method: str, path: str, *, content: bytes = b"", **_: Any) -> bytes:
        if method == "GET" and path in self.objects:
            return json.dumps(self.objects[path]).encode()
        if method == "GET" and path.count("/") == 4:
            group, version, plural = path.split("/")[2:]
            named = f"/apis/{group}/{version}/"
            items = [x for at, x in self.objects.items() if at.startswith(named) and f"/{plural}/" in at]
            return json.dumps({"metadata": {}, "items": items}).encode()
        if method == "GET":
            raise Refused("not found", code=404)
        sent = json.loads(content)
        self.written.append((method, path, sent))
        if method == "POST":
            sent = sent | {"metadata": sent["metadata"] | {"uid": "new"}}
            if path.endswith("/widgets"):
                del sent["status"]
        return json.dumps(sent).encode()


class Place:
    """Two groups of definitions in the store, and a kube-apiserver that serves them: widgets have a status subresource, gadgets none."""

    def __init__(self, folder: Path) -> None:
        number = next(_NUMBERS)
        self.groups = (f"a{number}.example.com", f"b{number}.example.com")
        self.widgets, self.gadgets = (f"/apis/{group}/v1beta1/namespaces/default" for group in self.groups)
        for group, plural, status in zip(self.groups, ("widgets", "gadgets"), (True, False), strict=True):
            (folder / f"{plural}.yaml").write_text(json.dumps(definition(group, plural, status=status)))
        settings = config.parse(["dev", f"--crds={folder}"], {})
        serving, definitions = settings.serving, apigroups.definitions(settings)
        assert definitions.load() == []
        self.kinds = apigroups.kinds(serving, custom=definitions.kinds)
        self.moved = [kind for kind in self.kinds.stored if kind.custom is not None]
        self.reader = Reader(self.kinds, apigroups.gates(serving, self.kinds))
        self.plane = Plane(
            {self.groups[0]: ("widgets",), self.groups[1]: ("gadgets",)},
            {
                f"{self.widgets}/widgets/a": made(self.groups[0], "widgets"),
                f"{self.gadgets}/gadgets/a": made(self.groups[1], "gadgets"),
            },
        )
        self.loading: Loading

    async def source(self) -> sources.Server:
        return await sources.Server.of(cast("Client", self.plane), self.kinds, self.moved)

    async def bring(self) -> tuple[list[str], bool]:
        return await Import(await self.source(), self.loading, self.reader, self.moved).run(dry_run=False)

    async def export(self) -> tuple[list[str], bool]:
        export = Export(await self.source(), self.loading, self.reader, self.moved, prune=False, dry_run=False)
        return await export.run()

    async def stored(self, name: str) -> dict[str, Object]:
        found = {key: value async for page in self.loading.values(name) for key, value in page}
        return {key: json.loads(split(value)[0]) for key, value in found.items()}


@pytest_asyncio.fixture
async def place(shared_server: Server, tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    names = [kind.storage_name for kind in place.moved]
    await install(shared_server, *names)
    async with loading.opened(patient(shared_server.url), names) as opened:
        place.loading = opened
        yield place


async def test_import_keeps_every_member_of_objects_of_all_groups(place: Place) -> None:
    lines, complete = await place.bring()

    assert complete, lines
    for group, plural in zip(place.groups, ("widgets", "gadgets"), strict=True):
        assert f"{plural}: 1 read through v1beta1, 1 imported, 0 renewed, 0 already there" in lines
        wanted = made(group, plural)
        del wanted["kind"], wanted["apiVersion"], wanted["metadata"]["resourceVersion"]
        assert await place.stored(f"{group}/{plural}") == {"default/a": wanted}


async def test_second_import_of_custom_resources_writes_nothing(place: Place) -> None:
    await place.bring()

    lines, complete = await place.bring()

    assert complete
    assert "widgets: 1 read through v1beta1, 0 imported, 0 renewed, 1 already there" in lines


async def test_import_is_refused_while_a_service_serves_the_stored_version(place: Place) -> None:
    place.plane.services[f"v1beta1.{place.groups[1]}"] = "sluice"

    lines, complete = await place.bring()

    assert not complete
    why = f"https://plane does not serve {place.groups[1]}/v1beta1 itself: v1beta1 is served by the Service here/sluice"
    assert f"refused: {place.groups[1]}/gadgets: {why}" in lines
    assert not await place.stored(f"{place.groups[0]}/widgets")


async def test_import_refuses_kinds_of_the_group_without_a_definition(place: Place) -> None:
    place.plane.groups = {**place.plane.groups, place.groups[0]: ("widgets", "strangers")}

    lines, complete = await place.bring()

    assert not complete
    where = f"strangers.{place.groups[0]}"
    assert f"refused: {where} is not known here: what of it is there would be out of sight" in lines


async def test_import_refuses_members_that_the_schema_does_not_know(place: Place) -> None:
    place.plane.objects[f"{place.widgets}/widgets/a"]["later"] = 1

    lines, complete = await place.bring()

    assert not complete
    [refused] = [line for line in lines if line.startswith("refused: ")]
    assert 'unknown field "later"' in refused


async def test_file_in_another_version_than_the_stored_one_is_refused(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "list.json"
    items = [made(place.groups[0], "widgets")]
    del items[0]["kind"], items[0]["apiVersion"]
    file.write_text(json.dumps({"kind": "WidgetsList", "apiVersion": f"{place.groups[0]}/v1", "items": items}))

    found = sources.Files([file], place.kinds, place.moved)

    assert found.refusals == [f"{file}: {place.groups[0]}/v1 Widgets is not in v1beta1, in which it is stored"]


async def test_export_leaves_equal_custom_resources_alone(place: Place) -> None:
    await place.bring()

    lines, complete = await place.export()

    assert complete, lines
    assert lines == [f"{plural}: 0 created, 0 updated, 1 there already" for plural in ("widgets", "gadgets")]
    assert place.plane.written == []


async def test_export_refuses_an_object_that_is_not_in_the_stored_version(place: Place) -> None:
    name = f"{place.groups[0]}/widgets"
    await place.bring()
    [(key, value)] = [item async for page in place.loading.values(name) for item in page]
    [held] = await place.loading.held(name, [key])
    assert held is not None
    assert split(value)[1] == b"\nv1beta1"
    await place.loading.put(name, [Carried(key, held.uid, split(value)[0] + b"\nv0", held.id)])

    lines, complete = await place.export()

    assert not complete
    group = place.groups[0]
    why = f"is stored in {group}/v0, not in {group}/v1beta1: update it here, which stores it in {group}/v1beta1"
    assert f"refused: widgets default/a: {why}" in lines


async def test_export_writes_a_changed_status_where_the_definition_has_it(place: Place) -> None:
    await place.bring()
    for path in (f"{place.widgets}/widgets/a", f"{place.gadgets}/gadgets/a"):
        place.plane.objects[path]["status"] = {"seen": False}

    lines, complete = await place.export()

    assert complete, lines
    assert [(method, path) for method, path, _ in place.plane.written] == [
        ("PUT", f"{place.widgets}/widgets/a/status"),
        ("PUT", f"{place.gadgets}/gadgets/a"),
    ]
    assert all(sent["status"] == {"seen": True} for _, _, sent in place.plane.written)


async def test_export_creates_a_missing_object_with_its_status(place: Place) -> None:
    await place.bring()
    place.plane.objects.clear()

    lines, complete = await place.export()

    assert complete, lines
    assert [line.partition(" of namespace ")[0] for line in lines if line.startswith("new uid: ")] == [
        "new uid: widgets a",
        "new uid: gadgets a",
    ]
    assert lines[-1].endswith(": new, was uid-a")
    assert [(method, path) for method, path, _ in place.plane.written if method == "POST"] == [
        ("POST", f"{place.widgets}/widgets"),
        ("POST", f"{place.gadgets}/gadgets"),
    ]
    assert ("PUT", f"{place.widgets}/widgets/a/status") in [(method, path) for method, path, _ in place.plane.written]
    assert [sent for method, _, sent in place.plane.written if method == "DELETE"] == [
        {"preconditions": {"uid": "new"}}
    ] * 2
    created = [sent for method, _, sent in place.plane.written if method == "POST"]
    assert all(sent["status"] == {"seen": True} and "uid" not in sent["metadata"] for sent in created)
