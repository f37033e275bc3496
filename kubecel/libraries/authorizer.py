"""`authorizer.group("apps").resource("deployments").check("create").allowed()`: check permissions.

An `Authorizer` answers; every `check` calls it once. Upstream: kubernetes/apiserver `pkg/cel/library/authz.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, NoReturn, Protocol

from kubecel.check.declarations import CallEstimate, Estimator, Function, Library, Node, Range
from kubecel.libraries.costs import LIST, NOMINAL, TRAVERSAL, Cost, member, nominal_estimate
from kubecel.libraries.strings import SPACE
from kubecel.values.errors import EvaluationError
from kubecel.values.types import BOOL, STRING, struct
from kubecel.values.values import Value, size
from kubetext import names

AUTHORIZER = struct("kubernetes.authorization.Authorizer")
PATH_CHECK = struct("kubernetes.authorization.PathCheck")
GROUP_CHECK = struct("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = struct("kubernetes.authorization.ResourceCheck")
DECISION = struct("kubernetes.authorization.Decision")

# Two checks exceed the budget of one evaluation.
_CHECK = 350_000
# A requirement of a selector has at least two characters, and makes a list and a structure.
_REQUIREMENTS = 0.5
_REQUIREMENT = LIST + 40


class ServiceAccount(NamedTuple):
    """The name of a service account."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """A request to authorize. `user` None stands for the authorizer's own user. With a `path` it is no resource.

    Selectors are unparsed texts, which may be invalid.
    """

    verb: str
    user: ServiceAccount | None = None
    path: str | None = None
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


class Answer(NamedTuple):
    """A decision: whether it is allowed, the reason, and the error of the authorizer ("" for none)."""

    allowed: bool
    reason: str = ""
    error: str = ""


class Authorizer(Protocol):
    """Decides about requests."""

    def authorize(self, attributes: Attributes) -> Answer:
        """Return the decision; an error is part of it."""


class _Incomparable:
    """A value that equals none, not even itself."""

    __slots__ = ()

    go_native = ""

    def __eq__(self, other: object) -> NoReturn:
        raise EvaluationError("no such overload")

    __hash__ = None  # type: ignore[assignment]


class _Of(_Incomparable):
    """A value that calls build up: the authorizer, and the request so far."""

    __slots__ = ("attributes", "authorizer")

    def __init__(self, authorizer: Authorizer, attributes: Attributes) -> None:
        self.authorizer = authorizer
        self.attributes = attributes


class AuthorizerValue(_Of):
    """The value of `authorizer`."""

    __slots__ = ()

    cel_type = AUTHORIZER
    go_type = "library.authorizerVal"

    def __init__(self, authorizer: Authorizer, user: ServiceAccount | None = None) -> None:
        super().__init__(authorizer, Attributes(verb="", user=user))


class PathCheck(_Of):
    """A path that is not a resource."""

    __slots__ = ()

    cel_type = PATH_CHECK
    go_type = "library.pathCheckVal"


class GroupCheck(_Of):
    """An API group."""

    __slots__ = ()

    cel_type = GROUP_CHECK
    go_type = "library.groupCheckVal"


class ResourceCheck(_Of):
    """A resource, or one object of it; `authorizer.requestResource` is one."""

    __slots__ = ()

    cel_type = RESOURCE_CHECK
    go_type = "library.resourceCheckVal"


class Decision(_Incomparable):
    """The value of a decision."""

    __slots__ = ("answer",)

    cel_type = DECISION
    go_type = "library.decisionVal"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer


def _path(of: _Of, path: str) -> PathCheck:
    if not path.strip(SPACE):
        raise EvaluationError("path must not be empty")
    return PathCheck(of.authorizer, replace(of.attributes, path=path))


def _service_account(of: _Of, namespace: str, name: str) -> AuthorizerValue:
    if names.dns_subdomain(name):
        raise EvaluationError("Invalid service account name")
    if names.dns_label(namespace):
        raise EvaluationError("Invalid service account namespace")
    return AuthorizerValue(of.authorizer, ServiceAccount(namespace, name))


def _group(of: _Of, group: str) -> GroupCheck:
    return GroupCheck(of.authorizer, replace(of.attributes, group=group))


def _resource(of: _Of, resource: str) -> ResourceCheck:
    if not resource.strip(SPACE):
        raise EvaluationError("resource must not be empty")
    return ResourceCheck(of.authorizer, replace(of.attributes, resource=resource))


def _check(of: _Of, verb: str) -> Decision:
    return Decision(of.authorizer.authorize(replace(of.attributes, verb=verb)))


# Costs


def _check_estimate(_estimator: Estimator, _target: Node | None, _arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(Range(_CHECK, _CHECK))


def _selector(length: Range) -> Range:
    requirements = length.scaled(_REQUIREMENTS).scaled(_REQUIREMENT)
    return Range(LIST, LIST).plus(length.scaled(TRAVERSAL)).plus(requirements)


def _selector_estimate(estimator: Estimator, _target: Node | None, arguments: Sequence[Node]) -> CallEstimate:
    return CallEstimate(_selector(estimator.size(arguments[0])))


def _selector_charge(values: Sequence[Value], _result: Value) -> int:
    length = size(values[1])
    return _selector(Range(length, length)).most


_CHECKING = Cost(_check_estimate, lambda _values, _result: _CHECK)
_SELECTING = Cost(_selector_estimate, _selector_charge)


def _refined(
    name: str, overload: str, more: Callable[[Attributes, str], Attributes], *, cost: Cost = NOMINAL
) -> Function:
    """Return a function that refines a request for a resource."""

    def refine(of: _Of, text: str) -> ResourceCheck:
        return ResourceCheck(of.authorizer, more(of.attributes, text))

    return Function(name, (member(overload, (RESOURCE_CHECK, STRING), RESOURCE_CHECK, refine, cost=cost),))


LIBRARY = Library(
    name="kubernetes.authz",
    types=(AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION),
    equality=dict.fromkeys((AUTHORIZER, PATH_CHECK, GROUP_CHECK, RESOURCE_CHECK, DECISION), nominal_estimate),
    functions=(
        Function("path", (member("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path, cost=NOMINAL),)),
        Function("group", (member("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, _group, cost=NOMINAL),)),
        Function(
            "serviceAccount",
            (
                member(
                    "authorizer_serviceaccount",
                    (AUTHORIZER, STRING, STRING),
                    AUTHORIZER,
                    _service_account,
                    cost=NOMINAL,
                ),
            ),
        ),
        Function(
            "resource", (member("groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource, cost=NOMINAL),)
        ),
        _refined("subresource", "resourcecheck_subresource", lambda a, text: replace(a, subresource=text)),
        _refined("namespace", "resourcecheck_namespace", lambda a, text: replace(a, namespace=text)),
        _refined("name", "resourcecheck_name", lambda a, text: replace(a, name=text)),
        Function(
            "check",
            (
                member("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check, cost=_CHECKING),
                member("resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check, cost=_CHECKING),
            ),
            charge=_CHECKING.charge,
        ),
        Function(
            "errored",
            (member("decision_errored", (DECISION,), BOOL, lambda d: d.answer.error != "", cost=NOMINAL),),
        ),
        Function("error", (member("decision_error", (DECISION,), STRING, lambda d: d.answer.error, cost=NOMINAL),)),
        Function("allowed", (member("decision_allowed", (DECISION,), BOOL, lambda d: d.answer.allowed, cost=NOMINAL),)),
        Function("reason", (member("decision_reason", (DECISION,), STRING, lambda d: d.answer.reason, cost=NOMINAL),)),
    ),
)

SELECTORS = Library(
    name="kubernetes.authzSelectors",
    functions=(
        _refined(
            "fieldSelector",
            "authorizer_fieldselector",
            lambda a, text: replace(a, field_selector=text),
            cost=_SELECTING,
        ),
        _refined(
            "labelSelector",
            "authorizer_labelselector",
            lambda a, text: replace(a, label_selector=text),
            cost=_SELECTING,
        ),
    ),
)
