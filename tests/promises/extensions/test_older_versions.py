"""The four kinds in v1beta1 and v1beta2 beside v1: one object, three ways to write and read it, and a warning for the older two."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.fixtures.composed import JANE, MERGE_PATCH, Composed, composed
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import Server

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
JSON_PATCH = "application/json-patch+json"
OLDER = ("v1beta1", "v1beta2")
SINCE = {
    "v1beta1": "is deprecated in v1.35+, unavailable in v1.38+",
    "v1beta2": "is deprecated in v1.36+, unavailable in v1.39+",
}


@pytest_asyncio.fixture
async def served(shared_server: Server) -> AsyncIterator[Composed]:
    async with composed(shared_server, "--runtime-config", "api/beta=true") as running:
        yield running


def slices(served: Composed, version: str) -> str:
    return f"{served.v1.removesuffix('v1')}{version}/resourceslices"


def claims(served: Composed, version: str) -> str:
    return f"{served.v1.removesuffix('v1')}{version}/namespaces/ns/resourceclaims"


def content(answer: Answer) -> Any:
    """Without what differs between two versions of one object."""
    return {name: x for name, x in answer.json.items() if name != "apiVersion"}


FLAT = {
    "attributes": {"model": {"string": "x"}},
    "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}],
}
SPEC = {"driver": "d.example.com", "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}, "nodeName": "n"}
SLICES = {
    "v1": SPEC | {"devices": [{"name": "gpu", **FLAT}]},
    "v1beta2": SPEC | {"devices": [{"name": "gpu", **FLAT}]},
    "v1beta1": SPEC | {"devices": [{"name": "gpu", "basic": FLAT}]},
}
WANTED = {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}
ALTERNATIVE = {"name": "b", "firstAvailable": [{"name": "x", **WANTED}]}
CLAIMS = {
    "v1": {"devices": {"requests": [{"name": "a", "exactly": WANTED}, ALTERNATIVE]}},
    "v1beta2": {"devices": {"requests": [{"name": "a", "exactly": WANTED}, ALTERNATIVE]}},
    "v1beta1": {"devices": {"requests": [{"name": "a", **WANTED}, {"deviceClassName": "", **ALTERNATIVE}]}},
}


@pytest.mark.parametrize("written", ["v1", *OLDER])
async def test_what_is_written_in_one_version_is_read_in_each(served: Composed, written: str) -> None:
    for path, specs in ((slices, SLICES), (claims, CLAIMS)):
        made = await served.ask("POST", path(served, written), {"metadata": {"name": "one"}, "spec": specs[written]})
        assert made.status == 201, made.text
        for version in ("v1", *OLDER):
            read = await served.ask("GET", f"{path(served, version)}/one")
            assert read.json["apiVersion"] == f"{served.v1.split('/')[2]}/{version}"
            assert read.json["spec"] == specs[version]
            assert read.json["metadata"] == made.json["metadata"]
            (item,) = (await served.ask("GET", path(served, version))).json["items"]
            assert item == {name: x for name, x in read.json.items() if name not in ("kind", "apiVersion")}


async def test_v1beta2_is_the_bytes_of_v1_under_another_name(served: Composed) -> None:
    await served.ask("POST", slices(served, "v1beta1"), {"metadata": {"name": "one"}, "spec": SLICES["v1beta1"]})
    for path in ("", "/one"):
        new, old = [(await served.ask("GET", slices(served, v) + path)).body for v in ("v1", "v1beta2")]
        assert old == new.replace(b'/v1",', b'/v1beta2",', 1)


async def test_a_patch_sees_its_own_version(served: Composed) -> None:
    await served.ask("POST", slices(served, "v1"), {"metadata": {"name": "one"}, "spec": SLICES["v1"]})
    item = f"{slices(served, 'v1beta1')}/one"
    operations = [{"op": "test", "path": "/spec/devices/0/basic/taints/0/key", "value": "k"},
                  {"op": "remove", "path": "/spec/devices/0/basic/taints"}]  # fmt: skip
    patched = await served.ask("PATCH", item, operations, kind=JSON_PATCH)
    assert patched.json["spec"]["devices"] == [{"name": "gpu", "basic": {"attributes": FLAT["attributes"]}}]
    patch = {"spec": {"devices": [{"name": "new"}], "allNodes": False}}
    patched = await served.ask("PATCH", item, patch, kind=MERGE_PATCH)
    assert patched.json["spec"]["devices"] == [{"name": "new", "basic": {}}]
    assert "allNodes" not in patched.json["spec"]
    assert patched.json["metadata"]["generation"] == 3
    same = await served.ask("PUT", item, patched.json)
    assert same.json == patched.json, "nothing changed, so it has no new version"


async def test_errors_speak_of_the_shape_of_v1(served: Composed) -> None:
    requests = [{"name": "a", "deviceClassName": "c", "count": -1}, {"name": "b"}]
    spec = {"devices": {"requests": requests}}
    refused = await served.ask("POST", claims(served, "v1beta1"), {"metadata": {"name": "bad"}, "spec": spec})
    assert [cause["field"] for cause in refused.json["details"]["causes"]] == [
        "spec.devices.requests[0].exactly.count",
        "spec.devices.requests[1]",
    ]
    strange = {"metadata": {"name": "bad"}, "spec": SPEC | {"devices": [{"name": "d", "attributes": {}}]}}
    refused = await served.ask("POST", f"{slices(served, 'v1beta1')}?fieldValidation=Strict", strange)
    assert 'unknown field "spec.devices[0].attributes"' in refused.json["message"]
    other = await served.ask("GET", f"{slices(served, 'v1beta1')}?fieldSelector=spec.x%3Dy")
    group = served.v1.split("/")[2]
    assert other.json["message"] == f"field label not supported for {group}/v1beta1, Kind=ResourceSlice: spec.x"


@pytest.mark.parametrize("version", OLDER)
async def test_tables_and_watches_are_of_the_version_and_selectors_of_the_kind(served: Composed, version: str) -> None:
    await served.ask("POST", slices(served, "v1"), {"metadata": {"name": "one"}, "spec": SLICES["v1"]})
    path = f"{slices(served, version)}?fieldSelector=spec.nodeName%3Dn"
    table = (await served.ask("GET", f"{path}&includeObject=Object", Accept=TABLE)).json
    (row,) = table["rows"]
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert row["cells"][:4] == ["one", "n", "d.example.com", "p"]
    assert row["object"]["spec"] == SLICES[version]
    watched = await served.ask("GET", f"{path}&watch=1&timeoutSeconds=1&resourceVersion=0&sendInitialEvents=true"
                               "&resourceVersionMatch=NotOlderThan")  # fmt: skip
    first = json.loads(next(line for line in watched.text.splitlines() if line.startswith("{")))
    assert (first["type"], first["object"]["spec"]) == ("ADDED", SLICES[version])
    assert first["object"]["apiVersion"].endswith(f"/{version}")
    assert watched.headers["Warning"] == warning(served, version, "ResourceSlice")
    assert (await served.ask("GET", f"{slices(served, version)}?fieldSelector=spec.nodeName%3Dm")).json["items"] == []


def warning(served: Composed, version: str, kind: str) -> str:
    return f'299 - "{served.v1.split("/")[2]}/{version} {kind} {SINCE[version]}"'


@pytest.mark.parametrize("version", OLDER)
async def test_every_request_for_an_older_version_is_answered_with_a_warning(served: Composed, version: str) -> None:
    path = claims(served, version)
    body = {"metadata": {"name": "one"}, "spec": CLAIMS[version]}
    answers = [
        (await served.ask("POST", path, body), 201),
        (await served.ask("POST", path, body), 409),
        (await served.ask("POST", path, b"{"), 400),
        (await served.ask("POST", path, {"metadata": {"name": "A"}, "spec": CLAIMS[version]}), 422),
        (await served.ask("GET", path), 200),
        (await served.ask("GET", f"{path}/one"), 200),
        (await served.ask("GET", f"{path}/one/status"), 200),
        (await served.ask("GET", f"{path}/two"), 404),
        (await served.ask("PATCH", f"{path}/one", {}, kind=MERGE_PATCH), 200),
        (await served.ask("DELETE", f"{path}/one"), 200),
        (await served.ask("DELETE", path), 200),
    ]
    for answer, status in answers:
        assert answer.status == status, answer.text
        assert answer.headers["Warning"] == warning(served, version, "ResourceClaim")
    silent = [
        await served.ask("GET", claims(served, "v1")),
        await served.ask("GET", path.rpartition("/namespaces")[0]),
        await served.ask("GET", path, peer=JANE.peer),
        await served.ask("PUT", path, body),
        await served.ask("GET", f"{path}x"),
        await served.ask("PATCH", f"{path}/one", {}, kind="text/plain"),
    ]
    assert [answer.status for answer in silent] == [200, 200, 403, 405, 404, 415]
    assert not any("Warning" in answer.headers for answer in silent)
    group, removed = served.v1.split("/")[2], SINCE[version].rpartition("v")[2].removesuffix("+")
    told = (await served.ask("GET", "/metrics")).text
    for subresource in ("", "status"):
        labels = f'group="{group}",removed_release="{removed}",resource="resourceclaims",subresource="{subresource}"'
        assert f'apiserver_requested_deprecated_apis{{{labels},version="{version}"}} 1' in told


async def test_what_is_switched_off_is_not_there_and_still_known(shared_server: Server) -> None:
    async with composed(shared_server, "--runtime-config", "api/ga=false,api/beta=true") as running:
        group = running.v1.split("/")[2]
        assert (await running.ask("GET", running.classes)).status == 404
        assert [v["version"] for v in (await running.ask("GET", f"/apis/{group}")).json["versions"]] == list(
            OLDER[::-1]
        )
        beta = slices(running, "v1beta1")
        sent = {"apiVersion": f"{group}/v1", "kind": "ResourceSlice", "metadata": {"name": "one"}, "spec": SLICES["v1"]}
        refused = await running.ask("POST", beta, sent)
        assert refused.json["message"] == (
            f"the API version in the data ({group}/v1) does not match the expected API version ({group}/v1beta1)"
        )
        made = await running.ask("POST", beta, {"metadata": {"name": "one"}, "spec": SLICES["v1beta1"]})
        assert (made.status, made.json["spec"]) == (201, SLICES["v1beta1"])
