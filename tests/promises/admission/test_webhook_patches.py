"""Patches of webhooks that cannot be applied, or make what cannot be."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.promises.admission.hooks import add, patch
from tests.promises.admission.rig import Object, Rig
from tests.promises.api.client import MERGE, claim

INTERNAL = "Internal error occurred: "
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
UPDATES: Mapping[str, tuple[Object, int, str]] = {
    "another name": (
        add("/metadata/name", "other"),
        422,
        'ResourceClaim.GROUP "other" is invalid: metadata.name: Invalid value: "other": field is immutable',
    ),
    "another namespace": (
        add("/metadata/namespace", "other"),
        400,
        "the namespace of the provided object does not match the namespace sent on the request",
    ),
    "another uid": (
        add("/metadata/uid", "other"),
        422,
        'ResourceClaim.GROUP "c" is invalid: metadata.uid: Invalid value: "other": field is immutable',
    ),
    "a stale resourceVersion": (
        add("/metadata/resourceVersion", "1"),
        409,
        'Operation cannot be fulfilled on resourceclaims.GROUP "c": ' + MODIFIED,
    ),
    "no resourceVersion": ({"op": "remove", "path": "/metadata/resourceVersion"}, 200, ""),
    "another time of creation": (add("/metadata/creationTimestamp", "2001-01-01T00:00:00Z"), 200, ""),
    "another kind": (
        add("/kind", "DeviceClass"),
        500,
        "converting (v1.DeviceClass) to (resource.ResourceClaim): unknown conversion",
    ),
    "no kind": ({"op": "remove", "path": "/kind"}, 200, ""),
    "an unknown version": (
        add("/apiVersion", "resource.example.com/v1"),
        500,
        INTERNAL + 'no kind "ResourceClaim" is registered for version "resource.example.com/v1" in scheme "SCHEME"',
    ),
    "a number for a text": (
        add("/metadata/labels", {"a": 1}),
        500,
        INTERNAL + "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
    ),
    "a text for a list": (
        add("/spec/devices/requests", "x"),
        500,
        INTERNAL
        + "json: cannot unmarshal string into Go struct field DeviceClaim.spec.devices.requests of type []v1.DeviceRequest",
    ),
    "no object": (
        add("", 7),
        500,
        INTERNAL + 'add operation does not apply: doc is missing path: "": missing value',
    ),
    "null": (
        add("", None),
        500,
        INTERNAL + 'add operation does not apply: doc is missing path: "": missing value',
    ),
    "a path that is not there": (
        {"op": "remove", "path": "/metadata/nope"},
        500,
        INTERNAL + "error in remove for path: '/metadata/nope': Unable to remove nonexistent key: nope: missing value",
    ),
    "a parent that is not there": (
        add("/metadata/nope/a", 1),
        500,
        INTERNAL + 'add operation does not apply: doc is missing path: "/metadata/nope/a": missing value',
    ),
    "a test that fails": (
        {"op": "test", "path": "/metadata/name", "value": "x"},
        500,
        INTERNAL + "testing value /metadata/name failed: test failed",
    ),
    "an unknown operation": (
        {"op": "jump", "path": "/metadata/name"},
        500,
        INTERNAL + "Unexpected kind: jump",
    ),
    "no operation": ({"path": "/metadata/name"}, 500, INTERNAL + "Unexpected kind: unknown"),
    "an index out of bounds": (
        add("/spec/devices/requests/7", {}),
        500,
        INTERNAL
        + "error in add for path: '/spec/devices/requests/7': Unable to access invalid index: 7: invalid index referenced",
    ),
}


@pytest.mark.parametrize("what", UPDATES)
def test_patches_that_cannot_apply_are_reported(rig: Rig, what: str) -> None:
    rig.api.create(rig.claims, claim("c"))
    """The webhook's failurePolicy does not matter."""
    operation, code, text = UPDATES[what]
    rig.webhook("mutating", patch(operation), failurePolicy="Ignore")

    reply = rig.api.ask(
        "PATCH", f"{rig.claims}/c", {"metadata": {"labels": {"a": "b"}}}, headers={"Content-Type": MERGE}
    )

    assert (reply.status, rig.normal(reply.json.get("message", ""))) == (code, text)


TEXT = "into Go value of type string"
POINTERS: Mapping[str, tuple[Object, str]] = {
    "the path of a replacement": (
        {"op": "replace", "path": 1, "value": 1},
        f"replace operation failed to decode path: json: cannot unmarshal number {TEXT}",
    ),
    "the path of a test": (
        {"op": "test", "path": {}, "value": 1},
        f"test operation failed to decode path: json: cannot unmarshal object {TEXT}",
    ),
    "the path of a move": (
        {"op": "move", "path": [], "from": "/metadata/name"},
        f"move operation failed to decode path: json: cannot unmarshal array {TEXT}",
    ),
    "the source of a move": (
        {"op": "move", "path": "/x", "from": True},
        f"move operation failed to decode from: json: cannot unmarshal bool {TEXT}",
    ),
    "the source of a copy": (
        {"op": "copy", "path": "/x", "from": 1.5},
        f"copy operation failed to decode from: json: cannot unmarshal number {TEXT}",
    ),
    "the path of a copy": (
        {"op": "copy", "path": 1, "from": "/metadata/name"},
        "copy operation failed to decode path: missing value",
    ),
    "the path of an addition": (
        {"op": "add", "path": 1, "value": 1},
        "add operation failed to decode path: missing value",
    ),
}


@pytest.mark.parametrize("what", POINTERS)
def test_pointer_that_is_no_text_is_reported(rig: Rig, what: str) -> None:
    operation, said = POINTERS[what]
    rig.webhook("mutating", patch(operation))

    refusal = rig.api.refusal("POST", rig.claims, claim("c"))

    assert (refusal.code, refusal.message) == (500, INTERNAL + said)
