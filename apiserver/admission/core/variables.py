"""The variables of expressions about a change: `object`, `oldObject`, `request`, `namespaceObject`, `params`, `authorizer`.

Upstream: kubernetes/apiserver `pkg/admission/plugin/cel/{activation,condition}.go`, `pkg/cel/library/authz.go`.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.matching import Match
from apiserver.apimachinery.options import META_GROUP, DeleteOptions
from apiserver.apimachinery.request import RequestInfo, User
from apiserver.apimachinery.selectors import Given
from apiserver.runtime.offload import EVALUATE
from apiserver.schema.resource import Resource
from kubecel.libraries import authorizer
from kubecel.libraries.authorizer import Answer, AuthorizerValue, ResourceCheck

_VALUE_BYTES = 8
"""The bytes that a value counts for beside its text."""

_NAMESPACE_METADATA = (
    "name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "labels", "annotations", "finalizers",
)  # fmt: skip
_SERVICE_ACCOUNT, _SERVICE_ACCOUNTS = "system:serviceaccount:", "system:serviceaccounts"


class Asks(Exception):
    """The authorizer's answer is not known yet. Not an error of the language: no operator absorbs it."""

    def __init__(self, attributes: authorizer.Attributes) -> None:
        super().__init__(attributes)
        self.attributes = attributes


class Answers:
    """The authorizer of expressions: returns known answers only, so that an evaluation never waits."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[authorizer.Attributes, Answer] = {}

    def authorize(self, attributes: authorizer.Attributes) -> Answer:
        """Return the known answer. Raises Asks."""
        found = self.known.get(attributes)
        if found is None:
            raise Asks(attributes)
        return found


class Variables:
    """The variables of one change in one version. `prepare` makes the needed ones; `values` then holds them by name.

    `about` makes the variables of the same change with other parameters; objects and answers are shared. `small`: every function of the
    language is quick with them.
    """

    __slots__ = ("_authorizes", "_named", "_resource", "answers", "attributes", "small", "values")

    def __init__(self, attributes: Attributes, match: Match) -> None:
        self.attributes = attributes
        self.answers = Answers()
        self._resource = self._named = match.resource
        self._authorizes = True
        self.small = attributes.views.size <= EVALUATE.limit
        self.values: dict[str, Any] = {"namespaceObject": None, "params": None}
        if attributes.object is None:
            self.values["object"] = None
        if attributes.old is None:
            self.values["oldObject"] = None

    @classmethod
    def of(
        cls,
        attributes: Attributes,
        match: Match,
        *,
        namespace: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Variables:
        return cls(attributes, match).about(namespace=namespace, params=params)

    def about(
        self, *, namespace: Mapping[str, Any] | None = None, params: Mapping[str, Any] | None = None
    ) -> Variables:
        """Return the variables with this namespace and these parameters."""
        if namespace is None and params is None:
            return self
        other = copy.copy(self)
        other.values = {**self.values, "params": params}
        if namespace is not None:
            other.values["namespaceObject"] = namespace_object(namespace)
        if params is not None and other.small:
            other.small = _left(params, EVALUATE.limit - self.attributes.views.size) >= 0
        return other

    def for_conditions(self) -> Variables:
        """Return the variables for conditions, without the namespace, and with the resource that the request names."""
        attributes = self.attributes
        if self._resource is attributes.resource and self.values["namespaceObject"] is None:
            return self
        other = copy.copy(self)
        other.values = {**self.values, "namespaceObject": None}
        other.values.pop("request", None)
        other._named = attributes.resource
        return other

    async def prepare(self, names: Collection[str]) -> None:
        """Make the variables that expressions use."""
        values, attributes = self.values, self.attributes
        if "object" in names and "object" not in values and attributes.object is not None:
            values["object"] = await attributes.views.aplain(attributes.object, self._resource)
        if "oldObject" in names and "oldObject" not in values and attributes.old is not None:
            values["oldObject"] = await attributes.views.aplain(attributes.old, self._resource)
        if "request" in names and "request" not in values:
            values["request"] = request(attributes, self._resource, self._named)
        if not self._authorizes:
            return
        if "authorizer" in names and "authorizer" not in values:
            values["authorizer"] = AuthorizerValue(self.answers)
        if "authorizer.requestResource" in names and "authorizer.requestResource" not in values:
            values["authorizer.requestResource"] = self._request_resource()

    def without_authorizer(self) -> Variables:
        """Return the variables for expressions that may not use the authorizer, not even through the variables of a policy."""
        other = copy.copy(self)
        other.values = {name: value for name, value in self.values.items() if not name.startswith("authorizer")}
        other._authorizes = False
        return other

    def _request_resource(self) -> ResourceCheck:
        attributes = self.attributes
        asked = authorizer.Attributes(
            verb="",
            group=attributes.resource.group,
            resource=attributes.resource.plural,
            subresource=attributes.subresource,
            namespace=attributes.namespace,
            name=attributes.name,
        )
        return ResourceCheck(self.answers, asked)


def request(attributes: Attributes, shown: Resource, named: Resource) -> dict[str, Any]:
    """Make the AdmissionRequest without its objects, as JSON values.

    `kind` is the version in which they are `shown`, `resource` is that of `named`. Empty optional members are left out.
    """
    user, own = attributes.user, attributes.resource
    made = {
        "uid": "",
        "kind": _group_version_kind(shown),
        "resource": _group_version_resource(named),
        "requestKind": _group_version_kind(own),
        "requestResource": _group_version_resource(own),
        "operation": attributes.operation,
        "userInfo": _filled(
            {
                "username": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "extra": {key: list(values) for key, values in user.extra.items()},
            }
        ),
        "dryRun": attributes.dry_run,
        "options": options(attributes),
    }
    if attributes.subresource:
        made["subResource"] = made["requestSubResource"] = attributes.subresource
    if attributes.name:
        made["name"] = attributes.name
    if attributes.namespace:
        made["namespace"] = attributes.namespace
    return made


def options(attributes: Attributes) -> dict[str, Any]:
    """Return the options of the operation, as JSON values."""
    given = attributes.options
    head = {"kind": type(given).__name__, "apiVersion": f"{META_GROUP}/v1"}
    if not isinstance(given, DeleteOptions):
        return head | _filled(
            {
                "dryRun": ["All"] if given.dry_run else [],
                "fieldManager": given.field_manager,
                "fieldValidation": given.field_validation,
            }
        )
    preconditions = {"uid": given.uid, "resourceVersion": given.resource_version}
    members = {
        "gracePeriodSeconds": given.grace_period_seconds,
        "preconditions": _present(preconditions) if given.preconditions else None,
        "orphanDependents": given.orphan_dependents,
        "propagationPolicy": given.propagation_policy,
        "dryRun": list(given.dry_run_values) or None,
        "ignoreStoreReadErrorWithClusterBreakingPotential": given.ignore_read_error or None,
    }
    return head | _present(members)


def namespace_object(namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a namespace that expressions see (CreateNamespaceObject)."""
    metadata = namespace.get("metadata") or {}
    return {
        "metadata": {name: metadata[name] for name in _NAMESPACE_METADATA if name in metadata},
        "spec": namespace.get("spec") or {},
        "status": namespace.get("status") or {},
    }


