from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, cast

import pytest
import yaml

from apiserver import buildinfo, resources
from apiserver.apimachinery.errors import StatusError, TextError
from apiserver.apimachinery.releases import NEWEST, V1_36, V1_37, Release, at
from apiserver.apimachinery.request import Query, RequestInfo
from apiserver.discovery import groups, served
from apiserver.discovery.groups import Discovery
from apiserver.kinds.served import Kinds
from apiserver.resources import deviceclass, resourceclaim, resourceclaimtemplate, resourceslice
from apiserver.schema.resource import Version
from tests.unit.discovery.kinds import ALONE, BOAT, DISCOVERY, PATHS, PIER, VERSION, ask

if TYPE_CHECKING:
    from apiserver.wire.response import Exchange

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
V1 = {"groupVersion": "sea.example/v1", "version": "v1"}


def test_the_group_list_is_one_line_ending_in_a_newline() -> None:
    answer = ask("/apis")
    assert (answer.status, answer.media, dict(answer.headers)) == (200, "application/json", {})
    assert answer.body == (
        b'{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"sea.example",'
        b'"versions":[{"groupVersion":"sea.example/v1","version":"v1"}],'
        b'"preferredVersion":{"groupVersion":"sea.example/v1","version":"v1"}}]}\n'
    )


def test_a_group_says_what_it_is() -> None:
    expected = {"kind": "APIGroup", "apiVersion": "v1", "name": "sea.example", "versions": [V1], "preferredVersion": V1}
    assert json.loads(ask("/apis/sea.example").body) == expected
    assert list(json.loads(ask("/apis/sea.example").body)) == list(expected)


def test_resources_are_sorted_with_subresources_and_members_in_gos_order() -> None:
    document = json.loads(ask("/apis/sea.example/v1").body)
    assert list(document) == ["kind", "apiVersion", "groupVersion", "resources"]
    assert (document["kind"], document["apiVersion"], document["groupVersion"]) == (
        "APIResourceList",
        "v1",
        "sea.example/v1",
    )
    piers, boats, crew, status = document["resources"]
    assert piers == {
        "name": "apiers",
        "singularName": "apier",
        "namespaced": False,
        "kind": "Pier",
        "verbs": VERBS,
        "storageVersionHash": served.storage_version_hash(PIER),
    }
    assert list(boats) == [
        "name", "singularName", "namespaced", "kind", "verbs", "shortNames", "categories", "storageVersionHash",
    ]  # fmt: skip
    assert (boats["shortNames"], boats["categories"]) == (["bt"], ["all"])
    assert crew["name"] == "boats/crew"
    expected = {
        "name": "boats/status",
        "singularName": "",
        "namespaced": True,
        "kind": "Boat",
        "verbs": ["get", "patch", "update"],
    }
    assert status == expected


@pytest.mark.parametrize(
    ("plural", "digest"),
    [
        ("deviceclasses", "Yk2PTc1Ybxk="),
        ("resourceclaims", "wgAZaHcZxUg="),
        ("resourceclaimtemplates", "TuzjC49aUfM="),
        ("resourceslices", "KsC072WgaEY="),
    ],
)
def test_storage_version_hashes_are_those_of_a_real_server(plural: str, digest: str) -> None:
    resource = next(r for r in at(NEWEST, resources.RESOURCES) if r.plural == plural)
    assert served.storage_version_hash(dataclasses.replace(resource, group="resource.k8s.io")) == digest


def test_a_real_servers_resource_list_is_reproduced_to_the_byte() -> None:
    recorded = at(
        NEWEST, (resourceslice.RESOURCE, deviceclass.RESOURCE, resourceclaimtemplate.RESOURCE, resourceclaim.RESOURCE)
    )
    kinds = Kinds(recorded, group="resource.k8s.io")
    answer = ask("/apis/resource.k8s.io/v1", discovery=Discovery(kinds, version=VERSION))
    verbs = '["create","delete","deletecollection","get","list","patch","update","watch"]'
    entry = '{{"name":"{}","singularName":"{}","namespaced":{},"kind":"{}","verbs":{},"storageVersionHash":"{}"}}'
    rows = [
        entry.format("deviceclasses", "deviceclass", "false", "DeviceClass", verbs, "Yk2PTc1Ybxk="),
        entry.format("resourceclaims", "resourceclaim", "true", "ResourceClaim", verbs, "wgAZaHcZxUg="),
        '{"name":"resourceclaims/status","singularName":"","namespaced":true,"kind":"ResourceClaim","verbs":["get","patch","update"]}',
        entry.format(
            "resourceclaimtemplates", "resourceclaimtemplate", "true", "ResourceClaimTemplate", verbs, "TuzjC49aUfM="
        ),
        entry.format("resourceslices", "resourceslice", "false", "ResourceSlice", verbs, "KsC072WgaEY="),
    ]
    head = '{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"resource.k8s.io/v1","resources":['
    assert answer.body.decode() == f"{head}{','.join(rows)}]}}\n"


