"""ValidatingAdmissionPolicy: what becomes of a change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver import metrics
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.policies import validator
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import V1_36, V1_37, Release
from apiserver.apimachinery.request import Level
from tests.unit.admission.changes import GROUP, Namespaces, change, labelled
from tests.unit.admission.core.test_expressions import ENDLESS
from tests.unit.admission.policies.clusters import RULE, Cluster, Kind, binding, policy

WHERE = f'resourceclaims.{GROUP} "c" is forbidden: '
DENIED = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: "
BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"
DIVISION = "expression '1 / 0 == 1' resulted in error: division by zero"
CONFIG_MAP = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
PARAMS = Kind(
    {"metadata": {"name": "a", "namespace": "ns", "labels": {"x": "1"}}, "data": {"most": "1"}},
    {"metadata": {"name": "b", "namespace": "ns", "labels": {"x": "1"}}, "data": {"most": "2"}},
    {"metadata": {"name": "a", "namespace": "other"}, "data": {"most": "3"}},
)


async def refusal(cluster: Cluster, attributes: Attributes | None = None) -> StatusError | None:
    try:
        await cluster.plugin.validate(attributes or change())
    except StatusError as e:
        return e
    return None


async def message(cluster: Cluster, attributes: Attributes | None = None) -> str | None:
    """The message of the refusal, without the common beginning."""
    error = await refusal(cluster, attributes)
    return None if error is None else error.message.removeprefix(WHERE).removeprefix(DENIED)


async def test_a_refusal_is_a_status_with_one_cause() -> None:
    error = await refusal(Cluster([policy("p", "false", "1 / 0 == 1")]))
    assert error is not None
    assert (error.code, error.reason) == (422, "Invalid")
    assert error.message == f"{WHERE}{DENIED}failed expression: false"
    assert error.details is not None
    assert error.details["causes"] == [{"message": f"{DENIED}failed expression: false"}]
    assert (error.details["name"], error.details["kind"]) == ("c", "resourceclaims")


@pytest.mark.parametrize(
    ("reason", "code"), [("Invalid", 422), ("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413)]
)
async def test_the_reason_of_a_validation_is_that_of_the_answer(reason: str, code: int) -> None:
    error = await refusal(Cluster([policy("p", {"expression": "false", "reason": reason})]))
    assert error is not None
    assert (error.code, error.reason) == (code, reason)


@pytest.mark.parametrize(
    ("validation", "said"),
    [
        ({"expression": " false "}, "failed expression: false"),
        ({"expression": "false", "message": " no "}, "no"),
        ({"expression": "false", "message": "no", "messageExpression": "'so ' + object.kind"}, "so ResourceClaim"),
        ({"expression": "false", "message": "no", "messageExpression": "' so\\t'"}, "so"),
        ({"expression": "false", "message": "no", "messageExpression": "'a\\nb'"}, "no"),
        ({"expression": "false", "message": "no", "messageExpression": "'a\\n'"}, "a"),
        ({"expression": "false", "message": "no", "messageExpression": "'  '"}, "no"),
        ({"expression": "false", "message": "no", "messageExpression": "object.nope"}, "no"),
        ({"expression": "false", "messageExpression": "object.nope.nope + 'x'"}, "failed expression: false"),
        ({"expression": "false", "message": "no", "messageExpression": f"'{'x' * 5120}'"}, "x" * 5120),
        ({"expression": "false", "message": "no", "messageExpression": f"'{'x' * 5121}'"}, "no"),
        ({"expression": "false", "message": "no", "messageExpression": f"'{'é' * 2561}'"}, "no"),
        ({"expression": "false", "message": "no", "messageExpression": "authorizer.path('/').check('get').reason()"}, "no"),
    ],
)  # fmt: skip
async def test_refusals_have_upstreams_texts(validation: Mapping[str, Any], said: str) -> None:
    assert await message(Cluster([policy("p", validation)])) == said


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"validations": [{"expression": "1 / 0 == 1", "message": "no"}]}, DIVISION),
        ({"validations": [{"expression": "true"}], "matchConditions": [{"name": "c", "expression": "1 / 0 == 1"}]}, DIVISION),
        ({"validations": [{"expression": "nope"}]}, ("compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference "
         "to 'nope' (in container '')\n | nope\n | ^")),
        ({"validations": [{"expression": f"{ENDLESS} || true"}] * 11}, BUDGET),
        ({"validations": [{"expression": "true"}], "auditAnnotations": [{"key": "k", "valueExpression": "1 / 0 == 1 ? '' : ''"}]},
         "expression '1 / 0 == 1 ? '' : ''' resulted in error: division by zero"),
    ],
)  # fmt: skip
async def test_policy_that_fails_to_evaluate_refuses_unless_failures_are_ignored(
    spec: Mapping[str, Any], said: str
) -> None:
    assert await message(Cluster([policy("p", **spec)])) == said
    assert await message(Cluster([policy("p", **spec, failurePolicy="Ignore")])) is None


async def test_message_expressions_are_paid_from_the_same_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The case above spends the ten million units that a policy has. Here it has one, and as many expressions as are needed for two."""
    monkeypatch.setattr(validator, "POLICY_BUDGET", 1_000_000)
    spec = {"validations": [{"expression": "true", "messageExpression": f"{ENDLESS}?'':''"}] * 2}
    assert await message(Cluster([policy("p", **spec)])) == f"failed messageExpression: {BUDGET}"
    assert await message(Cluster([policy("p", **spec, failurePolicy="Ignore")])) is None


