"""Select the policies that apply to a change, with their bindings and parameters.

Upstream: kubernetes/apiserver `pkg/admission/plugin/policy/generic/policy_{dispatcher,matcher}.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.matching import Match, Matcher
from apiserver.admission.core.sources import Object, ParamKind, Params
from apiserver.admission.policies.definitions import Binding, Definition, NamedKind
from apiserver.apimachinery import selectors
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.releases import V1_37, Release, at, since
from apiserver.cluster.errors import ClusterError, NoSuchKind

Made = TypeVar("Made")


class Evaluation(NamedTuple, Generic[Made]):
    """A policy and a binding that apply: to the objects in the version of `match`, once with each of `params` (None: without)."""

    definition: Definition[Made]
    binding: Binding
    match: Match
    params: Sequence[Object | None]


class ConfigurationError(NamedTuple, Generic[Made]):
    """An error that prevents the decision whether a policy or binding applies, or with which parameters. `text` is upstream's.

    The failurePolicy decides.
    """

    definition: Definition[Made]
    binding: Binding | None
    text: str


class _Misconfigured(Exception):
    """The parameters are not as the binding needs them."""


READS_LATE = since(
    V1_37,
    True,  # noqa: FBT003 - the value
    before=False,
    what="a parameter of a policy that has not arrived yet is read from the API",
)


async def evaluations(
    definitions: Iterable[Definition[Made]],
    attributes: Attributes,
    matcher: Matcher,
    params: Params,
    *,
    release: Release,
) -> list[Evaluation[Made] | ConfigurationError[Made]]:
    """Return everything that concerns the change, in the order of the policies and of their bindings.

    A binding that applies without finding parameters, where that is allowed, is included with empty `params`.
    """
    found: list[Evaluation[Made] | ConfigurationError[Made]] = []
    late = at(release, READS_LATE)
    for definition in definitions:
        try:
            match = await _match(definition, attributes, matcher)
            if match is None:
                continue
            kind = None if definition.param_kind is None else await params.kind(*definition.param_kind)
        except (StatusError, NoSuchKind, ClusterError, _Misconfigured) as e:
            found.append(ConfigurationError(definition, None, f"failed to configure policy: {e}"))
            continue
        for binding in definition.bindings:
            try:
                if binding.criteria is None or await matcher.match(binding.criteria, attributes) is not None:
                    collected = await collected_params(
                        definition.param_kind, kind, binding, attributes.namespace, late=late
                    )
                    found.append(Evaluation(definition, binding, match, collected))
            except (StatusError, ClusterError, _Misconfigured) as e:
                found.append(ConfigurationError(definition, binding, f"failed to configure binding: {e}"))
    return found


async def _match(definition: Definition[Made], attributes: Attributes, matcher: Matcher) -> Match | None:
    if definition.criteria is None:
        raise _Misconfigured("policy contained no match constraints, a required field")
    return await matcher.match(definition.criteria, attributes)


async def collected_params(
    named: NamedKind | None, kind: ParamKind | None, binding: Binding, namespace: str, *, late: bool
) -> Sequence[Object | None]:
    """Return the parameters of a binding for a change in `namespace` ("" for none). It is one None if it takes none (CollectParams).

    `late`: one that is named and missing is read from the API.
    """
    reference = binding.spec.get("paramRef")
    if named is None or kind is None or reference is None:
        return (None,)
    where = _namespace(kind, reference, namespace)
    await kind.synced()
    if reference.get("namespace") and not kind.namespaced:
        raise _Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
    found = _selected(kind, reference, where)
    if not found and late and reference.get("name"):
        read = await kind.read(where, reference["name"])
        found = () if read is None else (read,)
    if not found and reference.get("parameterNotFoundAction") == "Deny":
        raise _Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")
    return found


def _namespace(kind: ParamKind, reference: Mapping[str, Any], namespace: str) -> str:
    if not kind.namespaced:
        return ""
    where: str = reference.get("namespace") or namespace
    if not where:
        raise _Misconfigured("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return where


def _selected(kind: ParamKind, reference: Mapping[str, Any], namespace: str) -> Sequence[Object]:
    name, selector = reference.get("name"), reference.get("selector")
    if name:
        if selector is not None:
            raise _Misconfigured("paramRef.name and paramRef.selector are mutually exclusive")
        param = kind.get(namespace, name)
        return () if param is None else (param,)
    if selector is None:
        raise _Misconfigured("one of name or selector must be provided")
    try:
        wanted = selectors.of_json(selector)
    except ValueError as e:
        raise _Misconfigured(str(e)) from None
    found = [param for param in kind.all(namespace) if wanted.matches(param["metadata"].get("labels") or {})]
    return sorted(found, key=lambda param: param["metadata"]["name"])