@pytest.mark.parametrize("path", ["/apis", "/apis/sea.example", "/apis/sea.example/v1", "/version"])
def test_a_trailing_slash_is_accepted(path: str) -> None:
    assert ask(f"{path}/") == ask(path)


@pytest.mark.parametrize("path", ["/apis", "/apis/sea.example", "/apis/sea.example/v1"])
def test_yaml_and_pretty_forms(path: str) -> None:
    plain = json.loads(ask(path).body)
    as_yaml = ask(path, accept="application/yaml")
    assert as_yaml.media == "application/yaml"
    assert yaml.safe_load(as_yaml.body) == plain
    for pretty in (
        ask(path, query="pretty=1"),
        ask(path, user_agent="curl/8"),
        ask(path, accept="application/json;pretty=1"),
    ):
        assert pretty.body.decode() == json.dumps(plain, indent=2)


@pytest.mark.parametrize("method", ["POST", "DELETE", "HEAD", "OPTIONS"])
def test_groups_ignore_the_method_and_versions_do_not(method: str) -> None:
    assert ask("/apis", method=method).status == 200
    assert ask("/apis/sea.example", method=method).status == 200
    for path in ("/apis/sea.example/v1", "/version"):
        with pytest.raises(StatusError) as refused:
            ask(path, method=method)
        assert (refused.value.code, refused.value.details) == (405, {})


@pytest.mark.parametrize("path", ["/apis", "/apis/sea.example"])
def test_the_handlers_406(path: str) -> None:
    with pytest.raises(StatusError) as refused:
        ask(path, accept="text/html")
    assert refused.value.message.startswith("only the following media types are accepted: application/json, ")
    assert refused.value.details is None


def test_the_routers_406() -> None:
    with pytest.raises(StatusError) as refused:
        ask("/apis/sea.example/v1", accept="text/html")
    assert refused.value.message.startswith("406: Not Acceptable\n\nAvailable representations: application/json, ")
    assert refused.value.details == {}


@pytest.mark.parametrize(
    "path",
    [
        "/version/x",
        "/version//",
        "/apis/sea.example/v9",
        "/apis/sea.example/v1/x",
        "/apis/sea.example/v9/boats",
        "/apis/sea.example//",
    ],
)
def test_below_a_served_group_or_the_version_unknown_paths_are_a_status(path: str) -> None:
    with pytest.raises(StatusError) as refused:
        ask(path)
    expected: tuple[object, ...] = (404, "NotFound", "the server could not find the requested resource", {})
    assert (refused.value.code, refused.value.reason, refused.value.message, refused.value.details) == expected


@pytest.mark.parametrize("path", ["/", "/index.html"])
def test_the_index_lists_every_path(path: str) -> None:
    answer = ask(path)
    served = sorted([*PATHS, "/apis", "/apis/sea.example", "/apis/sea.example/v1", "/version"])
    assert answer.status == 200
    assert answer.media == "application/json"
    assert answer.body.decode() == json.dumps({"paths": served}, indent=2)


@pytest.mark.parametrize(
    "path", ["/api", "/api/v1", "/foo", "/apis//", "/apis/nope.example", "/apis/nope.example/v1/x", "/apisx", "//"]
)
def test_all_other_paths_are_404_in_plain_text(path: str) -> None:
    with pytest.raises(TextError) as refused:
        ask(path)
    assert (refused.value.code, refused.value.text) == (404, "404 page not found\n")


def test_standalone_core_group_has_one_version_and_upstreams_messages() -> None:
    versions = b'{"kind":"APIVersions","versions":["v1"],"serverAddressByClientCIDRs":[]}\n'
    assert ask("/api", discovery=ALONE).body == versions
    assert ask("/api/", discovery=ALONE).body == versions
    resources = b'{"kind":"APIResourceList","groupVersion":"v1","resources":[]}\n'
    assert ask("/api/v1", discovery=ALONE).body == resources
    assert ask("/api/v1/", discovery=ALONE).body == resources
    assert yaml.safe_load(ask("/api", discovery=ALONE, accept="application/yaml").body) == json.loads(versions)
    message = ask("/api", discovery=ALONE, accept="application/vnd.kubernetes.protobuf").body
    assert message == b'k8s\0\n\x0f\n\0\x12\x0bAPIVersions\x12\x04\n\x02v1\x1a\0"\0'
    assert {"/api", "/api/v1"} <= set(json.loads(ask("/", discovery=ALONE).body)["paths"])
    assert ask("/apis", discovery=ALONE).body == ask("/apis").body


