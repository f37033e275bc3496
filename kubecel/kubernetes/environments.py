"""The environments of Kubernetes by version, and their variables for each purpose.

A new expression may use only features that the previous version had as well, so that a downgrade breaks nothing. A
stored expression may use all features.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kubecel.check import validators
from kubecel.check.declarations import Shape, Variable
from kubecel.check.environment import Environment
from kubecel.libraries import (
    authorizer,
    cidr,
    comprehensions,
    formats,
    ip,
    jsonpatch,
    lists,
    optionals,
    quantity,
    regex,
    semver,
    sets,
    standard,
    strings,
    urls,
)
from kubecel.values.types import BOOL, DYN, INT, STRING, TIMESTAMP, list_of, map_of, optional_of, struct

Version = tuple[int, int]

# The size of a list or map whose declaration has no limit.
UNBOUNDED = 2**64 - 1

NEWEST: Version = (1, 37)
ALWAYS: Version = (1, 0)

# The cost limit of one evaluation (`pkg/apis/cel/config.go` PerCallLimit).
COST_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """An extension of environments from one version on, and before the version in which it was `removed`.

    `enabled` is the state of its feature gate, None without one. A gate overrides the version for new expressions, and
    has no effect on stored ones.

    Servers have it from the release `since` on, and not from the release `until` on, whatever expressions must be
    compatible with. `what` says the difference.
    """

    introduced: Version
    extend: Callable[[Environment], Environment]
    removed: Version | None = None
    enabled: bool | None = None
    since: Version = ALWAYS
    until: Version | None = None
    what: str = ""

    def known(self, release: Version) -> bool:
        """Return whether servers of a release know it."""
        return self.since <= release and (self.until is None or release < self.until)

    def serves(self, version: Version) -> bool:
        """Return whether an environment for new expressions has it."""
        return self._in(version) if self.enabled is None else self.enabled

    def stays(self, release: Version) -> bool:
        """Return whether an environment for stored expressions has it."""
        return self.introduced <= release and (self.removed is None or release < self.removed)

    def _in(self, version: Version) -> bool:
        return self.introduced <= version and (self.removed is None or version < self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environments:
    """The two environments of one purpose in a server of a `release`: for `new` and for `stored` expressions."""

    release: Version
    compatibility: Version
    new: Environment
    stored: Environment

    def of(self, *, stored: bool) -> Environment:
        """Return the environment of an expression."""
        return self.stored if stored else self.new

    def extend(self, *additions: Addition) -> Environments:
        """Return both with the additions that each may have."""
        known = [addition for addition in additions if addition.known(self.release)]
        new = (addition for addition in known if addition.serves(self.compatibility))
        stored = (addition for addition in known if addition.stays(self.release))
        return replace(self, new=_grown(self.new, new), stored=_grown(self.stored, stored))


def _grown(environment: Environment, additions: Iterable[Addition]) -> Environment:
    return functools.reduce(lambda grown, addition: addition.extend(grown), additions, environment)


BASE = (
    Addition(
        introduced=ALWAYS,
        until=(1, 37),
        extend=lambda e: e.extend(libraries=(standard.LIBRARY_0_26,)),
    ),
    Addition(
        introduced=ALWAYS,
        since=(1, 37),
        extend=lambda e: e.extend(
            libraries=(standard.LIBRARY,), escaped_fields=True, global_names=True, strict_optionals=True
        ),
        what="""the language of cel-go 0.29: fields in backticks, `.name` for a name that a macro's variable hides, no `duration(1)`,
        `or` and `orValue` of optional values only, other costs of `matches(text, pattern)`, `startsWith` and `endsWith`""",
    ),
    Addition(
        introduced=ALWAYS,
        extend=lambda e: e.extend(
            libraries=(urls.LIBRARY, regex.LIBRARY),
            validators=(validators.HOMOGENEOUS_LITERALS,),
            free_presence_tests=True,
        ),
    ),
    Addition(introduced=ALWAYS, removed=(1, 37), extend=lambda e: e.extend(libraries=(lists.LIBRARY,))),
    Addition(introduced=(1, 27), extend=lambda e: e.extend(libraries=(authorizer.LIBRARY,))),
    Addition(
        introduced=(1, 28),
        extend=lambda e: e.extend(libraries=(optionals.LIBRARY, quantity.LIBRARY), cross_type_numeric_comparisons=True),
    ),
    Addition(introduced=(1, 29), extend=lambda e: e.extend(validators=validators.KUBERNETES)),
    Addition(introduced=ALWAYS, removed=(1, 29), extend=lambda e: e.extend(libraries=(strings.LIBRARY_V0,))),
    Addition(introduced=(1, 29), until=(1, 37), extend=lambda e: e.extend(libraries=(strings.LIBRARY_V2_0_26,))),
    Addition(
        introduced=(1, 29),
        since=(1, 37),
        extend=lambda e: e.extend(libraries=(strings.LIBRARY_V2,)),
        what="`indexOf` and `lastIndexOf` find an empty text inside of the string only",
    ),
    Addition(introduced=(1, 29), extend=lambda e: e.extend(libraries=(sets.LIBRARY,))),
    Addition(introduced=(1, 30), extend=lambda e: e.extend(libraries=(ip.LIBRARY, cidr.LIBRARY))),
    Addition(introduced=(1, 31), extend=lambda e: e.extend(libraries=(formats.LIBRARY,))),
    # Behind the feature gate AuthorizeWithSelectors, which is locked.
    Addition(introduced=(1, 31), enabled=True, extend=lambda e: e.extend(libraries=(authorizer.SELECTORS,))),
    Addition(introduced=(1, 32), extend=lambda e: e.extend(libraries=(comprehensions.LIBRARY,))),
    Addition(introduced=(1, 33), extend=lambda e: e.extend(libraries=(semver.LIBRARY,))),
    Addition(introduced=(1, 34), until=(1, 37), extend=lambda e: e.extend(libraries=(lists.EXTENSION_V3_0_26,))),
    Addition(
        introduced=(1, 34),
        since=(1, 37),
        extend=lambda e: e.extend(libraries=(lists.EXTENSION_V3,)),
        what="`lists.range` refuses negative sizes, and those above a million",
    ),
    Addition(
        introduced=(1, 37),
        extend=lambda e: e.extend(libraries=(lists.LIBRARY_V1,)),
        what="`includes` of lists, in stored expressions",
    ),
)


@functools.cache
def base(release: Version = NEWEST, *, compatibility: Version | None = None) -> Environments:
    """Return the environments that all purposes extend, in a server of a release; they have no variables.

    New expressions use what `compatibility` had, which is the release before unless stated.
    """
    major, minor = release
    empty = Environment()
    compatible = (major, minor - 1) if compatibility is None else compatibility
    return Environments(release=release, compatibility=compatible, new=empty, stored=empty).extend(*BASE)


def environment(version: Version, *, stored: bool = False) -> Environment:
    """Return the environment, without variables, of a Kubernetes version such as `(1, 36)`.

    A new expression may use only features that the previous minor version had as well, so that a downgrade breaks nothing. An expression
    that is `stored` already may use every feature of the version. Versions above the newest known one are as that.
    """
    return base(version).of(stored=stored)


# --- Admission: webhooks' match conditions and policies --------------------------------------------------------------
# Upstream: kubernetes/apiserver `pkg/admission/plugin/cel/{compile,composition}.go`.


def _texts(*names: str) -> dict[str, Shape]:
    return dict.fromkeys(names, Shape(type=STRING))


def _list(item: Shape) -> Shape:
    return Shape(type=list_of(item.type), items=item, max_elements=UNBOUNDED)


def _map(value: Shape) -> Shape:
    return Shape(type=map_of(STRING, value.type), keys=Shape(type=STRING), items=value, max_elements=UNBOUNDED)


def _object(name: str, fields: dict[str, Shape]) -> Shape:
    return Shape(type=struct(f"kubernetes.{name}"), fields=fields)


_STRINGS = _list(Shape(type=STRING))
_GROUP_VERSION_KIND = _object("GroupVersionKind", _texts("group", "version", "kind"))
_GROUP_VERSION_RESOURCE = _object("GroupVersionResource", _texts("group", "version", "resource"))
_USER_INFO = _object("UserInfo", _texts("username", "uid") | {"groups": _STRINGS, "extra": _map(_STRINGS)})

# The request without its objects, which are variables of their own.
ADMISSION_REQUEST = _object(
    "AdmissionRequest",
    _texts("subResource", "requestSubResource", "name", "namespace", "operation")
    | {
        "kind": _GROUP_VERSION_KIND,
        "resource": _GROUP_VERSION_RESOURCE,
        "requestKind": _GROUP_VERSION_KIND,
        "requestResource": _GROUP_VERSION_RESOURCE,
        "userInfo": _USER_INFO,
        "dryRun": Shape(type=BOOL),
        "options": Shape(type=DYN),
    },
)

_CONDITION = _object(
    "NamespaceCondition",
    _texts("status", "type", "message", "reason") | {"lastTransitionTime": Shape(type=TIMESTAMP)},
)
_NAMESPACE_METADATA = _object(
    "NamespaceMetadata",
    _texts("name", "generateName", "namespace", "UID", "resourceVersion")
    | {
        "labels": _map(Shape(type=STRING)),
        "annotations": _map(Shape(type=STRING)),
        "creationTimestamp": Shape(type=TIMESTAMP),
        "deletionGracePeriodSeconds": Shape(type=INT),
        "deletionTimestamp": Shape(type=TIMESTAMP),
        "generation": Shape(type=INT),
        "finalizers": _STRINGS,
    },
)
NAMESPACE = _object(
    "Namespace",
    {
        "metadata": _NAMESPACE_METADATA,
        "spec": _object("NamespaceSpec", {"finalizers": _STRINGS}),
        "status": _object("NamespaceStatus", {"conditions": _list(_CONDITION), **_texts("phase")}),
    },
)


def _shaped(name: str, shape: Shape) -> Variable:
    return Variable(name, shape.type, shape=shape)


def admission(
    release: Version = NEWEST, *, params: bool, authorizes: bool, variables: Shape | None = None
) -> Environments:
    """Return the environments of expressions about admission requests: `object`, `oldObject`, `request`,
    `namespaceObject`.

    `params` and `authorizes` add a policy's parameters and the authorizer. Match conditions of webhooks have the
    authorizer but no parameters. `variables` has a field for each composed variable of a policy.
    """
    declared = [
        Variable("object", DYN),
        Variable("oldObject", DYN),
        _shaped("namespaceObject", NAMESPACE),
        _shaped("request", ADMISSION_REQUEST),
    ]
    shapes = [NAMESPACE, ADMISSION_REQUEST]
    if params:
        declared.append(Variable("params", DYN))
    if authorizes:
        declared.append(Variable("authorizer", authorizer.AUTHORIZER))
        declared.append(Variable("authorizer.requestResource", authorizer.RESOURCE_CHECK))
    if variables is not None:
        declared.append(_shaped("variables", variables))
        shapes.append(variables)
    return base(release).extend(
        Addition(introduced=ALWAYS, extend=lambda e: e.extend(variables=declared, shapes=shapes, reserved_fields=True))
    )


MUTATIONS = Addition(introduced=ALWAYS, extend=lambda e: e.extend(libraries=(jsonpatch.LIBRARY,), mutations=True))
"""Mutating policies construct their changes with these: `Object{…}` and `JSONPatch{…}`."""


def composed(types: dict[str, Shape]) -> Shape:
    """Return the shape of `variables` for a policy whose earlier variables have these types."""
    return _object("variables", dict(types))


# --- Rules of custom resources ---------------------------------------------------------------------------------------
# Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/schema/cel/compilation.go` prepareEnvSet.


class RuleShapes(Mapping[str, Shape]):
    """The shapes that decide the sizes in rules: always that of the rule's value, for any path (sizeEstimator).

    So an item of a literal list counts as large as the whole value: 0 when that is an object.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __getitem__(self, name: str) -> Shape:
        return self._shape

    def __iter__(self) -> Iterator[str]:
        return iter(("self", "oldSelf"))

    def __len__(self) -> int:
        return 2


def rules(shape: Shape, release: Version = NEWEST, *, stored: bool = False, optional_old: bool = False) -> Environment:
    """Return the environment of rules about a value of this shape: `self` and `oldSelf`.

    With `optional_old`, `oldSelf` exists on creation too. The shape's type needs a name that no expression uses: `self`
    would hide the variable.
    """
    old = Variable("oldSelf", optional_of(shape.type) if optional_old else shape.type, shape=shape)
    return (
        base(release)
        .of(stored=stored)
        .extend(variables=(_shaped("self", shape), old), shapes=(shape,), reserved_fields=True)
    )
