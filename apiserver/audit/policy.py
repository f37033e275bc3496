"""`--audit-policy-file`: decide which requests are recorded, in how much detail, and at which stages.

Upstream: kubernetes/apiserver `pkg/audit/policy/{reader,checker}.go`, `pkg/apis/audit/{types.go,v1/types.go,validation/validation.go}`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path as File
from typing import NamedTuple

from apiserver.apimachinery import fieldpath
from apiserver.apimachinery.fieldpath import FieldError, FieldErrors, Path, Typed
from apiserver.apimachinery.request import Level, RequestInfo, User
from apiserver.audit.event import LEVELS, Stage
from apiserver.codecs.objects import decoding
from apiserver.kinds import type_meta
from apiserver.kinds.type_meta import TypeMeta, Unfit, Unreadable
from apiserver.schema import shapes
from apiserver.schema.resource import Object
from apiserver.schema.types import Boolean, Field, ListOf, Presence, String, Struct, Type
from apiserver.wire import documents
from kubetext import names, quoting

logger = logging.getLogger(__name__)

GROUP, VERSION, KIND = "audit.k8s.io", "v1", "Policy"


class InvalidPolicy(ValueError):
    """The file holds no valid policy. The text is upstream's, with all errors of a policy that could be parsed."""


class Ruling(NamedTuple):
    """The decision about a request. `omitted`: stages without an event. `omit_managed_fields`: objects are recorded without them."""

    level: Level
    omitted: frozenset[Stage]
    omit_managed_fields: bool


# ---------------------------------------------------------------------------------------------------------------------- files


def load(path: str) -> Policy:
    """Load the policy in a YAML or JSON file. Logs the errors of strict decoding as a warning. Raises InvalidPolicy."""
    if not path:
        raise InvalidPolicy("file path not specified")
    try:
        raw = File(path).read_bytes()
    except OSError as error:
        operation = "read" if isinstance(error, IsADirectoryError) else "open"
        why = f"{operation} {path}: {(error.strerror or '').lower()}"
        raise InvalidPolicy(f"failed to read file path {quoting.go_quote(path)}: {why}") from None
    try:
        return Policy(read(raw))
    except InvalidPolicy as error:
        raise InvalidPolicy(f"{error}: from file {path}") from None


def read(raw: bytes) -> Object:
    """Parse and validate a policy. Return its members. Raises InvalidPolicy."""
    try:
        document = documents.parsed(raw, _VERSIONED)
        shape = _shape_of(type_meta.read(document.value), raw)
        found, against = document.decoded(shape)
    except (Unreadable, Unfit, decoding.DecodeError) as error:
        raise InvalidPolicy(f"failed decoding: {error}") from None
    if against:
        logger.warning(
            "Audit policy contains errors, falling back to lenient decoding: strict decoding error: %s",
            ", ".join(against),
        )
    if shape is _INTERNAL:
        raise InvalidPolicy(f"unknown group version field {GROUP}/{_HUB_VERSION}, Kind={KIND} in policy")
    if errors := FieldErrors(_errors(found)):
        raise InvalidPolicy(_aggregate(errors))
    if not found.get("rules"):
        raise InvalidPolicy("loaded illegal policy with 0 rules")
    return found


_HUB_VERSION = "__internal"
_SCHEME = "pkg/runtime/scheme.go:111"
_INTO = f"audit.{KIND}"
_KINDS = frozenset({"Event", "EventList", KIND, "PolicyList"})


def _shape_of(meta: TypeMeta, raw: bytes) -> Struct:
    """Return the shape to decode a document by. Raises Unfit.

    A document without a version is decoded as upstream's internal form of a policy, whose members have other names, and then refused.
    """
    meta = meta._replace(kind=meta.kind or KIND)
    if not meta.version and meta.group in ("", GROUP):
        meta = meta._replace(group=GROUP, version=_HUB_VERSION)
    if not meta.version:
        raise Unfit(f"Object 'apiVersion' is missing in '{raw.decode('utf-8', 'replace')}'")
    internal = meta.version == _HUB_VERSION
    versions = (VERSION, _HUB_VERSION)
    if meta.group == GROUP and meta.version in versions and meta.kind in _KINDS:
        if meta.kind != KIND:
            raise type_meta.unconvertible(meta._replace(version="audit") if internal else meta, _INTO)
        return _INTERNAL if internal else _VERSIONED
    in_every_version = meta.api_version in (f"{GROUP}/{VERSION}", "v1") and meta.kind in type_meta.IN_EVERY_VERSION
    if in_every_version or meta.kind in type_meta.UNVERSIONED:
        raise type_meta.unconvertible(meta, _INTO)
    if internal:
        raise type_meta.not_registered_internally(meta.kind, meta.group, _SCHEME)
    raise type_meta.not_registered(meta, _SCHEME)


