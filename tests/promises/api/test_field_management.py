"""metadata.managedFields and server-side apply: who has set what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_37, Release, at, since
from tests.fixtures.server import Reply
from tests.promises.api.client import (
    ALLOCATED,
    JSON_PATCH,
    MERGE,
    PARTIAL,
    Client,
    Object,
    claim,
    device_class,
    resource_slice,
    version,
)

APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
LABEL: Object = {"f:labels": {"f:a": {}}}
NEW_LABEL: Object = {"f:labels": {".": {}, "f:a": {}}}
NOUN = since(V1_37, "patch", before="YAML")
"""The noun of errors for an applied configuration (APPLIED_NOUN)."""
NO_OBJECT = (
    "error decoding {}: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type "
    "map[string]interface {{}}"
)


def owned(obj: Object) -> dict[str, Object]:
    """The fields of the metadata that each manager has set."""
    return {
        entry["manager"]: entry["fieldsV1"]["f:metadata"]
        for entry in obj["metadata"]["managedFields"]
        if "f:metadata" in entry["fieldsV1"]
    }


def managers(obj: Object) -> list[tuple[str, str, str]]:
    """Managers of an object, their operations, and their subresources."""
    return sorted(
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in obj["metadata"].get("managedFields", [])
    )


def applied(api: Client, obj: Object, kind: str = "DeviceClass", *, version: str = "v1") -> Object:
    """As an applied configuration says it."""
    return {"apiVersion": f"{api.group}/{version}", "kind": kind, **obj}


def send(api: Client, path: str, configuration: Any, manager: str = "me", **query: Any) -> Reply:
    return api.ask("PATCH", path, configuration, headers={"Content-Type": APPLY}, fieldManager=manager, **query)


def apply(api: Client, path: str, configuration: Any, manager: str = "me", **query: Any) -> Object:
    reply = send(api, path, configuration, manager, **query)
    assert reply.status in (200, 201), reply.text
    obj: Object = reply.json
    return obj


@pytest.fixture
def path(api: Client, mine: str) -> str:
    return f"{api.classes}/{mine}"


# Every write


def test_managed_fields_name_the_manager_of_each_field(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine), claim("one", labels={"a": "1"}), fieldManager="maker")
    assert "managedFields" in made["metadata"]

    after = api.patch(f"{api.claims(mine)}/one", {"metadata": {"labels": {"b": "2"}}}, fieldManager="changer")

    assert owned(after) == {
        "maker": {"f:labels": {".": {}, "f:a": {}}},
        "changer": {"f:labels": {"f:b": {}}},
    }


def test_entry_has_manager_operation_version_and_time(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine), claim("one", labels={"a": "1"}), fieldManager="maker")

    (entry,) = made["metadata"]["managedFields"]
    assert entry == {
        "manager": "maker",
        "operation": "Update",
        "apiVersion": f"{api.group}/v1",
        "time": made["metadata"]["creationTimestamp"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": NEW_LABEL,
            "f:spec": {"f:devices": {"f:requests": {}}},
        },
    }


@pytest.mark.parametrize(
    ("agent", "manager"),
    [("kubectl/v1.36 (linux)", "kubectl"), ("a\tb", "ab"), ("/x", "unknown"), ("x" * 200, "x" * 128)],
)
def test_write_without_a_manager_is_named_by_its_user_agent(api: Client, mine: str, agent: str, manager: str) -> None:
    sent = claim("one", labels={"a": "1"})
    reply = api.ask("POST", api.claims(mine), sent, headers={"User-Agent": agent})

    assert managers(reply.json) == [(manager, "Update", "")]


def test_every_kind_of_write_is_tracked(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    api.create(api.claims(mine), claim("one"), fieldManager="post")
    api.put(path, claim("one", labels={"put": "1"}), fieldManager="put")
    api.patch(path, {"metadata": {"labels": {"merge": "1"}}}, fieldManager="merge")
    operations = [{"op": "add", "path": "/metadata/labels/json", "value": "1"}]
    api.patch(path, operations, kind=JSON_PATCH, fieldManager="json")
    api.patch(path, {"metadata": {"labels": {"strategic": "1"}}}, kind=STRATEGIC, fieldManager="strategic")
    apply(api, path, applied(api, {"metadata": {"labels": {"apply": "1"}}}, "ResourceClaim"), "apply")
    after = api.put(f"{path}/status", {**claim("one"), "status": ALLOCATED}, fieldManager="status")

    assert managers(after) == [
        ("apply", "Apply", ""),
        ("json", "Update", ""),
        ("merge", "Update", ""),
        ("post", "Update", ""),
        ("put", "Update", ""),
        ("status", "Update", "status"),
        ("strategic", "Update", ""),
    ]
    assert after == api.get(path)


def test_write_that_changes_nothing_keeps_managers_and_version(api: Client, path: str, mine: str) -> None:
    made = api.create(api.classes, device_class(mine, labels={"a": "1"}), fieldManager="maker")

    assert api.put(path, device_class(mine, labels={"a": "1"}), fieldManager="other") == made
    assert api.patch(path, {"metadata": {"labels": {"a": "1"}}}, fieldManager="other") == made
    assert apply(api, path, applied(api, {"metadata": {"labels": {"a": "1"}}}), "other") != made


def test_atomic_list_differs_from_one_that_contains_an_empty_value(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine), claim("one"), fieldManager="maker")
    sent = claim("one")
    sent["spec"]["devices"]["requests"][0]["exactly"]["tolerations"] = []

    after = api.put(f"{api.claims(mine)}/one", sent, fieldManager="other")

    assert (after["spec"], managers(after)) == (made["spec"], [("other", "Update", "")])


def test_removed_fields_leave_every_manager(api: Client, path: str, mine: str) -> None:
    api.create(api.classes, device_class(mine, labels={"a": "1", "b": "2"}), fieldManager="maker")
    apply(api, path, applied(api, {"metadata": {"labels": {"a": "1"}}}), "applier")

    after = api.patch(path, {"metadata": {"labels": {"a": None}}}, fieldManager="taker")

    assert owned(after) == {"maker": {"f:labels": {".": {}, "f:b": {}}}}


def test_a_dry_run_shows_the_managers_and_keeps_nothing(api: Client, path: str, mine: str) -> None:
    made = api.create(api.classes, device_class(mine, labels={"x": "1"}), fieldManager="maker")

    patched = api.patch(path, {"metadata": {"labels": {"a": "1"}}}, fieldManager="dry", dryRun="All")
    configuration = applied(api, {"metadata": {"labels": {"b": "1"}}})
    dry = apply(api, path, configuration, "dry", dryRun="All")

    assert (owned(patched)["dry"], owned(dry)["dry"]) == (LABEL, {"f:labels": {"f:b": {}}})
    assert api.get(path) == made


@pytest.mark.parametrize("reset", [[], [{}]])
def test_managers_can_be_reset_and_the_write_that_does_so_is_not_tracked(
    api: Client, path: str, mine: str, reset: list[Object]
) -> None:
    api.create(api.classes, device_class(mine, labels={"a": "1"}), fieldManager="maker")

    after = api.put(path, device_class(mine, labels={"a": "2"}, managedFields=reset), fieldManager="resetter")
    assert "managedFields" not in after["metadata"]

    again = api.patch(path, {"metadata": {"labels": {"a": "3"}}}, fieldManager="later")
    assert "managedFields" not in again["metadata"]


def test_fields_from_before_the_first_apply_get_a_manager_of_their_own(api: Client, path: str, mine: str) -> None:
    api.create(api.classes, device_class(mine, labels={"a": "1"}))
    api.patch(path, {"metadata": {"managedFields": []}})
    assert "managedFields" not in api.get(path)["metadata"]

    after = apply(api, path, applied(api, {"metadata": {"labels": {"b": "1"}}}))
    refused = send(api, path, applied(api, {"metadata": {"labels": {"a": "2", "b": "1"}}}))

    assert owned(after) == {"me": {"f:labels": {"f:b": {}}}, "before-first-apply": NEW_LABEL}
    assert (refused.status, 'conflict with "before-first-apply" using' in refused.json["message"]) == (409, True)


def test_sent_managed_fields_replace_the_stored_ones_if_readable(api: Client, path: str, mine: str) -> None:
    made = api.create(api.classes, device_class(mine, labels={"a": "1"}), fieldManager="maker")
    (entry,) = made["metadata"]["managedFields"]

    unread = device_class(mine, labels={"a": "1"}, managedFields=[{**entry, "operation": "Steal"}])
    assert api.put(path, unread) == made

    renamed = device_class(mine, labels={"a": "1"}, managedFields=[{**entry, "manager": "heir"}])
    assert managers(api.put(path, renamed)) == [("heir", "Update", "")]


def test_a_subresource_leaves_managers_that_clients_send_alone(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine), claim("one", labels={"a": "1"}), fieldManager="maker")
    sent = {**made, "metadata": {**made["metadata"], "managedFields": []}, "status": ALLOCATED}

    after = api.put(f"{api.claims(mine)}/one/status", sent, fieldManager="scheduler")

    assert managers(after) == [("maker", "Update", ""), ("scheduler", "Update", "status")]
    assert after["metadata"]["managedFields"][-1]["fieldsV1"].keys() == {"f:status"}


def test_more_than_ten_updaters_are_folded_into_one(api: Client, path: str, mine: str) -> None:
    api.create(api.classes, device_class(mine, labels={"l00": "x"}), fieldManager="m00")
    for n in range(1, 13):
        after = api.patch(path, {"metadata": {"labels": {f"l{n:02}": "x"}}}, fieldManager=f"m{n:02}")

    found = managers(after)
    assert len(found) == 10
    assert ("ancient-changes", "Update", "") in found
    assert set(owned(after)["ancient-changes"]["f:labels"]) == {".", "f:l00", "f:l01", "f:l02", "f:l03"}


def test_object_too_large_with_its_managers_is_stored_without_them(api: Client, mine: str) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}
    many = [{**owner, "uid": f"{i:0220}"} for i in range(4_000)]
    path = f"{api.claims(mine)}/one"

    made = api.create(api.claims(mine), claim("one", ownerReferences=many), fieldManager="maker")
    assert "managedFields" not in made["metadata"]
    assert len(made["metadata"]["ownerReferences"]) == 4_000

    few = api.create(api.claims(mine), claim("two"), fieldManager="maker")
    assert "managedFields" in few["metadata"]
    for method, kind, body in (
        (
            "PUT",
            "application/json",
            {**few, "metadata": {**few["metadata"], "ownerReferences": many, "resourceVersion": ""}},
        ),
        ("PATCH", MERGE, {"metadata": {"ownerReferences": many, "labels": {"a": "1"}}}),
    ):
        reply = api.ask(method, f"{api.claims(mine)}/two", json.dumps(body), headers={"Content-Type": kind})
        assert (reply.status, "managedFields" in reply.json["metadata"]) == (200, False), reply.text[:2000]
    refused = send(api, path, applied(api, {"metadata": {"finalizers": ["a.io/b"]}}, "ResourceClaim"))
    assert (refused.status, refused.json["message"]) == (500, "etcdserver: request is too large")


# Apply


def test_an_apply_creates_and_is_refused_what_another_manager_owns(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    wanted = {"kind": "DeviceClass", "apiVersion": f"{api.group}/v1", **device_class(mine, labels={"a": "1"})}
    headers = {"Content-Type": APPLY}

    assert api.ask("PATCH", path, wanted, headers=headers, fieldManager="first").status == 201
    wanted["metadata"]["labels"] = {"a": "2"}
    refused = api.ask("PATCH", path, wanted, headers=headers, fieldManager="second")
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (409, ".metadata.labels.a")
    forced = api.ask("PATCH", path, wanted, headers=headers, fieldManager="second", force="true")
    assert (forced.status, forced.json["metadata"]["labels"]) == (200, {"a": "2"})
    del wanted["metadata"]["labels"]
    left = api.ask("PATCH", path, wanted, headers=headers, fieldManager="second")
    assert (left.status, "labels" in left.json["metadata"]) == (200, False)


@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}])
def test_an_apply_that_would_create_reads_the_version_that_it_is_given(
    api: Client, mine: str, query: dict[str, str]
) -> None:
    path = f"{api.classes}/{mine}"
    wanted = applied(api, device_class(mine, resourceVersion="abc"))

    refused = send(api, path, wanted, **query)
    assert (refused.status, refused.json["message"]) == (500, 'strconv.ParseUint: parsing "abc": invalid syntax')
    assert api.ask("GET", path).status == 404
    wanted["metadata"]["resourceVersion"] = "0"
    assert send(api, path, wanted, dryRun="All").json["metadata"]["resourceVersion"] == "0"
    assert send(api, path, wanted).status == 201


def test_conflict_names_every_field_and_its_manager(api: Client, path: str, mine: str) -> None:
    apply(api, path, applied(api, device_class(mine, labels={"a": "1", "b": "1"})), "first")
    api.patch(path, {"metadata": {"labels": {"b": "2"}}}, fieldManager="second")

    refused = send(api, path, applied(api, device_class(mine, labels={"a": "3", "b": "3"})), "third")

    updater = f'"second" using {api.group}/v1'
    assert (refused.status, refused.json["reason"]) == (409, "Conflict")
    assert refused.json["message"] == (
        'Apply failed with 2 conflicts: conflicts with "first":\n- .metadata.labels.a\n'
        f"conflicts with {updater}:\n- .metadata.labels.b"
    )
    assert refused.json["details"].keys() == {"causes"}
    # Managers stand in no order upstream.
    assert sorted(refused.json["details"]["causes"], key=lambda cause: str(cause["field"])) == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "first"', "field": ".metadata.labels.a"},
        {"reason": "FieldManagerConflict", "message": f"conflict with {updater}", "field": ".metadata.labels.b"},
    ]
    assert managers(api.get(path)) == [("first", "Apply", ""), ("second", "Update", "")]


def test_the_same_apply_twice_is_one(api: Client, path: str, mine: str) -> None:
    configuration = applied(api, device_class(mine, labels={"a": "1"}))

    first = apply(api, path, configuration)

    assert send(api, path, configuration).json == first
    other = apply(api, path, configuration, "other")
    assert version(other) > version(first)
    assert managers(other) == [("me", "Apply", ""), ("other", "Apply", "")]
    assert [("time" in entry) for entry in other["metadata"]["managedFields"]] == [False, True]


def test_an_apply_that_changes_nothing_leaves_raw_json_as_it_was_sent(api: Client, mine: str) -> None:
    path, obj = f"{api.claims(mine)}/one", claim("one")
    parameters = {"b": 1.0, "a": None}
    obj["spec"]["devices"]["config"] = [{"opaque": {"driver": "d.example.com", "parameters": parameters}}]
    made = api.ask("POST", api.claims(mine), json.dumps(obj, separators=(",", ":"))).json

    left = apply(api, path, applied(api, {"metadata": {"name": "one"}}, "ResourceClaim"))

    assert version(left) == version(made)
    assert '"parameters":{"b":1.0,"a":null}' in api.ask("GET", path).text


def test_an_apply_of_the_status_creates_nothing_and_manages_nothing_else(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    configuration = applied(api, {**claim("one", labels={"a": "1"}), "status": ALLOCATED}, "ResourceClaim")

    assert send(api, f"{path}/status", configuration).status == 404
    apply(api, path, configuration, "user")
    after = apply(api, f"{path}/status", configuration, "driver")

    assert managers(after) == [("driver", "Apply", "status"), ("user", "Apply", "")]
    fields = {entry["manager"]: list(entry["fieldsV1"]) for entry in after["metadata"]["managedFields"]}
    assert fields == {"user": ["f:metadata", "f:spec"], "driver": ["f:status"]}
    assert after["status"]["reservedFor"] == ALLOCATED["reservedFor"]


def test_only_what_is_created_needs_a_name(api: Client, path: str, mine: str) -> None:
    nameless = applied(api, {"metadata": {"labels": {"a": "1"}}, "spec": {}})

    refused = send(api, path, nameless)
    assert (refused.status, refused.json["message"]) == (
        400,
        f"the name of the object ({mine} based on URL) was undeterminable: name must be provided",
    )
    apply(api, path, applied(api, device_class(mine)))
    assert apply(api, path, nameless)["metadata"]["labels"] == {"a": "1"}
    other = send(api, path, applied(api, device_class("other")))
    assert (other.status, other.json["message"]) == (
        400,
        f"the name of the object (other) does not match the name on the URL ({mine})",
    )


def test_the_namespace_of_an_apply_may_be_left_out_but_not_be_another(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    assert apply(api, path, applied(api, claim("one"), "ResourceClaim"))["metadata"]["namespace"] == mine

    refused = send(api, path, applied(api, claim("one", namespace="other"), "ResourceClaim"))

    assert (refused.status, refused.json["message"]) == (
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    )


def test_version_in_a_creating_apply_is_ignored_and_shown_by_a_dry_run(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    configuration = applied(api, device_class(mine, resourceVersion="1"))

    assert send(api, path, configuration, dryRun="All").json["metadata"]["resourceVersion"] == "1"
    created = send(api, path, configuration)
    assert created.status == 201
    assert version(created.json) > 1


def test_an_apply_may_insist_on_a_version_and_on_a_uid(api: Client, path: str, mine: str) -> None:
    foreign = send(api, path, applied(api, device_class(mine, uid="u")))
    assert foreign.status == 409
    assert foreign.json["message"].endswith(
        "uid mismatch: the provided object specified uid u, and no existing object was found"
    )
    made = apply(api, path, applied(api, device_class(mine, resourceVersion="7")))

    stated = made["metadata"]["resourceVersion"]
    after = apply(api, path, applied(api, device_class(mine, resourceVersion=stated, labels={"a": "1"})))
    stale = send(api, path, applied(api, device_class(mine, resourceVersion=stated, labels={"a": "2"})))
    assert stale.status == 409
    assert stale.json["message"].endswith("please apply your changes to the latest version and try again")
    other = send(api, path, applied(api, device_class(mine, uid="other", labels={"a": "1"})))
    assert (other.status, other.json["details"]["causes"][0]["field"]) == (422, "metadata.uid")
    assert api.get(path) == after


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ("{}", (400, "BadRequest", "invalid object type: /, Kind=")),
        ("", (400, "BadRequest", "invalid object type: /, Kind=")),
        ("apiVersion: v1\nkind: Pod", (400, "BadRequest", "invalid object type: /v1, Kind=Pod")),
    ],
)
def test_a_configuration_of_something_else_is_400(
    api: Client, path: str, configuration: str, told: tuple[int, str, str]
) -> None:
    assert api.refusal("PATCH", path, configuration, kind=APPLY, fieldManager="me") == told


def test_configuration_that_is_no_object_or_no_yaml_is_400(api: Client, path: str, release: Release) -> None:
    """CHECK_YAML, APPLIED_NOUN"""
    no_object = api.refusal("PATCH", path, "- a", kind=APPLY, fieldManager="me")
    assert no_object == (400, "BadRequest", NO_OBJECT.format(at(release, NOUN)))

    no_yaml = api.refusal("PATCH", path, "a: b: c", kind=APPLY, fieldManager="me")
    before = since(V1_37, "error encoding patch", before="error decoding YAML: error converting YAML to JSON")
    why = "yaml: mapping values are not allowed in this context"
    assert no_yaml == (400, "BadRequest", f"{at(release, before)}: {why}")


def test_a_configuration_names_no_managers(api: Client, path: str, mine: str) -> None:
    configuration = applied(api, device_class(mine, managedFields=[]))

    told = (400, "BadRequest", "metadata.managedFields must be nil")
    assert api.refusal("PATCH", path, configuration, kind=APPLY, fieldManager="me") == told


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
def test_misfitting_configuration_is_a_raw_500_in_every_validation_mode(
    api: Client, path: str, mine: str, validation: str
) -> None:
    configuration = applied(api, {**device_class(mine), "spec": {"bogus": 1}})

    refusal = api.refusal("PATCH", path, configuration, kind=APPLY, fieldManager="me", fieldValidation=validation)

    kind = f"/{mine}; {api.group}/v1, Kind=DeviceClass"
    assert refusal == (
        500,
        "",
        f"failed to create typed patch object ({kind}): .spec.bogus: field not declared in schema",
    )


def test_repeated_members_are_reported_after_the_apply(api: Client, path: str, mine: str, release: Release) -> None:
    text = f"apiVersion: {api.group}/v1\nkind: DeviceClass\nmetadata:\n  name: {mine}\n  name: {mine}\nspec: {{}}\n"
    told = 'line 5: key "name" already set in map'

    strict = api.refusal("PATCH", path, text, kind=APPLY, fieldManager="me", fieldValidation="Strict")
    warned = send(api, path, text)
    ignored = send(api, path, text, fieldValidation="Ignore")

    assert strict == (
        400,
        "BadRequest",
        f"error strict decoding {at(release, NOUN)}: error converting YAML to JSON: yaml: unmarshal errors:\n  {told}",
    )
    assert (warned.status, ignored.status) == (201, 200)
    assert [text.replace('\\"', '"') for text in warned.headers.get_all("Warning") or []] == [f'299 - "{told}"']
    assert ignored.headers.get_all("Warning") is None


@pytest.mark.parametrize(
    ("query", "field", "told"),
    [
        ({}, "fieldManager", "Required value: is required for apply patch"),
        ({"fieldManager": "x" * 129}, "fieldManager", "Too long: may not be more than 128 bytes"),
        ({"fieldManager": "a\a"}, "fieldManager", 'Invalid value: "a\\a": invalid character U+0007 (at position 1)'),
    ],
)
def test_an_apply_needs_a_manager_that_can_be_printed(
    api: Client, path: str, query: Object, field: str, told: str
) -> None:
    refusal = api.refusal("PATCH", path, "{}", kind=APPLY, **query)

    assert (refusal.code, refusal.reason, refusal.causes) == (422, "Invalid", [(field, told)])


def test_yaml_is_read_as_yaml_and_only_its_first_document(api: Client, path: str, mine: str) -> None:
    text = (
        f"apiVersion: {api.group}/v1\nkind: DeviceClass\nmetadata: {{name: {mine}, labels: {{a: 'yes'}}}}\n"
        "---\nmetadata: {labels: {b: c}}\n"
    )

    assert apply(api, path, text)["metadata"]["labels"] == {"a": "yes"}


def test_defaults_are_filled_in_after_the_merge_and_have_no_manager(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/one"
    configuration = applied(api, claim("one"), "ResourceClaim")

    made = apply(api, path, configuration)

    (request,) = made["spec"]["devices"]["requests"]
    assert request["exactly"] == {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    assert apply(api, path, configuration) == made
    assert send(api, path, configuration, "other").status == 409


@pytest.mark.parametrize("older", ["v1beta1", "v1beta2"])
def test_managers_of_all_versions_share_one_object(api: Client, path: str, mine: str, older: str) -> None:
    api.create(api.classes, device_class(mine, labels={"a": "1"}), fieldManager="maker")
    there = path.replace("/v1/", f"/{older}/")

    after = apply(api, there, applied(api, {"metadata": {"labels": {"b": "1"}}}, version=older))
    assert owned(after) == {"maker": NEW_LABEL, "me": {"f:labels": {"f:b": {}}}}
    assert {entry["manager"]: entry["apiVersion"] for entry in after["metadata"]["managedFields"]} == {
        "maker": f"{api.group}/v1",
        "me": f"{api.group}/{older}",
    }
    assert api.get(path)["metadata"]["managedFields"] == after["metadata"]["managedFields"]
    moved = apply(api, path, applied(api, {"metadata": {"labels": {"c": "1"}}}))
    assert (moved["metadata"]["labels"], managers(moved)) == (
        {"a": "1", "c": "1"},
        [("maker", "Update", ""), ("me", "Apply", "")],
    )


@pytest.mark.parametrize("key", ["v:1 x", 'v:"a"x', "v:nullx", 'k:{"a":1}{}', 'k:{"a":1} x'])
def test_managers_with_data_after_a_value_are_kept_or_dropped(
    api: Client, mine: str, key: str, release: Release
) -> None:
    entry = {
        "manager": "m",
        "operation": "Update",
        "apiVersion": f"{api.group}/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:finalizers": {key: {}}}},
    }
    path = f"{api.classes}/{mine}"
    api.create(api.classes, device_class(mine))
    changed = api.patch(path, {"metadata": {"managedFields": [entry]}})
    expected = at(release, since(V1_37, [], before=["m"]))
    assert [held["manager"] for held in changed["metadata"].get("managedFields", ())] == expected


# Every form


def test_every_form_of_an_object_shows_its_managers(api: Client, path: str, mine: str) -> None:
    made = apply(api, path, applied(api, device_class(mine, labels={"a": "1"})))
    entries = made["metadata"]["managedFields"]
    query = {"fieldSelector": f"metadata.name={mine}"}

    assert api.get(api.classes, **query)["items"][0]["metadata"]["managedFields"] == entries
    partial = api.ask("GET", path, headers={"Accept": PARTIAL}).json
    assert partial["metadata"]["managedFields"] == entries
    with api.watch(api.classes, sendInitialEvents="true", resourceVersionMatch="NotOlderThan", **query) as events:
        assert events.next()[1]["metadata"]["managedFields"] == entries
    message = api.ask("GET", path, headers={"Accept": PROTOBUF}).body
    fields = json.dumps(entries[0]["fieldsV1"], separators=(",", ":")).encode()
    assert fields in message
    put = api.ask("PUT", path, message, headers={"Content-Type": PROTOBUF})
    assert (put.status, put.json) == (200, made)


def test_a_slice_of_many_devices_has_few_managed_fields(api: Client, mine: str) -> None:
    configuration = applied(api, resource_slice(mine), "ResourceSlice")
    configuration["spec"]["devices"] = [{"name": f"gpu-{n}"} for n in range(128)]

    made = apply(api, f"{api.slices}/{mine}", configuration)

    (entry,) = made["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:devices": {},
            "f:driver": {},
            "f:nodeName": {},
            "f:pool": {"f:generation": {}, "f:name": {}, "f:resourceSliceCount": {}},
        }
    }
