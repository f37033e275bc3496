"""Objects that another server has stored become those that this one would have stored, or stay where they are."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from apiserver import apigroups
from apiserver.config import config
from apiserver.kinds.served import Kinds
from apiserver.migration import sources
from apiserver.migration.importing import Import
from apiserver.migration.objects import MigrationError, Reader
from apiserver.schema.resource import Resource
from apiserver.storage.operations import loading
from apiserver.storage.operations.loading import Carried, Loading
from apiserver.storage.store import Write
from apiserver.watchcache.entry import IndexFunc, Key, Revision, split
from tests.fixtures.valkey import Open, Server, forget, install, patient

_NUMBERS = itertools.count()
Object = dict[str, Any]

CLAIM: Object = {
    "apiVersion": "GROUP/v1",
    "kind": "ResourceClaim",
    "metadata": {
        "name": "used",
        "namespace": "default",
        "uid": "11111111-2222-3333-4444-555555555555",
        "resourceVersion": "817",
        "creationTimestamp": "2024-02-29T12:00:00Z",
        "deletionTimestamp": "2024-03-01T12:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "finalizers": ["resource.kubernetes.io/delete-protection"],
        "managedFields": [
            {
                "manager": "kube-scheduler",
                "operation": "Update",
                "apiVersion": "GROUP/v1",
                "time": "2024-02-29T12:00:01Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:status": {"f:reservedFor": {}}},
                "subresource": "status",
            }
        ],
    },
    "spec": {
        "devices": {
            "requests": [
                {"name": "gpu", "exactly": {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}}
            ],
            "config": [
                {"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1.50, "big": 12345678901234567890123}}}
            ],
        }
    },
    "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "22222222-2222-3333-4444-555555555555"}]},
}


def kind(kinds: Kinds, plural: str) -> Resource:
    return next(found for found in kinds.stored if found.plural == plural)


class Place:
    """An empty group in the store, and a folder of what is to be imported."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.group = f"import{next(_NUMBERS)}.example.com"
        serving = config.parse(["dev", "--group", self.group], {}).serving
        self.kinds = apigroups.kinds(serving)
        self.reader = Reader(self.kinds, apigroups.gates(serving, self.kinds))
        self.names = [found.storage_name for found in self.kinds.stored]
        self.loading: Loading

    def put(self, text: str, *, name: str = "list.json") -> None:
        (self.folder / name).write_text(text.replace("GROUP", self.group))

    def files(self) -> sources.Files:
        return sources.Files([self.folder], self.kinds, self.kinds.stored)

    async def run(self, *, dry_run: bool = False) -> tuple[list[str], bool]:
        return await Import(self.files(), self.loading, self.reader, self.kinds.stored).run(dry_run=dry_run)

    async def stored(self, plural: str) -> dict[str, bytes]:
        return {key: value async for page in self.loading.values(f"{self.group}/{plural}") for key, value in page}


@pytest_asyncio.fixture
async def place(shared_server: Server, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(shared_server, tmp_path)
    await install(shared_server, *made.names)
    async with loading.opened(patient(shared_server.url), made.names) as opened:
        made.loading = opened
        yield made


def shown(value: bytes) -> Object:
    """The object that clients see of a stored value."""
    found: Object = json.loads(split(value)[0])
    return found


def told(lines: list[str], plural: str) -> str:
    [line] = [line for line in lines if line.startswith(f"{plural}: ")]
    return line


async def test_object_keeps_its_servers_answer(place: Place) -> None:
    place.put(json.dumps({"kind": "List", "apiVersion": "v1", "items": [CLAIM]}))

    lines, complete = await place.run()

    assert complete, lines
    assert told(lines, "resourceclaims").endswith("1 read through v1, 1 imported, 0 renewed, 0 already there")
    [(key, value)] = (await place.stored("resourceclaims")).items()
    assert key == "default/used"
    wanted = json.loads(json.dumps(CLAIM).replace("GROUP", place.group))
    del wanted["metadata"]["resourceVersion"], wanted["apiVersion"], wanted["kind"]
    assert shown(value) == wanted
    assert b"12345678901234567890123" in value


@pytest.mark.parametrize("alone", [True, False])
async def test_lone_surrogates_in_raw_json_are_imported(place: Place, *, alone: bool) -> None:
    said = json.dumps(CLAIM).replace("1.5", r'"\ud800"')
    place.put(said if alone else f'{{"kind":"List","apiVersion":"v1","items":[{said}]}}')

    lines, complete = await place.run()

    assert complete, lines
    [value] = (await place.stored("resourceclaims")).values()
    assert rb'"parameters":{"a":"\ud800","big":12345678901234567890123}' in value


async def test_a_dry_run_writes_nothing_and_says_what_would_be_written(place: Place) -> None:
    place.put(json.dumps(CLAIM))

    lines, complete = await place.run(dry_run=True)

    assert complete
    assert told(lines, "resourceclaims").endswith("1 to import, 0 renewed, 0 already there")
    assert not await place.stored("resourceclaims")


async def test_a_second_run_imports_nothing_and_one_that_was_cut_short_goes_on(place: Place) -> None:
    many = [with_name(CLAIM, f"c{n}") for n in range(600)]
    place.put(json.dumps({"kind": "ResourceClaimList", "apiVersion": "GROUP/v1", "items": many[:250]}))
    await place.run()
    place.put(json.dumps({"kind": "ResourceClaimList", "apiVersion": "GROUP/v1", "items": many}))

    lines, complete = await place.run()
    again, _ = await place.run()

    assert complete
    assert told(lines, "resourceclaims").endswith("600 read through v1, 350 imported, 0 renewed, 250 already there")
    assert told(again, "resourceclaims").endswith("600 read through v1, 0 imported, 0 renewed, 600 already there")


def with_name(obj: Object, name: str, **members: Any) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "name": name, "uid": f"uid-of-{name}"}, **members}


