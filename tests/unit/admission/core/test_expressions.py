"""Expressions about a change: what they see of it, what they may cost, and where they are evaluated."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from apiserver.admission.core import expressions as module
from apiserver.admission.core.expressions import Expressions, OutOfBudget, Scope
from apiserver.admission.core.matching import Match
from apiserver.admission.core.variables import Variables
from apiserver.apimachinery.request import Decision, RequestInfo, User
from apiserver.cluster.errors import ClusterError
from kubecel.values.types import BOOL, STRING
from tests.unit.admission.changes import change

ANY_BUDGET = 10_000_000
LOOP = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(a, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(b, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(c, {}"
LONG = LOOP.format("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(d, [1, 2, 3, 4, 5, 6, 7].all(e, a + b + c + d + e > 0)))))")
ENDLESS = LOOP.format(LONG + ")))")


class Authority:
    """Answers by who asks what; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[User, RequestInfo]] = []

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        self.asked.append((user, info))
        if info.resource == "broken":
            raise ClusterError("nobody knows")
        return Decision(allowed=info.verb == "get", reason=f"{user.name} {info.verb}")


def variables(**members: Any) -> Variables:
    attributes = change("CREATE", **members)
    return Variables(attributes, Match(attributes.resource))


async def value(text: str, of: Variables | None = None, *, scope: Scope | None = None, decide: Any = None) -> Any:
    """The result of an expression of any type, or its error."""
    scope = scope or Scope()
    expression = scope.expression(text)
    known = Expressions(decide or Authority().decide)
    (result,), _ = await known.evaluate(scope, [expression], of or variables(), budget=ANY_BUDGET)
    return result.problem or result.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("object.kind", "ResourceClaim"),
        ("oldObject == null", True),
        ("namespaceObject == null", True),
        ("request.operation", "CREATE"),
        ("request.kind.kind + '.' + request.kind.version", "ResourceClaim.v1"),
        ("request.resource.resource", "resourceclaims"),
        ("has(request.subResource) || has(request.requestSubResource)", False),
        ("request.options.kind + ' ' + request.options.apiVersion", "CreateOptions meta.k8s.io/v1"),
        ("request.dryRun", False),
        ("has(request.userInfo.extra)", False),
        ("1 / 0 == 1", "expression '1 / 0 == 1' resulted in error: division by zero"),
        ("object.nope == 1", "expression 'object.nope == 1' resulted in error: no such key: nope"),
    ],
)
async def test_expressions_see_the_change(text: str, expected: Any) -> None:
    assert await value(text) == expected


async def test_one_that_does_not_compile_says_so_when_it_is_used() -> None:
    scope = Scope()
    wrong, mistyped, either, right = (
        scope.expression("nope", BOOL),
        scope.expression("1", BOOL),
        scope.expression("1", BOOL, STRING),
        scope.expression("true", BOOL),
    )
    results, _ = await Expressions(Authority().decide).evaluate(
        scope, [wrong, None, mistyped, either, right], variables(), budget=ANY_BUDGET
    )
    assert [result.problem for result in results] == [
        "compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^",
        "",
        "compilation error: must evaluate to bool but got int",
        "compilation error: must evaluate to one of [bool string] but got int",
        "",
    ]
    assert results[4].value is True


async def test_params_are_there_only_where_they_are_declared() -> None:
    known = variables().about(params={"kind": "ConfigMap", "data": {"a": "b"}})
    assert await value("params.data.a", known, scope=Scope(params=True)) == "b"
    assert "undeclared reference to 'params'" in await value("params.data.a", known)


async def test_variables_of_a_policy_are_evaluated_lazily_and_each_once() -> None:
    authority = Authority()
    scope = Scope(
        variables=[
            ("may", "authorizer.path('/metrics').check('get').allowed()"),
            ("both", "[variables.may, variables.may, true]"),
            ("unused", "authorizer.path('/other').check('get').allowed()"),
        ]
    )
    assert await value("variables.both.all(x, x) && variables.may", scope=scope, decide=authority.decide) is True
    assert [info.path for _, info in authority.asked] == ["/metrics"]


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        ("1 / 0", "evaluate: division by zero"),
        ("nope", "compile: compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')"),
        (ENDLESS, "evaluate: operation cancelled: actual cost limit exceeded"),
    ],
)
async def test_error_of_a_variable_is_reported_by_the_expression_that_uses_it(variable: str, problem: str) -> None:
    text = await value("dyn(variables.x) == 1", scope=Scope(variables=[("x", variable)]))
    prefix = "expression 'dyn(variables.x) == 1' resulted in error: composited variable \"x\" fails to "
    assert text.startswith(prefix + problem)


async def test_a_policy_has_the_variables_that_it_declares_and_no_others() -> None:
    assert "undefined field 'none'" in await value("variables.none == 1", scope=Scope(variables=()))
    assert "undeclared reference to 'variables'" in await value("variables.none == 1")


