"""Clients that hold a copy: client-go's informers, kubernetes_asyncio, and a watch that nobody speaks on for minutes."""

from __future__ import annotations

import asyncio
import itertools
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch

from tests.e2e import objects
from tests.e2e.controlplane.client_go import Informers
from tests.e2e.controlplane.connection import Connection, Stream
from tests.e2e.controlplane.external import Cluster

CLASSES = f"{objects.V1}/deviceclasses"
MERGE = {"Content-Type": "application/merge-patch+json"}
_NUMBERS = itertools.count()


@pytest.fixture
def name() -> str:
    return f"inf-{os.getpid()}-{next(_NUMBERS)}"


@pytest.fixture(params=["dynamic", "metadata"])
def informers(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: pathlib.Path) -> Iterator[Informers]:
    """Three, of whole objects (controllers) and of metadata alone (the garbage collector)."""
    resource = f"deviceclasses.v1.{objects.GROUP}"
    with Informers(
        cluster.admin, resource, count=3, metadata=request.param == "metadata", log=tmp_path / "informers.log"
    ) as running:
        yield running


def change(admin: Connection, method: str, path: str, body: Any = None, **headers: str) -> str:
    """The version that a write made."""
    reply = admin.ask(method, path, body, headers=headers)
    assert reply.status in {200, 201}, reply.text
    version: str = reply.json["metadata"]["resourceVersion"]
    return version


def test_informers_of_client_go_see_every_change_once_and_in_order(
    cluster: Cluster, informers: Informers, name: str
) -> None:
    with cluster.connect() as admin:
        change(admin, "POST", CLASSES, objects.device_class(f"{name}-before"))
        informers.until_synced()
        created = change(admin, "POST", CLASSES, objects.device_class(name))
        patched = change(admin, "PATCH", f"{CLASSES}/{name}", {"metadata": {"labels": {"a": "b"}}}, **MERGE)
        admin.ask("DELETE", f"{CLASSES}/{name}")
        change(admin, "POST", CLASSES, objects.device_class(f"{name}-after"))

        def told(number: int) -> list[tuple[str, str, str]]:
            return [event for event in informers.events(number) if event[1].startswith(name)]

        informers.until(
            lambda: all(told(n)[-1:] and told(n)[-1][1] == f"{name}-after" for n in range(3)), "the last change is seen"
        )
        for number in range(3):
            mine = [event for event in told(number) if event[1] == name]
            assert mine[:2] == [("add", name, created), ("update", name, patched)]
            assert [event[0] for event in mine] == ["add", "update", "delete"]
        listed = admin.ask("GET", CLASSES).json["items"]
        assert (
            informers.stop() == [{item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}] * 3
        )
    assert len(informers.lists()) == 3


async def _api(cluster: Cluster) -> client.ApiClient:
    settings = client.Configuration()
    await config.load_kube_config(config_file=str(cluster.admin), client_configuration=settings)
    return client.ApiClient(settings)


async def test_kubernetes_asyncio_lists_and_watches_on_from_the_lists_version(cluster: Cluster, name: str) -> None:
    group, version, plural = objects.GROUP, "v1", "deviceclasses"
    async with await _api(cluster) as api:
        custom = client.CustomObjectsApi(api)
        await custom.create_cluster_custom_object(group, version, plural, objects.device_class(f"{name}-1"))
        listed = await custom.list_cluster_custom_object(group, version, plural)
        assert f"{name}-1" in [item["metadata"]["name"] for item in listed["items"]]
        await custom.create_cluster_custom_object(group, version, plural, objects.device_class(f"{name}-2"))
        await custom.delete_cluster_custom_object(group, version, plural, f"{name}-1")
        seen = []
        async with asyncio.timeout(120), watch.Watch() as watching:
            stream = watching.stream(
                custom.list_cluster_custom_object,
                group,
                version,
                plural,
                resource_version=listed["metadata"]["resourceVersion"],
                timeout_seconds=100,
            )
            async for event in stream:
                seen.append((event["type"], event["object"]["metadata"]["name"]))
                if len([1 for _, what in seen if what.startswith(name)]) == 2:
                    # Otherwise it is still taking leave of its server, as TLS wants it, when the test is over.
                    response: Any = watching.resp
                    response.connection.transport.abort()
                    break
    assert [event for event in seen if event[1].startswith(name)] == [("ADDED", f"{name}-2"), ("DELETED", f"{name}-1")]


def test_a_watch_can_be_continued_from_its_last_bookmark(cluster: Cluster, name: str) -> None:
    """Watches of one name: an event of another test could follow the last bookmark."""

    def watch(name: str, version: str, seconds: int) -> str:
        selected = f"fieldSelector=metadata.name%3D{name}&resourceVersion={version}"
        return f"{CLASSES}?watch=1&allowWatchBookmarks=true&timeoutSeconds={seconds}&{selected}"

    with cluster.connect() as admin:
        version = admin.ask("GET", f"{CLASSES}?limit=1").json["metadata"]["resourceVersion"]
        made = change(admin, "POST", CLASSES, objects.device_class(name))
        with Stream(admin, watch(name, version, 5)) as one:
            events = one.rest()
        last = events[-1]["object"]["metadata"]["resourceVersion"]
        assert [event["type"] for event in events] == ["ADDED", *["BOOKMARK"] * (len(events) - 1)]
        assert len(events) > 1
        assert int(last) >= int(made)
        later = change(admin, "POST", CLASSES, objects.device_class(f"{name}-later"))
        with Stream(admin, watch(f"{name}-later", last, 120)) as two:
            first = two.next()
        assert (first["type"], first["object"]["metadata"]["resourceVersion"]) == ("ADDED", later)
