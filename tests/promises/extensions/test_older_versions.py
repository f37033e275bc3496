"""Internals of v1beta1 and v1beta2 on the server: the same bytes where nothing differs, a metric, and an end to both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.fixtures.composed import JANE, Composed, composed
from tests.fixtures.valkey import Server

REMOVED = {"v1beta1": "1.38", "v1beta2": "1.39"}
TAINTS = [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]
POOL = {"name": "p", "generation": 0, "resourceSliceCount": 1}
SPEC: dict[str, Any] = {"driver": "d.example.com", "pool": POOL, "nodeName": "n"}
NEW, OLD = (
    SPEC | {"devices": [{"name": "d", "taints": TAINTS}]},
    SPEC | {"devices": [{"name": "d", "basic": {"taints": TAINTS}}]},
)


@pytest_asyncio.fixture
async def served(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server, "--runtime-config", "api/beta=true") as running:
        yield running


def group(served: Composed) -> str:
    return served.v1.split("/")[2]


def slices(served: Composed, version: str) -> str:
    return f"/apis/{group(served)}/{version}/resourceslices"


async def test_v1beta2_is_the_bytes_of_v1_under_another_name(served: Composed) -> None:
    await served.ask("POST", slices(served, "v1beta1"), {"metadata": {"name": "one"}, "spec": OLD})
    for path in ("", "/one"):
        new, old = [(await served.ask("GET", slices(served, version) + path)).body for version in ("v1", "v1beta2")]
        assert b'"taints"' in new
        assert old == new.replace(b'/v1",', b'/v1beta2",', 1)


async def test_rules_see_the_stored_form(served: Composed) -> None:
    requests = [{"name": "a", "deviceClassName": "c", "count": -1}, {"name": "b"}]
    body = {"metadata": {"name": "bad"}, "spec": {"devices": {"requests": requests}}}
    refused = await served.ask("POST", f"/apis/{group(served)}/v1beta1/namespaces/ns/resourceclaims", body)
    assert [cause["field"] for cause in refused.json["details"]["causes"]] == [
        "spec.devices.requests[0].exactly.count",
        "spec.devices.requests[1]",
    ]


@pytest.mark.parametrize("version", REMOVED)
async def test_deprecated_version_is_counted_once_for_each_resource(served: Composed, version: str) -> None:
    path = f"/apis/{group(served)}/{version}/namespaces/ns/resourceclaims"
    refused = await served.ask("GET", path, peer=JANE.peer)
    assert (refused.status, refused.headers.get("Warning")) == (403, None)
    unknown = f'apiserver_requested_deprecated_apis{{group="{group(served)}"'
    assert unknown not in (await served.ask("GET", "/metrics")).text

    for _ in range(2):
        await served.ask("GET", path)
        await served.ask("GET", f"{path}/one/status")

    told = (await served.ask("GET", "/metrics")).text
    for subresource in ("", "status"):
        labels = {
            "group": group(served),
            "removed_release": REMOVED[version],
            "resource": "resourceclaims",
            "subresource": subresource,
            "version": version,
        }
        text = ",".join(f'{name}="{value}"' for name, value in labels.items())
        assert f"apiserver_requested_deprecated_apis{{{text}}} 1.0\n" in told


async def test_disabled_version_is_not_served_and_still_known(shared_server: Server) -> None:
    async with composed(shared_server, "--runtime-config", "api/ga=false,api/beta=true") as running:
        beta, name = slices(running, "v1beta1"), group(running)
        assert (await running.ask("GET", running.classes)).status == 404
        listed = (await running.ask("GET", f"/apis/{name}")).json["versions"]
        assert [version["version"] for version in listed] == ["v1beta2", "v1beta1"]
        sent = {"apiVersion": f"{name}/v1", "kind": "ResourceSlice", "metadata": {"name": "one"}, "spec": NEW}
        refused = await running.ask("POST", beta, sent)
        assert refused.json["message"] == (
            f"the API version in the data ({name}/v1) does not match the expected API version ({name}/v1beta1)"
        )
        made = await running.ask("POST", beta, {"metadata": {"name": "one"}, "spec": OLD})
        assert (made.status, made.json["spec"]) == (201, OLD)
        assert (await running.ask("GET", f"{slices(running, 'v1beta2')}/one")).json["spec"] == NEW


async def test_one_resource_alone_can_be_served(shared_server: Server) -> None:
    """The feature gates are those of all kinds, whatever is served of them."""
    only = "api/all=false,{}/v1beta1/resourceslices=true".format("own.example.com")
    async with composed(shared_server, "--group", "own.example.com", "--runtime-config", only) as running:
        resources = (await running.ask("GET", "/apis/own.example.com/v1beta1")).json["resources"]
        assert [resource["name"] for resource in resources] == ["resourceslices"]
        made = await running.ask(
            "POST", "/apis/own.example.com/v1beta1/resourceslices", {"metadata": {"name": "a"}, "spec": OLD}
        )
        assert made.status == 201, made.text
