"""MutatingAdmissionPolicy: the effect on a change. tests/promises/admission tests single mutations on both servers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.sources import Object, ParamKind, Sources
from apiserver.admission.policies.mutating import MutatingAdmissionPolicy
from apiserver.admission.policies.reinvocation import Reinvocations
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Decision, RequestInfo, User
from tests.unit.admission.changes import KINDS, Namespaces, change, labelled
from tests.unit.admission.policies.clusters import RULE, Items, Kind, Kinds


def labels(**expressions: str) -> str:
    """A configuration with these labels, each the expression of its value."""
    each = ", ".join(f"'{name}': {value}" for name, value in expressions.items())
    return f"Object{{metadata: Object.metadata{{labels: {{{each}}}}}}}"


def policy(name: str, *mutations: str, **spec: Any) -> Object:
    made = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
        if each.startswith(("[", "variables"))
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}}
        for each in mutations
    ]
    match = {"matchConstraints": {"resourceRules": [RULE]}}
    return {"metadata": {"name": name}, "spec": {**match, "mutations": made, **spec}}


def plugin(
    *policies: Object,
    kinds: Mapping[tuple[str, str], ParamKind] | None = None,
    bindings: Sequence[Object] | None = None,
    namespaces: Namespaces | None = None,
) -> MutatingAdmissionPolicy:
    """The plugin with these policies, each with a binding of its name."""
    names = [each["metadata"]["name"] for each in policies]
    bound = [{"metadata": {"name": name}, "spec": {"policyName": name}} for name in names]
    nothing = Items()
    sources = Sources(
        mutating_webhooks=nothing,
        validating_webhooks=nothing,
        mutating_policies=Items(policies),
        mutating_bindings=Items(bound if bindings is None else bindings),
        validating_policies=nothing,
        validating_bindings=nothing,
        quotas=nothing,
        params=Kinds(kinds or {}),
    )
    matcher = Matcher(KINDS, namespaces or Namespaces({"ns": labelled(team="a")}))
    return MutatingAdmissionPolicy(sources, matcher, Expressions(_decide))


async def _decide(user: User, info: RequestInfo) -> Decision:
    return Decision(allowed=info.verb == "get")


async def admitted(made: MutatingAdmissionPolicy, attributes: Attributes) -> dict[str, str]:
    """The labels afterwards, the object being taken over as the chain does."""
    replaced = await made.admit(attributes)
    if replaced is not None:
        attributes.object = replaced
    assert attributes.object is not None
    found: dict[str, str] = attributes.object["metadata"].get("labels") or {}
    return found


async def refusal(made: MutatingAdmissionPolicy, attributes: Attributes) -> StatusError:
    with pytest.raises(StatusError) as caught:
        await made.admit(attributes)
    return caught.value


async def test_mutation_makes_a_new_object_and_keeps_the_old_one() -> None:
    attributes = change(new=labelled(a="b"))
    before = attributes.object
    assert before is not None
    assert await admitted(plugin(policy("p", labels(x="'y'"))), attributes) == {"a": "b", "x": "y"}
    assert before["metadata"]["labels"] == {"a": "b"}
    assert attributes.reinvocation.wanted


async def test_deletions_and_what_no_policy_concerns_stay_as_they_are() -> None:
    attributes = change()
    assert await plugin().admit(attributes) is None
    rules = [{**RULE, "resources": ["deviceclasses"]}]
    assert (
        await plugin(policy("p", labels(x="'y'"), matchConstraints={"resourceRules": rules})).admit(attributes) is None
    )
    assert await plugin(policy("p", labels(x="'y'")), bindings=()).admit(attributes) is None
    assert not attributes.reinvocation.wanted
    assert await plugin(policy("p", labels(x="'y'"))).admit(change("DELETE")) is None


async def test_second_round_runs_only_reinvocable_policies_after_a_change() -> None:
    count = "string(int(object.metadata.?labels.?{0}.orValue('0')) + 1)"
    policies = [
        policy(name, labels(**{name: count.format(name)}), reinvocationPolicy=again)
        for name, again in (("a", "IfNeeded"), ("b", "Never"), ("c", "IfNeeded"))
    ]
    made, attributes = plugin(*policies), change()
    assert await admitted(made, attributes) == {"a": "1", "b": "1", "c": "1"}
    attributes.reinvocation.again = True
    assert await admitted(made, attributes) == {"a": "2", "b": "1", "c": "2"}

    attributes = change()
    assert await admitted(made, attributes) == {"a": "1", "b": "1", "c": "1"}
    attributes.reinvocation.again = True
    assert attributes.object is not None
    changed = {**attributes.object["metadata"]["labels"], "other": "1"}
    attributes.object = {**attributes.object, "metadata": {"name": "c", "labels": changed}}
    assert (await admitted(made, attributes))["c"] == "2"


def test_mutation_runs_again_only_after_a_later_change() -> None:
    a, b = ("a", "", "", ""), ("b", "", "", "")
    known = Reinvocations()
    known.made(a)
    assert not known.wants(a)
    known.changed()
    known.made(b)
    assert (known.wants(a), known.wants(b)) == (True, False)
    known.changed()
    assert known.wants(b)


async def test_failed_mutations_are_skipped_where_failures_are_ignored() -> None:
    mutations = labels(a="'1'"), labels(b="object.metadata.labels.none"), labels(c="'3'")
    ignoring = policy("p", *mutations, failurePolicy="Ignore")
    assert await admitted(plugin(ignoring), change()) == {"a": "1", "c": "3"}
    error = await refusal(plugin(ignoring, policy("q", "Object{spec: null}"), policy("r", "Object{spec: 1}")), change())
    assert (error.code, error.reason) == (403, "Invalid")
    said = (
        "error applying patch: failed to convert patch object to typed object: .spec: expected map, got &{NULL_VALUE}"
    )
    assert error.message == f"policy 'q' with binding 'q' denied request: {said}"
    assert error.details is not None
    assert [cause["message"].partition(" denied")[0] for cause in error.details["causes"]] == [
        "policy 'q' with binding 'q'",
        "policy 'r' with binding 'r'",
    ]


@pytest.mark.parametrize(
    ("mutation", "said"),
    [
        (
            "nope",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^",
        ),
        ("{'a': 1}", "must evaluate to Object but got map(string, int)"),
        ("[]", "must evaluate to list(JSONPatch) but got list(dyn)"),
        ("[1]", "must evaluate to list(JSONPatch) but got list(int)"),
    ],
)
async def test_a_mutation_that_does_not_compile_refuses(mutation: str, said: str) -> None:
    error = await refusal(plugin(policy("p", mutation)), change())
    assert error.message == f"policy 'p' with binding 'p' denied request: {said}"


async def test_all_that_an_expression_may_ask_is_there() -> None:
    kinds = {("v1", "ConfigMap"): Kind({"metadata": {"name": "a", "namespace": "ns"}, "data": {"x": "param"}})}
    named = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}
    asked = labels(
        p="string(params.data.x)",
        n="namespaceObject.metadata.labels.team",
        v="string(variables.v)",
        a="string(authorizer.requestResource.check('get').allowed())",
        r="request.operation",
    )
    made = plugin(
        policy("p", asked, variables=[{"name": "v", "expression": "object.kind"}], **named),
        kinds=kinds,
        bindings=[{"metadata": {"name": "b"}, "spec": {"policyName": "p", "paramRef": {"name": "a"}}}],
    )
    expected = {"p": "param", "n": "a", "v": "ResourceClaim", "a": "true", "r": "CREATE"}
    assert await admitted(made, change()) == expected


async def test_deleted_namespace_is_reported_under_every_failure_policy() -> None:
    made = plugin(policy("p", "Object{}", failurePolicy="Ignore"), namespaces=Namespaces())
    assert (await refusal(made, change())).code == 404


async def test_a_large_mutation_of_a_small_object_is_made_in_a_thread() -> None:
    """The thread that serves is not the one that works: its own processor time stays small."""
    doubled = [{"name": "a0", "expression": "[1,2,3,4,5,6,7,8]"}]
    doubled += [{"name": f"a{i}", "expression": f"variables.a{i - 1} + variables.a{i - 1}"} for i in range(1, 8)]
    operation = "JSONPatch{op: 'add', path: '/metadata/labels', value: {'x': string(i)}}"
    last = operation.replace("string(i)", "'y'")
    made = plugin(policy("p", f"variables.a7.map(i, {operation})", f"[{last}]", variables=doubled))
    await admitted(made, change())
    before = time.thread_time()
    assert await admitted(made, change()) == {"x": "y"}
    assert time.thread_time() - before < 0.2
