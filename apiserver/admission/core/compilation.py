"""Find expressions that do not compile in configurations from files. kube-apiserver checks those of a cluster itself.

Upstream: kubernetes/kubernetes `pkg/apis/admissionregistration/validation/validation.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from apiserver.admission.core.conditions import MatchConditions
from apiserver.admission.core.expressions import Expressions, Scope
from apiserver.admission.core.sources import Object
from apiserver.admission.policies.mutating import Mutator
from apiserver.admission.policies.validator import Validator
from apiserver.apimachinery.fieldpath import FieldError
from apiserver.apimachinery.releases import Release
from apiserver.apimachinery.request import Decision, RequestInfo, User


async def _nobody(user: User, info: RequestInfo) -> Decision:
    raise AssertionError("nothing is evaluated")


def _conditions(name: str, configuration: Object, expressions: Expressions) -> Iterator[Scope]:
    for i, webhook in enumerate(configuration.get("webhooks") or ()):
        scope, at = expressions.scope(), f"webhooks[{i}].matchConditions"
        MatchConditions.of(
            webhook.get("matchConditions"), expressions, name=name, kind="webhook", step="admit", scope=scope, at=at
        )
        yield scope


_SCOPES: Mapping[str, Callable[[str, Object, Expressions], Iterable[Scope]]] = {
    "mutating_webhooks": _conditions,
    "validating_webhooks": _conditions,
    "mutating_policies": lambda name, policy, expressions: [Mutator(name, policy["spec"], expressions).scope],
    "validating_policies": lambda name, policy, expressions: [Validator(name, policy["spec"], expressions).scope],
}
"""The scopes of a configuration's expressions, by the names of configurations in `sources.Sources`."""


def errors(sort: str, configuration: Object, release: Release) -> Iterator[FieldError]:
    """Yield the errors of a decoded configuration in a release; none if required members are missing, because that was reported already."""
    make = _SCOPES.get(sort)
    if make is None:
        return
    try:
        scopes = list(make(configuration["metadata"]["name"], configuration, Expressions(_nobody, release)))
    except KeyError:
        return
    for scope in scopes:
        scope.compile()
        yield from scope.errors()
