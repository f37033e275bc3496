"""Documents about the served kinds: the list of resources, the aggregated documents, OpenAPI."""

from __future__ import annotations

import time
from typing import Any

from apiserver.apimachinery.releases import V1_37, Release
from tests.promises.api.client import SECONDS, Client, Object
from tests.promises.api.target import VERSIONS

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
KINDS = {
    "deviceclasses": ("deviceclass", "DeviceClass", False),
    "resourceclaims": ("resourceclaim", "ResourceClaim", True),
    "resourceclaimtemplates": ("resourceclaimtemplate", "ResourceClaimTemplate", True),
    "resourceslices": ("resourceslice", "ResourceSlice", False),
}


def group_of(api: Client, document: Object) -> Object:
    """The target's group among those of an aggregated document."""
    (found,) = [group for group in document["items"] if group["metadata"]["name"] == api.group]
    group: Object = found
    return group


def documented(api: Client) -> Object:
    """The OpenAPI v3 document of the target's group; waits, for an aggregator fetches it after the group is served."""
    end = time.monotonic() + SECONDS
    while (where := api.get("/openapi/v3")["paths"].get(f"apis/{api.group}/v1")) is None:
        assert time.monotonic() < end, "no such document"
    return api.get(where["serverRelativeURL"])


def test_kinds_and_a_status_are_listed_with_their_verbs(api: Client) -> None:
    listed = api.get(api.v1)

    assert (listed["kind"], listed["apiVersion"], listed["groupVersion"]) == (
        "APIResourceList",
        "v1",
        f"{api.group}/v1",
    )
    told: list[Object] = [
        {name: value for name, value in resource.items() if name != "storageVersionHash"}
        for resource in listed["resources"]
        if resource["name"].partition("/")[0] in KINDS
    ]
    expected: list[Object] = [
        {"name": name, "singularName": singular, "kind": kind, "namespaced": namespaced, "verbs": VERBS}
        for name, (singular, kind, namespaced) in KINDS.items()
    ]
    status = {"name": "resourceclaims/status", "singularName": "", "kind": "ResourceClaim", "namespaced": True}
    expected.insert(2, {**status, "verbs": ["get", "patch", "update"]})
    assert told == expected


def test_a_group_names_its_versions_and_the_preferred_one(api: Client) -> None:
    versions = [{"groupVersion": f"{api.group}/{version}", "version": version} for version in VERSIONS]
    group = api.get(f"/apis/{api.group}")

    assert (group["kind"], group["name"]) == ("APIGroup", api.group)
    assert (group["versions"], group["preferredVersion"]) == (versions, versions[0])
    assert [other["versions"] for other in api.get("/apis")["groups"] if other["name"] == api.group] == [versions]


def test_aggregated_discovery_says_the_same_in_one_document(api: Client) -> None:
    reply = api.ask("GET", "/apis", headers={"Accept": f"{AGGREGATED},application/json"})

    assert reply.headers["Content-Type"] == AGGREGATED
    version, *older = group_of(api, reply.json)["versions"]
    found = [(told["version"], told["freshness"]) for told in (version, *older)]
    assert found == [(name, "Current") for name in VERSIONS]
    told = {resource["resource"]: resource for resource in version["resources"]}
    assert [name for name in told if name in KINDS] == list(KINDS)
    for name, (singular, kind, namespaced) in KINDS.items():
        assert told[name]["responseKind"]["kind"] == kind
        assert told[name]["scope"] == ("Namespaced" if namespaced else "Cluster")
        assert (told[name]["singularResource"], told[name]["verbs"]) == (singular, VERBS)
    (status,) = told["resourceclaims"]["subresources"]
    assert (status["subresource"], status["verbs"]) == ("status", ["get", "patch", "update"])


def test_discovery_is_not_sent_again_to_a_client_that_has_it(api: Client) -> None:
    wanted = {"Accept": AGGREGATED}
    first = api.ask("GET", "/apis", headers=wanted)

    again = api.ask("GET", "/apis", headers={**wanted, "If-None-Match": first.headers["ETag"]})

    assert (again.status, again.body) == (304, b"")
    assert api.ask("GET", "/apis", headers={**wanted, "If-None-Match": '"other"'}).status == 200


def test_openapi_describes_each_operation_with_its_action_and_kind(api: Client) -> None:
    document = documented(api)

    assert document["openapi"].startswith("3.0")
    paths: Object = document["paths"]
    for name, (_, kind, namespaced) in KINDS.items():
        collection = f"{api.v1}/namespaces/{{namespace}}/{name}" if namespaced else f"{api.v1}/{name}"
        actions = {
            collection: {"get": "list", "post": "post", "delete": "deletecollection"},
            f"{collection}/{{name}}": {"get": "get", "put": "put", "patch": "patch", "delete": "delete"},
        }
        for path, expected in actions.items():
            operations = {method: paths[path][method] for method in expected}
            assert {m: operation["x-kubernetes-action"] for m, operation in operations.items()} == expected
            identity = {"group": api.group, "version": "v1", "kind": kind}
            assert all(operation["x-kubernetes-group-version-kind"] == identity for operation in operations.values())
    assert f"{api.v1}/namespaces/{{namespace}}/resourceclaims/{{name}}/status" in paths
    assert f"{api.v1}/resourceclaims" in paths


OPTIONAL_SPEC = ("DeviceClass", "ResourceClaim", "ResourceClaimTemplate")


def test_openapi_says_which_fields_a_kind_requires(api: Client, release: Release) -> None:
    schemas: dict[str, Any] = documented(api)["components"]["schemas"]

    for _, kind, _ in KINDS.values():
        identity = {"group": api.group, "version": "v1", "kind": kind}
        (schema,) = [s for s in schemas.values() if identity in s.get("x-kubernetes-group-version-kind", [])]
        assert schema["properties"].keys() >= {"apiVersion", "kind", "metadata", "spec"}
        assert schema.get("required", []) == ([] if release >= V1_37 and kind in OPTIONAL_SPEC else ["spec"])
        assert schema["description"]
