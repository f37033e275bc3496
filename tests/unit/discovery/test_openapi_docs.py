"""The OpenAPI documents and the answers to requests for them; paths and operations as recorded from kube-apiserver 1.36.3."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from apiserver.apimachinery.request import Query
from apiserver.discovery import openapi_docs, openapi_paths, openapi_protobuf
from apiserver.discovery.content import Reply
from apiserver.discovery.openapi_docs import OpenAPI
from apiserver.kinds.served import Kinds
from apiserver.schema import shapes
from apiserver.schema.resource import Resource, Subresource, Version
from apiserver.schema.types import Field, Presence, Quantity, String, Struct

PATCHES = ("application/json-patch+json", "application/merge-patch+json")
NOW = 1_700_000_000.0
META, OWN_META = "io.k8s.apimachinery.pkg.apis.meta.v1", "dev.sluice.apimachinery.pkg.apis.meta.v1"
LIST = [
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "shardSelector",
    "timeoutSeconds",
]
WATCH = sorted([*LIST, "allowWatchBookmarks", "watch"])
DELETE = [
    "dryRun",
    "gracePeriodSeconds",
    "ignoreStoreReadErrorWithClusterBreakingPotential",
    "orphanDependents",
    "propagationPolicy",
]
WRITE = ["dryRun", "fieldManager", "fieldValidation"]
PATCH = ["dryRun", "fieldManager", "fieldValidation", "force"]


def kind(name: str, plural: str, *, namespaced: bool, group: str, **more: Any) -> Resource:
    spec = Struct(
        name=f"{name}Spec",
        model="io.k8s.api.test.v1",
        doc="What is wanted.",
        fields=[Field(name="size", number=1, type=Quantity(), doc="How large.")],
    )
    shape = Struct(
        name=name,
        model="io.k8s.api.test.v1",
        doc=f"A {name}.",
        fields=[
            Field(name="metadata", number=1, type=shapes.OBJECT_META, presence=Presence.ALWAYS, doc="Metadata."),
            Field(name="spec", number=2, type=spec, presence=Presence.ALWAYS, doc="The specification."),
        ],
    )
    return Resource(
        kind=name, plural=plural, singular=name.lower(), namespaced=namespaced, shape=shape, group=group, **more
    )


def documents(group: str = "resource.k8s.io", **more: Any) -> OpenAPI:
    kinds = [
        kind("DeviceClass", "deviceclasses", namespaced=False, group=group),
        kind(
            "ResourceClaim",
            "resourceclaims",
            namespaced=True,
            group=group,
            subresources=[Subresource(name="status", owns=("status",))],
            has_status=True,
        ),
    ]
    return OpenAPI(Kinds(kinds), patch_types=PATCHES, version="v1.36.3", built=NOW, **more)


@pytest.fixture(scope="module")
def v3() -> dict[str, Any]:
    return documents().document_v3("apis/resource.k8s.io/v1")


@pytest.fixture(scope="module")
def v2() -> dict[str, Any]:
    return documents().document_v2()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            if method != "parameters":
                yield path, method, operation


def names(parameters: list[dict[str, Any]] | None) -> list[str]:
    return [p["name"] for p in parameters or []]


BASE = "/apis/resource.k8s.io/v1"
CLAIMS = f"{BASE}/namespaces/{{namespace}}/resourceclaims"
WATCHED_CLAIMS = f"{BASE}/watch/namespaces/{{namespace}}/resourceclaims"
TABLE: dict[str, dict[str, tuple[str, str | None, list[str]]]] = {
    f"{BASE}/": {"get": ("getResourceV1APIResources", None, [])},
    f"{BASE}/deviceclasses": {
        "get": ("listResourceV1DeviceClass", "list", WATCH),
        "post": ("createResourceV1DeviceClass", "post", WRITE),
        "delete": ("deleteResourceV1CollectionDeviceClass", "deletecollection", sorted(LIST + DELETE)),
    },
    f"{BASE}/deviceclasses/{{name}}": {
        "get": ("readResourceV1DeviceClass", "get", []),
        "put": ("replaceResourceV1DeviceClass", "put", WRITE),
        "patch": ("patchResourceV1DeviceClass", "patch", PATCH),
        "delete": ("deleteResourceV1DeviceClass", "delete", DELETE),
    },
    CLAIMS: {
        "get": ("listResourceV1NamespacedResourceClaim", "list", WATCH),
        "post": ("createResourceV1NamespacedResourceClaim", "post", WRITE),
        "delete": ("deleteResourceV1CollectionNamespacedResourceClaim", "deletecollection", sorted(LIST + DELETE)),
    },
    f"{CLAIMS}/{{name}}": {
        "get": ("readResourceV1NamespacedResourceClaim", "get", []),
        "put": ("replaceResourceV1NamespacedResourceClaim", "put", WRITE),
        "patch": ("patchResourceV1NamespacedResourceClaim", "patch", PATCH),
        "delete": ("deleteResourceV1NamespacedResourceClaim", "delete", DELETE),
    },
    f"{CLAIMS}/{{name}}/status": {
        "get": ("readResourceV1NamespacedResourceClaimStatus", "get", []),
        "put": ("replaceResourceV1NamespacedResourceClaimStatus", "put", WRITE),
        "patch": ("patchResourceV1NamespacedResourceClaimStatus", "patch", PATCH),
    },
    f"{BASE}/resourceclaims": {"get": ("listResourceV1ResourceClaimForAllNamespaces", "list", [])},
    f"{BASE}/watch/deviceclasses": {"get": ("watchResourceV1DeviceClassList", "watchlist", [])},
    f"{BASE}/watch/deviceclasses/{{name}}": {"get": ("watchResourceV1DeviceClass", "watch", [])},
    WATCHED_CLAIMS: {"get": ("watchResourceV1NamespacedResourceClaimList", "watchlist", [])},
    f"{WATCHED_CLAIMS}/{{name}}": {"get": ("watchResourceV1NamespacedResourceClaim", "watch", [])},
    f"{BASE}/watch/resourceclaims": {"get": ("watchResourceV1ResourceClaimListForAllNamespaces", "watchlist", [])},
}


def test_every_path_has_upstreams_operations(v3: dict[str, Any]) -> None:
    found: dict[str, dict[str, Any]] = {}
    for path, method, operation in operations(v3):
        entry = (operation["operationId"], operation.get("x-kubernetes-action"), names(operation.get("parameters")))
        found.setdefault(path, {})[method] = entry
    assert found == TABLE


def test_methods_stand_in_upstreams_order(v2: dict[str, Any], v3: dict[str, Any]) -> None:
    order = ["get", "put", "post", "delete", "patch", "parameters"]
    for document in (v2, v3):
        for path, item in document["paths"].items():
            assert list(item) == [member for member in order if member in item], path


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        (f"{BASE}/deviceclasses", ["pretty"]),
        (f"{BASE}/deviceclasses/{{name}}", ["name", "pretty"]),
        (CLAIMS, ["namespace", "pretty"]),
        (f"{CLAIMS}/{{name}}/status", ["name", "namespace", "pretty"]),
        (f"{BASE}/resourceclaims", sorted([*WATCH, "pretty"])),
        (f"{BASE}/watch/deviceclasses/{{name}}", sorted([*WATCH, "name", "pretty"])),
        (WATCHED_CLAIMS, sorted([*WATCH, "namespace", "pretty"])),
    ],
)
def test_a_path_has_the_parameters_of_all_its_operations(v3: dict[str, Any], path: str, shared: list[str]) -> None:
    assert names(v3["paths"][path]["parameters"]) == shared


def test_discovery_has_no_parameters(v3: dict[str, Any]) -> None:
    assert list(v3["paths"][f"{BASE}/"]) == ["get"]


def test_every_operation_names_the_kind(v3: dict[str, Any], v2: dict[str, Any]) -> None:
    for document in (v3, v2):
        for path, _, operation in operations(document):
            if (path.count("/") == 4 and path.endswith("/")) or path == "/apis/resource.k8s.io/":
                assert "x-kubernetes-group-version-kind" not in operation
                continue
            wanted = "DeviceClass" if "deviceclasses" in path else "ResourceClaim"
            named = {"group": "resource.k8s.io", "kind": wanted, "version": "v1"}
            assert operation["x-kubernetes-group-version-kind"] == named
            assert operation["tags"] == ["resource_v1"]


def test_operation_ids_are_unique(v3: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(v3)]
    assert len(set(ids)) == len(ids)


def test_kubectl_finds_its_parameters_at_every_patch(v3: dict[str, Any], v2: dict[str, Any]) -> None:
    for document in (v3, v2):
        patches = [operation for _, method, operation in operations(document) if method == "patch"]
        assert len(patches) == 3
        for patch in patches:
            inline = {p.get("name") for p in patch["parameters"]}
            assert {"fieldValidation", "dryRun"} <= inline


def test_only_the_served_patch_types_are_listed(v3: dict[str, Any], v2: dict[str, Any]) -> None:
    path = f"{BASE}/deviceclasses/{{name}}"
    body = v3["paths"][path]["patch"]["requestBody"]
    assert tuple(body["content"]) == PATCHES
    assert body["required"] is True
    assert v2["paths"][path]["patch"]["consumes"] == list(PATCHES)
    assert v2["paths"][path]["put"]["consumes"] == ["*/*"]


def test_bodies_and_answers_refer_to_the_right_definitions(v3: dict[str, Any]) -> None:
    def body(operation: dict[str, Any]) -> str:
        (content,) = operation["requestBody"]["content"].values()
        return str(content["schema"]["$ref"]).rsplit("/", 1)[-1]

    def answers(operation: dict[str, Any]) -> dict[str, set[str]]:
        return {
            code: {c["schema"]["$ref"].rsplit("/", 1)[-1] for c in answer["content"].values()}
            for code, answer in operation["responses"].items()
            if "content" in answer
        }

    item, collection = v3["paths"][f"{BASE}/deviceclasses/{{name}}"], v3["paths"][f"{BASE}/deviceclasses"]
    own, options = "io.k8s.api.test.v1.DeviceClass", f"{META}.DeleteOptions"
    assert (body(collection["post"]), body(item["put"])) == (own, own)
    assert (body(item["delete"]), body(collection["delete"])) == (options, options)
    assert "required" not in item["delete"]["requestBody"]
    assert answers(collection["post"]) == {"200": {own}, "201": {own}, "202": {own}}
    assert answers(item["put"]) == {"200": {own}, "201": {own}}
    assert answers(item["delete"]) == {"200": {own}, "202": {own}}
    assert answers(collection["get"]) == {"200": {f"{own}List"}}
    assert answers(collection["delete"]) == {"200": {f"{META}.Status"}}
    assert answers(v3["paths"][f"{BASE}/watch/deviceclasses"]["get"]) == {"200": {f"{META}.WatchEvent"}}
    for _, _, operation in operations(v3):
        assert operation["responses"]["401"] == {"description": "Unauthorized"}


def test_lists_and_watches_can_be_streams(v3: dict[str, Any]) -> None:
    for path, method, operation in operations(v3):
        media = list(operation["responses"]["200"]["content"])
        streams = method == "get" and operation.get("x-kubernetes-action") in ("list", "watch", "watchlist")
        assert media == sorted([*openapi_docs.MEDIA_TYPES, *(openapi_docs.STREAMS if streams else ())]), path


def test_shared_messages_are_known_in_the_core_and_in_this_version(v3: dict[str, Any]) -> None:
    schemas = v3["components"]["schemas"]
    for name in ("DeleteOptions", "WatchEvent"):
        assert schemas[f"{META}.{name}"]["x-kubernetes-group-version-kind"] == [
            {"group": "", "kind": name, "version": "v1"},
            {"group": "resource.k8s.io", "kind": name, "version": "v1"},
        ]
    assert schemas[f"{META}.Status"]["x-kubernetes-group-version-kind"] == [
        {"group": "", "kind": "Status", "version": "v1"}
    ]


def test_the_members_of_the_documents_are_in_upstreams_order(v3: dict[str, Any], v2: dict[str, Any]) -> None:
    assert list(v3) == ["openapi", "info", "paths", "components"]
    assert list(v2) == ["swagger", "info", "paths", "definitions", "parameters", "securityDefinitions", "security"]
    assert v3["components"]["securitySchemes"]["BearerToken"] == {
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    }
    assert v2["security"] == [{"BearerToken": []}]
    assert v3["info"] == {"title": "Kubernetes", "version": "v1.36.3"}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for v in value.values():
            yield from references(v)
    elif isinstance(value, list):
        for v in value:
            yield from references(v)


def test_every_reference_leads_somewhere_and_every_definition_is_used(v3: dict[str, Any], v2: dict[str, Any]) -> None:
    prefix = "#/components/schemas/"
    assert {r.removeprefix(prefix) for r in references(v3)} == set(v3["components"]["schemas"])
    found = set(references(v2))
    assert {r for r in found if r.startswith("#/definitions/")} == {f"#/definitions/{n}" for n in v2["definitions"]}
    assert {r for r in found if r.startswith("#/parameters/")} == {f"#/parameters/{n}" for n in v2["parameters"]}


def test_version_2_shares_what_operations_have_in_common(v2: dict[str, Any]) -> None:
    put = v2["paths"][f"{BASE}/deviceclasses/{{name}}"]["put"]["parameters"]
    assert [p.get("name") for p in put] == ["body", "dryRun", None, "fieldValidation"]
    shared = put[2]["$ref"].removeprefix("#/parameters/")
    assert shared.startswith("fieldManager-")
    assert v2["parameters"][shared]["name"] == "fieldManager"
    bodies = [p for p in v2["parameters"].values() if p["in"] == "body"]
    assert {b["schema"]["$ref"].rsplit(".", 1)[-1] for b in bodies} == {"DeleteOptions", "Patch"}


def test_version_2_has_every_path_of_version_3_and_the_group(v3: dict[str, Any], v2: dict[str, Any]) -> None:
    assert set(v2["paths"]) == set(v3["paths"]) | {"/apis/resource.k8s.io/"}
    for path, method, operation in operations(v3):
        assert v2["paths"][path][method]["operationId"] == operation["operationId"]


def test_the_group_has_a_document_of_its_own() -> None:
    document = documents().document_v3("apis/resource.k8s.io")
    assert list(document["paths"]) == ["/apis/resource.k8s.io/"]
    operation = document["paths"]["/apis/resource.k8s.io/"]["get"]
    assert (operation["operationId"], operation["tags"]) == ("getResourceAPIGroup", ["resource"])
    assert set(document["components"]["schemas"]) == {
        f"{META}.APIGroup",
        f"{META}.GroupVersionForDiscovery",
        f"{META}.ServerAddressByClientCIDR",
    }


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ("resource.k8s.io", "resource"),
        ("resource.sluice.dev", "resourceSluiceDev"),
        ("a-b.c1.io", "aBC1Io"),
        ("1a.b", "AB"),
    ],
)
def test_a_group_becomes_part_of_an_operation_id(group: str, words: str) -> None:
    assert openapi_paths.valid_id(group.removesuffix(".k8s.io")) == words


def test_the_group_is_configuration() -> None:
    document = documents("resource.sluice.dev").document_v3("apis/resource.sluice.dev/v1")
    read = document["paths"]["/apis/resource.sluice.dev/v1/deviceclasses/{name}"]["get"]
    assert read["operationId"] == "readResourceSluiceDevV1DeviceClass"
    assert read["tags"] == ["resourceSluiceDev_v1"]
    schema = document["components"]["schemas"]["io.k8s.api.test.v1.DeviceClass"]
    assert schema["x-kubernetes-group-version-kind"][0]["group"] == "resource.sluice.dev"


def test_kinds_without_a_model_are_named_after_their_group() -> None:
    base = kind("Lamp", "lamps", namespaced=False, group="home.example.com", version="v1beta1")
    plain = Struct(name="Lamp", fields=[Field(name="spec", number=2, type=String())])
    document = OpenAPI(Kinds([replace(base, shape=plain)]), patch_types=PATCHES, version="v1", built=NOW)
    assert (
        "com.example.home.v1beta1.Lamp"
        in document.document_v3("apis/home.example.com/v1beta1")["components"]["schemas"]
    )
    assert "com.example.home.v1beta1.LampList" in document.document_v2()["definitions"]


def test_several_versions_have_a_document_each() -> None:
    one = kind("Lamp", "lamps", namespaced=False, group="g.io")
    beta = Version(name="v2beta1", shape=one.shape)
    both = OpenAPI(Kinds([replace(one, versions=[beta])]), patch_types=PATCHES, version="v1", built=NOW)
    assert both.keys() == ["apis/g.io", "apis/g.io/v1", "apis/g.io/v2beta1"]
    v3 = both.document_v3("apis/g.io/v2beta1")
    named = v3["components"]["schemas"][f"{META}.DeleteOptions"]["x-kubernetes-group-version-kind"]
    assert [(k["group"], k["version"]) for k in named] == [("", "v1"), ("g.io", "v2beta1")]
    definitions = both.document_v2()["definitions"]
    named = definitions[f"{OWN_META}.WatchEvent"]["x-kubernetes-group-version-kind"]
    assert [(k["group"], k["version"]) for k in named] == [("g.io", "v1"), ("g.io", "v2beta1")]


def headers_of(reply: Reply) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in reply.headers:
        found.setdefault(name, []).append(value)
    return found


def test_version_2_is_served_with_a_tag_and_without_a_newline() -> None:
    reply = documents().v2({})
    headers = headers_of(reply)
    assert reply.status == 200
    assert json.loads(reply.body)["swagger"] == "2.0"
    assert not reply.body.endswith(b"\n")
    assert (headers["Content-Type"], headers["Vary"]) == (["application/json"], ["Accept-Encoding", "Accept"])
    again = documents().v2({"If-None-Match": headers["Etag"][0]})
    assert (again.status, again.body, headers_of(again)["Vary"]) == (304, b"", ["Accept-Encoding", "Accept"])


def test_version_2_is_compressed_for_clients_that_accept_it() -> None:
    api = documents()
    reply = api.v2({"Accept-Encoding": "gzip"})
    assert headers_of(reply)["Content-Encoding"] == ["gzip"]
    assert gzip.decompress(reply.body) == api.v2({}).body


@pytest.mark.parametrize(
    "accept", ["", "*/*", "application/json", "application/*", "*", "text/html, application/json;q=0.1"]
)
def test_json_is_served_to_clients_that_accept_it(accept: str) -> None:
    api = documents()
    assert api.v2({"Accept": accept}).status == 200
    assert api.v3_group("apis/resource.k8s.io/v1", Query(""), {"Accept": accept}, now=NOW).status == 200


@pytest.mark.parametrize("accept", ["text/html", "json", "application", "application/json/x", "*/protobuf"])
def test_client_that_accepts_no_served_form_gets_an_empty_406(accept: str) -> None:
    api = documents()
    reply = api.v2({"Accept": accept})
    assert (reply.status, reply.body, headers_of(reply)) == (406, b"", {"Vary": ["Accept-Encoding", "Accept"]})
    reply = api.v3_group("apis/resource.k8s.io/v1", Query(""), {"Accept": accept}, now=NOW)
    assert (reply.status, reply.body, headers_of(reply)) == (406, b"", {"Vary": ["Accept"]})


PROTOBUF_2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
PROTOBUF_3 = PROTOBUF_2.replace("v2", "v3")


@pytest.mark.parametrize("older", [False, True])
def test_protobuf_is_served_on_request_under_the_tag_of_the_json(older: bool) -> None:
    """client-go asks for version 2 in nothing else, by the older name."""
    api = documents()
    wanted, wanted_3 = (name.replace(".v1.0", "@v1.0") if older else name for name in (PROTOBUF_2, PROTOBUF_3))
    key, json_2 = "apis/resource.k8s.io/v1", api.v2({})
    json_3 = api.v3_group(key, Query(""), {}, now=NOW)
    reply = api.v2({"Accept": wanted})
    reply_3 = api.v3_group(key, Query(""), {"Accept": wanted_3}, now=NOW)
    for found, plain, called in ((reply, json_2, PROTOBUF_2), (reply_3, json_3, PROTOBUF_3)):
        headers = headers_of(found)
        assert (found.status, headers["Content-Type"]) == (200, [called])
        assert headers["Etag"] == headers_of(plain)["Etag"]
    assert reply.body == openapi_protobuf.v2(api.document_v2())
    assert reply_3.body == openapi_protobuf.v3(api.document_v3(key))
    assert api.v2({"Accept": wanted, "If-None-Match": headers_of(json_2)["Etag"][0]}).status == 304


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        (f"{PROTOBUF_2}, application/json", PROTOBUF_2),
        (f"application/json, {PROTOBUF_2}", "application/json"),
        (f"application/json;q=0.5, {PROTOBUF_2};q=0.9", PROTOBUF_2),
        (f"*/*, {PROTOBUF_2}", PROTOBUF_2),
        (f"text/html, {PROTOBUF_3}, */json", "application/json"),
    ],
)
def test_the_best_clause_decides(accept: str, form: str) -> None:
    assert headers_of(documents().v2({"Accept": accept}))["Content-Type"] == [form]


def test_the_index_of_version_3_says_where_the_documents_are() -> None:
    api = documents()
    reply = api.v3_root()
    assert headers_of(reply) == {"Content-Type": ["text/plain; charset=utf-8"]}
    assert not reply.body.endswith(b"\n")
    paths = json.loads(reply.body)["paths"]
    assert list(paths) == ["apis/resource.k8s.io", "apis/resource.k8s.io/v1"]
    for key, entry in paths.items():
        url, _, digest = entry["serverRelativeURL"].partition("?hash=")
        assert url == f"/openapi/v3/{key}"
        assert len(digest) == 128
        headers = headers_of(api.v3_group(key, Query(""), {}, now=NOW))
        assert headers["Etag"] == [f'"{digest}"']


def test_the_current_hash_makes_the_answer_immutable() -> None:
    api = documents()
    key = "apis/resource.k8s.io/v1"
    url = json.loads(api.v3_root().body)["paths"][key]["serverRelativeURL"]
    reply = api.v3_group(key, Query(url.partition("?")[2]), {}, now=NOW)
    headers = headers_of(reply)
    assert reply.status == 200
    assert headers["Cache-Control"] == ["public, immutable"]
    assert headers["Expires"] == ["Wed, 13 Nov 2024 22:13:20 GMT"]
    assert headers["Vary"] == ["Accept"]


@pytest.mark.parametrize("query", ["", "hash=", "hash=ABC"])
def test_another_hash_is_no_redirect(query: str) -> None:
    reply = documents().v3_group("apis/resource.k8s.io/v1", Query(query), {}, now=NOW)
    assert reply.status == 200
    assert not {"Location", "Cache-Control", "Expires"} & set(headers_of(reply))


@pytest.mark.parametrize(
    "key", ["", "apis", "apis/resource.k8s.io/v9", "apis/nope.example/v1", "apis/resource.k8s.io/"]
)
def test_an_unknown_document_is_an_empty_404(key: str) -> None:
    reply = documents().v3_group(key, Query(""), {"Accept": "text/html"}, now=NOW)
    assert (reply.status, reply.headers, reply.body) == (404, [], b"")


def test_all_replicas_publish_the_same_bytes() -> None:
    first, second = documents(), documents()
    key = "apis/resource.k8s.io/v1"
    assert first.v2({}).body == second.v2({}).body
    assert first.v3_root().body == second.v3_root().body
    assert first.v3_group(key, Query(""), {}, now=1).body == second.v3_group(key, Query(""), {}, now=2).body


def test_documents_are_made_once() -> None:
    api = documents()
    assert api.v2({}).body is api.v2({}).body
    assert api.v3_root().body is api.v3_root().body


def test_a_reply_is_sent_as_it_is() -> None:
    response = openapi_docs.respond(documents().v2({}))
    assert isinstance(response, web.Response)
    assert response.status == 200
    assert response.headers.getall("Vary") == ["Accept-Encoding", "Accept"]
    assert response.headers["Content-Type"] == "application/json"
    empty = openapi_docs.respond(documents().v2({"Accept": "text/html"}))
    assert (empty.status, empty.body, "Content-Type" in empty.headers) == (406, None, False)
