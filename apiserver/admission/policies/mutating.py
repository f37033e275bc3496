"""MutatingAdmissionPolicy: apply the mutations of the cluster's policies to an object before it is validated.

Mutations run one after the other, each on the result of the one before. No manager owns what they set. Upstream: kubernetes/apiserver
`pkg/admission/plugin/policy/mutating/{dispatcher,compilation,errors}.go`. As there, a policy that sees the object in another version
than the request's cannot change it, and reports that.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from apiserver import metrics
from apiserver.admission.core.attributes import Attributes, Operation, forbidden
from apiserver.admission.core.conditions import ConditionErrors, MatchConditions
from apiserver.admission.core.expressions import POLICY_BUDGET, Expression, Expressions, Scope, Unevaluated
from apiserver.admission.core.matching import Matcher
from apiserver.admission.core.sources import Derived, Sources, are_synced, synced
from apiserver.admission.core.variables import Answers, Variables
from apiserver.admission.core.views import defaulted, headed, taken_back
from apiserver.admission.policies import mutations
from apiserver.admission.policies.binding import ConfigurationError, Evaluation, evaluations
from apiserver.admission.policies.definitions import Binding, Definition, Definitions
from apiserver.admission.policies.mutations import Refused
from apiserver.admission.policies.objects import is_large
from apiserver.admission.policies.preparation import Preparation
from apiserver.admission.policies.reinvocation import Key, Reinvocations
from apiserver.apimachinery import errors
from apiserver.apimachinery.errors import StatusError
from apiserver.codecs.objects import typed
from apiserver.runtime.offload import CHANGE
from apiserver.schema.resource import Object, Resource
from kubecel.kubernetes import environments
from kubecel.values.mutation import OBJECT, PATCH
from kubecel.values.types import list_of
from kubecel.values.values import Value
from kubetext.quoting import go_quote

PLUGIN = "MutatingAdmissionPolicy"
IF_NEEDED = "IfNeeded"
INVALID = "Invalid"


class Failure(NamedTuple):
    """The failure of a policy. `reason` is that of the status; empty means Forbidden."""

    definition: Definition[Mutator]
    binding: Binding | None
    text: str
    reason: str = ""

    @property
    def message(self) -> str:
        if self.binding is None:
            return f"policy {go_quote(self.definition.name)} denied request: {self.text}"
        return f"policy '{self.definition.name}' with binding '{self.binding.name}' denied request: {self.text}"


class Mutator:
    """The expressions of one policy, compiled on first use."""

    def __init__(self, name: str, spec: Mapping[str, Any], expressions: Expressions) -> None:
        variables = [(each["name"], each["expression"]) for each in spec.get("variables") or ()]
        self.scope = expressions.scope(
            params=bool(spec.get("paramKind")), variables=variables, additions=(environments.MUTATIONS,)
        )
        self.conditions = MatchConditions.of(
            spec.get("matchConditions"), expressions, name=name, kind="policy", step="validate", scope=self.scope
        )
        self.mutations: Sequence[Mutation] = [
            made
            for i, each in enumerate(spec.get("mutations") or ())
            if (made := _mutation(self.scope, each, at=f"spec.mutations[{i}]")) is not None
        ]
        self.again = spec.get("reinvocationPolicy") == IF_NEEDED
        self._expressions = expressions
        self._compiled = False

    async def compile(self) -> list[tuple[str, str]]:
        """Compile the expressions. The first call returns those that do not compile, with their errors; later ones return nothing."""
        if self._compiled:
            return []
        await self.scope.ready()
        self._compiled = True
        return self.scope.problems()

    async def value(self, mutation: Mutation, variables: Variables) -> Value:
        """Evaluate the expression of a mutation. Raises Refused."""
        try:
            [result], _ = await self._expressions.evaluate(
                self.scope, [mutation.expression], variables, budget=POLICY_BUDGET
            )
        except Unevaluated as e:
            raise Refused(str(e)) from None
        if mutation.expression.program is None:
            raise Refused(mutation.expression.problem)
        if result.problem:
            raise Refused(result.problem)
        return result.value


class Mutation(NamedTuple):
    """One entry of `mutations`: an expression that makes a configuration, or with `patches` a JSON patch."""

    expression: Expression
    patches: bool

    async def made(self, value: Value, attributes: Attributes, resource: Resource) -> Object:
        """Return the object with this mutation, in the stored form. Raises Refused, StatusError."""
        make = _patched if self.patches else _configured
        asked = attributes.resource
        assert attributes.object is not None
        await attributes.views.prepare(attributes.object, resource)
        if attributes.views.large or is_large(value):
            made = await CHANGE.run(make, value, resource, attributes)
        else:
            made = make(value, resource, attributes)
        if resource.version != asked.version:
            # Upstream asks for a conversion between two versions, but it has only those to and from its internal one.
            kinds = f"({resource.version}.{resource.kind}) to ({asked.version}.{asked.kind})"
            raise Refused(f"converting {kinds}: unknown conversion")
        return made


def _mutation(scope: Scope, given: Mapping[str, Any], *, at: str) -> Mutation | None:
    if given.get("patchType") == "JSONPatch":
        member, result, patches = "jsonPatch", list_of(PATCH), True
    else:
        member, result, patches = "applyConfiguration", OBJECT, False
    body = given.get(member)
    if body is None:
        return None
    return Mutation(scope.expression(body["expression"], result, at=f"{at}.{member}.expression"), patches)


def _configured(value: Value, resource: Resource, attributes: Attributes) -> Object:
    assert attributes.object is not None
    plain = attributes.views.plain(attributes.object, resource)
    return headed(attributes, defaulted(resource, mutations.configured(resource, plain, value), attributes))


def _patched(value: Value, resource: Resource, attributes: Attributes) -> Object:
    """Apply a JSON patch. Raises 500 if the result is not an object of that version, whatever the failurePolicy."""
    assert attributes.object is not None
    patched = mutations.json_patched(_taken(attributes, resource), value)
    if patched is None:
        return attributes.object
    if wrong := mutations.other_kind(resource, patched):
        raise errors.internal(wrong)
    # First, so that its values are freed before the object is made.
    known = typed.has_no_others(resource.shape, patched)
    try:
        made = taken_back(resource, patched, attributes)
    except ValueError as e:
        raise errors.internal(str(e)) from None
    if not known and (wrong := mutations.strict_error(resource, patched)):
        raise errors.internal(wrong)
    return made


def _taken(attributes: Attributes, resource: Resource) -> bytes:
    """Return the JSON of the new object, which is about to be replaced."""
    assert attributes.object is not None
    text = attributes.views.text(attributes.object, resource)
    attributes.views.leave(attributes.object)
    return text


class MutatingAdmissionPolicy:
    """Changes objects before they are validated. A deletion has nothing to change."""

    operations: Sequence[Operation] = ("CREATE", "UPDATE")

    def __init__(self, sources: Sources, matcher: Matcher, expressions: Expressions) -> None:
        self._policies, self._bindings = sources.mutating_policies, sources.mutating_bindings
        self._params = sources.params
        self._matcher = matcher
        self._release = expressions.release
        known = Definitions(lambda name, spec: Mutator(name, spec, expressions))
        self._definitions = Derived(known.join, self._policies, self._bindings)
        self.prepare = Preparation(self._definitions).prepare

    async def admit(self, attributes: Attributes) -> Object | None:
        """Run the policies. Raises 403 with the first failure of a policy that does not ignore failures."""
        if attributes.object is None:
            return None
        if not are_synced(self._policies, self._bindings):
            await synced(attributes, self._policies, self._bindings)
        definitions = self._definitions.current()
        if not definitions:
            return None
        found = await evaluations(definitions, attributes, self._matcher, self._params, release=self._release)
        if not found:
            return None
        failures = [Failure(*each) for each in found if isinstance(each, ConfigurationError)]
        before = attributes.object
        applicable = [each for each in found if isinstance(each, Evaluation) and each.params]
        if applicable:
            change = _Change(attributes, await self._matcher.namespace(attributes))
            failures += await change.make(applicable)
        if serious := [failure for failure in failures if not failure.definition.ignores_failures]:
            raise _refusal(attributes, serious)
        return None if attributes.object is before else attributes.object


class _Change:
    """One change while policies work on it."""

    def __init__(self, attributes: Attributes, namespace: Mapping[str, Any] | None) -> None:
        self._attributes = attributes
        self._namespace = namespace
        self._answers = Answers()
        self._reinvocation = attributes.reinvocation
        self._again: Reinvocations = attributes.reinvocation.values.setdefault(PLUGIN, Reinvocations())
        self._failures: list[Failure] = []
        self._mutated = False

    async def make(self, evaluations: Sequence[Evaluation[Mutator]]) -> list[Failure]:
        """Run the policies and return their failures. Raises StatusError."""
        attributes, again = self._attributes, self._again
        if self._reinvocation.again and not await _same(attributes, again.output):
            again.changed()
        try:
            for each in evaluations:
                for param in each.params:
                    await self._invoke(each, param)
            if self._mutated:
                self._want()
        finally:
            again.output = attributes.object
        return self._failures

    async def _invoke(self, each: Evaluation[Mutator], param: Mapping[str, Any] | None) -> None:
        """Run a policy through a binding, with one parameter."""
        mutator, attributes = each.definition.rules, self._attributes
        if mutator.conditions is not None and not await self._concerns(mutator.conditions, each, param):
            return
        key = _key(each, param)
        if self._reinvocation.again and not self._again.wants(key):
            return
        before = attributes.object
        for mutation in mutator.mutations:
            self._mutated = await self._mutate(mutation, each, param) or self._mutated
        if not await _same(attributes, before):
            self._want()
        if mutator.again:
            self._again.made(key)

    async def _concerns(
        self, conditions: MatchConditions, each: Evaluation[Mutator], param: Mapping[str, Any] | None
    ) -> bool:
        try:
            return await conditions.judge(self._variables(each, param))
        except ConditionErrors as e:
            self._failures.append(Failure(each.definition, each.binding, str(e), INVALID))
            return False

    async def _mutate(self, mutation: Mutation, each: Evaluation[Mutator], param: Mapping[str, Any] | None) -> bool:
        """Return whether the mutation was made, even if it changed nothing."""
        definition, attributes = each.definition, self._attributes
        started, error = time.perf_counter(), "no_error"
        try:
            value = await definition.rules.value(mutation, self._variables(each, param))
            attributes.become(await mutation.made(value, attributes, each.match.resource))
        except Refused as e:
            error = _error_type(str(e))
            self._failures.append(Failure(definition, each.binding, str(e), INVALID))
        except StatusError as e:
            error = _error_type(e.message)
            raise
        finally:
            labels = (definition.name, each.binding.name, error)
            metrics.MUTATING_POLICY_CHECKS.labels(*labels).inc()
            metrics.MUTATING_POLICY_SECONDS.labels(*labels).observe(time.perf_counter() - started)
        return error == "no_error"

    def _variables(self, each: Evaluation[Mutator], param: Mapping[str, Any] | None) -> Variables:
        """Return the variables of the object's present state."""
        made = Variables(self._attributes, each.match)
        made.answers = self._answers
        return made.about(namespace=self._namespace, params=param)

    def _want(self) -> None:
        self._again.changed()
        self._reinvocation.wanted = True


def _key(each: Evaluation[Mutator], param: Mapping[str, Any] | None) -> Key:
    metadata = param["metadata"] if param is not None else {}
    return each.definition.name, each.binding.name, metadata.get("namespace") or "", metadata.get("name") or ""


async def _same(attributes: Attributes, before: Object | None) -> bool:
    """Return whether the object is unchanged."""
    now = attributes.object
    return now is before or await attributes.views.run(operator.eq, now, before)


def _error_type(text: str) -> str:
    """Return the error's label value in metrics (ErrorType)."""
    if text.startswith("compilation"):
        return "compile_error"
    return (
        "out_of_budget" if text.startswith("validation failed due to running out of cost budget") else "invalid_error"
    )


def _refusal(attributes: Attributes, failures: Sequence[Failure]) -> StatusError:
    error = forbidden(attributes, "admission request denied by policy")
    first = failures[0]
    error.message = first.message
    error.reason = first.reason or error.reason
    error.details = {**(error.details or {}), "causes": [{"message": failure.message} for failure in failures]}
    return error
