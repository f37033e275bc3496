"""Our OpenAPI documents beside those that a kube-apiserver publishes of its own `resource.k8s.io`: every difference but prose, with its
reason. `tests/e2e/test_openapi.py` holds the recorded documents against a live one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from apiserver import app
from apiserver.apimachinery.releases import NEWEST, SUPPORTED, V1_36, Release
from apiserver.discovery import openapi_protobuf
from apiserver.discovery.openapi_docs import OpenAPI
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from tests.fixtures import openapi
from tests.fixtures.openapi import GROUP, KINDS

Document = Any
OWN_GROUP = "resource.sluice.dev"
VERSIONS = list(Kinds(RESOURCES, group=GROUP).groups[GROUP])


@pytest.fixture(scope="module", params=SUPPORTED, ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def recorded(release: Release) -> dict[str, Document]:
    return openapi.recorded(release)


def ours(group: str = GROUP, *, release: Release = NEWEST) -> OpenAPI:
    """As a server of this group publishes."""
    return app.published(Kinds(RESOURCES, group=group, release=release))


# --- The differences -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """Makes of their document one as ours."""

    reason: str
    adapted: Callable[[Document], Document]


def _each(document: Document, change: Callable[[str, Document], Document]) -> Document:
    """The document with every member changed, the inner ones first; None takes a member out."""
    if isinstance(document, dict):
        changed = {name: change(name, _each(member, change)) for name, member in document.items()}
        return {name: member for name, member in changed.items() if member is not None}
    return [_each(item, change) for item in document] if isinstance(document, list) else document


def _own_names(document: Document) -> Document:
    of_the_group = tuple(f"io.k8s.api.resource.{version}." for version in VERSIONS)

    def renamed(name: str) -> str:
        return name if name.startswith(of_the_group) else f"dev.sluice.{name.removeprefix('io.k8s.')}"

    def change(name: str, member: Document) -> Document:
        if name == "$ref":
            return f"#/definitions/{renamed(member.removeprefix('#/definitions/'))}"
        if name == "definitions":
            return {renamed(called): schema for called, schema in member.items()}
        return member

    return _each(document, change)


def _claims_nothing_shared(document: Document) -> Document:
    definitions = {
        name: {k: v for k, v in schema.items() if k != KINDS or not name.startswith("dev.sluice.")}
        for name, schema in document["definitions"].items()
    }
    return document | {"definitions": definitions}


IN_VERSION_2 = [
    Difference(
        "kube-apiserver merges the document with its own, and renames a definition that is called as one of its own and described in other "
        "words; so what is not of the group has names of ours",
        _own_names,
    ),
    Difference(
        "a kind that two definitions of the merged document claim breaks clients; kube-apiserver claims those of shared messages for all "
        "of its groups, this one included",
        _claims_nothing_shared,
    ),
]


def adapted(document: Document, differences: list[Difference]) -> Document:
    """Every listed difference has to be one."""
    for difference in differences:
        changed = difference.adapted(document)
        assert changed != document, f"there is no such difference any more: {difference.reason}"
        document = changed
    return document


# --- The documents ---------------------------------------------------------------------------------------------------


def test_every_served_version_was_recorded(recorded: dict[str, Document]) -> None:
    assert {f"v3/apis/{GROUP}/{version}" for version in VERSIONS} <= set(recorded)


@pytest.mark.parametrize("version", VERSIONS)
def test_version_3_differs_from_kube_apiservers_in_what_is_listed(
    recorded: dict[str, Document], release: Release, version: str
) -> None:
    key = f"apis/{GROUP}/{version}"
    found = openapi.reduced(ours(release=release).document_v3(key))
    assert list(openapi.differences(found, recorded[f"v3/{key}"])) == []


def test_the_document_of_the_group_does_not_differ(recorded: dict[str, Document], release: Release) -> None:
    key = f"apis/{GROUP}"
    assert (
        list(openapi.differences(openapi.reduced(ours(release=release).document_v3(key)), recorded[f"v3/{key}"])) == []
    )


def test_version_2_differs_from_kube_apiservers_in_what_is_listed(
    recorded: dict[str, Document], release: Release
) -> None:
    theirs = adapted(openapi.of_versions(recorded["v2"], VERSIONS), IN_VERSION_2)
    found = openapi.reduced_v2(ours(release=release).document_v2(), VERSIONS)
    assert list(openapi.differences(found, theirs)) == []


def test_v2_document_takes_only_its_groups_names_from_kube_apiserver() -> None:
    """Kinds of a package do not matter."""
    package = [replace(kind, group="harbour.example.com") for kind in RESOURCES]
    for group, names in {
        OWN_GROUP: (),
        GROUP: tuple(f"io.k8s.api.resource.{version}." for version in VERSIONS),
    }.items():
        document = app.published(Kinds([*RESOURCES, *package], group=group)).document_v2()
        assert [n for n in document["definitions"] if n.startswith("io.k8s.") and not n.startswith(names or "-")] == []
        assert any(name.startswith("com.example.harbour.v1.") for name in document["definitions"])


def test_every_document_can_be_written_in_protobuf() -> None:
    for group in (GROUP, OWN_GROUP):
        published = ours(group)
        assert openapi_protobuf.v2(published.document_v2())
        keys = published.keys()
        assert all(openapi_protobuf.v3(published.document_v3(key)) for key in keys)


def _maps(document: Document, at: str = "") -> Iterator[tuple[str, list[str]]]:
    """The names of every object that Go has as a map."""
    if isinstance(document, list):
        for item in document:
            yield from _maps(item, at)
    elif isinstance(document, dict):
        if at in ("paths", "schemas", "definitions", "properties", "content", "responses"):
            yield at, list(document)
        for name, member in document.items():
            yield from _maps(member, "" if at == "properties" else name)


def test_maps_in_go_are_sorted_by_name() -> None:
    """`tests/e2e/test_openapi.py` holds the order of everything against a kube-apiserver."""
    published = ours()
    keys = published.keys()
    documents = [published.document_v2(), *map(published.document_v3, keys)]
    found = [(where, names) for document in documents for where, names in _maps(document)]
    assert {where for where, _ in found} >= {"paths", "schemas", "definitions", "properties", "content", "responses"}
    assert [(where, names) for where, names in found if names != sorted(names)] == []


def test_members_of_a_schema_stand_in_the_order_of_gos_struct() -> None:
    schemas = ours(release=V1_36).document_v3(f"apis/{GROUP}/v1")["components"]["schemas"]
    claim = schemas["io.k8s.api.resource.v1.ResourceClaim"]
    assert list(claim) == ["description", "type", "required", "properties", KINDS]
    assert list(claim["properties"]) == ["apiVersion", "kind", "metadata", "spec", "status"]
    assert list(claim["properties"]["spec"]) == ["description", "default", "allOf"]
    devices = schemas["io.k8s.api.resource.v1.DeviceClaim"]["properties"]["requests"]
    assert list(devices) == ["description", "type", "items", "x-kubernetes-list-type"]
    assert list(devices["items"]) == ["default", "allOf"]


def _as_upstreams(document: Document) -> Document:
    """A reduced document of the own group, the group called as upstream's."""
    written = json.dumps(document)
    for own, theirs in {
        OWN_GROUP: GROUP,
        "resourceSluiceDev": "resource",
        "ResourceSluiceDev": "Resource",
        "dev.sluice.resource.": "io.k8s.api.resource.",
    }.items():
        written = written.replace(own, theirs)
    found: Document = json.loads(written)
    return found