# ---------------------------------------------------------------------------------------------------------------------- shapes


def _policy(go: str, metadata: Field, named: Callable[[str], str]) -> Struct:
    """Make the shape of a policy. `go` is the package of its types, `named` maps a member to its name there."""
    texts = ListOf(String())
    stages = ListOf(String(go=f"{go}.Stage"))

    def struct(name: str, members: Mapping[str, Type], *first: Field) -> Struct:
        fields = [
            Field(
                name=named(member),
                number=number,
                type=type_,
                presence=Presence.POINTER if isinstance(type_, Boolean) else Presence.OMIT_EMPTY,
            )
            for number, (member, type_) in enumerate(members.items(), start=2)
        ]
        return Struct(name=name, go=go, fields=[*first, *fields])

    resources = struct("GroupResources", {"group": String(), "resources": texts, "resourceNames": texts})
    rule = struct(
        "PolicyRule",
        {
            "level": String(go=f"{go}.Level"),
            "users": texts,
            "userGroups": texts,
            "verbs": texts,
            "resources": ListOf(resources),
            "namespaces": texts,
            "nonResourceURLs": texts,
            "omitStages": stages,
            "omitManagedFields": Boolean(),
        },
    )
    members: Mapping[str, Type] = {"rules": ListOf(rule), "omitStages": stages, "omitManagedFields": Boolean()}
    return struct(KIND, members, metadata)


_VERSIONED = _policy("v1", Field(name="metadata", number=1, type=shapes.OBJECT_META), named=lambda name: name)
_INTERNAL = _policy(
    "audit",
    Field(name="metadata", number=1, type=shapes.OBJECT_META, inline=True),
    named=lambda name: name[:1].upper() + name[1:],
)


# ---------------------------------------------------------------------------------------------------------------- validation

_LEVELS = {name: level for level, name in LEVELS.items()}
_STAGES = {stage.value: stage for stage in Stage}


def _aggregate(errors: Iterable[FieldError]) -> str:
    """Join errors, each once, as upstream does (kubernetes/apimachinery `pkg/util/errors/errors.go`)."""
    texts = list(dict.fromkeys(map(str, errors)))
    if isinstance(errors, FieldErrors) and errors.more:
        texts.append(f"… {errors.more} more")
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _errors(policy: Object) -> Iterator[FieldError]:
    yield from _wrong_stages(policy, fieldpath.ROOT)
    at = fieldpath.ROOT.child("rules")
    for i, rule in enumerate(policy.get("rules") or ()):
        yield from _wrong_rule(rule, at.index(i))


def _wrong_rule(rule: Object, path: Path) -> Iterator[FieldError]:
    level = rule.get("level") or ""
    if not level:
        yield fieldpath.required(path.child("level"))
    elif level not in _LEVELS:
        yield fieldpath.not_supported(path.child("level"), Typed(level), _LEVELS)
    urls, at = rule.get("nonResourceURLs") or [], path.child("nonResourceURLs")
    for i, url in enumerate(urls):
        yield from _wrong_url(url, at.index(i))
    for resources in rule.get("resources") or ():
        yield from _wrong_resources(resources, path.child("resources"))
    yield from _wrong_stages(rule, path)
    if urls and (rule.get("resources") or rule.get("namespaces")):
        yield fieldpath.invalid(at, urls, "rules cannot apply to both regular resources and non-resource URLs")


def _wrong_url(url: str, path: Path) -> Iterator[FieldError]:
    if url != "*" and not url.startswith("/"):
        yield fieldpath.invalid(path, url, "non-resource URL rules must begin with a '/' character")
    if "*" in url[:-1]:
        yield fieldpath.invalid(path, url, "non-resource URL wildcards '*' must be the final character of the rule")


def _wrong_resources(resources: Object, path: Path) -> Iterator[FieldError]:
    group = resources.get("group") or ""
    if group not in ("", "*") and (wrong := names.dns_subdomain(group)):
        yield fieldpath.invalid(path.child("group"), group, ",".join(wrong))
    if resources.get("resourceNames") and not resources.get("resources"):
        why = "using resourceNames requires at least one resource"
        yield fieldpath.invalid(path.child("resourceNames"), resources["resourceNames"], why)


def _wrong_stages(holder: Object, path: Path) -> Iterator[FieldError]:
    for i, stage in enumerate(holder.get("omitStages") or ()):
        if stage not in _STAGES:
            yield fieldpath.invalid(path.child("omitStages").index(i), stage, f"allowed stages are {','.join(_STAGES)}")


# ------------------------------------------------------------------------------------------------------------------- rulings


