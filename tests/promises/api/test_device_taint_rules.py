"""DeviceTaintRules: the time of their taint, their status, and what only their stable version asks of clients."""

from __future__ import annotations

import re
from typing import Any

import pytest

from apiserver.apimachinery.releases import V1_37, Release
from tests.promises.api.client import JSON_PATCH, MERGE, TABLE, Client, Object, content, names, version

FOREVER_AGO = "2020-01-01T00:00:00Z"
APPLY = "application/apply-patch+yaml"
UNNAMED = [("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")]
CONDITION = {
    "type": "EvictionInProgress",
    "status": "True",
    "reason": "PodsPendingEviction",
    "message": "1 pod",
    "lastTransitionTime": FOREVER_AGO,
}


@pytest.fixture
def rules(api: Client, release: Release) -> str:
    """The path of the newest version that the release has."""
    return f"{api.v1 if release >= V1_37 else older(api)}/devicetaintrules"


def older(api: Client) -> str:
    return f"/apis/{api.group}/v1beta2"


def rule(name: str, *, driver: str = "gpu.example.com", **taint: Any) -> Object:
    members = {"key": "example.com/unhealthy", "effect": "NoExecute", **taint}
    return {"metadata": {"name": name}, "spec": {"deviceSelector": {"driver": driver}, "taint": members}}


def test_new_rule_has_the_time_of_its_creation_and_no_status(api: Client, rules: str, mine: str) -> None:
    made = api.create(rules, {**rule(mine), "status": {"conditions": [CONDITION]}})
    assert made["spec"]["taint"]["timeAdded"] == made["metadata"]["creationTimestamp"]
    assert (made["status"], made["metadata"]["generation"]) == ({}, 1)


def test_time_that_a_client_gives_stays(api: Client, rules: str, mine: str) -> None:
    made = api.create(rules, rule(mine, timeAdded=FOREVER_AGO))
    assert made["spec"]["taint"]["timeAdded"] == FOREVER_AGO


def test_change_of_the_effect_renews_the_time_and_other_changes_do_not(api: Client, rules: str, mine: str) -> None:
    api.create(rules, rule(mine, timeAdded=FOREVER_AGO))
    valued = api.patch(f"{rules}/{mine}", {"spec": {"taint": {"value": "dead"}}})
    assert valued["spec"]["taint"]["timeAdded"] == FOREVER_AGO
    assert valued["metadata"]["generation"] == 2
    milder = api.patch(f"{rules}/{mine}", {"spec": {"taint": {"effect": "NoSchedule"}}})
    assert milder["spec"]["taint"]["timeAdded"] > FOREVER_AGO
    assert milder["metadata"]["generation"] == 3
    chosen = {"effect": "None", "timeAdded": "2021-01-01T00:00:00Z"}
    none = api.patch(f"{rules}/{mine}", {"spec": {"taint": chosen}})
    assert none["spec"]["taint"] == {**valued["spec"]["taint"], **chosen}


def test_applied_effect_renews_the_time(api: Client, rules: str, mine: str) -> None:
    def apply(**taint: Any) -> Object:
        whole = {"apiVersion": rules.removeprefix("/apis/").rpartition("/")[0], "kind": "DeviceTaintRule"}
        return api.patch(f"{rules}/{mine}", {**whole, **rule(mine, **taint)}, kind=APPLY, fieldManager="m")

    api.create(rules, rule(mine, timeAdded=FOREVER_AGO), fieldManager="m")
    assert apply(effect="NoExecute")["spec"]["taint"]["timeAdded"] == FOREVER_AGO
    changed = api.patch(f"{rules}/{mine}", {"spec": {"taint": {"effect": "None"}}})
    assert changed["spec"]["taint"]["timeAdded"] > FOREVER_AGO


def test_status_changes_through_its_endpoint_alone(api: Client, rules: str, mine: str) -> None:
    made = api.create(rules, rule(mine))
    patch: Object = {"spec": {"taint": {"value": "x"}}, "status": {"conditions": [CONDITION]}}
    written = api.patch(f"{rules}/{mine}/status", patch)
    assert written["spec"] == made["spec"]
    assert written["status"] == {"conditions": [CONDITION]}
    assert written["metadata"]["generation"] == 1
    kept = api.patch(f"{rules}/{mine}", {"status": {"conditions": None}, "metadata": {"labels": {"a": "b"}}})
    assert kept["status"] == written["status"]
    assert api.get(f"{rules}/{mine}/status") == kept


def test_conditions_are_merged_by_type(api: Client, rules: str, mine: str) -> None:
    api.create(rules, rule(mine))
    api.patch(f"{rules}/{mine}/status", {"status": {"conditions": [CONDITION]}})
    other = {**CONDITION, "type": "Other"}
    kind = "application/strategic-merge-patch+json"
    merged = api.patch(f"{rules}/{mine}/status", {"status": {"conditions": [other]}}, kind=kind)
    assert {condition["type"] for condition in merged["status"]["conditions"]} == {"EvictionInProgress", "Other"}


def test_nine_conditions_are_too_many(api: Client, rules: str, mine: str) -> None:
    api.create(rules, rule(mine))
    conditions = [{**CONDITION, "type": f"t{i}"} for i in range(9)]
    refused = api.refusal("PATCH", f"{rules}/{mine}/status", {"status": {"conditions": conditions}}, kind=MERGE)
    assert refused.code == 422
    assert refused.causes == [("status.conditions", "Too many: 9: must have at most 8 items")]


