"""metadata.managedFields and server-side apply: who has set what."""

from __future__ import annotations

from tests.promises.api.client import Client, Object, claim, device_class

APPLY = "application/apply-patch+yaml"


def owned(obj: Object) -> dict[str, Object]:
    """The fields of the metadata that each manager has set."""
    return {
        entry["manager"]: entry["fieldsV1"]["f:metadata"]
        for entry in obj["metadata"]["managedFields"]
        if "f:metadata" in entry["fieldsV1"]
    }


def test_managed_fields_say_who_set_what(api: Client, mine: str) -> None:
    made = api.create(api.claims(mine), claim("one", labels={"a": "1"}), fieldManager="maker")
    assert "managedFields" in made["metadata"]

    after = api.patch(f"{api.claims(mine)}/one", {"metadata": {"labels": {"b": "2"}}}, fieldManager="changer")

    assert owned(after) == {
        "maker": {"f:labels": {".": {}, "f:a": {}}},
        "changer": {"f:labels": {"f:b": {}}},
    }


def test_an_apply_creates_and_is_refused_what_another_manager_owns(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    wanted = {"kind": "DeviceClass", "apiVersion": f"{api.group}/v1", **device_class(mine, labels={"a": "1"})}
    apply = {"Content-Type": APPLY}

    assert api.ask("PATCH", path, wanted, headers=apply, fieldManager="first").status == 201
    wanted["metadata"]["labels"] = {"a": "2"}
    refused = api.ask("PATCH", path, wanted, headers=apply, fieldManager="second")
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (409, ".metadata.labels.a")
    forced = api.ask("PATCH", path, wanted, headers=apply, fieldManager="second", force="true")
    assert (forced.status, forced.json["metadata"]["labels"]) == (200, {"a": "2"})
    del wanted["metadata"]["labels"]
    left = api.ask("PATCH", path, wanted, headers=apply, fieldManager="second")
    assert (left.status, "labels" in left.json["metadata"]) == (200, False)