async def test_object_changed_at_its_source_is_updated_until_edited_here(place: Place, opening: Open) -> None:
    place.put(json.dumps(CLAIM))
    await place.run()
    place.put(json.dumps({**CLAIM, "status": {}}))

    lines, complete = await place.run()

    assert complete
    assert told(lines, "resourceclaims").endswith("0 imported, 1 renewed, 0 already there")
    [value] = (await place.stored("resourceclaims")).values()
    assert b"reservedFor" not in value.partition(b'"status"')[2]

    name = f"{place.group}/resourceclaims"
    store = (await opening(place.server, name, reader=IndexFunc(lambda _: ({}, ()))))[name]
    [entry] = [store.view().get(Key("default/used"))]
    assert entry is not None
    changed = value.replace(b'"name":"gpu"', b'"name":"npu"')
    await store.commit(
        Write(Key("default/used"), changed, Revision(entry.revision), CLAIM["metadata"]["uid"]), dry_run=False
    )
    place.put(json.dumps(CLAIM))

    lines, complete = await place.run()

    assert not complete
    assert "refused: resourceclaims used of namespace default: is here already, and was changed here since" in lines
    assert list((await place.stored("resourceclaims")).values()) == [changed]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {**CLAIM["spec"], "later": 1}}, 'unknown field "spec.later"'),
        ({"apiVersion": "GROUP/v7"}, "GROUP/v7 ResourceClaim is not known here"),
        ({"kind": "ResourcePoolStatusRequest"}, "GROUP/v1 ResourcePoolStatusRequest is not known here"),
        ({"metadata": {**CLAIM["metadata"], "uid": ""}}, "without metadata.uid it is no object of a server"),
        ({"metadata": {**CLAIM["metadata"], "labels": {"a b": ""}}}, "no write to it would be accepted: "),
        ({"spec": {"devices": {"requests": 7}}}, "cannot unmarshal number"),
    ],
)
async def test_import_that_would_lose_fields_is_refused_and_writes_nothing(
    place: Place, change: Object, why: str
) -> None:
    place.put(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [with_name(CLAIM, "fine"), {**CLAIM, **change}]})
    )

    lines, complete = await place.run()

    assert not complete
    assert "nothing was written" in lines
    [refused] = [line for line in lines if line.startswith("refused: ")]
    assert why.replace("GROUP", place.group) in refused
    assert not await place.stored("resourceclaims")


async def test_a_name_that_another_object_has_here_is_refused(place: Place) -> None:
    place.put(json.dumps(CLAIM))
    await place.run()
    place.put(json.dumps({**CLAIM, "metadata": {**CLAIM["metadata"], "uid": "another"}}))

    lines, complete = await place.run()

    assert not complete
    uid = CLAIM["metadata"]["uid"]
    named = "refused: resourceclaims used of namespace default"
    assert f"{named}: is here already, as another object (uid {uid}, not another)" in lines


async def test_an_older_version_is_stored_in_the_form_that_is_stored(place: Place) -> None:
    older = {**CLAIM, "apiVersion": "GROUP/v1beta1"}
    request = {"name": "gpu", "deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}
    older["spec"] = {"devices": {**CLAIM["spec"]["devices"], "requests": [request]}}
    place.put(json.dumps(older))

    lines, complete = await place.run()

    assert complete, lines
    assert "1 read through v1beta1, 1 imported" in told(lines, "resourceclaims")
    [value] = (await place.stored("resourceclaims")).values()
    assert shown(value)["spec"] == CLAIM["spec"]


async def test_a_file_that_holds_no_objects_is_reported(place: Place) -> None:
    place.put("kind: List")
    with pytest.raises(MigrationError, match=r"list\.json: "):
        place.files()


@pytest.mark.parametrize("listed", [True, False])
async def test_kubectl_output_without_managed_fields_is_refused(place: Place, listed: bool) -> None:
    bare = {**CLAIM, "metadata": {k: v for k, v in CLAIM["metadata"].items() if k != "managedFields"}}
    place.put(json.dumps({"kind": "List", "apiVersion": "v1", "items": [bare]} if listed else bare))

    lines, complete = await place.run()

    assert not complete
    [refused] = [line for line in lines if line.startswith("refused: ")]
    assert f"list.json: ResourceClaim used {sources.UNMANAGED}" in refused
    assert not await place.stored("resourceclaims")


async def test_object_without_managers_comes_with_the_list_of_its_server(place: Place) -> None:
    bare = {**CLAIM, "metadata": {k: v for k, v in CLAIM["metadata"].items() if k != "managedFields"}}
    place.put(json.dumps({"kind": "ResourceClaimList", "apiVersion": "GROUP/v1", "items": [bare]}))

    assert (await place.run())[1]


async def test_a_folder_without_lists_is_reported(place: Place) -> None:
    place.put(json.dumps(CLAIM), name="list.yaml")
    with pytest.raises(MigrationError, match=r"no file of this folder ends with \.json"):
        place.files()


async def test_a_log_that_changed_hands_is_taken_over(place: Place) -> None:
    name = place.names[0]
    page = [Carried(Key("a"), "u", b'{"metadata":{"name":"a","uid":"u"}}')]
    assert await place.loading.put(name, page) == []
    forget(place.server)

    assert await place.loading.put(name, [page[0]._replace(key=Key("b"))]) == []
    assert await place.loading.put(name, page) == []
    assert await place.loading.put(name, [page[0]._replace(value=b'{"metadata":{"name":"a","uid":"v"}}')]) == [Key("a")]
    assert await place.loading.count(name) == 2
