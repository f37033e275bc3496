"""Outcomes of validating policies: statuses, texts, warnings, and which policies apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fixtures.server import Reply
from tests.promises.admission import stage as requests
from tests.promises.admission.cluster import Cluster
from tests.promises.admission.rig import Rig
from tests.promises.admission.stage import LABEL, Policy, Stage, Stages
from tests.promises.admission.test_policies_see import COSTLY
from tests.promises.api.client import Client, Refusal
from tests.promises.api.target import Target

CONFIG_MAP = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
EXCEEDED = "operation cancelled: actual cost limit exceeded"
DIVIDED, MISSING = "1 / (size(object.spec) - 1) == 0", "object.nope == 1"
CHECK = "authorizer.group('apps').resource('deployments').namespace('x').check('create').allowed()"


def failed(text: str, problem: str) -> str:
    return f"expression '{text}' resulted in error: {problem}"


DIVISION, KEY = failed(DIVIDED, "division by zero"), failed(MISSING, "no such key: nope")
NO: Mapping[str, Any] = {"validations": [{"expression": "false"}]}
YES: Mapping[str, Any] = {"validations": [{"expression": "true"}]}
REFUSED = "failed expression: false"


@dataclass(frozen=True)
class Denied:
    """The message of a policy, and the binding through which it denies, None for no binding."""

    text: str
    code: int = 422
    reason: str = "Invalid"
    binding: int | None = 0
    name: str = ""
    resource: str = "resourceclaims"


Outcome = Denied | list[str]
"""A list: the request passes with these warnings."""
PASSED: list[str] = []


def says(*validations: Mapping[str, Any] | str, **spec: Any) -> Policy:
    return Policy({"validations": [{"expression": v} if isinstance(v, str) else v for v in validations], **spec})


def told(expression: str, **more: Any) -> Policy:
    """One that refuses with what the expression says."""
    return says({"expression": "false", "message": "no", "messageExpression": expression}, **more)


def when(*conditions: str, **spec: Any) -> Policy:
    """One that refuses if these hold."""
    named = [{"name": f"c{at}", "expression": text} for at, text in enumerate(conditions)]
    return says("false", matchConditions=named, **spec)


def noted(*expressions: str, **spec: Any) -> Policy:
    notes = [{"key": f"k{at}", "valueExpression": text} for at, text in enumerate(expressions)]
    return Policy({"auditAnnotations": notes, **spec})


def bound(*bindings: Mapping[str, Any], spec: Mapping[str, Any] = NO, **more: Any) -> Policy:
    return Policy(spec, bindings=bindings, **more)


def params(
    reference: Mapping[str, Any] | None, text: str, *, kind: Mapping[str, Any] = CONFIG_MAP, **more: Any
) -> Policy:
    """One that refuses with what the expression says of the parameters."""
    validation = {"expression": "false", "message": "no", "messageExpression": f"string({text})"}
    binding = {} if reference is None else {"paramRef": {"parameterNotFoundAction": "Allow", **reference}}
    return Policy({"validations": [validation], **kind, **more.pop("spec", {})}, bindings=(binding,), **more)


def kind(api_version: str, name: str) -> Mapping[str, Any]:
    return {"paramKind": {"apiVersion": api_version, "kind": name}}


def relabelled(stage: Stage, key: str) -> Reply:
    """The claim loses the label by which the policy finds it."""
    obj = stage.stored(key)
    obj["metadata"]["labels"] = {}
    return stage.api.ask("PUT", stage.path(key), obj)


OTHER = {"matchLabels": {"other": "label"}}
OLDER = {"apiGroups": ["*"], "apiVersions": ["v1beta1"], "operations": ["*"], "resources": ["resourceclaims"]}
EXISTS = {"key": "x", "operator": "Exists"}
NAMED = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
UNKNOWN = "failed to configure policy: failed to find resource referenced by paramKind: "
DENY = "no params found for policy binding with `Deny` parameterNotFoundAction"

CASES: Mapping[str, tuple[Policy, Outcome]] = {
    # Messages
    "expression": (says(" object.metadata.name == 'x' "), Denied("failed expression: object.metadata.name == 'x'")),
    "message": (says({"expression": "false", "message": " not so "}), Denied("not so")),
    "message-expression": (told("'by ' + request.operation"), Denied("by CREATE")),
    "message-trimmed": (told("' \\t so '"), Denied("so")),
    "message-of-blanks": (told("' '"), Denied("no")),
    "message-of-lines": (told("'a\\nb'"), Denied("no")),
    "message-of-one-line": (told("'a\\n'"), Denied("a")),
    "message-with-an-error": (told("string(object.nope)"), Denied("no")),
    "message-of-an-error-alone": (says({"expression": "false", "messageExpression": "string(object.nope)"}), Denied(REFUSED)),
    "message-of-5120-bytes": (told(f"'{'x' * 5120}'"), Denied("x" * 5120)),
    "message-of-5121-bytes": (told(f"'{'x' * 5121}'"), Denied("no")),
    "message-of-characters": (told(f"'{'é' * 2561}'"), Denied("no")),
    "message-of-variables": (told("'%d' .format([variables.n])", variables=[{"name": "n", "expression": "1 + 1"}]), Denied("2")),
    "message-of-an-authorizer": (told("string(variables.may)", variables=[{"name": "may", "expression": CHECK}]), Denied("no")),
    "two": (says("true", {"expression": "false", "message": "one"}, {"expression": "false", "message": "two"}), Denied("one")),
    "reason-forbidden": (says({"expression": "false", "reason": "Forbidden"}), Denied(REFUSED, 403, "Forbidden")),
    "reason-invalid": (says({"expression": "false", "reason": "Invalid"}), Denied(REFUSED)),
    "reason-too-large": (
        says({"expression": "false", "reason": "RequestEntityTooLarge"}), Denied(REFUSED, 413, "RequestEntityTooLarge")
    ),
    # Errors and costs
    "error": (says(DIVIDED), Denied(DIVISION)),
    "error-with-a-reason": (says({"expression": DIVIDED, "reason": "Forbidden"}), Denied(DIVISION)),
    "error-ignored": (says(DIVIDED, failurePolicy="Ignore"), PASSED),
    "error-first": (says(MISSING, "false"), Denied(KEY)),
    "error-ignored-first": (says(MISSING, "false", failurePolicy="Ignore"), Denied(REFUSED)),
    "error-in-a-variable": (
        says("variables.x == 1", variables=[{"name": "x", "expression": "1 / (size(object.spec) - 1)"}]),
        Denied(failed("variables.x == 1", 'composited variable "x" fails to evaluate: division by zero')),
    ),
    "error-absorbed": (says(f"{DIVIDED} || true"), PASSED),
    "unused-variable": (says("true", variables=[{"name": "x", "expression": "1 / 0"}]), PASSED),
    "costly": (says(COSTLY), Denied(failed(COSTLY, EXCEEDED))),
    "costly-ignored": (says(COSTLY, failurePolicy="Ignore"), PASSED),
    "costly-together": (says(*[COSTLY] * 11), Denied(BUDGET)),
    "costly-together-ignored": (says(*[COSTLY] * 11, failurePolicy="Ignore"), PASSED),
    "costly-checks": (says(f"{CHECK} && {CHECK} && {CHECK}"), Denied(failed(f"{CHECK} && {CHECK} && {CHECK}", EXCEEDED))),
    "costly-checks-together": (says(*[CHECK] * 29), Denied(BUDGET)),
    "checks": (says(*[CHECK] * 28), PASSED),
    "costly-messages": (
        says(*[{"expression": "true", "messageExpression": f"{COSTLY} ? 'a' : 'b'"}] * 11), Denied(f"failed messageExpression: {BUDGET}")
    ),
    "costly-messages-of-an-error": (
        says(MISSING, *[{"expression": "true", "messageExpression": f"{COSTLY} ? 'a' : 'b'"}] * 11), Denied(KEY)
    ),
    "note-error": (noted(f"{DIVIDED} ? 'a' : 'b'"), Denied(failed(f"{DIVIDED} ? 'a' : 'b'", "division by zero"))),
    "note-error-ignored": (noted(f"{DIVIDED} ? 'a' : 'b'", failurePolicy="Ignore"), PASSED),
    "note-of-nothing": (noted("null", "' '", "'x'"), PASSED),
    "note-error-and-refusal": (
        Policy({**NO, "auditAnnotations": [{"key": "k", "valueExpression": "string(object.nope)"}]}), Denied(REFUSED)
    ),
    "costly-notes": (noted(*[f"{COSTLY} ? 'a' : 'b'"] * 11), Denied(BUDGET)),
    # Conditions
    "condition": (when("request.operation == 'CREATE'"), Denied(REFUSED)),
    "condition-false": (when("true", "false"), PASSED),
    "condition-error": (when(DIVIDED), Denied(DIVISION)),
    "condition-error-ignored": (when(DIVIDED, failurePolicy="Ignore"), PASSED),
    "condition-errors": (when(DIVIDED, "true", MISSING, DIVIDED), Denied(f"[{DIVISION}, {KEY}]")),
    "condition-error-and-false": (when(DIVIDED, "false"), PASSED),
    "condition-of-a-namespace": (
        when("namespaceObject.metadata.name == 'x'"), Denied(failed("namespaceObject.metadata.name == 'x'", "no such key: metadata"))
    ),
    "condition-of-a-resource": (
        Policy(when("request.resource.version == 'v1'", "request.kind.version == 'v1beta1'").spec, rule={"apiVersions": ["v1beta1"]}),
        Denied(REFUSED),
    ),
    "condition-of-an-authorizer": (when("authorizer.requestResource.check('create').allowed()"), Denied(REFUSED)),
    "conditions-costly": (when(COSTLY, COSTLY, COSTLY), Denied(BUDGET)),
    "conditions-costly-ignored": (when(COSTLY, COSTLY, COSTLY, failurePolicy="Ignore"), PASSED),
    # Actions
    "warn": (bound({"validationActions": ["Warn"]}), [REFUSED]),
    "warn-twice": (bound({"validationActions": ["Warn"]}, spec=says("false", "object == null").spec),
                   [REFUSED, "failed expression: object == null"]),
    "warn-of-an-error": (bound({"validationActions": ["Warn"]}, spec={"validations": [{"expression": MISSING}]}), [KEY]),
    "warn-of-the-same": (bound({"validationActions": ["Warn", "Audit"]}, spec={"validations": [{"expression": "false"}] * 2}), [REFUSED]),
    "audit": (bound({"validationActions": ["Audit"]}), PASSED),
    "deny-and-audit": (bound({"validationActions": ["Deny", "Audit"]}), Denied(REFUSED)),
    "warn-and-note-error": (
        bound({"validationActions": ["Warn"]}, spec={"auditAnnotations": [{"key": "k", "valueExpression": "string(object.nope)"}]}),
        Denied(failed("string(object.nope)", "no such key: nope")),
    ),
    # Matching
    "by-name": (Policy(NO, rule={"resourceNames": ["MINE-by-name"]}), Denied(REFUSED)),
    "by-other-name": (Policy(NO, rule={"resourceNames": ["other"]}), PASSED),
    "by-operation": (Policy(NO, rule={"operations": ["UPDATE", "DELETE"]}), PASSED),
    "by-scope": (Policy(NO, rule={"scope": "Cluster"}), PASSED),
    "by-group": (Policy(NO, rule={"apiGroups": ["example.com"]}), PASSED),
    "by-version": (Policy(NO, rule={"apiVersions": ["v1beta1"]}, match={"matchPolicy": "Exact"}), PASSED),
    "by-version-asked": (
        Policy(NO, rule={"apiVersions": ["v1beta1"]}, match={"matchPolicy": "Exact"}, ask=requests.older), Denied(REFUSED)
    ),
    "by-subresource": (Policy(NO, rule={"resources": ["*/status"]}), PASSED),
    "by-namespace": (Policy(NO, match={"namespaceSelector": OTHER}), PASSED),
    "by-namespace-of-none": (
        Policy(NO, match={"namespaceSelector": OTHER}, ask=requests.class_), Denied(REFUSED, resource="deviceclasses")
    ),
    "by-label": (Policy(NO, match={"objectSelector": OTHER}), PASSED),
    "by-former-label": (Policy(NO, rule={"operations": ["UPDATE"]}, ask=relabelled), Denied(REFUSED)),
    "excluded": (Policy(NO, match={"excludeResourceRules": [NAMED]}), PASSED),
    "excluded-by-name": (Policy(NO, match={"excludeResourceRules": [{**NAMED, "resourceNames": ["MINE-excluded-by-name"]}]}), PASSED),
    "excluded-by-other-name": (Policy(NO, match={"excludeResourceRules": [{**NAMED, "resourceNames": ["other"]}]}), Denied(REFUSED)),
    "excluded-by-older-version": (Policy(NO, match={"excludeResourceRules": [OLDER]}), PASSED),
    "excluded-by-subresource": (Policy(NO, match={"excludeResourceRules": [{**NAMED, "resources": ["*/status"]}]}), Denied(REFUSED)),
    "no-binding": (bound(), PASSED),
    "bound-by-older-version": (bound({"matchResources": {"resourceRules": [OLDER]}}), Denied(REFUSED)),
    "bound-by-exact-version": (bound({"matchResources": {"resourceRules": [OLDER], "matchPolicy": "Exact"}}), PASSED),
    "bound-by-label": (bound({"matchResources": {"objectSelector": OTHER}}), PASSED),
    "bound-by-namespace": (bound({"matchResources": {"namespaceSelector": OTHER}}), PASSED),
    "bound-excluded": (bound({"matchResources": {"excludeResourceRules": [NAMED]}}), PASSED),
    "bound-by-the-second": (bound({"matchResources": {"objectSelector": OTHER}}, {}), Denied(REFUSED, binding=1)),
    "bound-by-version-and-shown-as-the-policy-says": (
        bound({"matchResources": {"resourceRules": [OLDER]}}, spec=told("string(object.apiVersion)").spec), Denied("VERSION")
    ),
    # Parameters
    "params": (params({"name": "a"}, "params.data.most + ' ' + params.kind + ' ' + params.apiVersion"), Denied("1 ConfigMap v1")),
    "params-metadata": (params({"name": "a"}, "params.metadata.namespace + '/' + params.metadata.name"), Denied("MINE/a")),
    "params-by-label": (params({"selector": {"matchLabels": {"x": "1"}}}, "params.data.most"), Denied("1")),
    "params-by-expression": (
        params({"selector": {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["1"]}, EXISTS]}},
               "params.data.most"),
        Denied("2"),
    ),
    "params-all-of-them": (
        bound({"paramRef": {"selector": {"matchExpressions": [EXISTS]}, "parameterNotFoundAction": "Allow"}, "validationActions": ["Warn"]},
              spec=says({"expression": "int(params.data.most) < 2", "messageExpression": "string(params.data.most)"}, **CONFIG_MAP).spec),
        ["2"],
    ),
    "params-elsewhere": (params({"name": "c", "namespace": "MINE-other"}, "params.data.most"), Denied("3")),
    "params-missing": (params({"name": "z"}, "''"), PASSED),
    "params-missing-elsewhere": (params({"name": "c"}, "''"), PASSED),
    "params-missing-denied": (
        params({"name": "z", "parameterNotFoundAction": "Deny"}, "''"), Denied(f"failed to configure binding: {DENY}")
    ),
    "params-missing-ignored": (
        params({"name": "z", "parameterNotFoundAction": "Deny"}, "''", spec={"failurePolicy": "Ignore"}), PASSED
    ),
    "params-selected-missing-denied": (
        params({"selector": OTHER, "parameterNotFoundAction": "Deny"}, "''"), Denied(f"failed to configure binding: {DENY}")
    ),
    "params-not-bound": (params(None, "params == null ? 'none' : 'some'"), Denied("none")),
    "params-not-bound-error": (says("params.data.x == 'a'", **CONFIG_MAP), Denied(failed("params.data.x == 'a'", "no such key: data"))),
    "params-without-a-namespace": (
        params({"name": "a"}, "''", ask=requests.class_),
        Denied("failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources",
               resource="deviceclasses"),
    ),
    "params-of-a-class": (
        params({"name": "a", "namespace": "MINE"}, "params.data.most", ask=requests.class_), Denied("1", resource="deviceclasses")
    ),
    "params-of-the-cluster": (params({"name": "MINE"}, "params.metadata.name", kind=kind("v1", "Namespace")), Denied("MINE")),
    "params-of-the-cluster-in-a-namespace": (
        params({"name": "MINE", "namespace": "MINE"}, "''", kind=kind("v1", "Namespace")),
        Denied("failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
    ),
    "params-of-a-kind-of-ours": (params({"name": "MINE-param"}, "params.kind", kind=kind("VERSION", "DeviceClass")), Denied("DeviceClass")),
    "params-of-no-kind": (
        params({"name": "a"}, "''", kind=kind("nope.example.com/v1", "Nope")),
        Denied(f"{UNKNOWN}'nope.example.com/v1, Kind=Nope'", binding=None),
    ),
    "params-of-no-core-kind": (
        params({"name": "a"}, "''", kind=kind("v1", "Nope")),
        Denied(f"{UNKNOWN}'/v1, Kind=Nope'", binding=None),
    ),
    "params-of-no-kind-ignored": (
        params({"name": "a"}, "''", kind=kind("v1", "Nope"), spec={"failurePolicy": "Ignore"}), PASSED
    ),
    "params-in-conditions": (
        params({"name": "a"}, "'so'", spec={"matchConditions": [{"name": "c", "expression": "params.data.most == '1'"}]}), Denied("so")
    ),
    "params-in-variables": (
        params({"name": "a"}, "variables.most", spec={"variables": [{"name": "most", "expression": "params.data.most"}]}), Denied("1")
    ),
    # Requests
    "replace": (Policy(NO, rule={"operations": ["UPDATE"]}, ask=requests.replace), Denied(REFUSED)),
    "patch": (Policy(NO, rule={"operations": ["UPDATE"]}, ask=requests.patch), Denied(REFUSED)),
    "apply": (Policy(NO, ask=requests.apply), Denied(REFUSED)),
    "status": (
        Policy(NO, rule={"resources": ["resourceclaims/status"]}, ask=requests.status), Denied(REFUSED)
    ),
    "delete": (Policy(NO, rule={"operations": ["DELETE"]}, ask=requests.delete), Denied(REFUSED)),
    "collection": (
        Policy(NO, rule={"operations": ["DELETE"]}, ask=requests.delete_collection), Denied(REFUSED, name="Unknown")
    ),
    "class": (Policy(NO, ask=requests.class_), Denied(REFUSED, resource="deviceclasses")),
    "older": (Policy(told("string(object.apiVersion)").spec, ask=requests.older), Denied("VERSIONbeta1")),
}  # fmt: skip


@pytest.fixture(scope="module")
def stages() -> Iterator[Stages]:
    made = Stages({key: policy for key, (policy, _) in CASES.items()}, "decide")
    yield made
    made.leave()


@pytest.fixture
def stage(cluster: Cluster, target: Target, api: Client, stages: Stages) -> Stage:
    """With all policies of this file."""
    return stages.on(cluster, target, api)


@pytest.mark.parametrize("key", CASES)
def test_a_policy_decides(stage: Stage, key: str) -> None:
    outcome = CASES[key][1]
    if isinstance(outcome, list):
        assert stage.warned(key) == outcome
        return
    reply = stage.reply(key)
    assert reply.status >= 400, (reply.text[:2000], reply.headers)
    refusal = Refusal(reply)
    name = outcome.name or stage.name(key)
    through = "" if outcome.binding is None else f" with binding '{stage.binding(key, outcome.binding)}'"
    said = stage.named(outcome.text)
    text = f"ValidatingAdmissionPolicy '{stage.name(key)}'{through} denied request: {said}"
    resource = f"{outcome.resource}.{stage.rig.group}"
    assert refusal.message == f'{resource} "{name}" is forbidden: {text}'
    assert (refusal.code, refusal.reason) == (outcome.code, outcome.reason)
    assert refusal.details == {
        "name": name,
        "group": stage.rig.group,
        "kind": outcome.resource,
        "causes": [{"message": text}],
    }


def test_refused_write_changes_nothing(stage: Stage) -> None:
    for key in ("replace", "delete", "collection", "status"):
        assert stage.reply(key).status == 422
        stored = stage.api.get(stage.path(key))
        assert stored["metadata"]["labels"] == {LABEL: stage.label(key), "tier": "web"}
        assert "deletionTimestamp" not in stored["metadata"]
        assert not stored.get("status")


def test_violations_and_notes_are_audited(rig: Rig) -> None:
    notes = [
        {"key": "name", "valueExpression": "'of ' + object.metadata.name"},
        {"key": "none", "valueExpression": "null"},
    ]
    spec = {"validations": [{"expression": "true"}, {"expression": "false"}], "auditAnnotations": notes}
    policy = rig.policy("validating", spec, binding={"validationActions": ["Deny", "Audit"]})
    reply = rig.api.ask("POST", rig.claims, {"metadata": {"name": "c"}, "spec": {"devices": {}}})
    found = rig.annotations(reply)
    assert found[f"{policy}/name"] == "of c"
    assert f"{policy}/none" not in found
    assert found["validation.policy.admission.k8s.io/validation_failure"] == (
        f'[{{"message":"failed expression: false","policy":"{policy}","binding":"{policy}","expressionIndex":1,'
        '"validationActions":["Deny","Audit"]}]'
    )
