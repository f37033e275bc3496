"""Handling of an object that a webhook changes: defaults, validation, field managers, and immutable members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.promises.admission.hooks import add, allow, patch
from tests.promises.admission.rig import Object, Rig, warnings
from tests.promises.api.client import ALLOCATED, MERGE, claim, device_class, version

APPLY = "application/apply-patch+yaml"
LABELS = add("/metadata/labels", {"by": "webhook"})
REQUESTS = "/spec/devices/requests"


def managers(obj: Object) -> dict[tuple[str, str], list[str]]:
    """The labels that each (manager, operation) owns."""
    found = {}
    for entry in obj["metadata"]["managedFields"]:
        owned = entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
        found[entry["manager"], entry["operation"]] = sorted(name[2:] for name in owned if name.startswith("f:"))
    return found


# ----------------------------------------------------------------------------------------------------------- what is kept


def test_a_patch_changes_what_is_stored_and_answered(rig: Rig) -> None:
    rig.webhook("mutating", patch(LABELS))

    with rig.api.watch(rig.claims) as watch:
        made = rig.api.create(rig.claims, claim("c"))
        _, seen = watch.next()

    assert made["metadata"]["labels"] == {"by": "webhook"}
    assert rig.api.get(f"{rig.claims}/c") == made
    assert seen == made


def test_webhooks_see_the_results_of_earlier_ones(rig: Rig) -> None:
    """Configurations run in the order of their names, in each its webhooks in order; then all that validate."""
    rig.webhook("validating", name="v")
    rig.webhooks("mutating", rig.hook(patch(add("/metadata/labels/third", "")), name="3"), name=f"{rig.mine}-b")
    rig.webhooks(
        "mutating",
        rig.hook(patch(add("/metadata/labels", {"first": ""})), name="1"),
        rig.hook(patch(add("/metadata/labels/second", "")), name="2"),
        name=f"{rig.mine}-a",
    )

    rig.api.create(rig.claims, claim("c"))

    seen = {call.hook: sorted(call.request["object"]["metadata"].get("labels", {})) for call in rig.calls()}
    assert list(seen.items()) == [
        ("1", []),
        ("2", ["first"]),
        ("3", ["first", "second"]),
        ("v", ["first", "second", "third"]),
    ]


@pytest.mark.parametrize(
    ("operations", "expected"),
    {
        "defaults are set again": (
            [{"op": "remove", "path": f"{REQUESTS}/0/exactly/count"}, {"op": "remove", "path": f"{REQUESTS}/0/exactly/allocationMode"}],
            [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}],
        ),
        "what is added is defaulted": (
            [add(f"{REQUESTS}/-", {"name": "more", "exactly": {"deviceClassName": "more"}})],
            [
                {"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}},
                {"name": "more", "exactly": {"deviceClassName": "more", "allocationMode": "ExactCount", "count": 1}},
            ],
        ),
        "unknown members are dropped": (
            [add("/spec/nope", 1), add(f"{REQUESTS}/0/nope", {"a": 1}), add("/metadata/nope", "x"), add("/nope", [])],
            [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}],
        ),
        "null is not there": (
            [add(f"{REQUESTS}/0/exactly/count", None), add("/spec/devices/constraints", None)],
            [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}],
        ),
        "names of members do not mind their case": (
            [add(f"{REQUESTS}/0/exactly/COUNT", 3)],
            [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}],
        ),
    }.values(),
    ids=lambda value: None,
)  # fmt: skip
def test_a_patched_object_is_read_as_one_that_was_sent(
    rig: Rig, operations: list[Object], expected: list[Object]
) -> None:
    rig.webhook("mutating", patch(*operations))

    made = rig.api.create(rig.claims, claim("c"))

    assert made["spec"] == {"devices": {"requests": expected}}
    assert "nope" not in made
    assert "nope" not in made["metadata"]


@pytest.mark.parametrize(
    ("operations", "causes"),
    [
        ([add(f"{REQUESTS}/0/name", "Not A Name")], ["spec.devices.requests[0].name"]),
        ([add("/metadata/labels", {"a b": "c"})], ["metadata.labels"]),
        ([add("/metadata/finalizers", ["nope"])], ["metadata.finalizers[0]"]),
        ([{"op": "remove", "path": f"{REQUESTS}/0/exactly"}], ["spec.devices.requests[0]"]),
    ],
)
def test_a_patched_object_is_validated_before_validating_webhooks_see_it(
    rig: Rig, operations: list[Object], causes: list[str]
) -> None:
    rig.webhook("mutating", patch(*operations), name="m")
    rig.webhook("validating", name="v")

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert [field for field, _ in refusal.causes][:1] == causes
    assert [call.hook for call in rig.calls()] == ["m"]


def test_a_patch_that_says_what_is_already_so_changes_nothing(rig: Rig) -> None:
    made = rig.api.create(rig.claims, claim("c", labels={"a": "b"}))
    rig.webhook("mutating", patch({"op": "replace", "path": "/metadata/labels/a", "value": "b"}), patch())

    for _ in range(2):
        same = rig.api.patch(f"{rig.claims}/c", {"metadata": {"labels": {"a": "b"}}})
        assert version(same) == version(made)


def test_a_patch_may_take_the_change_back(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c", labels={"a": "b"}))
    rig.webhook("mutating", patch({"op": "remove", "path": "/metadata/labels/c"}), name="m")
    rig.webhook("validating", name="v")

    same = rig.api.patch(f"{rig.claims}/c", {"metadata": {"labels": {"c": "d"}}})

    assert same["metadata"]["labels"] == {"a": "b"}
    [_, last] = rig.calls()
    assert last.request["object"]["metadata"]["labels"] == {"a": "b"}


def test_a_dry_run_answers_with_the_patch_and_stores_nothing(rig: Rig) -> None:
    rig.webhook("mutating", patch(LABELS), sideEffects="NoneOnDryRun")

    tried = rig.api.create(rig.claims, claim("c"), dryRun="All")

    assert tried["metadata"]["labels"] == {"by": "webhook"}
    assert rig.api.get(rig.claims)["items"] == []
    assert [call.request["dryRun"] for call in rig.calls()] == [True]


# -------------------------------------------------------------------------------------------------- what cannot be changed


def test_spec_sent_to_the_status_is_not_stored_nor_the_reverse(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook(
        "mutating",
        patch(add("/status", ALLOCATED), LABELS),
        patch(LABELS, add("/spec", {"devices": {}}), add("/metadata/finalizers", ["example.com/f"])),
    )

    through_main = rig.api.patch(f"{rig.claims}/c", {"metadata": {"annotations": {"a": "b"}}})
    assert "allocation" not in through_main.get("status", {})
    assert through_main["metadata"]["labels"] == {"by": "webhook"}

    through_status = rig.api.patch(f"{rig.claims}/c/status", {"status": ALLOCATED})
    assert through_status["spec"] == through_main["spec"]
    assert through_status["status"]["allocation"]["devices"] == ALLOCATED["allocation"]["devices"]


def test_webhook_must_not_change_immutable_fields_either(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook("mutating", patch(add(f"{REQUESTS}/0/exactly/count", 7)), rules=[rig.rule(operations=["UPDATE"])])

    refusal = rig.api.refusal("PATCH", f"{rig.claims}/c", {"metadata": {"labels": {"a": "b"}}}, kind=MERGE)

    assert refusal.code == 422
    assert refusal.causes == [("spec", "Invalid value: " + refusal.causes[0][1].partition("Invalid value: ")[2])]
    assert refusal.message.endswith(": field is immutable")


CREATES: Mapping[str, tuple[Object, Any]] = {
    "another name": (
        add("/metadata/name", "other"),
        {"name": "other"},
    ),
    "another namespace": (add("/metadata/namespace", "other"), 400),
    "a uid": (add("/metadata/uid", "mine"), {"uid": "fresh"}),
    "a time of creation": (add("/metadata/creationTimestamp", "2001-01-01T00:00:00Z"), {"creationTimestamp": "fresh"}),
    "a time of deletion": (
        add("/metadata/deletionTimestamp", "2001-01-01T00:00:00Z"),
        {"deletionTimestamp": "2001-01-01T00:00:00Z"},
    ),
    "a generation": (add("/metadata/generation", 7), {"generation": 7}),
    "a resourceVersion": (add("/metadata/resourceVersion", "7"), 500),
    "a selfLink": (add("/metadata/selfLink", "x"), {"selfLink": None}),
    "no name": ({"op": "remove", "path": "/metadata/name"}, 422),
}


TEXTS = {
    "another namespace": "the namespace of the provided object does not match the namespace sent on the request",
    "a resourceVersion": "resourceVersion should not be set on objects to be created",
    "no name": 'ResourceClaim.GROUP "" is invalid: metadata.name: Required value: name or generateName is required',
}


@pytest.mark.parametrize("what", CREATES)
def test_webhook_may_set_more_on_a_new_object_than_its_author(rig: Rig, what: str) -> None:
    """Members of the system are wiped from an author's object before."""
    operation, expected = CREATES[what]
    rig.webhook("mutating", patch(operation))

    reply = rig.api.ask("POST", rig.claims, claim("c"))

    if isinstance(expected, int):
        assert reply.status == expected, reply.text
        assert rig.normal(reply.json["message"]) == TEXTS[what]
        return
    assert reply.status == 201, reply.text
    made = reply.json["metadata"]
    for name, value in expected.items():
        if value == "fresh":
            assert made[name] not in (operation["value"], None)
        else:
            assert made.get(name) == value


