"""Match changes with webhooks, policies and bindings: rules, selectors, and equivalent versions.

The result of the rules depends only on what a request names, so it is cached by that. Selectors are evaluated only if the rules match.
Clients cannot tell that from upstream's order, except that errors of selectors count only then. Upstream: kubernetes/apiserver
`pkg/admission/plugin/webhook/{generic/webhook.go,predicates}`, `pkg/admission/plugin/policy/matching/matching.go`;
kubernetes/apimachinery `pkg/runtime/mapper.go` (equivalent resources).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from apiserver.admission.core.attributes import Attributes
from apiserver.apimachinery import errors, selectors
from apiserver.apimachinery.errors import GroupResource, StatusError
from apiserver.apimachinery.selectors import LabelSelector
from apiserver.cluster.errors import ClusterError
from apiserver.kinds.served import GroupVersionResource, Kinds
from apiserver.schema.resource import Object, Resource

NAMESPACES = GroupResource("", "namespaces")
_EVERY = "*"
_EXEMPT = frozenset(
    f"{step}{kind}"
    for step in ("Mutating", "Validating")
    for kind in ("WebhookConfiguration", "AdmissionPolicy", "AdmissionPolicyBinding")
)

Namespace = Mapping[str, Any]
Outcome = tuple[str, str, str, str, str]
"""The input of rules: group, version and resource that a request names, its subresource, its operation."""


class Namespaces(Protocol):
    """The cluster's namespaces as far as they are known here, and a way to ask about others."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once all have been listed."""

    def lookup(self, name: str) -> Namespace | None:
        """Return the namespace as it is known here."""

    async def ask(self, name: str) -> Namespace | None:
        """Return the namespace from kube-apiserver. Raises ClusterError."""


class Match(NamedTuple):
    """The version in which a webhook or policy sees the objects: the request's own, or an equivalent one that a rule names."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a configuration. `names` are the names of its objects, empty for all."""

    groups: frozenset[str]
    versions: frozenset[str]
    operations: frozenset[str]
    resources: Sequence[tuple[str, str]]
    scope: str
    names: frozenset[str]

    @classmethod
    def of(cls, rule: Mapping[str, Any], *, names: bool) -> Rule:
        parts = [resource.partition("/") for resource in rule.get("resources") or ()]
        return cls(
            groups=frozenset(rule.get("apiGroups") or ()),
            versions=frozenset(rule.get("apiVersions") or ()),
            operations=frozenset(rule.get("operations") or ()),
            resources=[(resource, subresource) for resource, _, subresource in parts],
            scope=rule.get("scope") or _EVERY,
            names=frozenset((rule.get("resourceNames") if names else ()) or ()),
        )

    def matches(self, resource: Resource, attributes: Attributes) -> bool:
        """Return whether it matches this change as a change of `resource`."""
        return (
            self._in_scope(attributes)
            and _listed(attributes.operation, self.operations)
            and _listed(resource.group, self.groups)
            and _listed(resource.version, self.versions)
            and self._names(resource.plural, attributes.subresource)
            and (not self.names or attributes.name in self.names)
        )

    def _in_scope(self, attributes: Attributes) -> bool:
        match self.scope:
            case "*":
                return True
            case "Namespaced":
                return bool(attributes.namespace)
            case "Cluster":
                return not attributes.namespace
        return False

    def _names(self, plural: str, subresource: str) -> bool:
        return any(resource in (_EVERY, plural) and sub in (_EVERY, subresource) for resource, sub in self.resources)


def _listed(value: str, values: frozenset[str]) -> bool:
    return value in values or _EVERY in values


@dataclass(frozen=True, slots=True)
class Criteria:
    """The match criteria of a configuration. Made once, and used by one Matcher.

    `everything`: no rule at all matches every change, as in policies. A selector that cannot be parsed is its error's text.
    """

    rules: Sequence[Rule]
    exclude: Sequence[Rule]
    namespace_selector: LabelSelector | str
    object_selector: LabelSelector | str
    exact: bool
    everything: bool
    outcomes: dict[Outcome, Match | None] | None = field(default_factory=dict, compare=False, repr=False)
    """The results of the rules; None if they depend on the object's name too."""

    @classmethod
    def of(
        cls,
        *,
        rules: Sequence[Mapping[str, Any]],
        exclude: Sequence[Mapping[str, Any]] = (),
        namespace_selector: Mapping[str, Any] | None,
        object_selector: Mapping[str, Any] | None,
        match_policy: str | None,
        names: bool = False,
    ) -> Criteria:
        """Make criteria from the members of an API object; missing ones have their defaults.

        `names`: the rules of policies, which may name objects, and may be empty.
        """
        made = [Rule.of(rule, names=names) for rule in rules]
        unwanted = [Rule.of(rule, names=names) for rule in exclude]
        return cls(
            rules=made,
            exclude=unwanted,
            namespace_selector=_selector(namespace_selector),
            object_selector=_selector(object_selector),
            exact=match_policy == "Exact",
            everything=names and not made,
            outcomes=None if any(rule.names for rule in (*made, *unwanted)) else {},
        )