@pytest.mark.parametrize(
    ("text", "expected", "asked"),
    [
        ("authorizer.requestResource.check('get').allowed()", True, ("someone", "get", "resourceclaims", "ns", "c")),
        ("authorizer.requestResource.check('list').reason()", "someone list", ("someone", "list", "resourceclaims", "ns", "c")),
        ("authorizer.group('').resource('broken').check('x').error()", "nobody knows", ("someone", "x", "broken", "", "")),
        (
            "authorizer.serviceAccount('a', 'b').group('').resource('pods').namespace('n').name('p').check('get').allowed()",
            True,
            ("system:serviceaccount:a:b", "get", "pods", "n", "p"),
        ),
    ],
)  # fmt: skip
async def test_the_authorizer_is_asked_and_its_answer_is_a_value(
    text: str, expected: Any, asked: tuple[str, ...]
) -> None:
    authority = Authority()
    assert await value(text, variables(name="c", user=User("someone")), decide=authority.decide) == expected
    (user, info), *more = authority.asked
    assert (user.name, info.verb, info.resource, info.namespace, info.name) == asked
    assert not more


async def test_the_same_question_is_asked_once_for_all_that_is_said_of_a_change() -> None:
    authority, known = Authority(), variables()
    for _ in range(3):
        text = "authorizer.requestResource.check('get').allowed() && authorizer.requestResource.check('get').allowed()"
        assert await value(text, known.about(params={}), decide=authority.decide) is True
    assert len(authority.asked) == 1


async def test_variables_give_no_authorizer_to_expressions_that_may_not_ask_it() -> None:
    scope = Scope(variables=[("may", "authorizer.path('/x').check('get').allowed()")])
    text = await value("variables.may", variables().without_authorizer(), scope=scope)
    assert text.endswith('composited variable "may" fails to evaluate: no such attribute(s): authorizer')


async def test_slow_evaluation_goes_on_in_a_thread_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def run(self: Any, cancelled: Any) -> None:
        threads.append(threading.current_thread().name)
        go(self, cancelled)

    go = module._Run.go
    monkeypatch.setattr(module._Run, "go", run)
    monkeypatch.setattr(module, "LOOP_SECONDS", 0.0005)
    assert await value(LONG) is True
    assert threads[0] == "MainThread"
    assert threads[1].startswith("policies")


async def test_expression_may_cost_a_million_and_all_together_their_budget() -> None:
    scope = Scope()
    endless, cheap = scope.expression(ENDLESS, BOOL), scope.expression("[1].all(x, x == 1)", BOOL)
    known = Expressions(Authority().decide)
    (first, second), left = await known.evaluate(scope, [endless, cheap], variables(), budget=ANY_BUDGET)
    assert first.problem.endswith("resulted in error: operation cancelled: actual cost limit exceeded")
    assert second.value is True
    assert ANY_BUDGET - 1_010_000 < left < ANY_BUDGET - 1_000_000
    with pytest.raises(OutOfBudget, match="no further validation rules will be run"):
        await known.evaluate(scope, [endless, cheap], variables(), budget=1_000_000)


async def test_variables_are_paid_from_the_same_budget() -> None:
    scope = Scope(variables=[("x", LONG)])
    used, plain = scope.expression("variables.x && variables.x", BOOL), scope.expression("true", BOOL)
    known = Expressions(Authority().decide)
    _, left = await known.evaluate(scope, [plain, used], variables(), budget=ANY_BUDGET)
    _, without = await known.evaluate(scope, [plain], variables(), budget=ANY_BUDGET)
    assert without == ANY_BUDGET
    with pytest.raises(OutOfBudget):
        await known.evaluate(scope, [plain, used], variables(), budget=ANY_BUDGET - left - 1)


async def test_variables_stop_as_soon_as_they_cost_too_much_together() -> None:
    """A million each, and what they make stays for as long as the evaluation."""
    authority = Authority()
    asking = ("asks", "authorizer.path('/x').check('get').allowed()")
    scope = Scope(variables=[*((f"v{at}", ENDLESS) for at in range(11)), asking])
    every = " || ".join(f"variables.v{at}" for at in range(11))
    used = scope.expression(f"({every}) || variables.asks", BOOL)
    with pytest.raises(OutOfBudget):
        await Expressions(authority.decide).evaluate(scope, [used], variables(), budget=2_500_000)
    assert not authority.asked


def namespace(**metadata: Any) -> Mapping[str, Any]:
    return {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "ns", "managedFields": [{}], **metadata}}


async def test_a_namespace_is_seen_without_what_upstream_leaves_out() -> None:
    known = variables().about(namespace=namespace(labels={"a": "b"}))
    assert await value("namespaceObject.metadata.labels.a", known) == "b"
    assert await value("namespaceObject.metadata.name", known) == "ns"
    assert (
        await value("has(dyn(namespaceObject).metadata.managedFields) || has(dyn(namespaceObject).kind)", known)
        is False
    )
    assert await value("namespaceObject == null", known.for_conditions()) is True


@pytest.mark.parametrize(
    ("params", "small"),
    [
        ({"data": {"a": "b"}}, True),
        ({"data": {"a": "b" * 40_000}}, False),
        ({"data": {"a" * 40_000: "b"}}, False),
        ({"list": [1] * 5_000}, False),
        ({"map": {str(n): {} for n in range(5_000)}}, False),
        ({"list": [{"a": [1, None, True, 1.5, "x"] * 20}] * 10}, True),
    ],
)
def test_large_objects_are_evaluated_in_a_thread(params: Mapping[str, Any], small: bool) -> None:
    assert variables().about(params=params).small is small
