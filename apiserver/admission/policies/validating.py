"""ValidatingAdmissionPolicy: evaluate the cluster's policies on a change, and enforce their bindings' actions.

Upstream: kubernetes/apiserver `pkg/admission/plugin/policy/validating/dispatcher.go`, `pkg/admission/plugin/policy/generic/plugin.go`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from apiserver import metrics
from apiserver.admission.core.attributes import Attributes, forbidden
from apiserver.admission.core.expressions import Expressions
from apiserver.admission.core.matching import Match, Matcher
from apiserver.admission.core.sources import Derived, Object, Sources, are_synced, synced
from apiserver.admission.core.variables import Variables
from apiserver.admission.policies.binding import ConfigurationError, Evaluation, evaluations
from apiserver.admission.policies.definitions import Binding, Definition, Definitions
from apiserver.admission.policies.preparation import Preparation
from apiserver.admission.policies.validator import INVALID, Decision, Note, Validator
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import V1_37, at, since
from kubetext.quoting import go_json

logger = logging.getLogger(__name__)

FAILURE = "validation.policy.admission.k8s.io/validation_failure"
MOST_FAILURES = since(
    V1_37, 50, before=1, what="the audit annotation `validation_failure` lists failures of all policies"
)
"""Failures that the annotation lists (upstream: maxValidationFailures). 1.36 keeps the first one: annotations are not overwritten."""
NOTE_BYTES = 10 << 10
"""A longer audit annotation is cut off."""
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413, INVALID: 422}


class Denial(NamedTuple):
    definition: Definition[Validator]
    binding: Binding | None
    message: str
    reason: str = ""


class ValidatingAdmissionPolicy:
    """Judges the object as it would be stored."""

    def __init__(self, sources: Sources, matcher: Matcher, expressions: Expressions) -> None:
        self._policies, self._bindings = sources.validating_policies, sources.validating_bindings
        self._params = sources.params
        self._matcher = matcher
        self._release = expressions.release
        self._most_failures = at(expressions.release, MOST_FAILURES)
        known = Definitions(lambda name, spec: Validator(name, spec, expressions))
        self._definitions = Derived(known.join, self._policies, self._bindings)
        self.prepare = Preparation(self._definitions).prepare

    async def validate(self, attributes: Attributes) -> None:
        """Run the policies. Raises the status of the first refusal: 422, or the code for the validation's `reason`."""
        if not are_synced(self._policies, self._bindings):
            await synced(attributes, self._policies, self._bindings)
        definitions = self._definitions.current()
        if not definitions:
            return
        found = await evaluations(definitions, attributes, self._matcher, self._params, release=self._release)
        if found:
            judgement = _Judgement(attributes, self._matcher, most_failures=self._most_failures)
            for each in found:
                await judgement.hear(each)
            judgement.close()


class _Judgement:
    """The judgement of one change by its policies, one after the other."""

    def __init__(self, attributes: Attributes, matcher: Matcher, *, most_failures: int) -> None:
        self._attributes = attributes
        self._matcher = matcher
        self._most_failures = most_failures
        self._failures: list[dict[str, Any]] = []
        self._variables: dict[str, Variables] = {}
        self._denied: list[Denial] = []
        self._notes: dict[tuple[str, str], list[str]] = {}

    async def hear(self, each: Evaluation[Validator] | ConfigurationError[Validator]) -> None:
        definition, binding = each.definition, each.binding
        if isinstance(each, ConfigurationError):
            if not definition.ignores_failures:
                self._denied.append(Denial(definition, binding, each.text))
            return
        namespace = await self._matcher.namespace(self._attributes)
        variables = self._of(each.match)
        for param in each.params:
            about = variables.about(namespace=namespace, params=_typed(param, definition))
            verdict = await definition.rules.judge(about)
            for index, decision in enumerate(verdict.decisions):
                self._enforce(definition, each.binding, index, decision)
            for note in verdict.notes:
                self._annotate(definition, each.binding, note)

    def _of(self, match: Match) -> Variables:
        version = match.resource.api_version
        if version not in self._variables:
            self._variables[version] = Variables(self._attributes, match)
        return self._variables[version]

    def _enforce(self, definition: Definition[Validator], binding: Binding, index: int, decision: Decision) -> None:
        if decision.admits:
            if decision.failed:
                _count(definition, binding, decision, "allow")
            return
        for action in binding.spec.get("validationActions") or ():
            match action:
                case "Deny":
                    self._denied.append(Denial(definition, binding, decision.message, decision.reason))
                case "Audit":
                    self._publish(binding, index, decision)
                case "Warn":
                    named = f"'{definition.name}' with binding '{binding.name}'"
                    text = f"Validation failed for ValidatingAdmissionPolicy {named}: {decision.message}"
                    self._attributes.warnings.add(text)
                case _:
                    continue
            _count(definition, binding, decision, action.lower())

    def _publish(self, binding: Binding, index: int, decision: Decision) -> None:
        if len(self._failures) == self._most_failures:
            return
        failure = {
            "message": decision.message,
            "policy": binding.spec.get("policyName", ""),
            "binding": binding.name,
            "expressionIndex": index,
            "validationActions": binding.spec.get("validationActions"),
        }
        self._failures.append(failure)

    def _annotate(self, definition: Definition[Validator], binding: Binding, note: Note) -> None:
        if note.error:
            decision = Decision(admits=False, message=note.error, failed=True, seconds=note.seconds)
            self._denied.append(Denial(definition, binding, note.error))
            _count(definition, binding, decision, "deny")
            return
        value = note.value.encode(errors="replace")[:NOTE_BYTES].decode(errors="replace")
        values = self._notes.setdefault((definition.name, note.key), [])
        if value not in values:
            values.append(value)

    def close(self) -> None:
        """Set the annotations. Raises the first refusal."""
        for (policy, key), values in self._notes.items():
            try:
                self._attributes.annotate(f"{policy}/{key}", ", ".join(values))
            except ValueError as e:
                logger.warning("an audit annotation cannot be set", extra={"policy": policy, "error": str(e)})
        if self._failures:
            self._attributes.annotate(FAILURE, go_json(self._failures))
        if self._denied:
            raise _refusal(self._attributes, self._denied[0])


def _refusal(attributes: Attributes, denial: Denial) -> StatusError:
    through = "" if denial.binding is None else f" with binding '{denial.binding.name}'"
    message = f"ValidatingAdmissionPolicy '{denial.definition.name}'{through} denied request: {denial.message}"
    error = forbidden(attributes, message)
    error.reason = denial.reason or INVALID
    error.code = _CODES.get(error.reason, _CODES[INVALID])
    error.details = {**(error.details or {}), "causes": [{"message": message}]}
    return error


def _typed(param: Object | None, definition: Definition[Validator]) -> Mapping[str, Any] | None:
    """Add kind and apiVersion to a parameter; those of built-in kinds come without them."""
    named = definition.param_kind
    if param is None or named is None or param.get("kind") or param.get("apiVersion"):
        return param
    return {**param, "apiVersion": named.api_version, "kind": named.kind}


def _count(definition: Definition[Validator], binding: Binding, decision: Decision, action: str) -> None:
    labels = (definition.name, binding.name, decision.error_type, action)
    metrics.VALIDATING_POLICY_CHECKS.labels(*labels).inc()
    metrics.VALIDATING_POLICY_SECONDS.labels(*labels).observe(decision.seconds)