async def test_failing_expression_does_not_hide_one_that_denies() -> None:
    assert await message(Cluster([policy("p", "1 / 0 == 1", "false", failurePolicy="Ignore")])) == (
        "failed expression: false"
    )


async def test_conditions_keep_a_policy_out() -> None:
    conditions = [{"name": "c", "expression": "variables.creating"}]
    spec: Any = {"matchConditions": conditions, "variables": [{"name": "creating", "expression": "oldObject == null"}]}
    cluster = Cluster([policy("p", "false", **spec)])
    assert await message(cluster) == "failed expression: false"
    assert await message(cluster, change("UPDATE")) is None
    assert await message(cluster, change("DELETE")) is None


async def test_unbound_policy_is_ignored_and_each_binding_is_evaluated() -> None:
    assert await message(Cluster([policy("p", "false")], [])) is None
    assert await message(Cluster([], [binding()])) is None
    bindings = [binding("b2", matchResources={"objectSelector": {"matchLabels": {"a": "b"}}}), binding("b3")]
    error = await message(Cluster([policy("p", "false")], bindings))
    assert error == "ValidatingAdmissionPolicy 'p' with binding 'b3' denied request: failed expression: false"
    labelled_claim = change(new=labelled(a="b"))
    error = await message(Cluster([policy("p", "false")], bindings), labelled_claim)
    assert error == "ValidatingAdmissionPolicy 'p' with binding 'b2' denied request: failed expression: false"


async def test_rules_may_name_objects_and_leave_some_out() -> None:
    named = {"resourceRules": [{**RULE, "resourceNames": ["c"]}]}
    cluster = Cluster([policy("p", "false", matchConstraints=named)])
    assert await message(cluster) is not None
    assert await message(cluster, change(name="d")) is None
    excluded = {"resourceRules": [RULE], "excludeResourceRules": [{**RULE, "operations": ["DELETE"]}]}
    cluster = Cluster([policy("p", "false", matchConstraints=excluded)])
    assert await message(cluster) is not None
    assert await message(cluster, change("DELETE")) is None


async def test_actions_say_what_becomes_of_a_violation() -> None:
    attributes = change()
    cluster = Cluster([policy("p", "true", "false")], [binding("b", "p", "Warn", "Audit")])
    assert await refusal(cluster, attributes) is None
    warning = "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': failed expression: false"
    assert attributes.warnings.headers() == [f'299 - "{warning}"']
    (noted,) = json.loads(attributes.annotations["validation.policy.admission.k8s.io/validation_failure"][0])
    assert noted == {
        "message": "failed expression: false",
        "policy": "p",
        "binding": "b",
        "expressionIndex": 1,
        "validationActions": ["Warn", "Audit"],
    }


@pytest.mark.parametrize(("release", "listed"), [(V1_36, 1), (V1_37, 50)])
async def test_audit_lists_failures_of_all_policies_since_1_37(release: Release, listed: int) -> None:
    """MOST_FAILURES"""
    attributes = change()
    policies = [policy(f"p{n}", *["false"] * 30) for n in range(2)]
    bindings = [binding(f"b{n}", f"p{n}", "Audit") for n in range(2)]
    assert await refusal(Cluster(policies, bindings, release=release), attributes) is None
    noted = json.loads(attributes.annotations["validation.policy.admission.k8s.io/validation_failure"][0])
    assert [(failure["policy"], failure["expressionIndex"]) for failure in noted] == [
        *(("p0", index) for index in range(30)),
        *(("p1", index) for index in range(20)),
    ][:listed]