def asked_of(user: User, asked: authorizer.Attributes) -> tuple[User, RequestInfo]:
    """Turn an expression's question into a user and a request for authorizers."""
    if asked.user is not None:
        namespace, name = asked.user
        groups = (_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{namespace}")
        user = User(f"{_SERVICE_ACCOUNT}{namespace}:{name}", groups=groups)
    if asked.path is not None:
        return user, RequestInfo(path=asked.path, verb=asked.verb, method="")
    return user, RequestInfo(
        path="",
        verb=asked.verb,
        method="",
        is_resource=True,
        group=asked.group,
        version="*",
        resource=asked.resource,
        subresource=asked.subresource,
        namespace=asked.namespace,
        name=asked.name,
        selectors=Given(asked.label_selector, asked.field_selector),
    )


def _left(value: Any, left: int) -> int:
    """Return the bytes left beside a value; negative as soon as the limit is exceeded."""
    left -= _VALUE_BYTES
    if isinstance(value, str):
        return left - len(value)
    children: Iterable[Any] = value if isinstance(value, list) else ()
    if isinstance(value, dict):
        left -= sum(map(len, value)) if len(value) <= left else len(value)
        children = value.values()
    for child in children:
        if left < 0:
            break
        left = _left(child, left)
    return left


def _group_version_kind(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _group_version_resource(resource: Resource) -> dict[str, str]:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _filled(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


def _present(members: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
