"""Which form an answer takes: the Accept header (and `pretty`, and the User-Agent) against what can be written.

Two judges, as upstream has them: the router compares texts before anything else runs, the handler negotiates in earnest.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/negotiation/negotiate.go`, munnerz/goautoneg, emicklei/go-restful `route.go`.
"""

from __future__ import annotations

import functools
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Query
from apiserver.wire.forms import media as table
from apiserver.wire.representation import (
    META_GROUP,
    META_VERSIONS,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    Representation,
    Target,
)

JSON, YAML, PROTOBUF = table.JSON, table.YAML, table.PROTOBUF
ACCEPTED = tuple(m.name for m in table.MEDIA)
"""What this server reads and writes, in its order of preference."""
STREAMS = tuple(f"{m.name};stream=watch" for m in table.MEDIA if m.stream)
STREAMED = {m.name: m.stream for m in table.MEDIA if m.stream}
"""What a watch says that it is, by what it is written in."""
_TABLES = frozenset(m.name for m in table.MEDIA if m.tables)

READ, REMEMBERED_LENGTH = 4096, 512
"""Characters of an Accept header that are read, and up to which what it means is remembered. Those of real clients have about 200."""
INSERTED = 12
"""Up to how many clauses Go sorts by insertion (golang/go `src/sort/zsortinterface.go`)."""

_TARGETS = {(kind, v): Target(kind, v) for kind in (TABLE, PARTIAL, PARTIAL_LIST) for v in META_VERSIONS}
_FORMS = {
    (media, pretty, target): Representation(media, pretty, target)
    for media in ACCEPTED
    for pretty in (False, True)
    for target in (None, *_TARGETS.values())
}
PLAIN = tuple(plain for (_, _, target), plain in _FORMS.items() if target is None)
"""All in which an object can stand as it is."""
INDENTED = _FORMS[JSON, True, None]
"""How an error is written to a client that accepts nothing else that could carry it."""


class Rules(NamedTuple):
    """What an endpoint can do: turn objects into a target (of these kinds), and speak a version of the meta types."""

    kinds: frozenset[str]
    meta_version: bool


_OBJECTS = Rules(frozenset({TABLE, PARTIAL, PARTIAL_LIST}), meta_version=True)
_NO_TABLES = Rules(frozenset({PARTIAL, PARTIAL_LIST}), meta_version=True)
_ERRORS = Rules(frozenset(), meta_version=False)


def check_route(accept: str, *, watchable: bool) -> None:
    """The router's 406 of a route for objects. `watchable` ones produce their streams too."""
    check_produced(accept, ACCEPTED + STREAMS if watchable else ACCEPTED)


def check_produced(accept: str, produced: Sequence[str]) -> None:
    """The router's 406: no clause equals a produced type, letter by letter."""
    if accept and not any(_bare(clause) in (*produced, "*/*") for clause in accept.split(",")):
        raise errors.not_acceptable_route(produced)


def _bare(clause: str) -> str:
    return clause.partition(";")[0].strip(" ")


def negotiate(accept: str, query: Query, user_agent: str, *, tables: bool = True) -> Representation:
    """What the client gets, or 406."""
    found = _winner(accept, _OBJECTS if tables else _NO_TABLES)
    if found is None:
        raise errors.not_acceptable(ACCEPTED)
    return _dressed(found, query, user_agent)


def streamed(found: Representation) -> Representation:
    """The same for the events of a watch, or 406: nobody looks for a second choice when the first cannot be streamed."""
    if found.media not in STREAMED:
        raise errors.not_acceptable(STREAMS)
    return _FORMS[found.media, False, found.target]


def as_json(found: Representation) -> Representation:
    """The same in compact JSON."""
    return _FORMS[JSON, False, found.target]


def for_error(accept: str, query: Query, user_agent: str) -> Representation | None:
    """The form of an error. None when nothing acceptable can carry a Status: it is written INDENTED then."""
    found = _winner(accept, _ERRORS)
    return _dressed(found, query, user_agent) if found is not None else None


def _dressed(found: Representation, query: Query, user_agent: str) -> Representation:
    if found.pretty or found.media != JSON or not _wants_pretty(query, user_agent):
        return found
    return _FORMS[found.media, True, found.target]


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_HUMANS = ("curl", "Wget", "Mozilla/5.0")


def _wants_pretty(query: Query, user_agent: str) -> bool:
    asked = query.first("pretty")
    return asked in _TRUE if asked else user_agent.startswith(_HUMANS)


