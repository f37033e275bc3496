"""The review kinds of authentication.k8s.io and authorization.k8s.io: clients ask who they are and what they may do.

Upstream: kubernetes/api `authentication/v1/types.go`, `authorization/v1/types.go`.
"""

from __future__ import annotations

from collections.abc import Sequence

from apiserver.schema import shapes
from apiserver.schema.resource import Resource
from apiserver.schema.types import Boolean, Field, ListOf, MapOf, Presence, String, Struct, Type

AUTHENTICATION, AUTHORIZATION = "authentication.k8s.io", "authorization.k8s.io"
_AUTHENTICATION_MODEL, _MODEL = "io.k8s.api.authentication.v1", "io.k8s.api.authorization.v1"
_TEXT = String()
_TEXTS = ListOf(_TEXT)


def _member(
    name: str, number: int, type_: Type, doc: str, *, presence: Presence = Presence.OMIT_EMPTY, required: bool = False
) -> Field:
    """Declare a field. `required` is its value in OpenAPI."""
    return Field(name=name, number=number, type=type_, doc=doc, presence=presence, expected=required or None)


def _extra(number: int) -> Field:
    return _member(
        "extra", number, MapOf(ListOf(_TEXT, go="ExtraValue")), "What else is known of the user, by the name of it."
    )


def _struct(name: str, doc: str, fields: Sequence[Field], *, model: str = _MODEL) -> Struct:
    return Struct(name=name, model=model, doc=doc, fields=fields)


def _requirement(name: str, model: str) -> Struct:
    return _struct(
        name,
        "One condition of a selector.",
        (
            _member("key", 1, _TEXT, "What the condition is about.", presence=Presence.ALWAYS, required=True),
            _member(
                "operator", 2, _TEXT, "In, NotIn, Exists or DoesNotExist.", presence=Presence.ALWAYS, required=True
            ),
            _member("values", 3, _TEXTS, "The values of In and NotIn."),
        ),
        model=model,
    )


def _selector(name: str, requirement: Struct) -> Struct:
    return _struct(
        name,
        "Which objects a list is limited to.",
        (
            _member("rawSelector", 1, _TEXT, "The selector as a query has it. Cannot be combined with requirements."),
            _member("requirements", 2, ListOf(requirement), "The conditions of the selector, all of which must hold."),
        ),
    )


