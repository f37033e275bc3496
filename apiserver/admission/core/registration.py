"""The kinds of admissionregistration.k8s.io/v1 as shapes, to check and default configurations from files.

kube-apiserver does this for objects of a cluster; files need it here. Expressions are not checked here (`compilation`). Upstream:
kubernetes/api `admissionregistration/v1/types.go`, kubernetes/kubernetes
`pkg/apis/admissionregistration/{v1/defaults,validation/validation}.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, Path
from apiserver.schema import shapes
from apiserver.schema.types import Check, Field, Integer, ListOf, MapOf, Presence, RawJSON, String, Struct, Type
from kubetext import names

GROUP_VERSION = "admissionregistration.k8s.io/v1"

_Member = Callable[[int], Field]


def _member(name: str, type_: Type, **more: Any) -> _Member:
    """Declare a member whose number follows from its position."""
    return lambda number: Field(name=name, number=number, type=type_, **more)


def _struct(name: str, *members: _Member, check: Check | None = None) -> Struct:
    return Struct(name=name, check=check, fields=[member(number) for number, member in enumerate(members, start=1)])


def _pointer(name: str, type_: Type, **more: Any) -> _Member:
    return _member(name, type_, presence=Presence.POINTER, **more)


def _choice(name: str, *values: str, **more: Any) -> _Member:
    return _pointer(name, String(enum=values), **more)


_TEXT, _TEXTS = String(), ListOf(String())

LABEL_SELECTOR = _struct(
    "LabelSelector",
    _member("matchLabels", MapOf(String())),
    _member(
        "matchExpressions",
        ListOf(
            _struct(
                "LabelSelectorRequirement",
                _member("key", _TEXT, required=True),
                _member("operator", String(enum=("DoesNotExist", "Exists", "In", "NotIn")), required=True),
                _member("values", _TEXTS),
            )
        ),
    ),
)
_SELECTORS = (
    _pointer("namespaceSelector", LABEL_SELECTOR, default={}),
    _pointer("objectSelector", LABEL_SELECTOR, default={}),
)
_FAILURE = _choice("failurePolicy", "Fail", "Ignore", default="Fail")
_EQUIVALENT = _choice("matchPolicy", "Equivalent", "Exact", default="Equivalent")


def _rule(name: str, *further: _Member) -> Struct:
    return _struct(
        name,
        *further,
        _member("operations", ListOf(String(enum=("*", "CONNECT", "CREATE", "DELETE", "UPDATE"))), required=True),
        _member("apiGroups", _TEXTS, required=True),
        _member("apiVersions", _TEXTS, required=True),
        _member("resources", _TEXTS, required=True),
        _choice("scope", "*", "Cluster", "Namespaced", default="*"),
    )


_CONDITIONS = _member(
    "matchConditions",
    ListOf(
        _struct(
            "MatchCondition",
            _member("name", _TEXT, required=True),
            _member("expression", _TEXT, required=True),
        ),
        max_items=64,
        unique=lambda condition: condition.get("name"),
    ),
)


# ---------------------------------------------------------------------------------------------------------------- webhooks


def _one_way(config: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Check that exactly one of URL and Service is set, and that the URL can be called."""
    url = config.get("url")
    if (url is None) == (config.get("service") is None):
        yield fieldpath.required(path, "exactly one of url or service is required")
    if url is None:
        return
    at, parts = path.child("url"), urlsplit(url)
    if parts.scheme != "https":
        yield fieldpath.invalid(at, parts.scheme, "'https' is the only allowed URL scheme")
    if not parts.hostname:
        yield fieldpath.invalid(at, "", "host must be specified")
    if parts.query or parts.fragment or "@" in parts.netloc:
        yield fieldpath.invalid(at, url, "user information, queries and fragments are not permitted in the URL")


def _qualified(name: str, path: Path) -> Iterator[FieldError]:
    if any(names.dns_label(part) for part in name.split(".")) or name.count(".") < 2:
        yield fieldpath.invalid(path, name, "should be a domain with at least three segments separated by dots")


def _seconds(value: int, path: Path) -> Iterator[FieldError]:
    if not 1 <= value <= 30:
        yield fieldpath.invalid(path, value, "the timeout value must be between 1 and 30 seconds")


def _known_version(versions: Sequence[str], path: Path) -> Iterator[FieldError]:
    if not {"v1", "v1beta1"} & set(versions):
        yield fieldpath.invalid(path, list(versions), "must include at least one of v1, v1beta1")


_CLIENT_CONFIG = _struct(
    "WebhookClientConfig",
    _pointer("url", _TEXT),
    _pointer(
        "service",
        _struct(
            "ServiceReference",
            _member("namespace", _TEXT, required=True),
            _member("name", _TEXT, required=True),
            _pointer("path", _TEXT),
            _pointer("port", Integer(bits=32), default=443),
        ),
    ),
    _member("caBundle", _TEXT),
    check=_one_way,
)
_WEBHOOK = (
    _member("name", String(check=_qualified), required=True),
    _member("clientConfig", _CLIENT_CONFIG, presence=Presence.ALWAYS),
    _member("rules", ListOf(_rule("RuleWithOperations"))),
    _FAILURE,
    _EQUIVALENT,
    *_SELECTORS,
    _choice("sideEffects", "None", "NoneOnDryRun", required=True),
    _pointer("timeoutSeconds", Integer(bits=32, check=_seconds), default=10),
    _member("admissionReviewVersions", _TEXTS, required=True, check=_known_version),
    _CONDITIONS,
)
_AGAIN = ("IfNeeded", "Never")