def _selector(selector: Mapping[str, Any] | None) -> LabelSelector | str:
    try:
        return selectors.of_json(selector or {})
    except ValueError as e:
        return str(e)


class Matcher:
    """Knows the versions of each kind, and the namespaces. All plugins share one."""

    def __init__(self, kinds: Kinds, namespaces: Namespaces) -> None:
        self.kinds = kinds
        self.namespaces = namespaces
        self._equivalents = {_path(a): [b for b in kinds if b is not a and b.stored is a.stored] for a in kinds}

    async def match(self, criteria: Criteria, attributes: Attributes) -> Match | None:
        """Return the version in which the change is shown, None if it does not match. Raises StatusError: 404 of its namespace, or 500."""
        match = self.candidate(criteria, attributes)
        if match is None or not await self.selected(criteria, attributes):
            return None
        return match

    def candidate(self, criteria: Criteria, attributes: Attributes) -> Match | None:
        """Match by rules only."""
        outcomes = criteria.outcomes
        if outcomes is None:
            return self._by_rules(criteria, attributes)
        key = outcome(attributes)
        try:
            return outcomes[key]
        except KeyError:
            found = outcomes[key] = self._by_rules(criteria, attributes)
            return found

    def _by_rules(self, criteria: Criteria, attributes: Attributes) -> Match | None:
        if criteria.exclude and self._found(criteria.exclude, attributes, exact=criteria.exact) is not None:
            return None
        if criteria.everything:
            return Match(attributes.resource)
        return self._found(criteria.rules, attributes, exact=criteria.exact)

    def _found(self, rules: Sequence[Rule], attributes: Attributes, *, exact: bool) -> Match | None:
        """Return the request's own version if any rule names it, else the first one that a rule names."""
        own = attributes.resource
        if any(rule.matches(own, attributes) for rule in rules):
            return Match(own)
        if exact:
            return None
        others = self._equivalents.get(_path(own), ())
        return next((Match(other) for rule in rules for other in others if rule.matches(other, attributes)), None)

    async def selected(self, criteria: Criteria, attributes: Attributes) -> bool:
        """Return whether both selectors match. Raises StatusError as `match` does."""
        wrong: StatusError | None = None
        try:
            if not await self._in_namespace(criteria.namespace_selector, attributes):
                return False
        except StatusError as e:
            wrong = e
        selector = criteria.object_selector
        if isinstance(selector, str):
            raise wrong or errors.internal(selector)
        if not selector.empty and not (_has(selector, attributes.object) or _has(selector, attributes.old)):
            return False
        if wrong is not None:
            raise wrong
        return True

    async def _in_namespace(self, selector: LabelSelector | str, attributes: Attributes) -> bool:
        if not attributes.namespace:
            return True
        if isinstance(selector, str):
            raise errors.internal(selector)
        if selector.empty:
            return True
        namespace = await self._namespace(attributes.namespace)
        return selector.matches(_labels(namespace))

    async def namespace(self, attributes: Attributes) -> Namespace | None:
        """Return the request's namespace; None for cluster-scoped objects. Raises StatusError: 404, or 500 if nobody can tell."""
        return await self._namespace(attributes.namespace) if attributes.namespace else None

    async def _namespace(self, name: str) -> Namespace:
        found = self.namespaces.lookup(name)
        if found is None:
            try:
                found = await self.namespaces.ask(name)
            except ClusterError as e:
                raise errors.internal(str(e)) from e
        if found is None:
            raise errors.not_found(NAMESPACES, name)
        return found


def outcome(attributes: Attributes) -> Outcome:
    """Return the input of rules, except names. It has as many values as this server has endpoints."""
    resource = attributes.resource
    return resource.group, resource.version, resource.plural, attributes.subresource, attributes.operation


def exempt(resource: Resource) -> bool:
    """Return whether it is a kind of configuration. No configuration applies to these, or a wrong one could not be corrected."""
    return resource.group == "admissionregistration.k8s.io" and resource.kind in _EXEMPT


def _path(resource: Resource) -> GroupVersionResource:
    return resource.group, resource.version, resource.plural


def _has(selector: LabelSelector, obj: Object | None) -> bool:
    return obj is not None and selector.matches(_labels(obj))


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}