class Policy:
    """Rules in order; the first that matches decides. A request that matches none is not recorded."""

    def __init__(self, content: Object) -> None:
        """`content` must be valid."""
        rules = [_Rule(rule, content) for rule in content.get("rules") or ()]
        self._about_resources = tuple(rule for rule in rules if rule.urls is None)
        self._about_urls = tuple(rule for rule in rules if not rule.is_about_resources)
        self._groups = frozenset[str]().union(*(rule.groups or () for rule in rules))
        self._otherwise = Ruling(Level.NONE, _stages(content), bool(content.get("omitManagedFields")))

    def ruling(self, info: RequestInfo, user: User | None) -> Ruling:
        """Return the decision of the first matching rule, or that nothing is recorded. `user` is None before authentication.

        The time grows with the number of rules, and once with the number of the user's groups.
        """
        verb = info.verb
        resource = info.is_resource
        keys: Sequence[str] = ()
        groups: frozenset[str] | None = None
        for rule in self._about_resources if resource else self._about_urls:
            if rule.verbs is not None and verb not in rule.verbs:
                continue
            if rule.users is not None and (user is None or user.name not in rule.users):
                continue
            if rule.groups is not None:
                if groups is None:
                    groups = _NONE if user is None else self._groups.intersection(user.groups)
                if rule.groups.isdisjoint(groups):
                    continue
            if resource:
                if rule.namespaces is not None and info.namespace not in rule.namespaces:
                    continue
                if rule.resources is not None:
                    keys = keys or _keys(info)
                    if not rule.resources.match(info.group, keys, info.name):
                        continue
            elif rule.urls is not None and info.path not in rule.urls and not info.path.startswith(rule.prefixes):
                continue
            return rule.ruling
        return self._otherwise


_NONE: frozenset[str] = frozenset()


class _Rule:
    """A rule; a member that is None matches everything. `prefixes` are prefixes of paths, `urls` are exact paths."""

    __slots__ = (
        "groups",
        "is_about_resources",
        "namespaces",
        "prefixes",
        "resources",
        "ruling",
        "urls",
        "users",
        "verbs",
    )

    def __init__(self, rule: Object, policy: Object) -> None:
        self.users = _any_of(rule, "users")
        self.groups = _any_of(rule, "userGroups")
        self.verbs = _any_of(rule, "verbs")
        self.namespaces = _any_of(rule, "namespaces")
        self.resources = _Resources(rule["resources"]) if rule.get("resources") else None
        self.is_about_resources = self.namespaces is not None or self.resources is not None
        urls = rule.get("nonResourceURLs") or ()
        self.urls = frozenset(urls) if urls else None
        self.prefixes = tuple(url.rstrip("*") for url in urls if url.endswith("*"))
        omits = rule.get("omitManagedFields")
        self.ruling = Ruling(
            _LEVELS[rule["level"]],
            _stages(policy) | _stages(rule),
            bool(policy.get("omitManagedFields") if omits is None else omits),
        )


_Names = frozenset[str] | None
"""Names of objects; None for all."""


class _Resources:
    """The resources of a rule: group → text that may stand for resources → names of matching objects."""

    __slots__ = ("_groups", "_whole")

    def __init__(self, every: Iterable[Object]) -> None:
        self._whole: set[str] = set()
        """Groups whose resources all match."""
        self._groups: dict[str, dict[str, _Names]] = {}
        for one in every:
            group, resources = one.get("group") or "", one.get("resources") or ()
            if not resources:
                self._whole.add(group)
                continue
            meant = self._groups.setdefault(group, {})
            found = _any_of(one, "resourceNames")
            for resource in resources:
                known = meant.get(resource, _NONE)
                meant[resource] = None if found is None or known is None else known | found

    def match(self, group: str, keys: Sequence[str], name: str) -> bool:
        """Return whether the resource matches. `keys` are the texts that stand for the resource of a request."""
        if group in self._whole or "*" in self._whole:
            return True
        for some in (group, "*"):
            meant = self._groups.get(some)
            if meant is None:
                continue
            for key in keys:
                found = meant.get(key, _NONE)
                if found is None or name in found:
                    return True
        return False


def _keys(info: RequestInfo) -> Sequence[str]:
    resource, subresource = info.resource, info.subresource
    if subresource:
        return f"{resource}/{subresource}", "*", f"*/{subresource}", f"{resource}/*"
    return resource, "*", f"{resource}/*"


def _any_of(holder: Object, member: str) -> _Names:
    texts = holder.get(member)
    return frozenset(texts) if texts else None


def _stages(holder: Object) -> frozenset[Stage]:
    return frozenset(_STAGES[stage] for stage in holder.get("omitStages") or ())
