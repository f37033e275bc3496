from __future__ import annotations

import hashlib
import json

import pytest
import yaml

from apiserver.apimachinery.errors import StatusError
from apiserver.discovery.groups import Discovery
from apiserver.kinds.served import Kinds
from apiserver.resources import deviceclass, resourceclaim
from tests.unit.discovery.kinds import ALONE, BOAT, PIER, VERSION, ask

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
BETA = AGGREGATED.replace("v=v2", "v=v2beta1")
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def kind(name: str) -> dict[str, str]:
    return {"group": "", "version": "", "kind": name}


def test_the_document() -> None:
    answer = ask("/apis", accept=AGGREGATED)
    assert answer.status == 200
    assert answer.media == AGGREGATED
    assert answer.body.endswith(b"\n")
    subresources = [
        {"subresource": name, "responseKind": kind("Boat"), "verbs": ["get", "patch", "update"]}
        for name in ("crew", "status")
    ]
    piers = {
        "resource": "apiers",
        "responseKind": kind("Pier"),
        "scope": "Cluster",
        "singularResource": "apier",
        "verbs": VERBS,
    }
    boats = {
        "resource": "boats",
        "responseKind": kind("Boat"),
        "scope": "Namespaced",
        "singularResource": "boat",
        "verbs": VERBS,
        "shortNames": ["bt"],
        "categories": ["all"],
        "subresources": subresources,
    }
    expected = {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": "sea.example"},
                "versions": [{"version": "v1", "resources": [piers, boats], "freshness": "Current"}],
            }
        ],
    }
    assert answer.body.decode() == json.dumps(expected, separators=(",", ":")) + "\n"


def test_the_core_group_has_a_document_of_its_own() -> None:
    answer = ask("/api", discovery=ALONE, accept=AGGREGATED)
    assert (answer.status, answer.media) == (200, AGGREGATED)
    assert json.loads(answer.body) == {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [{"metadata": {}, "versions": [{"version": "v1", "freshness": "Current"}]}],
    }
    tag = answer.headers["ETag"]
    assert ask("/api", discovery=ALONE, accept=AGGREGATED, if_none_match=tag).status == 304
    assert ask("/apis", discovery=ALONE, accept=AGGREGATED) == ask("/apis", accept=AGGREGATED)


def test_the_tag_is_strong_and_follows_the_content() -> None:
    answer = ask("/apis", accept=AGGREGATED)
    tag = answer.headers["ETag"]
    assert tag == f'"{hashlib.sha512(answer.body.rstrip()).hexdigest().upper()}"'
    assert dict(answer.headers) == {"ETag": tag, "Vary": "Accept", "Cache-Control": "public"}
    again = ask("/apis", accept=AGGREGATED, discovery=Discovery(Kinds([PIER, BOAT]), version=VERSION))
    assert again.headers["ETag"] == tag
    other = ask("/apis", accept=AGGREGATED, discovery=Discovery(Kinds([PIER]), version=VERSION))
    assert other.headers["ETag"] != tag


def test_the_same_tag_is_304_without_a_body() -> None:
    tag = ask("/apis", accept=AGGREGATED).headers["ETag"]
    answer = ask("/apis", accept=AGGREGATED, if_none_match=tag)
    assert (answer.status, answer.media, answer.body) == (304, "", b"")
    assert dict(answer.headers) == {"ETag": tag, "Vary": "Accept", "Cache-Control": "public"}


def test_other_forms_of_if_none_match_are_not_interpreted() -> None:
    tag = ask("/apis", accept=AGGREGATED).headers["ETag"]
    for given in (tag.strip('"'), f"W/{tag}", "*", f'"x", {tag}'):
        assert ask("/apis", accept=AGGREGATED, if_none_match=given).status == 200


def test_a_tag_means_nothing_to_the_plain_document() -> None:
    tag = ask("/apis", accept=AGGREGATED).headers["ETag"]
    assert ask("/apis", if_none_match=tag).status == 200


@pytest.mark.parametrize(
    "accept",
    [
        f"{AGGREGATED},{BETA},application/json",
        "application/json;as=APIGroupDiscoveryList;v=v2;g=apidiscovery.k8s.io",
        f"{AGGREGATED};profile=nopeer",
        f"application/json;q=0.9,{AGGREGATED};q=0.1",
        f"application/yaml,{AGGREGATED}",
        f"application/json,{AGGREGATED}",
        "*/*;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList," + AGGREGATED,
    ],
)
def test_an_aggregated_clause_wins_wherever_it_stands(accept: str) -> None:
    answer = ask("/apis", accept=accept)
    assert answer.media == AGGREGATED
    assert json.loads(answer.body)["kind"] == "APIGroupDiscoveryList"


@pytest.mark.parametrize("accept", ["", "*/*", "application/json,application/yaml", f"{BETA},application/json"])
def test_without_such_a_clause_the_plain_document_is_served(accept: str) -> None:
    answer = ask("/apis", accept=accept)
    assert answer.media == "application/json"
    assert json.loads(answer.body)["kind"] == "APIGroupList"


@pytest.mark.parametrize("accept", [BETA, AGGREGATED.replace("json", "html"), AGGREGATED.replace(";v=v2", "")])
def test_a_clause_that_asks_for_something_else_alone_is_refused(accept: str) -> None:
    with pytest.raises(StatusError) as refused:
        ask("/apis", accept=accept)
    assert refused.value.code == 406


def test_yaml() -> None:
    answer = ask("/apis", accept=AGGREGATED.replace("json", "yaml"))
    assert answer.media == AGGREGATED.replace("json", "yaml")
    assert yaml.safe_load(answer.body) == json.loads(ask("/apis", accept=AGGREGATED).body)


def test_pretty() -> None:
    document = json.loads(ask("/apis", accept=AGGREGATED).body)
    for answer in (ask("/apis", accept=AGGREGATED, query="pretty=true"), ask("/apis", accept=f"{AGGREGATED};pretty=1")):
        assert answer.body.decode() == json.dumps(document, indent=2)
        assert answer.media == AGGREGATED


@pytest.mark.parametrize("path", ["/apis/sea.example", "/apis/sea.example/v1"])
def test_elsewhere_the_plain_clause_decides(path: str) -> None:
    assert ask(path, accept=f"{AGGREGATED},application/json").media == "application/json"


def test_a_real_servers_entries_are_reproduced() -> None:
    kinds = Kinds((deviceclass.RESOURCE, resourceclaim.RESOURCE), group="resource.k8s.io")
    document = json.loads(ask("/apis", accept=AGGREGATED, discovery=Discovery(kinds, version=VERSION)).body)
    [group] = document["items"]
    entries = group["versions"][0]["resources"]
    assert [e["resource"] for e in entries] == ["deviceclasses", "resourceclaims"]
    assert entries[1] == {
        "resource": "resourceclaims",
        "responseKind": kind("ResourceClaim"),
        "scope": "Namespaced",
        "singularResource": "resourceclaim",
        "verbs": VERBS,
        "subresources": [
            {"subresource": "status", "responseKind": kind("ResourceClaim"), "verbs": ["get", "patch", "update"]}
        ],
    }
    assert set(entries[0]) == {"resource", "responseKind", "scope", "singularResource", "verbs"}
