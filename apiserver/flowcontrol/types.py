"""FlowSchema and PriorityLevelConfiguration in `flowcontrol.apiserver.k8s.io/v1`, as values that are fast to match.

Upstream: kubernetes/api `flowcontrol/v1/types.go`, kubernetes/kubernetes `pkg/apis/flowcontrol/v1/defaults.go`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ANY = "*"
EXEMPT, CATCH_ALL = "exempt", "catch-all"
BY_USER, BY_NAMESPACE = "ByUser", "ByNamespace"
MOST_PRECEDENCE = 10_000
DEFAULT_PRECEDENCE, DEFAULT_SHARES = 1_000, 30
DEFAULT_QUEUES, DEFAULT_HAND, DEFAULT_QUEUE_LENGTH = 64, 8, 50

Object = Mapping[str, Any]


class Malformed(ValueError):
    """An object cannot be used. kube-apiserver refuses such objects, so this one is from another server."""


@dataclass(frozen=True, slots=True)
class Names:
    """A list of names in a rule. Only a list of nothing but `*` means every name."""

    named: frozenset[str]
    every: bool = False

    @staticmethod
    def of(names: Sequence[str]) -> Names:
        return Names(frozenset(names), every=list(names) == [ANY])

    def __contains__(self, name: object) -> bool:
        return self.every or name in self.named


@dataclass(frozen=True, slots=True)
class ResourceRule:
    """Requests for resources. `cluster`: also those without a namespace."""

    verbs: Names
    groups: Names
    resources: Names
    namespaces: Names
    cluster: bool


@dataclass(frozen=True, slots=True)
class PathRule:
    """Requests for other paths. `prefixes` end with a slash. A path `/x` matches `/x/y` too, as upstream reads it."""

    verbs: Names
    paths: frozenset[str]
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subjects:
    """The users that a rule concerns. `everybody`: a user `*` or a group `*` is among them."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    account_prefixes: tuple[str, ...] = ()
    everybody: bool = False


