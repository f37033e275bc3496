"""Selection of the writes that a webhook is called for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.promises.admission.rig import PHASES, Phase, Rig
from tests.promises.api.client import ALLOCATED, claim

Object = dict[str, Any]
NOBODY: Object = {"expression": "false", "name": "nobody"}


def asked(rig: Rig, hook: str = "") -> list[str]:
    """A creation, an update, one of the status, a deletion: which of them were shown."""
    rig.api.create(rig.claims, claim("c", labels={"a": "1"}))
    rig.api.patch(f"{rig.claims}/c", {"metadata": {"labels": {"b": "2"}}})
    rig.api.patch(f"{rig.claims}/c/status", {"status": ALLOCATED})
    rig.api.delete(f"{rig.claims}/c")
    return [
        "/".join(filter(None, (call.request["operation"], call.request.get("subResource", ""))))
        for call in rig.calls(hook)
        if call.request.get("namespace") == rig.mine
    ]


ALL = ["CREATE", "UPDATE", "UPDATE/status", "DELETE"]
RULES: dict[str, tuple[list[str], Object, list[str]]] = {
    "everything": (["*/*"], {}, ALL),
    "all resources": (["*"], {}, ["CREATE", "UPDATE", "DELETE"]),
    "all of one": (["resourceclaims/*"], {}, ALL),
    "a subresource": (["resourceclaims/status"], {}, ["UPDATE/status"]),
    "that subresource of all": (["*/status"], {}, ["UPDATE/status"]),
    "another subresource": (["resourceclaims/scale"], {}, []),
    "another resource": (["resourceclaimtemplates"], {}, []),
    "two operations": (["*"], {"operations": ["CREATE", "DELETE"]}, ["CREATE", "DELETE"]),
    "another operation": (["*"], {"operations": ["CONNECT"]}, []),
    "another group": (["*"], {"apiGroups": ["apps"]}, []),
    "any group": (["resourceclaims"], {"apiGroups": ["*"]}, ["CREATE", "UPDATE", "DELETE"]),
    "another version": (["*"], {"apiVersions": ["v7"]}, []),
    "of the cluster": (["*"], {"scope": "Cluster"}, []),
    "of any scope": (["*"], {"scope": "*"}, ["CREATE", "UPDATE", "DELETE"]),
}


@pytest.mark.parametrize("what", RULES)
def test_rules_select_what_they_name(rig: Rig, what: str) -> None:
    resources, more, shown = RULES[what]
    members = {"operations": ("*",), **more}
    rig.webhook("validating", rules=[rig.rule(*resources, **members)])
    assert asked(rig) == shown


SELECTORS: dict[str, tuple[Object, list[str]]] = {
    "a label that was there": ({"matchLabels": {"a": "1"}}, ALL),
    "a label that comes": ({"matchLabels": {"b": "2"}}, ["UPDATE", "UPDATE/status", "DELETE"]),
    "no such label, before or after": (
        {"matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
        ["CREATE", "UPDATE"],
    ),
    "one of several values": ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["0", "1"]}]}, ALL),
    "none of several values": ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["0", "1"]}]}, []),
    "nothing at all": ({}, ALL),
}


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("what", SELECTORS)
def test_an_object_selector_looks_at_both_objects(rig: Rig, phase: Phase, what: str) -> None:
    selector, shown = SELECTORS[what]
    rig.webhook(phase, objectSelector=selector)
    assert asked(rig) == shown


def test_a_namespace_selector_looks_at_the_labels_of_the_namespace(rig: Rig) -> None:
    here = {"matchLabels": {"kubernetes.io/metadata.name": rig.mine}}
    elsewhere = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [rig.mine]}]
    }
    rig.webhooks(
        "validating", rig.hook(name="here", namespaceSelector=here), rig.hook(name="not", namespaceSelector=elsewhere)
    )
    assert asked(rig, "here") == ALL
    assert asked(rig, "not") == []


CONDITIONS: dict[str, tuple[list[Object], list[str]]] = {
    "of the operation": ([{"name": "c", "expression": "request.operation == 'CREATE'"}], ["CREATE"]),
    "of the object": ([{"name": "c", "expression": "object != null && 'b' in object.metadata.labels"}], ["UPDATE", "UPDATE/status"]),
    "of the old object": ([{"name": "c", "expression": "oldObject != null && oldObject.metadata.name == 'c'"}], ALL[1:]),
    "of the user": ([{"name": "c", "expression": "request.userInfo.username == 'nobody'"}], []),
    "of rights": ([{"name": "c", "expression": "authorizer.group('').resource('pods').check('get').allowed()"}], ALL),
    "all of several": ([{"name": "a", "expression": "true"}, {"name": "b", "expression": "has(request.subResource)"}], ["UPDATE/status"]),
    "a no beside an error": ([{"name": "a", "expression": "object.nope == 1"}, {"name": "b", "expression": "false"}], []),
}  # fmt: skip


@pytest.mark.parametrize("what", CONDITIONS)
def test_match_conditions_decide_after_everything_else(rig: Rig, what: str) -> None:
    conditions, shown = CONDITIONS[what]
    rig.webhook("validating", matchConditions=conditions)
    assert asked(rig) == shown


@pytest.mark.parametrize("phase", PHASES)
def test_a_condition_that_fails_refuses_where_failures_do(rig: Rig, phase: Phase) -> None:
    broken = [{"name": "c", "expression": "object.nope == 1"}]
    rig.webhook(phase, matchConditions=broken, failurePolicy="Ignore", name="i")
    assert rig.api.create(rig.claims, claim("c"))
    rig.webhook(phase, matchConditions=broken, failurePolicy="Fail", name="f")

    refusal = rig.api.refusal("POST", rig.claims, claim("d"))

    assert refusal.code == 403
    why = "expression 'object.nope == 1' resulted in error: no such key: nope"
    assert refusal.message == f'resourceclaims.{rig.group} "d" is forbidden: {why}'
    assert rig.calls() == []


def test_a_webhook_that_may_have_side_effects_is_not_asked_in_a_dry_run(rig: Rig) -> None:
    rig.webhook("mutating", sideEffects="NoneOnDryRun", name="none")
    assert rig.api.create(rig.claims, claim("c"), dryRun="All")
    [call] = rig.calls()
    assert call.request["dryRun"] is True


@pytest.mark.parametrize("phase", PHASES)
def test_cluster_objects_are_selected_with_any_namespace_selector(rig: Rig, phase: Phase) -> None:
    here = {"matchLabels": {"kubernetes.io/metadata.name": rig.mine}}
    rig.webhook(phase, **{**rig.of_the_cluster("deviceclasses"), "namespaceSelector": here})
    rig.api.create(rig.classes, {"metadata": {"name": rig.mine, "labels": rig.label}, "spec": {}})
    rig.api.delete(f"{rig.classes}/{rig.mine}")
    assert [call.request["operation"] for call in rig.calls()] == ["CREATE", "DELETE"]


def test_removal_of_the_last_finalizer_is_judged_as_update_and_deletion(rig: Rig) -> None:
    rig.api.create(rig.claims, claim("c", finalizers=["foregroundDeletion"]))
    rig.webhook("validating", name="v")
    rig.api.delete(f"{rig.claims}/c", propagationPolicy="Background")
    assert [call.request["operation"] for call in rig.calls()] == ["DELETE", "DELETE"]