RESOURCE_ATTRIBUTES = _struct(
    "ResourceAttributes",
    "A request for objects of the API.",
    (
        _member("namespace", 1, _TEXT, "The namespace. Empty means all, or none for kinds without namespaces."),
        _member("verb", 2, _TEXT, "get, list, watch, create, update, patch, delete or deletecollection; * means all."),
        _member("group", 3, _TEXT, "The API group; * means all."),
        _member("version", 4, _TEXT, "The version in the group; * means all."),
        _member("resource", 5, _TEXT, "The resource, in plural; * means all."),
        _member("subresource", 6, _TEXT, "The subresource. Empty means none."),
        _member("name", 7, _TEXT, "The name of the object. Empty means all."),
        _member(
            "fieldSelector",
            8,
            _selector("FieldSelectorAttributes", _requirement("FieldSelectorRequirement", shapes.META)),
            "The field selector of the request.",
            presence=Presence.POINTER,
        ),
        _member(
            "labelSelector",
            9,
            _selector("LabelSelectorAttributes", _requirement("LabelSelectorRequirement", shapes.META)),
            "The label selector of the request.",
            presence=Presence.POINTER,
        ),
    ),
)
NON_RESOURCE_ATTRIBUTES = _struct(
    "NonResourceAttributes",
    "A request for a path that leads to no object.",
    (_member("path", 1, _TEXT, "The path."), _member("verb", 2, _TEXT, "The HTTP method in lower case.")),
)
_ASKED = (
    _member(
        "resourceAttributes", 1, RESOURCE_ATTRIBUTES, "The request, if it is for objects.", presence=Presence.POINTER
    ),
    _member(
        "nonResourceAttributes",
        2,
        NON_RESOURCE_ATTRIBUTES,
        "The request, if it is for a path.",
        presence=Presence.POINTER,
    ),
)
_ACCESS_STATUS = _struct(
    "SubjectAccessReviewStatus",
    "Whether the request is allowed.",
    (
        _member("allowed", 1, Boolean(), "Whether it is.", presence=Presence.ALWAYS, required=True),
        _member("denied", 4, Boolean(), "Whether it is refused whatever another authorizer says."),
        _member("reason", 2, _TEXT, "Why."),
        _member(
            "evaluationError",
            3,
            _TEXT,
            "What went wrong while this was found out. The answer may be right nevertheless.",
        ),
    ),
)
_ACCESS_SPEC = _struct(
    "SubjectAccessReviewSpec",
    "A request, and whose it is. Exactly one of resourceAttributes and nonResourceAttributes is given.",
    (
        *_ASKED,
        _member("user", 3, _TEXT, "The name of the user."),
        _member("groups", 4, _TEXTS, "The groups of the user."),
        _extra(5),
        _member("uid", 6, _TEXT, "The uid of the user."),
    ),
)
_SELF_ACCESS_SPEC = _struct(
    "SelfSubjectAccessReviewSpec",
    "A request. Exactly one of resourceAttributes and nonResourceAttributes is given.",
    _ASKED,
)
_RULES_SPEC = _struct(
    "SelfSubjectRulesReviewSpec", "Where.", (_member("namespace", 1, _TEXT, "The namespace. Has to be given."),)
)
_RESOURCE_RULE = _struct(
    "ResourceRule",
    "What may be done with which resources.",
    (
        _member("verbs", 1, _TEXTS, "The verbs; * means all.", presence=Presence.ALWAYS, required=True),
        _member("apiGroups", 2, _TEXTS, "The API groups; * means all."),
        _member("resources", 3, _TEXTS, "The resources; * means all, and */status the subresource of all."),
        _member("resourceNames", 4, _TEXTS, "The names of the objects. Empty means all."),
    ),
)
_NON_RESOURCE_RULE = _struct(
    "NonResourceRule",
    "What may be done with which paths.",
    (
        _member("verbs", 1, _TEXTS, "The methods in lower case; * means all.", presence=Presence.ALWAYS, required=True),
        _member("nonResourceURLs", 2, _TEXTS, "The paths; * as the last part means all below."),
    ),
)
_RULES_STATUS = _struct(
    "SubjectRulesReviewStatus",
    "What the user may do.",
    (
        _member("resourceRules", 1, ListOf(_RESOURCE_RULE), "With resources.", presence=Presence.ALWAYS, required=True),
        _member(
            "nonResourceRules", 2, ListOf(_NON_RESOURCE_RULE), "With paths.", presence=Presence.ALWAYS, required=True
        ),
        _member("incomplete", 3, Boolean(), "Whether there may be more.", presence=Presence.ALWAYS, required=True),
        _member("evaluationError", 4, _TEXT, "What went wrong while this was found out."),
    ),
)
_USER_INFO = _struct(
    "UserInfo",
    "A user.",
    (
        _member("username", 1, _TEXT, "The name."),
        _member("uid", 2, _TEXT, "What tells users apart that have one name at different times."),
        _member("groups", 3, _TEXTS, "The groups."),
        _extra(4),
    ),
    model=_AUTHENTICATION_MODEL,
)
_SELF_STATUS = _struct(
    "SelfSubjectReviewStatus",
    "Who asks.",
    (_member("userInfo", 1, _USER_INFO, "The user who asks.", presence=Presence.ALWAYS),),
    model=_AUTHENTICATION_MODEL,
)


def _review(
    kind: str, doc: str, spec: Struct | None, status: Struct, *, group: str, namespaced: bool = False
) -> Resource:
    fields = [_member("metadata", 1, shapes.OBJECT_META, "Standard metadata.", presence=Presence.ALWAYS)]
    if spec is not None:
        fields.append(_member("spec", 2, spec, "What is asked.", presence=Presence.ALWAYS, required=True))
    number = len(fields) + 1
    fields.append(_member("status", number, status, "The answer.", presence=Presence.ALWAYS))
    model = _MODEL if group == AUTHORIZATION else _AUTHENTICATION_MODEL
    return Resource(
        kind=kind,
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        namespaced=namespaced,
        group=group,
        shape=Struct(name=kind, model=model, doc=doc, fields=fields),
        verbs=("create",),
        virtual=True,
    )


SELF = _review("SelfSubjectReview", "Asks who the user is that asks.", None, _SELF_STATUS, group=AUTHENTICATION)
ACCESS = _review(
    "SubjectAccessReview", "Asks whether a user may do something.", _ACCESS_SPEC, _ACCESS_STATUS, group=AUTHORIZATION
)
LOCAL_ACCESS = _review(
    "LocalSubjectAccessReview",
    "Asks whether a user may do something in the namespace of the review.",
    _ACCESS_SPEC,
    _ACCESS_STATUS,
    group=AUTHORIZATION,
    namespaced=True,
)
SELF_ACCESS = _review(
    "SelfSubjectAccessReview",
    "Asks whether the user that asks may do something.",
    _SELF_ACCESS_SPEC,
    _ACCESS_STATUS,
    group=AUTHORIZATION,
)
SELF_RULES = _review(
    "SelfSubjectRulesReview",
    "Asks what the user that asks may do in a namespace.",
    _RULES_SPEC,
    _RULES_STATUS,
    group=AUTHORIZATION,
)


RESOURCES: Sequence[Resource] = (SELF, ACCESS, LOCAL_ACCESS, SELF_ACCESS, SELF_RULES)
