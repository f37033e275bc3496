"""Policies with their bindings, made once from the sources.

A policy without a binding has no effect. Upstream has no order among policies; here they are sorted by name. Upstream:
kubernetes/apiserver `pkg/admission/plugin/policy/generic/{policy_source,policy_matcher}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from apiserver.admission.core.matching import Criteria
from apiserver.admission.core.sources import Object

Made = TypeVar("Made")

FAIL, IGNORE = "Fail", "Ignore"


class NamedKind(NamedTuple):
    """A paramKind."""

    api_version: str
    kind: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of a policy. `spec` is as in the API; with `criteria` None it applies wherever the policy does."""

    name: str
    spec: Mapping[str, Any]
    criteria: Criteria | None

    @classmethod
    def of(cls, binding: Object) -> Binding:
        spec = binding.get("spec") or {}
        return cls(binding["metadata"]["name"], spec, _criteria(spec.get("matchResources")))


@dataclass(frozen=True, slots=True)
class Definition(Generic[Made]):
    """A policy with its bindings. `rules` is what the plugin made of it; `criteria` None: its match constraints are missing."""

    name: str
    spec: Mapping[str, Any]
    criteria: Criteria | None
    param_kind: NamedKind | None
    rules: Made
    bindings: Sequence[Binding]

    @property
    def ignores_failures(self) -> bool:
        return self.spec.get("failurePolicy") == IGNORE


class Definitions(Generic[Made]):
    """Joins policies and bindings. The result for a policy is kept for as long as the policy is the same."""

    def __init__(self, make: Callable[[str, Mapping[str, Any]], Made]) -> None:
        """`make` gets the name and the spec of a policy."""
        self._make = make
        self._known: dict[str, tuple[Object, Definition[Made]]] = {}
        self._bindings: dict[str, tuple[Object, Binding]] = {}

    def join(self, policies: Mapping[str, Object], bindings: Mapping[str, Object]) -> list[Definition[Made]]:
        """Return the policies that have bindings. For `sources.Derived`."""
        self._bindings = {name: self._binding(name, binding) for name, binding in bindings.items()}
        bound: dict[str, list[Binding]] = {}
        for name in sorted(self._bindings):
            binding = self._bindings[name][1]
            bound.setdefault(binding.spec.get("policyName", ""), []).append(binding)
        self._known = {
            name: self._policy(name, policies[name], bound[name]) for name in sorted(bound) if name in policies
        }
        return [definition for _, definition in self._known.values()]

    def _binding(self, name: str, binding: Object) -> tuple[Object, Binding]:
        known = self._bindings.get(name)
        return known if known is not None and known[0] is binding else (binding, Binding.of(binding))

    def _policy(self, name: str, policy: Object, bindings: list[Binding]) -> tuple[Object, Definition[Made]]:
        known = self._known.get(name)
        if known is not None and known[0] is policy:
            return policy, replace(known[1], bindings=tuple(bindings))
        spec = policy.get("spec") or {}
        named = spec.get("paramKind")
        kind = NamedKind(named.get("apiVersion", ""), named.get("kind", "")) if named else None
        made = Definition(
            name, spec, _criteria(spec.get("matchConstraints")), kind, self._make(name, spec), tuple(bindings)
        )
        return policy, made


def _criteria(resources: Mapping[str, Any] | None) -> Criteria | None:
    """Make criteria from MatchResources. Missing members have their defaults: everything, and equivalent versions."""
    if resources is None:
        return None
    return Criteria.of(
        rules=resources.get("resourceRules") or (),
        exclude=resources.get("excludeResourceRules") or (),
        namespace_selector=resources.get("namespaceSelector"),
        object_selector=resources.get("objectSelector"),
        match_policy=resources.get("matchPolicy"),
        names=True,
    )
