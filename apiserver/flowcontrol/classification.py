"""Find the FlowSchema of a request, and its flow. Pure.

Upstream: kubernetes/apiserver `pkg/util/flowcontrol/rule.go`, `pkg/util/flowcontrol/apf_controller.go` startRequest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from apiserver.apimachinery.request import RequestInfo, User
from apiserver.flowcontrol.bootstrap import CATCH_ALL_SCHEMA, EXEMPT_SCHEMA
from apiserver.flowcontrol.types import (
    BY_NAMESPACE,
    BY_USER,
    CATCH_ALL,
    EXEMPT,
    FlowSchema,
    PathRule,
    ResourceRule,
    Subjects,
)


def in_order(schemas: Iterable[FlowSchema], levels: Collection[str]) -> Sequence[FlowSchema]:
    """Return the schemas that refer to one of these levels, in the order of matching: by precedence, then by name.

    The two mandatory schemas are added if they are missing.
    """
    usable = sorted((one for one in schemas if one.level in levels), key=lambda one: (one.precedence, one.name))
    names = {one.name for one in usable}
    before = () if EXEMPT in names else (EXEMPT_SCHEMA,)
    behind = () if CATCH_ALL in names else (CATCH_ALL_SCHEMA,)
    return (*before, *usable, *behind)


def schema_for(schemas: Sequence[FlowSchema], user: User, info: RequestInfo) -> FlowSchema:
    """Return the first schema that matches; `catch-all` if none does."""
    for schema in schemas:
        if matches(schema, user, info):
            return schema
    return next(schema for schema in schemas if schema.name == CATCH_ALL)


def matches(schema: FlowSchema, user: User, info: RequestInfo) -> bool:
    if info.is_resource:
        return any(
            rule.resources
            and _concerns(rule.subjects, user)
            and any(_matches_resource(one, info) for one in rule.resources)
            for rule in schema.rules
        )
    return any(
        rule.paths and _concerns(rule.subjects, user) and any(_matches_path(one, info) for one in rule.paths)
        for rule in schema.rules
    )


def _concerns(subjects: Subjects, user: User) -> bool:
    return (
        subjects.everybody
        or user.name in subjects.users
        or not subjects.groups.isdisjoint(user.groups)
        or user.name.startswith(subjects.account_prefixes)
    )


def _matches_resource(rule: ResourceRule, info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if info.verb not in rule.verbs or resource not in rule.resources or info.group not in rule.groups:
        return False
    return info.namespace in rule.namespaces if info.namespace else rule.cluster


def _matches_path(rule: PathRule, info: RequestInfo) -> bool:
    return info.verb in rule.verbs and (info.path in rule.paths or info.path.startswith(rule.prefixes))


def distinguisher_of(schema: FlowSchema, user: User, info: RequestInfo) -> str:
    """Return the text that makes the requests of a schema one flow."""
    if schema.distinguisher == BY_USER:
        return user.name
    return info.namespace if schema.distinguisher == BY_NAMESPACE else ""
