"""Versions of its group that a kube-apiserver serves itself, and its objects page by page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from apiserver import apigroups
from apiserver.cluster.client import Client
from apiserver.cluster.errors import Refused
from apiserver.config import config
from apiserver.kinds.served import Kinds
from apiserver.migration import sources
from apiserver.migration.objects import MigrationError

GROUP = "resource.k8s.io"
KINDS = ("deviceclasses", "resourceslices", "resourceclaims", "resourceclaimtemplates")


class Plane:
    """Answers as kube-apiserver does whose APIServices these are: version → the Service, "" for itself."""

    server = "https://plane"

    def __init__(self, services: Mapping[str, str], *, plurals: tuple[str, ...] = KINDS) -> None:
        self.services, self.plurals = services, plurals
        self.asked: list[Mapping[str, str]] = []

    async def ask(self, method: str, path: str) -> Mapping[str, Any]:
        assert method == "GET"
        name = path.rpartition("/")[2]
        if path == f"/apis/{GROUP}/{name}":
            listable = [{"name": plural, "verbs": ["get", "list"]} for plural in self.plurals]
            return {"resources": [*listable, {"name": "resourceclaims/status", "verbs": ["get"]}]}
        assert path == f"/apis/apiregistration.k8s.io/v1/apiservices/{name}"
        service = self.services.get(name.partition(".")[0])
        if service is None:
            raise Refused("not found", code=404)
        return {"spec": {"service": {"namespace": "here", "name": service}} if service else {}}

    async def fetch(self, method: str, path: str, *, query: Mapping[str, str], **_: float) -> bytes:
        assert (method, path) == ("GET", f"/apis/{GROUP}/v1/resourceclaims")
        self.asked.append(dict(query))
        first = "continue" not in query
        metadata = {"continue": "more", "remainingItemCount": 1} if first else {}
        return json.dumps({"metadata": metadata, "items": [{"n": 1 if first else 2}]}).encode()


@pytest.fixture(scope="module")
def kinds() -> Kinds:
    return apigroups.kinds(config.parse(["dev", "--group", GROUP], {}).serving)


async def source(plane: Plane, kinds: Kinds) -> sources.Server:
    return await sources.Server.of(cast("Client", plane), kinds, [kind for kind in kinds.stored if kind.group == GROUP])


@pytest.mark.parametrize(
    ("services", "version"),
    [
        ({"v1": ""}, "v1"),
        ({"v1": "", "v1beta2": ""}, "v1"),
        ({"v1": "sluice", "v1beta2": "", "v1beta1": ""}, "v1beta2"),
    ],
)
async def test_objects_come_in_the_best_version_that_the_server_serves_itself(
    kinds: Kinds, services: Mapping[str, str], version: str
) -> None:
    found = await source(Plane(services), kinds)
    served = [kind for kind in kinds.stored if kind.plural in KINDS]
    assert [found.version(kind) for kind in served] == [kinds.at(GROUP, version, kind.plural) for kind in served]
    assert not found.refusals


async def test_a_server_that_leads_everything_elsewhere_has_no_objects(kinds: Kinds) -> None:
    with pytest.raises(MigrationError, match=r"itself that is known here: v1 is served by the Service here/sluice$"):
        await source(Plane({"v1": "sluice"}), kinds)


async def test_kind_that_would_disappear_is_reported_and_others_are_not(kinds: Kinds) -> None:
    with_another = (*KINDS, "devicethings")
    found = await source(Plane({"v1": ""}, plurals=with_another), kinds)
    assert found.refusals == [
        "devicethings.resource.k8s.io is not known here: what of it is there would be out of sight"
    ]
    assert not (await source(Plane({"v1beta1": ""}, plurals=with_another), kinds)).refusals


async def test_objects_are_read_in_pages(kinds: Kinds) -> None:
    plane = Plane({"v1": ""})
    found = await source(plane, kinds)
    [claims] = [kind for kind in kinds.stored if kind.plural == "resourceclaims"]
    assert [(item.raw, found.left) async for page in found.pages(claims) for item in page] == [
        (b'{"n": 1}', 1),
        (b'{"n": 2}', 0),
    ]
    assert plane.asked == [{"limit": "500"}, {"limit": "500", "continue": "more"}]