def test_wrong_members_are_refused_in_order(api: Client, rules: str, mine: str) -> None:
    wrong = {"metadata": {"name": mine}, "spec": {"deviceSelector": {"driver": "", "pool": "", "device": "a.b"}}}
    refused = api.refusal("POST", rules, wrong)
    assert refused.code == 422
    assert [field for field, _ in refused.causes] == [
        "spec.deviceSelector.driver",
        "spec.deviceSelector.pool",
        "spec.deviceSelector.device",
        "spec.taint.key",
        "spec.taint.key",
        "spec.taint.effect",
    ]
    unknown = api.refusal("POST", rules, rule(mine, effect="PreferNoSchedule"))
    text = 'Unsupported value: "PreferNoSchedule": supported values: "NoExecute", "NoSchedule", "None"'
    assert unknown.causes == [("spec.taint.effect", text)]


def test_table_shows_the_taint(api: Client, rules: str, mine: str) -> None:
    api.create(rules, rule(mine, value="dead", timeAdded=FOREVER_AGO))
    table = api.ask("GET", f"{rules}/{mine}", headers={"Accept": TABLE}).json
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Key",
        "Value",
        "Effect",
        "TimeAdded",
        "Age",
    ]
    name, key, value, effect, added, _ = table["rows"][0]["cells"]
    assert (name, key, value, effect) == (mine, "example.com/unhealthy", "dead", "NoExecute")
    assert re.fullmatch(r"\d+y(\d+d)?", added)


def test_every_version_shows_the_same_rule(api: Client, rules: str, mine: str, release: Release) -> None:
    made = api.create(rules, rule(mine))
    beta = api.get(f"{older(api)}/devicetaintrules/{mine}")
    assert beta["apiVersion"] == f"{api.group}/v1beta2"
    assert {**beta, "apiVersion": made["apiVersion"]} == made
    reply = api.ask("GET", f"{older(api)}/devicetaintrules")
    assert "Warning" not in reply.headers, "the version is not deprecated for this kind"
    assert mine in names(reply.json)


def test_stable_version_answers_a_deletion_with_a_status(api: Client, rules: str, mine: str, release: Release) -> None:
    made = api.create(rules, rule(mine))
    gone = api.delete(f"{rules}/{mine}")
    if release < V1_37:
        assert content(gone) == content(made)
        return
    details = {"name": mine, "group": api.group, "kind": "devicetaintrules", "uid": made["metadata"]["uid"]}
    assert gone == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    made = api.create(f"{older(api)}/devicetaintrules", rule(mine))
    assert content(api.delete(f"{older(api)}/devicetaintrules/{mine}")) == content(made)


def test_rule_that_waits_for_finalizers_is_the_answer_of_its_deletion(api: Client, rules: str, mine: str) -> None:
    obj = rule(mine)
    obj["metadata"]["finalizers"] = ["example.com/f"]
    api.create(rules, obj)
    marked = api.delete(f"{rules}/{mine}")
    assert marked["kind"] == "DeviceTaintRule"
    assert "deletionTimestamp" in marked["metadata"]
    remove = [{"op": "remove", "path": "/metadata/finalizers"}]
    api.patch(f"{rules}/{mine}", remove, kind=JSON_PATCH)
    assert api.refusal("GET", f"{rules}/{mine}").code == 404


def test_collection_is_deleted_with_its_rules_as_the_answer(api: Client, rules: str, mine: str) -> None:
    for number in range(3):
        obj = rule(f"{mine}-{number}")
        obj["metadata"]["labels"] = {"mine": mine}
        api.create(rules, obj)
    gone = api.delete(rules, labelSelector=f"mine={mine}")
    assert gone["kind"] == "DeviceTaintRuleList"
    assert names(gone) == [f"{mine}-{number}" for number in range(3)]
    assert names(api.get(rules, labelSelector=f"mine={mine}")) == []


@pytest.mark.parametrize("endpoint", ["", "/status"])
def test_stable_version_refuses_an_update_without_a_version(
    api: Client, rules: str, mine: str, release: Release, endpoint: str
) -> None:
    made = api.create(rules, rule(mine))
    unnamed = {**made, "metadata": {"name": mine}}
    if release < V1_37:
        api.put(f"{rules}/{mine}{endpoint}", unnamed)
        return
    for sent in ("", "0"):
        refused = api.refusal(
            "PUT", f"{rules}/{mine}{endpoint}", {**unnamed, "metadata": {"name": mine, "resourceVersion": sent}}
        )
        assert (refused.code, refused.reason) == (422, "Invalid")
        assert refused.causes == UNNAMED
        assert refused.details["kind"] == "devicetaintrules"
    emptied = {"metadata": {"resourceVersion": ""}}
    assert api.refusal("PATCH", f"{rules}/{mine}{endpoint}", emptied, kind=MERGE).causes == UNNAMED
    beta = f"{older(api)}/devicetaintrules/{mine}{endpoint}"
    api.put(beta, {**unnamed, "apiVersion": f"{api.group}/v1beta2"})
    assert version(api.put(f"{rules}/{mine}{endpoint}", made)) == version(made)
    absent = api.refusal("PUT", f"{rules}/{mine}-other{endpoint}", {**unnamed, "metadata": {"name": f"{mine}-other"}})
    assert absent.code == 404
