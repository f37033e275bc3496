"""Which changes a webhook, a policy or a binding concerns: rules, selectors, and the versions that are equivalent.

What the rules say of a request depends on what it names alone, so it is found out once for each of these and remembered. Selectors are
asked only where the rules match, which nobody can tell from upstream's order: their errors count only then.
Upstream: kubernetes/apiserver `pkg/admission/plugin/webhook/{generic/webhook.go,predicates}`,
`pkg/admission/plugin/policy/matching/matching.go`; kubernetes/apimachinery `pkg/runtime/mapper.go` (equivalent resources).
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
"""What rules look at: the group, version and resource that a request names, its subresource, its operation."""


class Namespaces(Protocol):
    """The cluster's namespaces as far as they are known here, and whom to ask about the others."""

    @property
    def ready(self) -> asyncio.Event:
        """Set once all have been listed."""

    def lookup(self, name: str) -> Namespace | None:
        """The namespace as it is known here."""

    async def ask(self, name: str) -> Namespace | None:
        """The namespace as kube-apiserver has it. Raises ClusterError."""


class Match(NamedTuple):
    """In which version the objects of a change are shown to who asked for it: the request's own, or an equivalent one that a rule names."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class Rule:
    """One of the rules of a configuration. `names` are those of the objects that it is about, empty for all."""

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
        """Whether it is about this change, if that is one of `resource`."""
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
    """What a configuration asks of a change. Made once, and used by one Matcher.

    `everything`: no rule at all means every change, as in policies. A selector is a text where it cannot be read: what is wrong with it.
    """

    rules: Sequence[Rule]
    exclude: Sequence[Rule]
    namespace_selector: LabelSelector | str
    object_selector: LabelSelector | str
    exact: bool
    everything: bool
    outcomes: dict[Outcome, Match | None] | None = field(default_factory=dict, compare=False, repr=False)
    """What the rules said; None where that depends on the name of the object too."""

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
        """Of the members of an API object; those that are absent have their defaults. `names`: policies' rules, which may name objects,
        and of which there may be none."""
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
    """Knows the versions of each kind, and the namespaces. There is one for all plugins."""

    def __init__(self, kinds: Kinds, namespaces: Namespaces) -> None:
        self.kinds = kinds
        self.namespaces = namespaces
        self._equivalents = {_path(a): [b for b in kinds if b is not a and b.stored is a.stored] for a in kinds}

    async def match(self, criteria: Criteria, attributes: Attributes) -> Match | None:
        """In which version the change is shown, None if it is no concern. Raises StatusError: 404 of its namespace, or 500."""
        match = self.candidate(criteria, attributes)
        if match is None or not await self.selected(criteria, attributes):
            return None
        return match

    def candidate(self, criteria: Criteria, attributes: Attributes) -> Match | None:
        """The same as far as rules go."""
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
        """The request's own version if any rule names that, else the first one that a rule names."""
        own = attributes.resource
        if any(rule.matches(own, attributes) for rule in rules):
            return Match(own)
        if exact:
            return None
        others = self._equivalents.get(_path(own), ())
        return next((Match(other) for rule in rules for other in others if rule.matches(other, attributes)), None)

    async def selected(self, criteria: Criteria, attributes: Attributes) -> bool:
        """Whether both selectors match. Raises StatusError as `match` does."""
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
        """That of the request; None for what is in none. Raises StatusError: 404, or 500 when nobody can be asked."""
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
    """What decides, beyond names and selectors, whom a change concerns. There are as many as this server has endpoints."""
    resource = attributes.resource
    return resource.group, resource.version, resource.plural, attributes.subresource, attributes.operation


def exempt(resource: Resource) -> bool:
    """Whether it is a kind of configuration, about which no configuration is asked: a wrong one could not be put right."""
    return resource.group == "admissionregistration.k8s.io" and resource.kind in _EXEMPT


def _path(resource: Resource) -> GroupVersionResource:
    return resource.group, resource.version, resource.plural


def _has(selector: LabelSelector, obj: Object | None) -> bool:
    return obj is not None and selector.matches(_labels(obj))


def _labels(obj: Mapping[str, Any]) -> Mapping[str, str]:
    return (obj.get("metadata") or {}).get("labels") or {}
