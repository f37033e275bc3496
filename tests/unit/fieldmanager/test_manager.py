"""Managers of fields after a write, beyond the recorded cases."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from apiserver.apimachinery import meta
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import V1_36, V1_37, Release, at
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import rawjson
from apiserver.fieldmanager import lastapplied
from apiserver.fieldmanager.manager import AFTER_FAILURE, KEPT, FieldManagers
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from apiserver.schema.resource import Object
from tests.unit.fieldmanager.written import KINDS, NOW, Written, resource_of

LATER = "2026-03-04T05:06:08Z"
ADDED_BACK = "failed to convert merged object at version resource.k8s.io/v1beta2"


def a_slice(version: str = "v1", *, devices: Any = (), metadata: Any = None, **spec: Any) -> Object:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    members = {"driver": "d.io", "pool": pool, "nodeName": "n", "devices": list(devices), **spec}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s", **(metadata or {})},
        "spec": {name: x for name, x in members.items() if x is not None},
    }


def only(metadata: Object, version: str = "v1") -> Object:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceSlice",
        "metadata": {"name": "s", **metadata},
    }


def a_claim(version: str = "v1", *, metadata: Any = None, **members: Any) -> Object:
    wanted = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", **wanted} if version == "v1beta1" else {"name": "r", "exactly": wanted}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "n", **(metadata or {})},
        "spec": {"devices": {"requests": [request]}},
        **members,
    }


def managers(written: Written) -> dict[tuple[str, str, str], Any]:
    """Manager, version and subresource → its fields. In these tests nobody both applies and updates."""
    return {
        (entry["manager"], entry["apiVersion"].rpartition("/")[2], entry.get("subresource", "")): fields(entry)
        for entry in written.managed_fields
    }


def fields(entry: Object) -> Any:
    return json.loads(rawjson.text(entry["fieldsV1"]))


def times(written: Written) -> dict[str, str | None]:
    return {entry["manager"]: entry.get("time") for entry in written.managed_fields}


def refused(written: Written, patch: Object, **how: Any) -> StatusError:
    before = written.body
    with pytest.raises(StatusError) as error:
        written.apply(patch, **how)
    assert written.body == before
    return error.value


# --- Versions --------------------------------------------------------------------------------------------------------


def test_a_manager_keeps_what_another_version_does_not_change() -> None:
    written = Written("ResourceSlice")
    written.apply(a_slice(devices=[{"name": "d"}]), manager="a")
    before = managers(written)[("a", "v1", "")]
    written.update(
        a_slice("v1beta1", devices=[{"name": "d", "basic": {}}], metadata={"labels": {"x": "y"}}),
        manager="b",
        version="v1beta1",
    )
    assert managers(written) == {
        ("a", "v1", ""): before,
        ("b", "v1beta1", ""): {"f:metadata": {"f:labels": {".": {}, "f:x": {}}}},
    }


def test_a_manager_loses_in_its_version_what_is_changed_in_another() -> None:
    written = Written("ResourceSlice")
    written.apply(a_slice("v1beta1", devices=[{"name": "d", "basic": {}}]), manager="a", version="v1beta1")
    written.update(a_slice(devices=[{"name": "e"}]), manager="b")
    assert "f:devices" not in managers(written)[("a", "v1beta1", "")]["f:spec"]
    assert managers(written)[("b", "v1", "")] == {"f:spec": {"f:devices": {}}}


def test_an_apply_conflicts_with_managers_in_their_own_version() -> None:
    written = Written("ResourceSlice")
    written.create(a_slice("v1beta1", devices=[{"name": "d", "basic": {}}]), manager="old", version="v1beta1")
    error = refused(written, a_slice(devices=[{"name": "e"}]), manager="new")
    assert (
        error.message
        == 'Apply failed with 1 conflict: conflict with "old" using resource.k8s.io/v1beta1: .spec.devices'
    )


def test_applier_in_another_version_is_the_same_manager_and_prunes() -> None:
    written = Written("ResourceSlice")
    written.apply(a_slice(devices=[{"name": "d"}], metadata={"labels": {"a": "1", "b": "2"}}), manager="m")
    written.apply(
        a_slice("v1beta1", devices=[{"name": "d", "basic": {}}], metadata={"labels": {"b": "2"}}),
        manager="m",
        version="v1beta1",
    )
    assert written.object["metadata"]["labels"] == {"b": "2"}
    assert written.object["spec"]["devices"] == [{"name": "d"}]
    assert list(managers(written)) == [("m", "v1beta1", "")]


def test_requests_of_claims_are_merged_in_the_form_of_each_version() -> None:
    written = Written("ResourceClaim")
    written.create(a_claim("v1beta1"), manager="old", version="v1beta1")
    written.apply(a_claim(), manager="new")
    written.apply(a_claim("v1beta2", metadata={"labels": {"x": "y"}}), manager="newer", version="v1beta2")
    requests: Object = {"f:spec": {"f:devices": {"f:requests": {}}}}
    assert managers(written) == {
        ("new", "v1", ""): requests,
        ("newer", "v1beta2", ""): {"f:metadata": {"f:labels": {"f:x": {}}}, **requests},
        ("old", "v1beta1", ""): requests,
    }


def test_a_null_goes_where_a_manager_of_another_version_has_to_be_asked() -> None:
    """It is no value of the typed object: what its manager applied before is taken away, and a removal conflicts with nobody."""

    def a_template(version: str, **metadata: Any) -> Object:
        head = {"apiVersion": f"resource.k8s.io/{version}", "kind": "ResourceClaimTemplate"}
        spec = {"metadata": metadata, "spec": {"devices": {"requests": None}}}
        return {**head, "metadata": {"name": "t", "namespace": "n"}, "spec": spec}

    def conflicts_with_null(other: str) -> bool:
        written = Written("ResourceClaimTemplate")
        written.create(a_template("v1beta2", generateName="x"), manager="maker", version="v1beta2")
        written.apply(a_template("v1beta2", generateName="x"), manager="m", version="v1beta2")
        written.apply(a_template(other, labels={"a": "1"}), manager="other", version=other)
        try:
            written.apply(a_template("v1beta2", generateName=None), manager="m", version="v1beta2")
        except StatusError as e:
            return e.code == 409
        return "generateName" in written.object["spec"]["metadata"]

    assert conflicts_with_null("v1beta2")
    assert not conflicts_with_null("v1")


@pytest.mark.parametrize(
    ("applied_in", "asked_in", "where"),
    [
        ("v1beta2", "v1", "failed to prune fields: failed to convert merged object to last applied version: "),
        ("v1", "v1", f"failed to prune fields: failed add back owned items: {ADDED_BACK}: "),
        ("", "v1", "failed to convert new object: "),
    ],
)
def test_conversion_error_of_another_version_is_reported_with_its_place(
    applied_in: str, asked_in: str, where: str
) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": ""}
    written = Written("ResourceSlice")
    written.create(a_slice("v1beta2", metadata={"ownerReferences": [owner]}), manager="c", version="v1beta2")
    if applied_in:
        written.apply(only({"labels": {"a": "1"}}, applied_in), manager="m", version=applied_in)
    error = refused(
        written, only({"ownerReferences": [{**owner, "uid": None}]}, asked_in), manager="m", version=asked_in
    )
    assert (error.code, error.message) == (500, f'{where}.metadata.ownerReferences: duplicate entries for key [uid=""]')


@pytest.mark.parametrize("version", ["resource.k8s.io/v1alpha9", "example.com/v1", "v1", "/"])
def test_manager_of_an_unserved_version_is_dropped(version: str) -> None:
    written = Written("ResourceSlice")
    entry = {"manager": "gone", "operation": "Apply", "apiVersion": version, "fieldsType": "FieldsV1"}
    entry["fieldsV1"] = rawjson.of(b'{"f:metadata":{"f:labels":{"f:a":{}}}}')
    written.store(a_slice(metadata={"uid": "u", "labels": {"a": "1"}, "managedFields": [entry]}))
    written.apply(only({"labels": {"a": "2"}}), manager="m")
    assert list(managers(written)) == [("m", "v1", "")]
    written.store(a_slice(metadata={"uid": "u", "labels": {"a": "1"}, "managedFields": [entry]}))
    written.update(a_slice(metadata={"labels": {"a": "1"}}), manager="m")
    assert managers(written) == {}


def test_only_versions_that_are_served_count() -> None:
    enough = Kinds(KINDS.stored, group="resource.k8s.io", runtime_config={"resource.k8s.io/v1beta1": "false"})
    assert enough.at("resource.k8s.io", "v1beta1", "resourceslices") is None
    written = Written("ResourceSlice", managers=FieldManagers(enough))
    entry = {
        "manager": "gone",
        "operation": "Update",
        "apiVersion": "resource.k8s.io/v1beta1",
        "fieldsType": "FieldsV1",
    }
    written.store(a_slice(metadata={"uid": "u", "managedFields": [entry | {"fieldsV1": rawjson.of(b'{"f:spec":{}}')}]}))
    written.apply(only({"labels": {"a": "2"}}), manager="m")
    assert list(managers(written)) == [("m", "v1", "")]


@pytest.mark.parametrize(("release", "kept"), [(V1_36, False), (V1_37, True)])
def test_a_version_that_cannot_be_read_takes_the_managers_of_an_update(release: Release, *, kept: bool) -> None:
    kinds = Kinds(RESOURCES, group="resource.k8s.io", release=release)
    written = Written("ResourceSlice", managers=FieldManagers(kinds))
    written.create(a_slice(), manager="m")
    entry = {"manager": "x", "operation": "Update", "apiVersion": "a/b/c", "fieldsType": "FieldsV1"}
    written.update(a_slice(metadata={"labels": {"a": "1"}, "managedFields": [entry]}), manager="m")
    assert ("managedFields" in written.object["metadata"]) is kept
    assert (at(release, AFTER_FAILURE) == KEPT) is kept
    assert written.object["metadata"]["labels"] == {"a": "1"}


# --- Endpoints -------------------------------------------------------------------------------------------------------


def test_subresource_owns_only_its_members_and_the_main_endpoint_others() -> None:
    written = Written("ResourceClaim")
    status: Object = {"allocation": {"devices": {"results": []}}}
    written.create(a_claim(status=status), manager="main")
    written.update(a_claim(metadata={"labels": {"a": "1"}}, status=status), manager="sub", subresource="status")
    assert managers(written) == {
        ("main", "v1", ""): {"f:spec": {"f:devices": {"f:requests": {}}}},
        ("sub", "v1", "status"): {"f:status": {"f:allocation": {".": {}, "f:devices": {}}}},
    }
    assert "labels" not in written.object["metadata"]


# --- What clients send -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [[], [{}], [{"manager": "", "operation": ""}]])
def test_a_reset_leaves_an_object_untracked(sent: list[Object]) -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(), manager="m")
    written.update(a_slice(metadata={"labels": {"a": "1"}, "managedFields": sent}), manager="m")
    written.update(a_slice(metadata={"labels": {"a": "2"}}), manager="m")
    assert written.managed_fields == []


@pytest.mark.parametrize("sent", [None, [{"manager": "x"}], [{}, {}], [{"fieldsV1": {}}], [{"time": NOW}]])
def test_write_without_managed_fields_leaves_them_unchanged(sent: list[Object] | None) -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(), manager="m")
    before = written.body
    written.update(a_slice(metadata={"managedFields": sent}), manager="other")
    assert written.body == before


@pytest.mark.parametrize("sent", [None, {}, "x", [1]])
def test_managers_in_an_apply_that_are_no_list_fail_as_their_type(sent: Any) -> None:
    written = Written("ResourceSlice")
    if sent is None:
        written.apply(a_slice(metadata={"managedFields": sent}), manager="m")
        assert list(times(written)) == ["m"]
    else:
        error = refused(written, a_slice(metadata={"managedFields": sent}), manager="m")
        assert error.code == 500
        assert error.message.startswith(
            "failed to create typed patch object (/s; resource.k8s.io/v1, Kind=ResourceSlice): "
        )


@pytest.mark.parametrize(("metadata", "timed"), [({}, False), ({"managedFields": None}, True)], ids=["absent", "null"])
def test_null_for_managers_counts_as_a_change_of_an_apply(metadata: Object, timed: bool) -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(), manager="creator")
    patch = a_slice(metadata=metadata)
    patch["spec"] = {"driver": patch["spec"]["driver"]}
    written.apply(patch, manager="applier")
    [entry] = [entry for entry in written.managed_fields if entry["manager"] == "applier"]
    assert ("time" in entry) is timed


@pytest.mark.parametrize("sent", [[], [{}], [{"manager": "x"}]])
def test_an_apply_names_no_managers(sent: list[Object]) -> None:
    error = refused(Written("ResourceSlice"), a_slice(metadata={"managedFields": sent}))
    assert (error.code, error.message) == (400, "metadata.managedFields must be nil")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"apiVersion": None, "kind": None}, "/, Kind="),
        ({"apiVersion": "v1"}, "/v1, Kind=ResourceSlice"),
        ({"apiVersion": "resource.k8s.io/v1beta2"}, "resource.k8s.io/v1beta2, Kind=ResourceSlice"),
        ({"kind": "ResourceClaim"}, "resource.k8s.io/v1, Kind=ResourceClaim"),
        ({"apiVersion": "a/b/c"}, "/, Kind="),
        ({"apiVersion": 1, "kind": []}, "/, Kind="),
    ],
)
def test_an_apply_says_of_which_kind_it_is(changes: Object, named: str) -> None:
    patch = {name: x for name, x in {**a_slice(), **changes}.items() if x is not None}
    error = refused(Written("ResourceSlice"), patch)
    assert (error.code, error.reason, error.message) == (400, "BadRequest", f"invalid object type: {named}")


def test_live_managers_that_cannot_be_read_end_an_apply_and_not_an_update() -> None:
    written = Written("ResourceSlice")
    written.store(a_slice(metadata={"uid": "u", "managedFields": [{"manager": "x", "operation": "Bad"}]}))
    error = refused(written, only({"labels": {"a": "1"}}))
    assert (error.code, error.reason) == (500, "")
    assert error.message == "failed to decode managed fields: operation must be `Apply` or `Update`"
    written.update(a_slice(metadata={"labels": {"a": "1"}}))
    assert written.managed_fields == []


def test_conflict_message_stays_within_the_limit_of_an_answer() -> None:
    written = Written("ResourceSlice")
    labels = {f"{'x' * 50}{i}": "1" for i in range(5_000)}
    written.create(a_slice(metadata={"labels": labels}), manager="m" * 128)
    error = refused(written, only({"labels": dict.fromkeys(labels, "2")}), manager="other")
    assert error.message.startswith("Apply failed with 5000 conflicts: conflicts with ")
    assert len(json.dumps(error.status())) < 1 << 20


# --- Times -----------------------------------------------------------------------------------------------------------


def test_only_the_writers_time_changes_and_only_with_its_fields() -> None:
    written = Written("ResourceSlice")
    written.apply(only({"labels": {"a": "1"}}) | {"spec": a_slice()["spec"]}, manager="first")
    written.now = LATER
    written.update(a_slice(metadata={"labels": {"a": "2"}}), manager="second")
    assert times(written) == {"first": NOW, "second": LATER}
    written.now = "2026-03-04T06:00:00Z"
    before = written.body
    written.update(a_slice(metadata={"labels": {"a": "2"}}), manager="third")
    assert written.body == before


def test_rewrite_of_owned_fields_is_noted_with_the_stored_text() -> None:
    """Nobody has to write it down anew."""
    written = Written("ResourceSlice")
    written.create(a_slice(metadata={"labels": {"a": "1", "b": "1"}}), manager="m")
    live, new = written.object, copy.deepcopy(written.object)
    del new["metadata"]["managedFields"]
    new["metadata"]["labels"] = {"a": "2", "b": "1"}
    written.now = LATER
    changed = written.managers.updated(new, live, written.writer(resource_of("ResourceSlice"), "m"))
    [before], [after] = live["metadata"]["managedFields"], changed["metadata"]["managedFields"]
    assert after == before | {"time": LATER}
    assert after["fieldsV1"] is before["fieldsV1"]


def test_an_apply_that_becomes_what_is_stored_keeps_its_time() -> None:
    """A default that the patch does not say is a difference until it is filled in."""
    written = Written("ResourceClaim")
    patch = a_claim()
    patch["spec"]["devices"]["requests"] = [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]
    written.apply(patch, manager="m")
    before = written.body
    written.now = LATER
    written.apply(patch, manager="m")
    assert written.body == before


def test_times_are_kept_only_where_nothing_else_changed() -> None:
    written = Written("ResourceClaim")
    written.apply(a_claim(metadata={"labels": {"a": "1"}}), manager="m")
    written.now = LATER
    written.apply(a_claim(metadata={"labels": {"a": "2"}}), manager="m")
    assert times(written) == {"m": LATER}


# --- kubectl ---------------------------------------------------------------------------------------------------------

CONFIGURATION = "kubectl.kubernetes.io/last-applied-configuration"


def test_kubectl_annotation_is_kept_current_within_its_size_limit() -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(metadata={"annotations": {CONFIGURATION: "{}"}}), manager="c")
    written.apply(only({"annotations": {"x": "<y>"}}), manager="kubectl")
    assert written.object["metadata"]["annotations"][CONFIGURATION] == (
        '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{"annotations":{"x":"\\u003cy\\u003e"},"name":"s"}}\n'
    )
    written.apply(only({"annotations": {"x": "y" * (meta.ANNOTATIONS_BYTES - 50)}}), manager="kubectl")
    assert set(written.object["metadata"]["annotations"]) == {"x"}


@pytest.mark.parametrize(
    ("annotations", "kept"),
    [
        ({}, '"annotations":{},'),
        (None, ""),
        ({"x": None}, '"annotations":{"x":""},'),
        ({CONFIGURATION: "y"}, '"annotations":{},'),
    ],
)
def test_kubectls_annotation_does_not_contain_itself(annotations: Any, kept: str) -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(metadata={"annotations": {CONFIGURATION: "{}"}}), manager="c")
    written.apply(only({"annotations": annotations}), manager="kubectl", force=True)
    assert written.object["metadata"]["annotations"][CONFIGURATION] == (
        f'{{"apiVersion":"resource.k8s.io/v1","kind":"ResourceSlice","metadata":{{{kept}"name":"s"}}}}\n'
    )


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "null",
        "[" * 100_000,
        json.dumps(a_slice("v1beta1")),
        json.dumps({**a_slice(), "kind": "DeviceClass"}),
        json.dumps({**a_slice(), "spec": {"bogus": 1}}),
    ],
    ids=["no JSON", "a list", "null", "deep", "another version", "another kind", "not of the type"],
)
def test_an_annotation_that_says_nothing_gives_kubectl_nothing(text: str) -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(metadata={"annotations": {CONFIGURATION: text}}), manager="c")
    error = refused(written, a_slice(nodeName="other"), manager="kubectl")
    assert error.message == 'Apply failed with 1 conflict: conflict with "c" using resource.k8s.io/v1: .spec.nodeName'


def test_only_kubectl_is_asked_for_its_annotation() -> None:
    assert lastapplied.KUBECTL == "kubectl"
    written = Written("ResourceSlice")
    written.create(a_slice(metadata={"annotations": {CONFIGURATION: "{}"}}), manager="c")
    written.apply(only({"labels": {"a": "1"}}), manager="kubectl-")
    assert written.object["metadata"]["annotations"] == {CONFIGURATION: "{}"}


# --- Admission -------------------------------------------------------------------------------------------------------


def test_managers_that_admission_broke_are_those_from_before_it() -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(), manager="m")
    before, found = written.object, Warnings()
    new = {**before, "metadata": {**before["metadata"], "managedFields": [{"operation": "Bad"}]}}
    written.managers.readmitted(new, before, found)
    assert new["metadata"]["managedFields"] == before["metadata"]["managedFields"]
    assert "operation must be `Apply` or `Update`" in found.headers()[0]


def test_managers_that_admission_changed_in_order_count() -> None:
    written = Written("ResourceSlice")
    written.create(a_slice(), manager="m")
    before, found = written.object, Warnings()
    changed = [{**before["metadata"]["managedFields"][0], "manager": "plugin"}]
    for managed_fields in (changed, []):
        new = {**before, "metadata": {**before["metadata"], "managedFields": managed_fields}}
        written.managers.readmitted(new, before, found)
        assert new["metadata"]["managedFields"] == managed_fields
    assert found.headers() == []


# --- Raw JSON --------------------------------------------------------------------------------------------------------


def test_raw_json_is_compared_by_what_it_means() -> None:
    result = {"request": "r", "driver": "d.io", "pool": "p", "device": "x"}
    device: Object = {"driver": "d.io", "pool": "p", "device": "x", "data": {"b": 1, "a": 2}}
    status = {"allocation": {"devices": {"results": [result]}}, "devices": [device]}
    written = Written("ResourceClaim")
    written.create(a_claim(), manager="c")
    written.update(a_claim(status=status), manager="a", subresource="status")
    device["data"] = {"a": 2, "b": 1.0}
    written.apply({**a_claim(status=status), "spec": {}}, manager="b", subresource="status")
    assert list(managers(written)) == [("b", "v1", "status"), ("a", "v1", "status"), ("c", "v1", "")]
    device["data"] = {"a": 2, "b": True}
    error = refused(written, {**a_claim(status=status), "spec": {}}, manager="d", subresource="status")
    path = '.status.devices[device="x",driver="d.io",pool="p"].data'
    assert [cause["field"] for cause in (error.details or {})["causes"]] == [path, path]


def configured(parameters: bytes, version: str) -> Written:
    """A claim of which somebody who sent it in v1 applied everything empty."""
    obj = a_claim(version)
    obj["spec"]["devices"]["config"] = [{"opaque": {"driver": "d.io", "parameters": rawjson.of(parameters)}}]
    written = Written("ResourceClaim")
    written.create(obj, manager="c", version=version)
    written.apply(a_claim(spec={"devices": {}}), manager="m")
    return written


def test_raw_json_in_an_atomic_list_compares_by_text_across_versions() -> None:
    patch = a_claim("v1beta2", spec={})
    written = configured(b'{"b":1,"a":null}', "v1beta2")
    error = refused(written, patch, manager="m", version="v1beta2")
    assert [cause["field"] for cause in (error.details or {})["causes"]] == [".spec.devices.config"]
    for alike in (configured(b'{"a":null,"b":1}', "v1beta2"), configured(b'{"b":1,"a":null}', "v1")):
        alike.apply(patch, manager="m", version="v1beta2")


def test_the_patch_and_the_stored_object_stay_as_they_are() -> None:
    written = Written("ResourceSlice")
    written.apply(a_slice(metadata={"labels": {"a": "1"}, "annotations": {CONFIGURATION: "{}"}}), manager="kubectl")
    live = {"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1", **written.object}
    before = json.dumps(live, default=str)
    writer = written.writer(resource_of("ResourceSlice"), "kubectl")
    written.managers.applied(only({"labels": {"b": "1"}}), live, writer)
    assert json.dumps(live, default=str) == before
