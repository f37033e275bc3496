"""Objects that `sluice store export --prune` deletes, by name."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest
import pytest_asyncio

from apiserver import apigroups
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.cluster.errors import Refused
from apiserver.config import config
from apiserver.kinds.served import Kinds
from apiserver.migration.exporting import Export
from apiserver.migration.objects import Item, Reader
from apiserver.migration.sources import Server as Source
from apiserver.schema.resource import Resource
from apiserver.storage.operations import loading
from apiserver.storage.operations.loading import ABSENT, Carried, Loading
from tests.fixtures.valkey import Server, install, patient

_NUMBERS = itertools.count()


def claim(group: str, name: str) -> dict[str, Any]:
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}}]
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "creationTimestamp": "2024-02-29T12:00:00Z",
        },
        "spec": {"devices": {"requests": requests}},
    }


class Target:
    """A kube-apiserver that has some claims, and refuses to delete those whose name begins with `held`."""

    server = "https://plane"

    def __init__(self, kinds: Kinds, group: str, *names: str) -> None:
        self.client = self
        self.left: int | None = None
        self.deleted: list[str] = []
        self._kinds, self._group, self._names = kinds, group, names

    def version(self, kind: Resource) -> Resource | None:
        return kind

    async def pages(self, kind: Resource) -> AsyncIterator[list[Item]]:
        if kind.plural == "resourceclaims":
            yield [Item(kind, json.dumps(claim(self._group, name)).encode()) for name in self._names]

    async def fetch(self, method: str, path: str, **_: Mapping[str, str] | bytes) -> bytes:
        assert method == "DELETE"
        name = path.rpartition("/")[2]
        if name.startswith("held"):
            raise Refused("nobody may", code=403)
        self.deleted.append(name)
        return b"{}"


class Recorder(Target):
    """A kube-apiserver without objects that serves each kind in at most one version, and keeps what is created."""

    def __init__(self, kinds: Kinds, group: str, version: str) -> None:
        super().__init__(kinds, group)
        self.created: list[tuple[str, dict[str, Any]]] = []
        self._version = version

    def version(self, kind: Resource) -> Resource | None:
        known = (r for r in self._kinds.known if r.storage_name == kind.storage_name and r.version == self._version)
        return next(known, None)

    async def fetch(self, method: str, path: str, **sent: Any) -> bytes:
        if method == "GET":
            raise Refused("not found", code=404)
        assert method == "POST"
        self.created.append((path, json.loads(sent["content"])))
        return cast("bytes", sent["content"])


class Place:
    """An empty group in the store."""

    def __init__(self, release: Release) -> None:
        self.group = f"export{next(_NUMBERS)}.example.com"
        emulated = f"--emulated-version={release.major}.{release.minor}"
        serving = config.parse(["dev", "--group", self.group, emulated], {}).serving
        self.kinds = apigroups.kinds(serving)
        self.reader = Reader(self.kinds, apigroups.gates(serving, self.kinds))
        self.names = [found.storage_name for found in self.kinds.stored]
        self.loading: Loading

    def target(self, *names: str) -> Target:
        return Target(self.kinds, self.group, *names)

    async def export(self, target: Target, *, prune: bool, dry_run: bool, only: str = "") -> tuple[list[str], bool]:
        """Export every kind, or `only` that one."""
        kinds = [kind for kind in self.kinds.stored if only in ("", kind.plural)]
        made = Export(cast("Source", target), self.loading, self.reader, kinds, prune=prune, dry_run=dry_run)
        return await made.run()


@pytest_asyncio.fixture
async def place(shared_server: Server, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """The group as it is in the release that the test names, otherwise in 1.37."""
    made = Place(getattr(request, "param", V1_37))
    await install(shared_server, *made.names)
    async with loading.opened(patient(shared_server.url), made.names) as opened:
        made.loading = opened
        yield made


async def test_a_dry_run_names_each_object_that_prune_would_delete(place: Place) -> None:
    target = place.target("a", "b")

    lines, complete = await place.export(target, prune=True, dry_run=True)

    assert complete
    assert "resourceclaims: 0 to create, 0 to update, 0 there already, 2 to delete" in lines
    assert lines[-2:] == [f"to delete: resourceclaims {name} of namespace ml" for name in ("a", "b")]
    assert target.deleted == []


async def test_prune_names_what_it_deleted_and_what_it_could_not(place: Place) -> None:
    target = place.target("a", "held")

    lines, complete = await place.export(target, prune=True, dry_run=False)

    assert not complete
    assert "resourceclaims: 0 created, 0 updated, 0 there already, 1 deleted" in lines
    assert lines[-2:] == [
        "deleted: resourceclaims a of namespace ml",
        "refused: resourceclaims held of namespace ml: nobody may",
    ]
    assert target.deleted == ["a"]


@pytest.mark.parametrize("dry_run", [True, False])
async def test_without_prune_nothing_is_deleted_or_named(place: Place, *, dry_run: bool) -> None:
    target = place.target("a")

    lines, complete = await place.export(target, prune=False, dry_run=dry_run)

    assert complete
    assert [line for line in lines if "delete" in line] == [
        next(line for line in lines if line.endswith("1 only there (--prune deletes them)"))
    ]
    assert target.deleted == []


async def keep_rule(place: Place) -> None:
    """Store a DeviceTaintRule."""
    [kind] = (kind for kind in place.kinds.stored if kind.plural == "devicetaintrules")
    taint = {"key": "example.com/broken", "effect": "NoExecute", "timeAdded": "2024-02-29T12:00:00Z"}
    obj = {
        "metadata": {"name": "broken", "uid": "uid-broken", "creationTimestamp": "2024-02-29T12:00:00Z"},
        "spec": {"taint": taint},
    }
    raw = json.dumps({"apiVersion": kind.api_version, "kind": kind.kind, **obj}).encode()
    stored = await place.reader.stored(Item(kind, raw))
    await place.loading.put(kind.storage_name, [Carried(stored.key, stored.uid, stored.value, ABSENT)])


@pytest.mark.parametrize(
    ("place", "version"),
    [(V1_37, "v1"), (V1_37, "v1beta2"), (V1_36, "v1beta2"), (V1_36, "v1alpha3")],
    indirect=["place"],
)
async def test_a_device_taint_rule_is_exported_in_its_stored_or_a_newer_version(place: Place, version: str) -> None:
    await keep_rule(place)
    target = Recorder(place.kinds, place.group, version)

    lines, complete = await place.export(target, prune=False, dry_run=False, only="devicetaintrules")

    assert complete, lines
    assert "devicetaintrules: 1 created, 0 updated, 0 there already" in lines
    [(path, sent)] = target.created
    assert path == f"/apis/{place.group}/{version}/devicetaintrules"
    assert (sent["apiVersion"], sent["kind"]) == (f"{place.group}/{version}", "DeviceTaintRule")
    assert sent["spec"]["taint"]["key"] == "example.com/broken"


async def test_an_export_refuses_kinds_that_are_served_only_in_an_older_version(place: Place) -> None:
    await keep_rule(place)
    target = Recorder(place.kinds, place.group, "v1alpha3")

    lines, complete = await place.export(target, prune=False, dry_run=False, only="devicetaintrules")

    assert not complete
    assert f"refused: devicetaintrules: https://plane does not serve {place.group}/v1beta2 itself" in lines
    assert target.created == []