def test_the_documents_of_another_group_differ_in_its_name_alone() -> None:
    own, theirs = ours(OWN_GROUP), ours()
    versions = Kinds(RESOURCES, group=OWN_GROUP).groups[OWN_GROUP]
    for key in ["", *(f"/{version}" for version in versions)]:
        document = openapi.reduced(own.document_v3(f"apis/{OWN_GROUP}{key}"))
        named = openapi.reduced(theirs.document_v3(f"apis/{GROUP}{key}"))
        assert list(openapi.differences(_as_upstreams(document), named)) == []


def test_v2_document_of_another_group_claims_shared_messages_for_itself() -> None:
    versions = list(Kinds(RESOURCES, group=OWN_GROUP).groups[OWN_GROUP])
    own = openapi.reduced_v2(ours(OWN_GROUP).document_v2(), versions, group=OWN_GROUP)
    theirs = openapi.reduced_v2(ours().document_v2(), versions)
    for message in ("DeleteOptions", "WatchEvent"):
        definition = own["definitions"][f"dev.sluice.apimachinery.pkg.apis.meta.v1.{message}"]
        claimed = [(kind["group"], kind["version"], kind["kind"]) for kind in definition.pop(KINDS)]
        assert claimed == [(OWN_GROUP, version, message) for version in sorted(versions)]
    assert list(openapi.differences(_as_upstreams(own), theirs)) == []
