"""OpenAPI in a cluster: the one document that kube-apiserver merges ours into, and what kubectl reads out of it."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from apiserver import app
from apiserver.apimachinery.releases import Release
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from tests.e2e.controlplane import binaries, published
from tests.e2e.controlplane.bed import OWN_GROUP, Bed
from tests.e2e.controlplane.plane import until
from tests.fixtures import openapi

pytestmark = pytest.mark.releases

ITEM = f"/apis/{OWN_GROUP}/v1/resourceslices/{{name}}"
KINDS = ("resourceslices", "deviceclasses", "resourceclaims", "resourceclaimtemplates")


def chosen() -> Release:
    """The release that the control plane is, and Sluice with it."""
    major, minor = map(int, binaries.minor().split("."))
    return Release(major, minor)


@pytest.fixture(scope="module")
def merged(bed: Bed) -> dict[str, Any]:
    """kube-apiserver's document of version 2 with ours in it, which it fetches a moment after it found the group."""
    with bed.connect() as admin:

        def ask() -> dict[str, Any]:
            document: dict[str, Any] = admin.ask("GET", "/openapi/v2").json
            return document

        until(lambda: ITEM in ask()["paths"], "our paths are in the merged document")
        return ask()


def test_recorded_document_equals_the_one_that_kube_apiserver_publishes(bed: Bed) -> None:
    recorded = openapi.recorded(chosen())
    with bed.connect() as admin:
        live = published.documents(admin, versions=("v1",))
    of_v1 = {name: recorded[name] for name in live} | {"v2": openapi.of_versions(recorded["v2"], ("v1",))}
    assert list(openapi.differences(of_v1, live)) == []


def test_members_stand_in_the_order_of_kube_apiserver(bed: Bed) -> None:
    """Generators of code write classes and members in the order in which they read them."""
    ours = app.published(Kinds(RESOURCES, group=openapi.GROUP, release=chosen()))
    keys = [f"apis/{openapi.GROUP}", f"apis/{openapi.GROUP}/v1"]
    with bed.connect() as admin:
        live = {key: admin.ask("GET", f"/openapi/v3/{key}").json for key in keys}
        merged = admin.ask("GET", "/openapi/v2").json
    for key in keys:
        assert list(openapi.misplaced(ours.document_v3(key), live[key])) == []
    own = ours.document_v2()
    own["definitions"] = {name.replace("dev.sluice.", "io.k8s."): schema for name, schema in own["definitions"].items()}
    for part in ("paths", "definitions"):
        shared = {name: own[part][name] for name in merged[part] if name in own[part]}
        assert list(openapi.misplaced(shared, merged[part])) == []
    shapes = {tuple(parameter) for parameter in merged["parameters"].values()}
    assert {tuple(parameter) for parameter in own["parameters"].values()} <= shapes


def test_the_merged_document_has_our_definitions_under_our_names(bed: Bed, merged: dict[str, Any]) -> None:
    with bed.connect(bed.straight(bed.admin)) as straight:
        ours = straight.ask("GET", "/openapi/v2").json
    found, wanted = (openapi.reduced_v2(document, ("v1",), group=OWN_GROUP) for document in (merged, ours))
    # The document of the group is kube-apiserver's own affair.
    del wanted["paths"][f"/apis/{OWN_GROUP}/"]
    wanted = openapi.of_versions(wanted, ("v1",), group=OWN_GROUP)
    assert list(openapi.differences(found, wanted)) == []
    assert [name for name in merged["definitions"] if re.search(r"_v\d+$", name)] == []


def test_the_merged_document_claims_no_kind_twice(merged: dict[str, Any]) -> None:
    """Parsers of client-go refuse such a document as a whole (kubernetes/apimachinery `pkg/util/managedfields/gvkparser.go`)."""
    claimed = Counter(
        (kind["group"], kind["version"], kind["kind"])
        for schema in merged["definitions"].values()
        for kind in schema.get(openapi.KINDS, ())
    )
    assert [kind for kind, times in claimed.items() if times > 1] == []
    assert claimed[OWN_GROUP, "v1", "ResourceSlice"] == 1


@pytest.mark.parametrize(("output", "plurals"), [("plaintext", KINDS), ("plaintext-openapiv2", KINDS[:1])])
def test_kubectl_explains_kinds_to_the_last_member(
    bed: Bed, merged: dict[str, Any], output: str, plurals: tuple[str, ...]
) -> None:
    """Out of the document of the group, and out of the merged one, which kubectl reads slowly."""
    for plural in plurals:
        words = ["explain", plural, f"--api-version={OWN_GROUP}/v1", "--recursive", f"--output={output}"]
        explained = bed.kubectl(*words).stdout
        for member in ("metadata", "managedFields", "ownerReferences", "spec"):
            assert re.search(rf"^\s+{member}\t<", explained, re.MULTILINE), (plural, member)