def test_webhook_sets_the_resource_version_of_an_apply_without_effect(rig: Rig) -> None:
    rig.webhook("mutating", patch(add("/metadata/resourceVersion", "7")))
    applied = {"apiVersion": f"{rig.api.group}/v1", "kind": "ResourceClaim", **claim("c")}
    header = {"Content-Type": "application/apply-patch+yaml"}

    reply = rig.api.ask("PATCH", f"{rig.claims}/c", applied, headers=header, fieldManager="m")

    assert reply.status == 201, reply.text
    assert reply.json["metadata"]["resourceVersion"] not in ("", "7")


def test_there_is_nothing_to_patch_in_a_deletion(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c"))
    rig.webhook("mutating", patch(LABELS), failurePolicy="Ignore")

    refusal = rig.api.refusal("DELETE", f"{rig.claims}/c")

    name = f"hook.{rig.mine}.example.com"
    assert refusal == (
        500,
        "InternalError",
        f'Internal error occurred: admission webhook "{name}" attempted to modify the object, which is not supported for this operation',
    )
    rig.api.get(f"{rig.claims}/c")


# ---------------------------------------------------------------------------------------------------------- field managers


def test_fields_that_a_webhook_adds_have_no_manager(rig: Rig) -> None:
    rig.webhook("mutating", patch(add("/metadata/labels/by", "webhook")))

    made = rig.api.create(rig.claims, claim("c", labels={"own": ""}), fieldManager="creator")
    assert managers(made) == {("creator", "Update"): ["own"]}

    changed = rig.api.patch(
        f"{rig.claims}/c", {"metadata": {"labels": {"other": "", "by": None}}}, fieldManager="patcher"
    )
    assert changed["metadata"]["labels"] == {"own": "", "other": "", "by": "webhook"}
    assert managers(changed) == {("creator", "Update"): ["own"], ("patcher", "Update"): ["other"]}


def test_fields_that_a_webhook_adds_to_an_apply_are_not_applied(rig: Rig) -> None:
    rig.webhook("mutating", patch(add("/metadata/labels/by", "webhook")))
    sent = {"apiVersion": f"{rig.group}/v1", "kind": "ResourceClaim", **claim("c", labels={"own": ""})}

    replies = [
        rig.api.ask("PATCH", f"{rig.claims}/c", json.dumps(sent), headers={"Content-Type": APPLY}, fieldManager="f")
        for _ in range(2)
    ]

    assert [reply.status for reply in replies] == [201, 200]
    first, second = (reply.json for reply in replies)
    assert first["metadata"]["labels"] == {"own": "", "by": "webhook"}
    assert managers(first) == managers(second) == {("f", "Apply"): ["own"]}
    assert version(first) == version(second), "the second changes nothing"


def test_applier_has_no_conflict_with_a_webhook_that_changes_its_field(rig: Rig) -> None:
    rig.webhook("mutating", patch(add("/metadata/labels/by", "webhook")))
    sent = {"apiVersion": f"{rig.group}/v1", "kind": "ResourceClaim", **claim("c", labels={"by": "author"})}

    replies = [
        rig.api.ask("PATCH", f"{rig.claims}/c", json.dumps(sent), headers={"Content-Type": APPLY}, fieldManager="f")
        for _ in range(2)
    ]

    assert [reply.status for reply in replies] == [201, 200], replies[1].text
    assert replies[1].json["metadata"]["labels"] == {"by": "webhook"}
    assert managers(replies[1].json) == {("f", "Apply"): ["by"]}


def test_managed_fields_that_a_webhook_breaks_are_put_back_with_a_warning(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c", labels={"a": "b"}))
    broken = [
        {"op": "remove", "path": f"/metadata/managedFields/0/{name}"}
        for name in ("apiVersion", "fieldsV1", "fieldsType")
    ]
    rig.webhook("mutating", patch(*broken))

    reply = rig.api.ask("PATCH", f"{rig.claims}/c", {}, headers={"Content-Type": MERGE})

    assert reply.status == 200
    assert list(managers(reply.json).values()) == [["a"]]
    assert "".join(warnings(reply)) == (
        ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission "
        "controller; please fix your requests: apiVersion must not be empty"
    )


def test_managed_fields_that_a_webhook_removes_are_removed(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c", labels={"a": "b"}), fieldManager="creator")
    rig.webhook("mutating", patch({"op": "remove", "path": "/metadata/managedFields"}))

    reply = rig.api.ask(
        "PATCH", f"{rig.claims}/c", {"metadata": {"labels": {"c": "d"}}}, headers={"Content-Type": MERGE}
    )

    assert (reply.status, warnings(reply)) == (200, [])
    assert "managedFields" not in reply.json["metadata"]


def test_owners_that_a_webhook_repeats_are_stored_once_with_a_warning(rig: Rig) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u-1"}
    rig.api.create(rig.claims, claim("c", ownerReferences=[owner]))
    rig.webhook("mutating", patch(add("/metadata/ownerReferences/-", owner)))

    for _ in range(2):
        reply = rig.api.ask("PATCH", f"{rig.claims}/c", {}, headers={"Content-Type": MERGE})
        assert reply.status == 200
        assert reply.json["metadata"]["ownerReferences"] == [owner]
        assert "".join(warnings(reply)) == (
            ".metadata.ownerReferences contains duplicate entries after mutating admission happens; API server dedups owner "
            "references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) "
            "observed: u-1"
        )


def test_cluster_scoped_objects_are_changed_as_others_are(rig: Rig) -> None:
    expression = {"cel": {"expression": "device.driver == 'gpu.example.com'"}}
    rig.webhook("mutating", patch(add("/spec/selectors", [expression])), **rig.of_the_cluster("deviceclasses"))
    rig.later(f"{rig.classes}/{rig.mine}")

    made = rig.api.create(rig.classes, device_class(rig.mine, labels=rig.label))

    assert made["spec"] == {"selectors": [expression]}


def test_a_patch_needs_no_type_in_the_older_form(rig: Rig) -> None:
    answer = patch(LABELS)
    answer["review"] = {"response": {"patchType": None}}
    rig.webhook("mutating", answer, admissionReviewVersions=["v1beta1"])

    refusal_or_object = rig.api.ask("POST", rig.claims, claim("c"))

    assert refusal_or_object.status == 201
    assert refusal_or_object.json["metadata"]["labels"] == {"by": "webhook"}


def test_an_allowed_review_needs_no_more_than_that(rig: Rig) -> None:
    rig.webhook("mutating", allow(status={"code": 500, "message": "ignored"}))

    assert rig.api.ask("POST", rig.claims, claim("c")).status == 201