@dataclass(frozen=True, slots=True)
class Rule:
    subjects: Subjects
    resources: tuple[ResourceRule, ...] = ()
    paths: tuple[PathRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSchema:
    """Sends requests to a priority level. `distinguisher` makes them flows: by user, by namespace, or ("") all are one flow."""

    name: str
    level: str
    uid: str = ""
    precedence: int = DEFAULT_PRECEDENCE
    distinguisher: str = ""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class Queuing:
    """Queues of a level. A flow may use `hand` of them, and each holds `length` requests."""

    queues: int = DEFAULT_QUEUES
    hand: int = DEFAULT_HAND
    length: int = DEFAULT_QUEUE_LENGTH


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityLevel:
    """A share of the server's seats. `queuing`: None refuses requests that find no seat. `borrowing`: None is no limit, in percent."""

    name: str
    uid: str = ""
    exempt: bool = False
    shares: int = DEFAULT_SHARES
    lendable: int = 0
    borrowing: int | None = None
    queuing: Queuing | None = field(default_factory=Queuing)


# ---------------------------------------------------------------------------------------------------------------- from JSON


def flow_schema(found: Object) -> FlowSchema:
    """Read a FlowSchema from its JSON. Raises Malformed."""
    metadata, spec = _member(found, "metadata"), _member(found, "spec")
    level = _text(_member(spec, "priorityLevelConfiguration"), "name")
    method = _member(spec, "distinguisherMethod")
    distinguisher = _text(method, "type") if method else ""
    if distinguisher not in ("", BY_USER, BY_NAMESPACE):
        raise Malformed(f"the distinguisher method {distinguisher!r} is unknown")
    return FlowSchema(
        name=_text(metadata, "name"),
        uid=_text(metadata, "uid"),
        level=level,
        precedence=_number(spec, "matchingPrecedence", 0) or DEFAULT_PRECEDENCE,
        distinguisher=distinguisher,
        rules=tuple(map(_rule, _list(spec, "rules"))),
    )


def _rule(found: Object) -> Rule:
    return Rule(
        subjects=subjects(_list(found, "subjects")),
        resources=tuple(map(_resource_rule, _list(found, "resourceRules"))),
        paths=tuple(
            path_rule(_texts(one, "verbs"), _texts(one, "nonResourceURLs")) for one in _list(found, "nonResourceRules")
        ),
    )


def subjects(found: Sequence[Object]) -> Subjects:
    """Join the subjects of a rule. A subject of an unknown kind, or without its part, matches nobody."""
    users, groups, prefixes = set(), set(), []
    for one in found:
        kind = _text(one, "kind")
        if kind == "User" and (user := _member(one, "user")):
            users.add(_text(user, "name"))
        elif kind == "Group" and (group := _member(one, "group")):
            groups.add(_text(group, "name"))
        elif kind == "ServiceAccount" and (account := _member(one, "serviceAccount")):
            namespace, name = _text(account, "namespace"), _text(account, "name")
            if name == ANY:
                prefixes.append(f"system:serviceaccount:{namespace}:")
            else:
                users.add(f"system:serviceaccount:{namespace}:{name}")
    everybody = ANY in users or ANY in groups
    return Subjects(frozenset(users), frozenset(groups), tuple(prefixes), everybody)


def _resource_rule(found: Object) -> ResourceRule:
    return ResourceRule(
        verbs=Names.of(_texts(found, "verbs")),
        groups=Names.of(_texts(found, "apiGroups")),
        resources=Names.of(_texts(found, "resources")),
        namespaces=Names.of(_texts(found, "namespaces")),
        cluster=found.get("clusterScope") is True,
    )


def path_rule(verbs: Sequence[str], paths: Sequence[str]) -> PathRule:
    """Make a rule about paths."""
    return PathRule(Names.of(verbs), frozenset(paths), tuple(map(_prefix, paths)))


def _prefix(path: str) -> str:
    if path == ANY:
        return ""
    bare = path.removesuffix(ANY)
    return bare if bare.endswith("/") else f"{bare}/"


def priority_level(found: Object) -> PriorityLevel:
    """Read a PriorityLevelConfiguration from its JSON. Raises Malformed, with upstream's words for broken unions."""
    metadata, spec = _member(found, "metadata"), _member(found, "spec")
    name, uid, kind = _text(metadata, "name"), _text(metadata, "uid"), _text(spec, "type")
    limited, exempt = spec.get("limited"), spec.get("exempt")
    if (kind == "Limited") != (limited is not None):
        raise Malformed("broken union structure at the top, for Limited")
    if (kind == "Exempt") != (exempt is not None):
        raise Malformed("broken union structure at the top, for Exempt")
    if (kind == "Exempt") != (name == EXEMPT):
        raise Malformed("non-alignment between name and type")
    if limited is None:
        part = _member(spec, "exempt")
        return PriorityLevel(
            name=name,
            uid=uid,
            exempt=True,
            shares=_number(part, "nominalConcurrencyShares", 0),
            lendable=_number(part, "lendablePercent", 0),
            queuing=None,
        )
    part = _member(spec, "limited")
    return PriorityLevel(
        name=name,
        uid=uid,
        shares=_number(part, "nominalConcurrencyShares", DEFAULT_SHARES),
        lendable=_number(part, "lendablePercent", 0),
        borrowing=_number(part, "borrowingLimitPercent", 0) if part.get("borrowingLimitPercent") is not None else None,
        queuing=_queuing(_member(part, "limitResponse"), name),
    )


def _queuing(response: Object, name: str) -> Queuing | None:
    queuing = response.get("queuing")
    if (_text(response, "type") == "Reject") != (queuing is None):
        raise Malformed("broken union structure for limit response")
    if queuing is None:
        return None
    part = _member(response, "queuing")
    found = Queuing(
        queues=_number(part, "queues", 0) or DEFAULT_QUEUES,
        hand=_number(part, "handSize", 0) or DEFAULT_HAND,
        length=_number(part, "queueLengthLimit", 0) or DEFAULT_QUEUE_LENGTH,
    )
    if min(found.queues, found.hand, found.length) < 0:
        raise Malformed(f"priority level {name!r} has a negative number of queues")
    return found


def _member(found: Object, name: str) -> Object:
    """Return a member that is an object; an empty one if it is absent."""
    part = found.get(name)
    if part is None:
        return {}
    if not isinstance(part, Mapping):
        raise Malformed(f"{name} is no object")
    return part


def _list(found: Object, name: str) -> Sequence[Object]:
    part = found.get(name) or []
    if not isinstance(part, list) or not all(isinstance(one, Mapping) for one in part):
        raise Malformed(f"{name} is no list of objects")
    return part


def _texts(found: Object, name: str) -> Sequence[str]:
    part = found.get(name) or []
    if not isinstance(part, list) or not all(isinstance(one, str) for one in part):
        raise Malformed(f"{name} is no list of texts")
    return part


def _text(found: Object, name: str) -> str:
    part = found.get(name) or ""
    if not isinstance(part, str):
        raise Malformed(f"{name} is no text")
    return part


def _number(found: Object, name: str, default: int) -> int:
    part = found.get(name)
    if part is None:
        return default
    if not isinstance(part, int) or isinstance(part, bool):
        raise Malformed(f"{name} is no whole number")
    return part
