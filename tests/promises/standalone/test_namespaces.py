"""The namespaces of a server without a cluster. `tests/e2e/test_first_minute.py` asks kube-apiserver the same by kubectl."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver import app
from apiserver.admission.core.attributes import Attributes
from apiserver.schema.resource import Object
from tests.fixtures.composed import JANE, MERGE_PATCH, Composed, composed
from tests.fixtures.valkey import Server, eventually

NAMESPACES = "/api/v1/namespaces"
CLAIM = {
    "metadata": {"name": "c"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def claims(server: Composed, namespace: str) -> str:
    return f"{server.v1}/namespaces/{namespace}/resourceclaims"


async def gone(server: Composed, path: str) -> None:
    """Returns when there is no object at a path any more."""
    control = server.app.control
    assert control is not None
    for _ in range(1000):
        if (await server.ask("GET", path)).status == 404:
            return
        await control.caught_up()
    raise AssertionError(f"{path} is still there")


async def test_system_namespaces_exist_from_the_start(alone: Composed) -> None:
    listed = (await alone.ask("GET", NAMESPACES)).json

    assert (listed["kind"], listed["apiVersion"]) == ("NamespaceList", "v1")
    assert {"default", "kube-system"} <= {item["metadata"]["name"] for item in listed["items"]}


async def test_created_namespace_is_active_and_labelled(alone: Composed) -> None:
    made = await alone.ask("POST", NAMESPACES, {"metadata": {"name": "ns-created"}, "status": {"phase": "Terminating"}})

    assert made.status == 201, made.json
    assert made.json["metadata"]["labels"] == {"kubernetes.io/metadata.name": "ns-created"}
    assert (made.json["spec"], made.json["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})
    again = await alone.ask("POST", NAMESPACES, {"metadata": {"name": "ns-created"}})
    assert (again.status, again.json["message"]) == (409, 'namespaces "ns-created" already exists')


async def test_finalizers_of_a_new_namespace_are_kept(alone: Composed) -> None:
    made = await alone.ask("POST", NAMESPACES, {"metadata": {"generateName": "ns-"}, "spec": {"finalizers": ["x.y/z"]}})

    assert made.json["spec"]["finalizers"] == ["x.y/z", "kubernetes"]
    assert made.json["metadata"]["labels"] == {"kubernetes.io/metadata.name": made.json["metadata"]["name"]}


async def test_name_of_a_namespace_is_a_label(alone: Composed) -> None:
    refused = await alone.ask("POST", NAMESPACES, {"metadata": {"name": "a.b"}})

    assert refused.status == 422
    assert 'metadata.name: Invalid value: "a.b"' in refused.json["message"]


async def test_update_keeps_phase_finalizers_and_the_label_of_the_name(alone: Composed) -> None:
    await alone.ask("POST", NAMESPACES, {"metadata": {"name": "ns-updated"}})
    change = {
        "metadata": {"labels": {"a": "b", "kubernetes.io/metadata.name": None}},
        "spec": {"finalizers": []},
        "status": {"phase": "Terminating"},
    }

    changed = (await alone.ask("PATCH", f"{NAMESPACES}/ns-updated", change, kind=MERGE_PATCH)).json

    assert changed["metadata"]["labels"] == {"a": "b", "kubernetes.io/metadata.name": "ns-updated"}
    assert (changed["spec"], changed["status"]) == ({"finalizers": ["kubernetes"]}, {"phase": "Active"})


async def test_namespace_exists_once_something_is_created_in_it(alone: Composed) -> None:
    missing = await alone.ask("GET", f"{NAMESPACES}/ns-named")
    assert (missing.status, missing.json["message"]) == (404, 'namespaces "ns-named" not found')
    assert (await alone.ask("GET", claims(alone, "ns-named"))).status == 200

    dry = await alone.ask("POST", f"{claims(alone, 'ns-named')}?dryRun=All", CLAIM)
    assert dry.status == 201
    assert (await alone.ask("GET", f"{NAMESPACES}/ns-named")).status == 404

    assert (await alone.ask("POST", claims(alone, "ns-named"), CLAIM)).status == 201
    found = await alone.ask("GET", f"{NAMESPACES}/ns-named")
    assert (found.status, found.json["status"]) == (200, {"phase": "Active"})


async def test_namespace_exists_once_something_is_applied_in_it(alone: Composed) -> None:
    applied = {"apiVersion": f"{alone.group}/v1", "kind": "ResourceClaim", **CLAIM}

    made = await alone.ask(
        "PATCH", f"{claims(alone, 'ns-applied')}/c?fieldManager=m", applied, kind="application/apply-patch+yaml"
    )

    assert made.status == 201, made.json
    assert (await alone.ask("GET", f"{NAMESPACES}/ns-applied")).status == 200


async def test_namespaces_of_objects_that_were_stored_before_exist(shared_server: Server) -> None:
    group = "before.example.com"
    path = f"/apis/{group}/v1/namespaces/ns-before/resourceclaims"
    async with composed(shared_server, "--group", group) as without:
        assert (await without.ask("GET", NAMESPACES)).status == 404
        assert (await without.ask("POST", path, CLAIM)).status == 201

    async with composed(shared_server, "--group", group, alone=True) as after:
        assert after.app.control is not None
        namespaces = after.app.control.namespaces
        await eventually(lambda: namespaces.stored("ns-before"))


async def test_deleted_namespace_takes_what_is_in_it_along(alone: Composed) -> None:
    for name in ("one", "two"):
        made = await alone.ask("POST", claims(alone, "ns-deleted"), {**CLAIM, "metadata": {"name": name}})
        assert made.status == 201

    deleted = await alone.ask("DELETE", f"{NAMESPACES}/ns-deleted")

    assert (deleted.status, deleted.json["status"]) == (200, {"phase": "Terminating"})
    assert deleted.json["metadata"]["deletionTimestamp"]
    await gone(alone, f"{NAMESPACES}/ns-deleted")
    assert (await alone.ask("GET", claims(alone, "ns-deleted"))).json["items"] == []


async def test_deleted_namespace_waits_for_finalizers_and_takes_nothing_new(alone: Composed) -> None:
    held = {**CLAIM, "metadata": {"name": "held", "finalizers": ["x.y/z"]}}
    assert (await alone.ask("POST", claims(alone, "ns-held"), held)).status == 201
    await alone.ask("DELETE", f"{NAMESPACES}/ns-held")

    refused = await alone.ask("POST", claims(alone, "ns-held"), CLAIM)

    assert refused.status == 403
    assert refused.json["message"].endswith(
        "is forbidden: unable to create new content in namespace ns-held because it is being terminated"
    )
    held_still = await alone.ask("GET", f"{claims(alone, 'ns-held')}/held")
    assert held_still.status == 200
    await alone.ask("PATCH", f"{claims(alone, 'ns-held')}/held", {"metadata": {"finalizers": None}}, kind=MERGE_PATCH)
    await gone(alone, f"{NAMESPACES}/ns-held")


async def test_system_namespaces_cannot_be_deleted(alone: Composed) -> None:
    refused = await alone.ask("DELETE", f"{NAMESPACES}/kube-system")

    text = 'namespaces "kube-system" is forbidden: this namespace may not be deleted'
    assert (refused.status, refused.json["message"]) == (403, text)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("DELETE", NAMESPACES, 405),
        ("GET", f"{NAMESPACES}/default/finalize", 405),
        ("GET", f"{NAMESPACES}/default/status", 200),
        ("GET", f"{NAMESPACES}/default/namespaces", 404),
        ("GET", f"{NAMESPACES}/default/other", 404),
        ("GET", f"{NAMESPACES}/default/pods", 404),
        ("GET", "/api/v1/pods", 404),
        ("GET", "/api/v2/namespaces", 404),
    ],
)
async def test_paths_of_namespaces_are_those_of_upstream(alone: Composed, method: str, path: str, status: int) -> None:
    assert (await alone.ask(method, path)).status == status


async def test_namespaces_are_listed_as_a_table_and_selected(alone: Composed) -> None:
    labelled = {"metadata": {"name": "ns-selected", "labels": {"team": "a"}}}
    await alone.ask("POST", NAMESPACES, labelled)

    table = (await alone.ask("GET", f"{NAMESPACES}?labelSelector=team%3Da", Accept=TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Status", "Age"]
    assert [row["cells"][:2] for row in table["rows"]] == [["ns-selected", "Active"]]

    for selector in ("metadata.name%3Dns-selected", "name%3Dns-selected"):
        selected = (await alone.ask("GET", f"{NAMESPACES}?fieldSelector={selector}")).json["items"]
        assert [item["metadata"]["name"] for item in selected] == ["ns-selected"]
    assert (await alone.ask("GET", f"{NAMESPACES}?fieldSelector=status.phase%3DTerminating")).json["items"] == []
    refused = await alone.ask("GET", f"{NAMESPACES}?fieldSelector=spec.x%3Dy")
    assert (refused.status, refused.json["message"]) == (400, "field label not supported: spec.x")


async def test_namespaces_are_watched(alone: Composed) -> None:
    version = (await alone.ask("GET", NAMESPACES)).json["metadata"]["resourceVersion"]
    await alone.ask("POST", claims(alone, "ns-watched"), CLAIM)

    watched = await alone.ask("GET", f"{NAMESPACES}?watch=1&resourceVersion={version}&timeoutSeconds=1")

    events = [json.loads(line) for line in watched.body.splitlines()]
    assert ("ADDED", "ns-watched") in [(event["type"], event["object"]["metadata"]["name"]) for event in events]


async def test_only_masters_may_see_namespaces(alone: Composed) -> None:
    refused = await alone.ask("GET", f"{NAMESPACES}/default", peer=JANE.peer)

    text = 'namespaces "default" is forbidden: User "jane" cannot get resource "namespaces" in API group "" in the namespace "default"'
    assert (refused.status, refused.json["message"]) == (403, text)


async def test_labels_of_a_namespace_are_those_that_admission_sees(
    shared_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Looking:
        def __init__(self, namespaces: Any) -> None:
            self.namespaces = namespaces
            self.seen: list[Any] = []

        async def admit(self, attributes: Attributes) -> Object | None:
            self.seen.append(self.namespaces.labels(attributes.namespace))
            return None

    made: list[Looking] = []

    def plugins(delegates: Any, *_: Any, **__: Any) -> list[Looking]:
        made.append(Looking(delegates.namespaces))
        return made

    monkeypatch.setattr(app, "admission", plugins)
    async with composed(shared_server, alone=True) as server:
        await server.ask("POST", NAMESPACES, {"metadata": {"name": "ns-labels", "labels": {"team": "a"}}})
        await server.ask("PATCH", f"{NAMESPACES}/ns-labels", {"metadata": {"labels": {"team": "b"}}}, kind=MERGE_PATCH)
        await server.ask("POST", claims(server, "ns-labels"), CLAIM)

    assert made[0].seen[-1] == {"team": "b", "kubernetes.io/metadata.name": "ns-labels"}