@dataclass(slots=True)
class _Clause:
    kind: str
    subkind: str
    q: float
    parameters: dict[str, str]

    def before(self, other: _Clause) -> bool:
        """goautoneg's order, which is none: what it yields depends on how one sorts with it."""
        if self.q > other.q or (self.kind != "*" and other.kind == "*"):
            return True
        return self.subkind != "*" and other.subkind == "*"

    def matches(self, media: str) -> bool:
        kind, _, subkind = media.partition("/")
        if self.subkind == "*":
            return self.kind in (kind, "*")
        return self.kind == kind and self.subkind == subkind

    def covers(self, media: str) -> bool:
        """The same where each half may be a star by itself, as kube-openapi's handlers have it."""
        kind, _, subkind = media.partition("/")
        return self.kind in (kind, "*") and self.subkind in (subkind, "*")


def readable(accept: str) -> str:
    """As much of an Accept header as is read: the clauses that end within its first READ characters, and none is acceptable to nobody."""
    if len(accept) <= READ:
        return accept
    return accept[: max(accept.rfind(",", 0, READ + 1), 0)] or ","


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """The media type out of `offered` for a header that is no object's: the first that the best clause names. None if none does."""
    clauses = _clauses(readable(accept or "*/*"))
    return next((media for clause in clauses for media in offered if clause.covers(media)), None)


def _winner(accept: str, rules: Rules) -> Representation | None:
    return _remembered_winner(accept, rules) if len(accept) <= REMEMBERED_LENGTH else _found_winner(accept, rules)


def _found_winner(accept: str, rules: Rules) -> Representation | None:
    """The first clause that some written type satisfies, with that type."""
    if not accept:
        return _FORMS[JSON, False, None]
    for clause in _clauses(accept):
        for media in ACCEPTED:
            if clause.matches(media):
                found = _accepted(clause.parameters, media, rules)
                if found is not None:
                    return found
    return None


_remembered_winner = functools.lru_cache(maxsize=256)(_found_winner)


def _accepted(parameters: dict[str, str], media: str, rules: Rules) -> Representation | None:
    """A written type under a clause's parameters; None when they cannot be met."""
    if parameters.get("stream", "watch") not in ("", "watch") or ("stream" in parameters and media not in STREAMED):
        return None
    if parameters.get("sv") and not (rules.meta_version and parameters["sv"] == META_VERSIONS[0]):
        return None
    target = None
    if not parameters.keys().isdisjoint(("as", "g", "v")):
        kind, version = parameters.get("as", ""), parameters.get("v", "")
        target = _TARGETS.get((kind, version)) if parameters.get("g") == META_GROUP else None
        if target is None or kind not in rules.kinds or (kind == TABLE and media not in _TABLES):
            return None
    return _FORMS[media, media == JSON and parameters.get("pretty") == "1", target]


def _clauses(accept: str) -> Sequence[_Clause]:
    """The clauses in the order in which they are tried: sorted by insertion, as Go sorts up to twelve. What Go makes of more, in an order
    that is none, is nothing that a client could count on: they stand by quality, and what has fewer stars is first."""
    found = [clause for part in accept.split(",") if (clause := _clause(part)) is not None]
    if len(found) > INSERTED:
        return sorted(found, key=lambda clause: (-clause.q, clause.kind == "*", clause.subkind == "*"))
    for i, clause in enumerate(found):
        at = i
        while at and clause.before(found[at - 1]):
            at -= 1
        found.insert(at, found.pop(i))
    return found


def _clause(part: str) -> _Clause | None:
    media, *parameters = part.strip(" ").split(";")
    kind, _, subkind = media.partition("/")
    kind = kind.strip(" ")
    if not subkind:
        if kind != "*":
            return None
        subkind = "*"
    elif "/" in subkind.removesuffix("/"):
        return None
    clause = _Clause(kind, subkind.removesuffix("/").strip(" "), 1.0, {})
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        value = value.removesuffix("=") if value.count("=") == 1 else value
        if not value or "=" in value:
            continue
        if name.strip(" ") == "q":
            clause.q = _quality(value)
        else:
            clause.parameters[name.strip(" ")] = value.strip(" ")
    return clause


_DECIMAL = re.compile(r"[+-]?[0-9._]+(?:e[+-]?[0-9_]+)?|[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_HEXADECIMAL = re.compile(r"[+-]?0x[0-9a-f._]+p[+-]?[0-9_]+", re.IGNORECASE)
_FLOAT32 = struct.Struct("f")
_SEPARATOR = re.compile("(?<=[0-9a-fx])_(?=[0-9a-f])", re.IGNORECASE)


def _quality(text: str) -> float:
    """What Go's ParseFloat leaves behind of 32 bits (golang/go `src/strconv/atof.go`): 0 for what is no number, infinity for too large a
    one."""
    try:
        if _DECIMAL.fullmatch(text):
            value = float(text)
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(_SEPARATOR.sub("", text))
        else:
            return 0.0
        [rounded] = _FLOAT32.unpack(_FLOAT32.pack(value))
    except ValueError:
        return 0.0
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf
    return float(rounded)