async def test_annotations_are_those_of_all_bindings_and_parameters_together() -> None:
    attributes = change()
    notes = [
        {"key": "most", "valueExpression": "' ' + params.data.most"},
        {"key": "long", "valueExpression": "string(object.kind + '" + 11000 * "x" + "')"},
        {"key": "none", "valueExpression": "null"},
        {"key": "empty", "valueExpression": "' '"},
    ]
    bindings = [
        binding("b1", paramRef={"name": "b"}),
        binding("b2", paramRef={"selector": {"matchLabels": {"x": "1"}}}),
    ]
    cluster = Cluster(
        [policy("p", auditAnnotations=notes, **CONFIG_MAP)], bindings, kinds={("v1", "ConfigMap"): PARAMS}
    )
    assert await refusal(cluster, attributes) is None
    found = attributes.annotations.seen_at(Level.METADATA)
    assert sorted(found) == ["p/long", "p/most"]
    assert found["p/most"] == "2, 1"
    assert len(found["p/long"]) == 10240


@pytest.mark.parametrize(
    ("reference", "namespace", "said"),
    [
        ({"name": "a"}, "ns", "1 ConfigMap v1"),
        ({"name": "a", "namespace": "other"}, "ns", "3 ConfigMap v1"),
        ({"selector": {}}, "ns", "1 ConfigMap v1"),
        ({"selector": {"matchLabels": {"x": "2"}}}, "ns", None),
        ({"selector": {"matchLabels": {"x": "2"}}, "parameterNotFoundAction": "Allow"}, "ns", None),
        ({"selector": {"matchLabels": {"x": "2"}}, "parameterNotFoundAction": "Deny"}, "ns", ("failed to configure binding: no params "
         "found for policy binding with `Deny` parameterNotFoundAction")),
        ({"name": "z", "parameterNotFoundAction": "Deny"}, "ns", ("failed to configure binding: no params "
         "found for policy binding with `Deny` parameterNotFoundAction")),
        ({"name": "a", "parameterNotFoundAction": "Deny"}, "", ("failed to configure binding: cannot use namespaced paramRef in policy "
         "binding that matches cluster-scoped resources")),
        (None, "ns", "null"),
    ],
)  # fmt: skip
async def test_parameters_are_found_by_name_or_labels(
    reference: Mapping[str, Any] | None, namespace: str, said: str | None
) -> None:
    told = "params == null ? 'null' : params.data.most + ' ' + params.kind + ' ' + params.apiVersion"
    judged = policy("p", {"expression": "false", "messageExpression": told}, **CONFIG_MAP)
    bindings = [binding("b") if reference is None else binding("b", paramRef=reference)]
    cluster = Cluster([judged], bindings, kinds={("v1", "ConfigMap"): PARAMS})
    plural = "resourceclaims" if namespace else "deviceclasses"
    error = await refusal(cluster, change(plural=plural, namespace=namespace))
    assert (error and error.message.partition(DENIED)[2]) == said


@pytest.mark.parametrize(("release", "said"), [(V1_36, None), (V1_37, "late")])
async def test_a_parameter_that_has_not_arrived_is_read_since_1_37(release: Release, said: str | None) -> None:
    """READS_LATE"""
    late = {"metadata": {"name": "z", "namespace": "ns"}, "data": {"text": "late"}}
    kinds = {("v1", "ConfigMap"): Kind(late=[late])}
    judged = policy("p", {"expression": "false", "messageExpression": "string(params.data.text)"}, **CONFIG_MAP)
    bindings = [binding("b", paramRef={"name": "z", "parameterNotFoundAction": "Allow"})]
    error = await refusal(Cluster([judged], bindings, kinds=kinds, release=release), change(namespace="ns"))
    assert (error and error.message.partition(DENIED)[2]) == said


@pytest.mark.parametrize(
    ("kinds", "reference", "said"),
    [
        ({}, {"name": "a"}, ("ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource "
         "referenced by paramKind: 'v1, Kind=ConfigMap'")),
        ({("v1", "ConfigMap"): Kind(error="not yet synced")}, {"name": "a"}, "failed to configure binding: not yet synced"),
        ({("v1", "ConfigMap"): Kind(namespaced=False)}, {"name": "a", "namespace": "ns"}, ("failed to configure binding: "
         "paramRef.namespace must not be provided for a cluster-scoped `paramKind`")),
        ({("v1", "ConfigMap"): Kind()}, {}, "failed to configure binding: one of name or selector must be provided"),
    ],
)  # fmt: skip
async def test_malformed_parameters_refuse_unless_failures_are_ignored(
    kinds: Mapping[tuple[str, str], Kind], reference: Mapping[str, Any], said: str
) -> None:
    for ignored, expected in (("Fail", said), ("Ignore", None)):
        spec: Any = {**CONFIG_MAP, "failurePolicy": ignored}
        cluster = Cluster([policy("p", "true", **spec)], [binding("b", paramRef=reference)], kinds=kinds)
        assert await message(cluster) == expected


