"""The subresource `status`, and metadata.generation: who changes what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.promises.api.client import (
    ALLOCATED,
    JSON_PATCH,
    MERGE,
    RESERVED,
    RESULT,
    TABLE,
    Client,
    Object,
    claim,
    content,
    device_class,
    resource_slice,
    version,
)


@pytest.fixture
def stored(api: Client, mine: str) -> Object:
    return api.create(api.claims(mine), claim("one", labels={"a": "1"}, finalizers=["example.com/f"]))


@pytest.fixture
def path(api: Client, mine: str, stored: Object) -> str:
    return f"{api.claims(mine)}/one"


def test_status_is_written_at_its_own_endpoint_only(api: Client, stored: Object, path: str) -> None:
    ignored = api.put(path, {**stored, "status": ALLOCATED})
    assert ignored == stored

    written = api.put(f"{path}/status", {**stored, "status": ALLOCATED})
    assert written["status"]["reservedFor"] == RESERVED
    assert version(written) > version(stored)
    assert api.get(f"{path}/status") == api.get(path) == written

    kept = api.put(path, {**written, "status": {}})
    assert kept == written
    assert api.patch(path, {"status": None, "metadata": {"labels": {"b": "2"}}})["status"] == written["status"]


def test_a_status_write_leaves_everything_else_as_stored(api: Client, stored: Object, path: str) -> None:
    sent = {
        **stored,
        "status": ALLOCATED,
        "spec": {"devices": {}},
        "metadata": {
            **stored["metadata"],
            "labels": {"x": "y"},
            "annotations": {"x": "y"},
            "finalizers": [],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
            "generation": 9,
            "deletionTimestamp": "2001-01-01T00:00:00Z",
            "creationTimestamp": "2001-01-01T00:00:00Z",
        },
    }

    for written in (
        api.put(f"{path}/status", sent),
        api.patch(f"{path}/status", {"spec": None, "metadata": {"labels": None}}),
    ):
        assert {**content(written), "status": None} == {**content(stored), "status": None}


def test_a_status_patch_is_judged_like_any_other(api: Client, stored: Object, path: str) -> None:
    patched = api.patch(f"{path}/status", {"status": ALLOCATED})
    assert patched["status"]["allocation"]["devices"]["results"] == [RESULT]
    assert api.patch(f"{path}/status", {"status": ALLOCATED}) == patched, "a no-op"
    operations = [{"op": "remove", "path": "/status/reservedFor"}]
    assert "reservedFor" not in api.patch(f"{path}/status", operations, kind=JSON_PATCH)["status"]

    stale = {"metadata": {"resourceVersion": stored["metadata"]["resourceVersion"]}}
    assert api.refusal("PATCH", f"{path}/status", stale, kind=MERGE).code == 409
    other = {"metadata": {"uid": "x"}}
    assert api.refusal("PATCH", f"{path}/status", other, kind=MERGE).code == 422
    assert api.refusal("PUT", f"{path}/status", {**stored, **other}).code == 400
    named = {**stored, "metadata": {**stored["metadata"], "uid": "x", "resourceVersion": ""}}
    assert api.refusal("PUT", f"{path}/status", named).code == 409
    bad = {"status": {"reservedFor": [{"resource": "", "name": "p", "uid": "u"}]}}
    refusal = api.refusal("PATCH", f"{path}/status", bad, kind=MERGE)
    assert (refusal.code, refusal.causes[0][0]) == (422, "status.reservedFor[0].resource")


def test_a_status_write_that_changes_nothing_writes_nothing(api: Client, stored: Object, path: str) -> None:
    assert api.put(f"{path}/status", stored) == stored
    assert api.put(f"{path}/status", {**claim("one"), "status": {}}) == stored


def test_status_of_an_absent_object_is_404_and_is_never_created(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/none/status"
    assert api.refusal("GET", path).code == 404
    assert api.refusal("PUT", path, claim("none")).code == 404
    assert api.refusal("PATCH", path, {}, kind=MERGE).code == 404
    assert api.refusal("POST", path, claim("none")).code == 405


def test_status_has_no_table(api: Client, path: str) -> None:
    assert api.ask("GET", f"{path}/status", headers={"Accept": TABLE}).status == 406


def test_a_status_write_goes_on_while_the_object_is_being_deleted(api: Client, stored: Object, path: str) -> None:
    api.patch(f"{path}/status", {"status": ALLOCATED})
    marked = api.delete(path)

    written = api.patch(f"{path}/status", {"status": {"reservedFor": None}, "metadata": {"finalizers": None}})

    assert written["status"].keys() == {"allocation"}

    assert written["metadata"]["finalizers"] == ["example.com/f"], "the last finalizer is not removed here"
    assert written["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    assert api.patch(path, {"metadata": {"finalizers": None}})["status"] == written["status"]
    assert api.refusal("GET", path).code == 404


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "POST"])
def test_kinds_without_a_status_have_no_such_path(api: Client, mine: str, method: str) -> None:
    api.create(api.classes, device_class(mine))
    api.create(api.slices, resource_slice(mine))
    api.create(api.templates(mine), {"metadata": {"name": "t"}, "spec": {"spec": claim()["spec"]}})
    for path in (f"{api.classes}/{mine}", f"{api.slices}/{mine}", f"{api.templates(mine)}/t"):
        body: Object | None = None if method in ("GET", "DELETE") else {}
        refusal = api.refusal(method, f"{path}/status", body, kind=MERGE if method == "PATCH" else "")
        assert refusal == (404, "NotFound", "the server could not find the requested resource")


def test_generation_counts_changes_of_the_spec(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    expression = {"selectors": [{"cel": {"expression": "true"}}]}
    made = api.create(api.classes, {**device_class(mine, generation=7), "spec": {}})
    assert made["metadata"]["generation"] == 1

    steps = [
        ({"metadata": {"labels": {"a": "b"}}}, 1),
        ({"spec": expression}, 2),
        ({"spec": expression}, 2),
        ({"metadata": {"generation": 99}}, 2),
        ({"spec": {"selectors": []}}, 3),
        ({"spec": {"selectors": None}}, 3),
        ({"metadata": {"generation": None}}, 3),
        ({"spec": expression, "metadata": {"annotations": {"x": "y"}}}, 4),
    ]
    for patch, generation in steps:
        assert api.patch(path, patch)["metadata"]["generation"] == generation, patch


def test_a_mark_for_deletion_counts_as_a_change_once(api: Client, mine: str) -> None:
    path = f"{api.slices}/{mine}"
    assert api.create(api.slices, resource_slice(mine, finalizers=["example.com/f"]))["metadata"]["generation"] == 1

    assert api.delete(path)["metadata"]["generation"] == 2
    assert api.delete(path)["metadata"]["generation"] == 2
    assert api.delete(path, propagationPolicy="Foreground")["metadata"]["generation"] == 2
    api.patch(path, {"metadata": {"finalizers": None}})


def test_the_same_amount_in_another_spelling_is_no_change(api: Client, mine: str) -> None:
    made = resource_slice(mine)
    made["spec"]["devices"][0]["capacity"] = {"memory": {"value": "1Gi"}}
    before = api.create(api.slices, made)
    made["spec"]["devices"][0]["capacity"] = {"memory": {"value": "1024Mi"}}

    assert api.put(f"{api.slices}/{mine}", made)["metadata"]["generation"] == before["metadata"]["generation"]


def test_equal_values_in_another_spelling_are_no_change(api: Client, mine: str) -> None:
    made = resource_slice(mine)
    taint = {"key": "a", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
    device: Object = {
        "name": "gpu-0",
        "attributes": {"on": {"bool": True}},
        "capacity": {"memory": {"value": "2500m"}},
        "taints": [taint],
    }
    made["spec"]["devices"] = [device, {"name": "gpu-1", "attributes": {}}]
    api.create(api.slices, made)

    def generation(**changes: Any) -> int:
        sent = {**made, "spec": {**made["spec"], "devices": [{**device, **changes}, {"name": "gpu-1"}]}}
        found: int = api.put(f"{api.slices}/{mine}", sent)["metadata"]["generation"]
        return found

    assert generation() == 1, "empty maps and absent ones"
    assert generation(bindingConditions=[], consumesCounters=None) == 1, "empty lists and absent ones"
    assert generation(capacity={"memory": {"value": "2.5"}}) == 1, "amounts"
    assert generation(taints=[{**taint, "timeAdded": "2026-01-01T02:00:00+02:00"}]) == 1, "times"
    assert generation(taints=[{**taint, "value": ""}]) == 1, "empty texts and absent ones"
    assert generation(attributes={"on": {"bool": False}}) == 2, "false is a value"
    assert generation(attributes={"on": {"bool": False}}, capacity={"memory": {"value": "2501m"}}) == 3
    assert generation(attributes={"on": {"bool": False}}, taints=[{**taint, "timeAdded": "2026-01-01T00:00:01Z"}]) == 4


def test_a_claim_may_be_sent_in_another_spelling(api: Client, mine: str) -> None:
    def sent(amount: str, **members: Any) -> Object:
        exactly = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": amount}}, **members}
        return {"metadata": {"name": "one"}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}}

    before = api.create(api.claims(mine), sent("1Gi"))
    path = f"{api.claims(mine)}/one"
    same = sent("1024Mi", count=1, allocationMode="ExactCount", selectors=[], tolerations=None)
    assert api.put(path, same) == before
    assert api.refusal("PUT", path, sent("1025Mi")).causes[0][0] == "spec"
    assert api.refusal("PUT", path, sent("1Gi", adminAccess=False)).causes[0][0] == "spec", "false is not absent"


def test_templates_have_no_generation_but_the_one_they_were_given(api: Client, mine: str) -> None:
    path = f"{api.templates(mine)}/one"
    sent = {"metadata": {"name": "one", "generation": 5}, "spec": {"spec": claim()["spec"]}}
    assert api.create(api.templates(mine), sent)["metadata"]["generation"] == 5
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}, "generation": 9}})["metadata"]["generation"] == 5
    refusal = api.refusal("PATCH", path, {"spec": {"spec": {"devices": {"requests": None}}}}, kind=MERGE)
    assert [field for field, _ in refusal.causes] == ["spec"]
    bad = {"spec": {"spec": {"devices": {"requests": [{"name": "gpu"}]}}}}
    refusal = api.refusal("PATCH", path, bad, kind=MERGE)
    assert [field for field, _ in refusal.causes] == ["spec.spec.devices.requests[0]", "spec"]


def test_claims_have_no_generation_but_the_one_they_were_given(api: Client, mine: str) -> None:
    assert "generation" not in api.create(api.claims(mine), claim("one"))["metadata"]
    api.create(api.claims(mine), claim("two", generation=5, finalizers=["example.com/f"]))
    path = f"{api.claims(mine)}/two"

    assert api.patch(path, {"metadata": {"labels": {"a": "b"}, "generation": 9}})["metadata"]["generation"] == 5
    assert api.delete(path)["metadata"]["generation"] == 6
    api.patch(path, {"metadata": {"finalizers": None}})
    assert api.refusal("POST", api.claims(mine), claim("three", generation=-1)).code == 422


def test_reports_of_devices_go_with_their_allocation(api: Client, stored: Object, path: str) -> None:
    other = {**RESULT, "device": "gpu-1"}
    reports = [
        {**{name: result[name] for name in ("driver", "pool", "device")}, "conditions": None}
        for result in (RESULT, other)
    ]

    def status(results: list[Object], devices: list[Object]) -> Object:
        sent = {"status": {"allocation": {"devices": {"results": results}} if results else None, "devices": devices}}
        found: Object = api.patch(f"{path}/status", sent)["status"]
        return found

    assert status([RESULT, other], reports)["devices"] == reports
    assert status([], reports) == {}
    refusal = api.refusal("PATCH", f"{path}/status", {"status": {"devices": reports}}, kind=MERGE)
    assert [field for field, _ in refusal.causes] == ["status.devices[0]", "status.devices[1]"]
    assert status([other], reports[1:])["devices"] == reports[1:]
    renamed = [{**other, "shareID": "0b6d53b0-0000-4000-8000-000000000001"}]
    refusal = api.refusal(
        "PATCH", f"{path}/status", {"status": {"allocation": {"devices": {"results": renamed}}}}, kind=MERGE
    )
    assert [field for field, _ in refusal.causes] == ["status.allocation"]


def test_an_allocation_may_be_sent_again_in_another_spelling(api: Client, path: str) -> None:
    def status(amount: str) -> Object:
        return {
            "status": {"allocation": {"devices": {"results": [{**RESULT, "consumedCapacity": {"memory": amount}}]}}}
        }

    before = api.patch(f"{path}/status", status("1Gi"))
    assert api.patch(f"{path}/status", status("1024Mi")) == before
    refusal = api.refusal("PATCH", f"{path}/status", status("2Gi"), kind=MERGE)
    assert [field for field, _ in refusal.causes] == ["status.allocation"]


def test_a_warning_of_the_kind_comes_with_every_write(api: Client, mine: str) -> None:
    loud = resource_slice(mine)
    loud["spec"]["driver"] = "GPU.example.com"
    text = 'driver names should be lowercase; \\"GPU.example.com\\" contains uppercase characters'
    one = f"{api.slices}/{mine}"
    sent: list[tuple[str, str, Any]] = [
        ("POST", f"{api.slices}?dryRun=All", loud),
        ("POST", api.slices, loud),
        ("PUT", one, loud),
        ("PATCH", one, {}),
        ("PATCH", one, {"metadata": {"labels": {"a": "b"}}}),
    ]
    for method, path, body in sent:
        kind = {"Content-Type": MERGE} if method == "PATCH" else None
        (warning,) = api.ask(method, path, body, headers=kind).headers.get_all("Warning") or []
        assert text in warning
    assert api.ask("GET", one).headers.get_all("Warning") is None
    assert api.ask("PUT", one, {**loud, "metadata": {"name": "other"}}).headers.get_all("Warning") is None
    assert api.group in api.get(f"{api.slices}/{mine}")["apiVersion"]


@pytest.mark.parametrize("source", ["<&>", "\x7f", "\u200b", "\x0b"])
def test_unsupported_source_is_quoted_as_json(api: Client, mine: str, stored: Object, path: str, source: str) -> None:
    config = {"source": source, "opaque": {"driver": "d.example.com", "parameters": {}}}
    devices = {**ALLOCATED["allocation"]["devices"], "config": [config]}
    refused = api.ask("PUT", f"{path}/status", {**stored, "status": {"allocation": {"devices": devices}}})
    quoted = json.dumps(source, ensure_ascii=False).replace("\\u007f", "\x7f")
    for plain, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        quoted = quoted.replace(plain, escaped)
    assert refused.status == 422
    assert refused.json["details"]["causes"][0]["message"] == (
        f'Unsupported value: {quoted}: supported values: "FromClaim", "FromClass"'
    )
