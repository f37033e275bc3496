"""v1beta1 and v1beta2 beside v1: an object written in one version is read in each; a request in an older one gets a warning."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.codecs.objects import canonical
from apiserver.codecs.protobuf import envelope, messages
from apiserver.kinds.served import Kinds
from tests.fixtures.server import Reply
from tests.promises.api.client import JSON_PATCH, MERGE, PARTIAL, PARTIAL_LIST, TABLE, Client, Object, content
from tests.promises.api.target import UPSTREAM_GROUP, VERSIONS
from tests.promises.api.watching import changes

OLDER = VERSIONS[1:]
SHAPES = Kinds(resources.RESOURCES, group=UPSTREAM_GROUP)
PROTOBUF = "application/vnd.kubernetes.protobuf"
SINCE = {
    "v1beta2": "is deprecated in v1.36+, unavailable in v1.39+",
    "v1beta1": "is deprecated in v1.35+, unavailable in v1.38+",
}
TIME = "2026-01-01T00:00:00Z"


def at(path: str, version: str) -> str:
    return path.replace("/v1/", f"/{version}/", 1) if version != "v1" and "/v1/" in path else path


CONTENT: Object = {
    "attributes": {"a.io/b": {"bool": False}, "model": {"string": "x"}},
    "capacity": {"memory": {"value": "80Gi"}},
    "taints": [{"key": "k", "effect": "NoExecute", "timeAdded": TIME}],
    "bindsToNode": True,
    "bindingConditions": ["x"],
    "bindingFailureConditions": ["y"],
}
POOL: Object = {"driver": "d.example.com", "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}}
BY_DEVICE: Object = {"nodeName": "n", "consumesCounters": [{"counterSet": "c", "counters": {"m": {"value": "1"}}}]}
FLAT = [{"name": "gpu", **CONTENT}, {"name": "bare"}]
NESTED = [{"name": "gpu", "basic": CONTENT}, {"name": "bare", "basic": {}}]
WANTED: Object = {
    "deviceClassName": "c",
    "selectors": [{"cel": {"expression": "device.driver == 'd'"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [{"key": "k", "operator": "Equal", "value": "v"}],
    "capacity": {"requests": {"memory": "1Gi"}},
}
PREFERRED: Object = {"name": "best", "firstAvailable": [{"name": "x", **WANTED}]}
NEW_CLAIM = [{"name": "one", "exactly": WANTED}, PREFERRED]
OLD_CLAIM = [{"name": "one", **WANTED}, {"deviceClassName": "", **PREFERRED}]
SPECS: dict[str, list[tuple[Object, Object]]] = {
    "resourceslices": [
        ({**POOL, "nodeName": "n", "devices": FLAT}, {**POOL, "nodeName": "n", "devices": NESTED}),
        ({**POOL, "allNodes": True}, {**POOL, "allNodes": True}),
        (
            {**POOL, "perDeviceNodeSelection": True, "devices": [{"name": "d", **BY_DEVICE}]},
            {**POOL, "perDeviceNodeSelection": True, "devices": [{"name": "d", "basic": BY_DEVICE}]},
        ),
    ],
    "resourceclaims": [({"devices": {"requests": NEW_CLAIM}}, {"devices": {"requests": OLD_CLAIM}})],
    "deviceclasses": [({"extendedResourceName": "a.io/b"}, {"extendedResourceName": "a.io/b"})],
    "resourceclaimtemplates": [
        (
            {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": NEW_CLAIM}}},
            {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": OLD_CLAIM}}},
        )
    ],
}
"""Some specs of each resource: in v1 and v1beta2, and in v1beta1."""


def spec_of(version: str, spec: tuple[Object, Object]) -> Object:
    return spec[version == "v1beta1"]


def path_of(api: Client, plural: str, mine: str) -> str:
    namespaced = {"resourceclaims": api.claims(mine), "resourceclaimtemplates": api.templates(mine)}
    return namespaced.get(plural, f"{api.v1}/{plural}")


@pytest.mark.parametrize("plural", SPECS)
@pytest.mark.parametrize("written", VERSIONS)
def test_object_written_in_one_version_is_read_in_each(api: Client, mine: str, plural: str, written: str) -> None:
    path = path_of(api, plural, mine)
    label: dict[str, Any] = {"labelSelector": f"mine={mine}"}
    for number, spec in enumerate(SPECS[plural]):
        name = f"{mine}-{number}"
        sent = {"metadata": {"name": name, "labels": {"mine": mine}}, "spec": spec_of(written, spec)}
        made = api.create(at(path, written), sent)
        for version in VERSIONS:
            read = api.get(f"{at(path, version)}/{name}")
            assert read["apiVersion"] == f"{api.group}/{version}"
            assert read["spec"] == spec_of(version, spec)
            assert content(read)["metadata"] == content(made)["metadata"]
            listed = api.get(at(path, version), **label)
            assert listed["apiVersion"] == f"{api.group}/{version}"
            (item,) = (item for item in listed["items"] if item["metadata"]["name"] == name)
            assert item == {member: x for member, x in read.items() if member not in ("kind", "apiVersion")}
            same = api.put(f"{at(path, version)}/{name}", read)
            assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    gone = api.delete(at(path, written), **label)
    assert {item["spec"] is None for item in gone["items"]} == {False}
    assert gone["apiVersion"] == f"{api.group}/{written}"


@pytest.mark.parametrize("plural", SPECS)
@pytest.mark.parametrize("version", VERSIONS)
def test_protobuf_has_the_numbers_of_its_version(api: Client, mine: str, plural: str, version: str) -> None:
    """Written and read by our shapes: a server that had others would find other members."""
    kind = SHAPES.at(UPSTREAM_GROUP, version, plural)
    assert kind is not None
    path = path_of(api, plural, mine)
    for number, spec in enumerate(SPECS[plural]):
        obj = {"metadata": {"name": f"{mine}-{number}"}, "spec": spec_of(version, spec)}
        message = envelope.envelope(f"{api.group}/{version}", kind.kind, messages.encode(kind.shape, obj))
        made = api.ask("POST", at(path, version), message, headers={"Content-Type": PROTOBUF, "Accept": PROTOBUF})
        assert made.status == 201, made.body
        for other in VERSIONS:
            assert api.get(f"{at(path, other)}/{mine}-{number}")["spec"] == spec_of(other, spec)
        read = api.ask("GET", f"{at(path, version)}/{mine}-{number}", headers={"Accept": PROTOBUF}).body
        opened = envelope.opened(read)
        assert (opened.api_version, opened.kind) == (f"{api.group}/{version}", kind.kind)
        found = messages.decode(kind.shape, opened.raw)
        assert messages.encode(kind.shape, found) == opened.raw
        assert canonical.encode(kind.shape, {**found, "metadata": {}}) == canonical.encode(
            kind.shape, {**obj, "metadata": {}}
        )
        again = api.ask("PUT", f"{at(path, version)}/{mine}-{number}", read, headers={"Content-Type": PROTOBUF})
        assert again.json["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]
        api.delete(f"{path}/{mine}-{number}")


@pytest.mark.parametrize("version", VERSIONS)
def test_fields_that_v1beta1_lacks_are_unset(api: Client, mine: str, version: str) -> None:
    spec = {**POOL, "nodeName": "n", "allNodes": False, "devices": []}
    reply = api.ask("POST", at(api.slices, version), {"metadata": {"name": mine}, "spec": spec})
    if version == "v1beta1":
        assert "allNodes" not in api.get(f"{api.slices}/{mine}")["spec"]
        assert "allNodes" not in reply.json["spec"]
    else:
        assert reply.status == 422
    api.ask("DELETE", f"{api.slices}/{mine}")


def test_a_request_of_v1beta1_that_names_no_class_gets_no_defaults(api: Client, mine: str) -> None:
    path = at(api.claims(mine), "v1beta1")
    for asked, wrong in (
        ({"count": 2}, ["exactly.deviceClassName", "exactly.allocationMode"]),
        ({"selectors": []}, ["exactly.deviceClassName", "exactly.allocationMode"]),
        ({"tolerations": []}, ["exactly.deviceClassName", "exactly.allocationMode"]),
        ({"deviceClassName": "c", "allocationMode": "All", "count": 1}, ["exactly.count"]),
        ({"count": 0, "allocationMode": "", "deviceClassName": ""}, [""]),
    ):
        body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r", **asked}]}}}
        refused = api.refusal("POST", path, body)
        at_request = "spec.devices.requests[0]"
        assert [field for field, _ in refused.causes] == [f"{at_request}.{x}".removesuffix(".") for x in wrong], asked


@pytest.mark.parametrize("version", OLDER)
def test_a_patch_is_applied_to_the_document_of_its_version(api: Client, mine: str, version: str) -> None:
    content_at = "/spec/devices/0/basic" if version == "v1beta1" else "/spec/devices/0"
    spec = SPECS["resourceslices"][0]
    api.create(api.slices, {"metadata": {"name": mine}, "spec": spec_of("v1", spec)})
    item = f"{at(api.slices, version)}/{mine}"
    operations = [
        {"op": "test", "path": f"{content_at}/taints/0/key", "value": "k"},
        {"op": "remove", "path": f"{content_at}/taints"},
        {"op": "replace", "path": "/spec/devices/1/name", "value": "other"},
    ]
    patched = api.patch(item, operations, kind=JSON_PATCH)
    assert "taints" not in str(patched["spec"])
    assert [device["name"] for device in api.get(f"{api.slices}/{mine}")["spec"]["devices"]] == ["gpu", "other"]
    assert api.patch(item, {"metadata": {"labels": {"a": "b"}}})["spec"] == patched["spec"]
    changed = api.patch(item, {"spec": {"devices": [{"name": "new"}]}})
    assert changed["spec"]["devices"] == ([{"name": "new", "basic": {}}] if version == "v1beta1" else [{"name": "new"}])
    assert changed["metadata"]["generation"] == 3
    foreign = {"op": "test", "path": "/spec/devices/0/basic", "value": 1}
    assert api.refusal("PATCH", item, [foreign], kind=JSON_PATCH).code == 422
    other = {"apiVersion": f"{api.group}/v1", "metadata": {"labels": {"c": "d"}}}
    assert api.patch(item, other)["apiVersion"] == f"{api.group}/{version}"
    api.delete(item)


@pytest.mark.parametrize("version", OLDER)
def test_the_status_is_written_and_read_in_each_version(api: Client, mine: str, version: str) -> None:
    path = api.claims(mine)
    api.create(path, {"metadata": {"name": "c"}, "spec": {"devices": {"requests": NEW_CLAIM}}})
    result = {"request": "one", "driver": "d.example.com", "pool": "p", "device": "d"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    }
    old = api.get(f"{at(path, version)}/c/status")
    written = api.put(f"{at(path, version)}/c/status", {**old, "status": status})
    assert (written["status"], written["spec"]) == (status, old["spec"])
    assert api.get(f"{path}/c")["status"] == status
    assert api.patch(f"{at(path, version)}/c/status", {"status": None})["status"] == {}


@pytest.mark.parametrize(
    ("version", "body", "message"),
    [
        ("v1beta1", {"spec": {"devices": [{"basic": {"attributes": []}}]}},
         ("json: cannot unmarshal array into Go struct field BasicDevice.spec.devices.basic.attributes of type "
         "map[v1beta1.QualifiedName]v1beta1.DeviceAttribute")),
        ("v1beta1", {"spec": {"allNodes": 1}},
         "json: cannot unmarshal number into Go struct field ResourceSliceSpec.spec.allNodes of type bool"),
        ("v1beta2", {"spec": {"devices": [{"attributes": []}]}},
         ("json: cannot unmarshal array into Go struct field Device.spec.devices.attributes of type "
         "map[v1beta2.QualifiedName]v1beta2.DeviceAttribute")),
        ("v1beta2", {"spec": {"devices": {}}},
         "json: cannot unmarshal object into Go struct field ResourceSliceSpec.spec.devices of type []v1beta2.Device"),
    ],
)  # fmt: skip
def test_misfits_are_reported_in_the_types_of_the_version(api: Client, version: str, body: Any, message: str) -> None:
    refused = api.refusal("POST", at(api.slices, version), body)
    what = f'ResourceSlice in version "{version}" cannot be handled as a ResourceSlice'
    assert refused == (400, "BadRequest", f"{what}: {message}")


def test_misfits_are_reported_in_the_types_of_the_release(api: Client, release: Release) -> None:
    member, go = {
        V1_36: ("nodeAllocatableResourceMappings", "NodeAllocatableResourceMapping"),
        V1_37: ("nodeAllocatableResources", "NodeAllocatableResource"),
    }[release]
    refused = api.refusal("POST", at(api.slices, "v1beta1"), {"spec": {"devices": [{"basic": {member: 1}}]}})
    where = f"number into Go struct field BasicDevice.spec.devices.basic.{member}"
    told = f"json: cannot unmarshal {where} of type map[v1.ResourceName]v1beta1.{go}"
    what = 'ResourceSlice in version "v1beta1" cannot be handled as a ResourceSlice'
    assert refused == (400, "BadRequest", f"{what}: {told}")


def test_unknown_members_are_those_of_the_version(api: Client, mine: str) -> None:
    devices = [{"name": "d", "basic": {"x": 1}, "attributes": {}}]
    body = {"metadata": {"name": mine}, "spec": {**POOL, "nodeName": "n", "devices": devices}}
    found = {"v1beta1": ["[0].basic.x", "[0].attributes"], "v1beta2": ["[0].basic"]}
    for version, unknown in found.items():
        refused = api.refusal("POST", at(api.slices, version), body, fieldValidation="Strict")
        texts = ", ".join(f'unknown field "spec.devices{path}"' for path in unknown)
        assert refused.message.endswith(f"strict decoding error: {texts}")


@pytest.mark.parametrize("version", OLDER)
def test_tables_metadata_and_selectors_are_the_same_in_each_version(api: Client, mine: str, version: str) -> None:
    api.create(api.slices, {"metadata": {"name": mine}, "spec": {**POOL, "nodeName": mine, "devices": FLAT}})
    path, mine_only = at(api.slices, version), {"fieldSelector": f"spec.nodeName={mine},spec.driver=d.example.com"}
    assert [item["metadata"]["name"] for item in api.get(path, **mine_only)["items"]] == [mine]
    table = api.ask("GET", path, headers={"Accept": TABLE}, includeObject="Object", **mine_only).json
    of_v1 = api.ask("GET", api.slices, headers={"Accept": TABLE}, includeObject="Object", **mine_only).json
    assert table["columnDefinitions"] == of_v1["columnDefinitions"]
    (row,) = table["rows"]
    assert row["cells"][:4] == [mine, mine, "d.example.com", "p"]
    assert row["object"] == api.get(f"{path}/{mine}")
    part = api.ask("GET", f"{path}/{mine}", headers={"Accept": PARTIAL}).json
    assert part["metadata"] == row["object"]["metadata"]
    parts = api.ask("GET", path, headers={"Accept": PARTIAL_LIST}, **mine_only).json["items"]
    assert [item["metadata"]["name"] for item in parts] == [mine]
    refused = api.refusal("GET", path, fieldSelector="spec.x=y")
    assert refused.message == f"field label not supported for {api.group}/{version}, Kind=ResourceSlice: spec.x"
    api.delete(f"{path}/{mine}")


@pytest.mark.parametrize("version", OLDER)
def test_a_watch_speaks_its_version_from_the_first_event_on(api: Client, mine: str, version: str) -> None:
    spec = SPECS["resourceclaims"][0]
    path = api.claims(mine)
    api.create(path, {"metadata": {"name": "early"}, "spec": spec_of("v1", spec)})
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(at(path, version), **query) as watch:
        initial, _ = watch.initial()
        api.create(path, {"metadata": {"name": "late"}, "spec": spec_of("v1", spec)})
        api.delete(f"{path}/early")
        events = [*initial, *changes(watch, 2)]
    assert [(kind, obj["metadata"]["name"]) for kind, obj in events] == [
        ("ADDED", "early"),
        ("ADDED", "late"),
        ("DELETED", "early"),
    ]
    assert all(obj["spec"] == spec_of(version, spec) for _, obj in events)
    assert {obj["apiVersion"] for _, obj in events} == {f"{api.group}/{version}"}


@pytest.mark.parametrize("version", OLDER)
def test_every_request_for_an_older_version_is_answered_with_a_warning(api: Client, mine: str, version: str) -> None:
    path = at(api.claims(mine), version)
    body = {"metadata": {"name": "c"}, "spec": spec_of(version, SPECS["resourceclaims"][0])}
    merge = {"Content-Type": MERGE}
    answers: list[tuple[Reply, int]] = [
        (api.ask("POST", path, body), 201),
        (api.ask("POST", path, body), 409),
        (api.ask("POST", path, "{"), 400),
        (api.ask("POST", path, {**body, "metadata": {"name": "C"}}), 422),
        (api.ask("GET", path), 200),
        (api.ask("GET", path, watch="1", timeoutSeconds="1"), 200),
        (api.ask("GET", f"{path}/c"), 200),
        (api.ask("GET", f"{path}/c/status"), 200),
        (api.ask("GET", f"{path}/d"), 404),
        (api.ask("PATCH", f"{path}/c", "{}", headers=merge), 200),
        (api.ask("DELETE", f"{path}/c"), 200),
        (api.ask("DELETE", path), 200),
    ]
    expected = f'299 - "{api.group}/{version} ResourceClaim {SINCE[version]}"'
    for reply, status in answers:
        assert (reply.status, reply.headers.get_all("Warning")) == (status, [expected]), reply.text
    silent = [
        api.ask("GET", api.claims(mine)),
        api.ask("GET", at(f"{api.v1}/", version).rstrip("/")),
        api.ask("PUT", path, body),
        api.ask("GET", f"{path}x"),
        api.ask("PATCH", f"{path}/c", "{}", headers={"Content-Type": "text/plain"}),
    ]
    assert [(reply.status, reply.headers["Warning"]) for reply in silent] == [
        (status, None) for status in (200, 200, 405, 404, 415)
    ]


def test_every_version_has_the_same_kinds_and_shows_the_stored_state(api: Client) -> None:
    documents = [api.get(f"/apis/{api.group}/{version}")["resources"] for version in VERSIONS]
    newest, *older = [{r["name"]: r for r in document if r["kind"] != "DeviceTaintRule"} for document in documents]
    assert older == [newest] * len(older)
    assert all(("storageVersionHash" in told) == ("/" not in name) for name, told in newest.items())