def _configuration(kind: str, webhook: Struct) -> Struct:
    webhooks = ListOf(webhook, unique=lambda hook: hook.get("name"))
    return _kind(kind, _member("webhooks", webhooks))


# ---------------------------------------------------------------------------------------------------------------- policies

_MATCH = _struct(
    "MatchResources",
    *_SELECTORS,
    _member("resourceRules", ListOf(_rule("NamedRuleWithOperations", _member("resourceNames", _TEXTS)))),
    _member("excludeResourceRules", ListOf(_rule("NamedRuleWithOperations", _member("resourceNames", _TEXTS)))),
    _EQUIVALENT,
)
_POLICY = (
    _pointer(
        "paramKind",
        _struct("ParamKind", _member("apiVersion", _TEXT, required=True), _member("kind", _TEXT, required=True)),
    ),
    _pointer("matchConstraints", _MATCH, required=True),
    _FAILURE,
    _CONDITIONS,
    _member(
        "variables",
        ListOf(
            _struct("Variable", _member("name", _TEXT, required=True), _member("expression", _TEXT, required=True)),
            unique=lambda variable: variable.get("name"),
        ),
    ),
)
_VALIDATION = _struct(
    "Validation",
    _member("expression", _TEXT, required=True),
    _member("message", _TEXT),
    _choice("reason", "Forbidden", "Invalid", "RequestEntityTooLarge"),
    _member("messageExpression", _TEXT),
)
_AUDIT_ANNOTATION = _struct(
    "AuditAnnotation", _member("key", _TEXT, required=True), _member("valueExpression", _TEXT, required=True)
)


def _says_something(spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield fieldpath.required(path.child("validations"), "validations or auditAnnotations must be non-empty")


def _as_its_type_says(mutation: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    member = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}.get(mutation.get("patchType", ""))
    if member is not None and not (mutation.get(member) or {}).get("expression"):
        yield fieldpath.required(path.child(member).child("expression"), "")


_EXPRESSION = _struct("Expression", _member("expression", _TEXT))
_MUTATION = _struct(
    "Mutation",
    _member("patchType", String(enum=("ApplyConfiguration", "JSONPatch")), required=True),
    _pointer("applyConfiguration", _EXPRESSION),
    _pointer("jsonPatch", _EXPRESSION),
    check=_as_its_type_says,
)


def _one_choice(ref: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    if bool(ref.get("name")) == (ref.get("selector") is not None):
        yield fieldpath.required(path, "exactly one of name or selector must be specified")


_BINDING = (
    _member("policyName", _TEXT, required=True),
    _pointer(
        "paramRef",
        _struct(
            "ParamRef",
            _member("name", _TEXT),
            _member("namespace", _TEXT),
            _pointer("selector", LABEL_SELECTOR),
            _choice("parameterNotFoundAction", "Allow", "Deny", required=True),
            check=_one_choice,
        ),
    ),
    _pointer("matchResources", _MATCH),
)
_ACTIONS = ListOf(String(enum=("Audit", "Deny", "Warn")), unique=lambda action: action)


def _kind(kind: str, *members: _Member) -> Struct:
    return _struct(kind, _member("metadata", shapes.OBJECT_META, presence=Presence.ALWAYS), *members)


def _with_spec(kind: str, *members: _Member, check: Check | None = None) -> Struct:
    spec = _struct(f"{kind}Spec", *members, check=check)
    return _kind(kind, _member("spec", spec, presence=Presence.ALWAYS), _pointer("status", RawJSON()))


SHAPES: Mapping[str, Struct] = {
    "mutating_webhooks": _configuration(
        "MutatingWebhookConfiguration",
        _struct("MutatingWebhook", *_WEBHOOK, _choice("reinvocationPolicy", *_AGAIN, default="Never")),
    ),
    "validating_webhooks": _configuration("ValidatingWebhookConfiguration", _struct("ValidatingWebhook", *_WEBHOOK)),
    "mutating_policies": _with_spec(
        "MutatingAdmissionPolicy",
        *_POLICY,
        _member("mutations", ListOf(_MUTATION), required=True),
        _choice("reinvocationPolicy", *_AGAIN, required=True),
    ),
    "mutating_bindings": _with_spec("MutatingAdmissionPolicyBinding", *_BINDING),
    "validating_policies": _with_spec(
        "ValidatingAdmissionPolicy",
        *_POLICY,
        _member("validations", ListOf(_VALIDATION)),
        _member("auditAnnotations", ListOf(_AUDIT_ANNOTATION)),
        check=_says_something,
    ),
    "validating_bindings": _with_spec(
        "ValidatingAdmissionPolicyBinding", *_BINDING, _member("validationActions", _ACTIONS, required=True)
    ),
}
"""By the names that they have in `sources.Sources`."""