@pytest.mark.parametrize("path", ["/api", "/api/v1"])
def test_the_core_group_takes_get_alone_and_has_the_routers_406(path: str) -> None:
    with pytest.raises(StatusError) as refused:
        ask(path, discovery=ALONE, method="POST")
    assert refused.value.code == 405
    with pytest.raises(StatusError) as refused:
        ask(path, discovery=ALONE, accept="text/html")
    assert refused.value.message.startswith("406: Not Acceptable\n\nAvailable representations: application/json, ")


@pytest.mark.parametrize("path", ["/api/v2", "/api/v1/pods", "/api/v1/namespaces/default/pods"])
def test_nothing_else_is_in_the_core_group(path: str) -> None:
    with pytest.raises(StatusError) as refused:
        ask(path, discovery=ALONE)
    expected: tuple[object, ...] = (404, "NotFound", "the server could not find the requested resource", {})
    assert (refused.value.code, refused.value.reason, refused.value.message, refused.value.details) == expected


def test_version_is_indented_for_every_client() -> None:
    assert ask("/version", accept="text/html,application/json;q=0").body.decode() == json.dumps(VERSION, indent=2)


def test_version_is_json_for_every_client() -> None:
    with pytest.raises(StatusError) as refused:
        ask("/version", accept="application/yaml,application/vnd.kubernetes.protobuf")
    assert refused.value.message == "406: Not Acceptable\n\nAvailable representations: application/json"


@pytest.mark.parametrize(
    ("release", "minors", "version"),
    [(V1_36, ["36", "36", "35"], "v1.36.3+sluice-"), (V1_37, ["37", "37", "36"], "v1.37.2+sluice-")],
)
def test_the_version_document_has_gos_members_in_order(release: Release, minors: list[str], version: str) -> None:
    """The patch is `PATCH_LEVEL` of the release."""
    document = groups.version(release, python="3.12.1", platform="linux/amd64")
    assert list(document) == [
        "major", "minor", "emulationMajor", "emulationMinor", "minCompatibilityMajor", "minCompatibilityMinor",
        "gitVersion", "gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform",
    ]  # fmt: skip
    assert document["major"] == "1"
    assert [document[m] for m in ("minor", "emulationMinor", "minCompatibilityMinor")] == minors
    assert document["gitVersion"] == f"{version}{buildinfo.version()}"


def test_versions_are_listed_by_preference_and_groups_by_name() -> None:
    versions = [Version(name=name, shape=BOAT.shape) for name in ("odd", "v1alpha1", "v2", "v1beta2", "v10")]
    boat = dataclasses.replace(BOAT, version="v1beta10", versions=versions)
    discovery = Discovery(Kinds([dataclasses.replace(BOAT, group="z.example"), boat]), version=VERSION)
    listed = json.loads(ask("/apis", discovery=discovery).body)["groups"]
    assert [g["name"] for g in listed] == ["sea.example", "z.example"]
    expected = ["v10", "v2", "v1beta10", "v1beta2", "v1alpha1", "odd"]
    assert [v["version"] for v in listed[0]["versions"]] == expected
    assert listed[0]["preferredVersion"]["version"] == "v10"


@dataclasses.dataclass
class Recorder:
    """Stands in for the exchange: says what a client sent and keeps what it gets."""

    accept: str
    headers: dict[str, str]
    query: Query = dataclasses.field(default_factory=lambda: Query(""))
    user_agent: str = ""
    recording: None = None
    sent: list[tuple[int, str, bytes, dict[str, str]]] = dataclasses.field(default_factory=list)

    @property
    def request(self) -> Recorder:
        return self

    async def respond(self, code: int, media: str, body: bytes, headers: dict[str, str]) -> None:
        self.sent.append((code, media, body, headers))


async def test_handler_passes_on_the_clients_request_and_the_documents_answer() -> None:
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    info = RequestInfo(path="/apis", verb="get", method="GET")
    first = Recorder(accept=aggregated, headers={})
    await groups.respond(DISCOVERY, cast("Exchange", first), info)
    [(code, media, body, headers)] = first.sent
    assert (code, media) == (200, aggregated)
    assert body == ask("/apis", accept=aggregated).body
    second = Recorder(accept=aggregated, headers={"If-None-Match": headers["ETag"]})
    await groups.respond(DISCOVERY, cast("Exchange", second), info)
    assert [(code, body) for code, _, body, _ in second.sent] == [(304, b"")]