async def test_the_namespace_of_the_request_is_a_variable_and_must_exist() -> None:
    judged = policy("p", {"expression": "false", "messageExpression": "namespaceObject.metadata.labels.team"})
    assert await message(Cluster([judged])) == "a"
    error = await refusal(Cluster([judged], namespaces=Namespaces()))
    assert error is not None
    assert (error.code, error.message) == (404, 'namespaces "ns" not found')
    cluster_scoped = policy("p", "namespaceObject != null")
    error = await refusal(Cluster([cluster_scoped]), change(plural="deviceclasses"))
    assert error is not None
    assert error.message.endswith("failed expression: namespaceObject != null")


async def test_malformed_namespace_selector_is_an_error_of_the_policy() -> None:
    match = {"resourceRules": [RULE], "namespaceSelector": {"matchLabels": {"a": "b"}}}
    error = await message(Cluster([policy("p", "true", matchConstraints=match)], namespaces=Namespaces()))
    assert error == (
        "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: namespaces \"ns\" not found"
    )


async def test_changes_of_policies_and_bindings_are_seen_by_the_next_request() -> None:
    cluster = Cluster([policy("p", "true")])
    assert await message(cluster) is None
    cluster.policies.put(policy("p", {"expression": "false", "message": "one"}))
    assert await message(cluster) == "one"
    cluster.bindings.put(binding("b", "p", "Warn"))
    assert await message(cluster) is None
    cluster.policies.put(policy("o", {"expression": "false", "message": "two"}))
    cluster.bindings.put(binding("b2", "o"))
    assert await message(cluster) == "ValidatingAdmissionPolicy 'o' with binding 'b2' denied request: two"


async def test_a_policy_for_an_older_version_sees_the_change_in_that() -> None:
    match = {"resourceRules": [{**RULE, "apiVersions": ["v1beta1"]}]}
    text = "object.apiVersion + [' ', request.kind.version, request.resource.version, request.requestKind.version].join(' ')"
    judged = policy("p", {"expression": "false", "messageExpression": text}, matchConstraints=match)
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": []}}}
    assert await message(Cluster([judged]), change(new=claim)) == f"{GROUP}/v1beta1  v1beta1 v1beta1 v1"
    exact = policy("p", "false", matchConstraints={**match, "matchPolicy": "Exact"})
    assert await message(Cluster([exact]), change(new=claim)) is None


async def test_policy_without_match_constraints_is_an_error() -> None:
    judged = policy("p", "true")
    del judged["spec"]["matchConstraints"]
    assert await message(Cluster([judged])) == (
        "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: "
        "policy contained no match constraints, a required field"
    )


@pytest.mark.parametrize(
    ("validation", "failure", "actions", "counted"),
    [
        ("false", "Fail", ("Deny",), {("invalid_error", "deny")}),
        ("false", "Fail", ("Warn", "Audit"), {("invalid_error", "warn"), ("invalid_error", "audit")}),
        ("1 / 0 == 1", "Fail", ("Deny",), {("invalid_error", "deny")}),
        ("1 / 0 == 1", "Ignore", ("Deny",), {("invalid_error", "allow")}),
        ("nope", "Fail", ("Deny",), {("compile_error", "deny")}),
        ("true", "Fail", ("Deny",), set()),
    ],
)
async def test_enforced_decisions_are_counted(
    validation: str, failure: str, actions: tuple[str, ...], counted: set[tuple[str, str]]
) -> None:
    """A validation that says no is an invalid_error too, as upstream has it."""
    name = f"counted-{validation}-{failure}-{'-'.join(actions)}"
    await refusal(Cluster([policy(name, validation, failurePolicy=failure)], [binding("b", name, *actions)]))
    every = [
        (error, action)
        for error in ("no_error", "invalid_error", "compile_error", "out_of_budget")
        for action in ("deny", "warn", "audit", "allow")
    ]
    found = {pair for pair in every if metrics.VALIDATING_POLICY_CHECKS.labels(name, "b", *pair).value}
    assert found == counted
