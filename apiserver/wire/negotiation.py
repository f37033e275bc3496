"""Negotiate the form of an answer: the Accept header (and `pretty`, and the User-Agent) against the forms that can be written.

There are two stages, as upstream: the router compares texts before anything else runs, then the handler negotiates.
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
TEXT = "text/plain"
ACCEPTED = tuple(m.name for m in table.MEDIA)
"""The media types that this server reads and writes, in its order of preference."""
STREAMS = tuple(f"{m.name};stream=watch" for m in table.MEDIA if m.stream)
STREAMED = {m.name: m.stream for m in table.MEDIA if m.stream}
"""The Content-Type of a watch, by the media type of its events."""
_TABLES = frozenset(m.name for m in table.MEDIA if m.tables)

READ, REMEMBERED_LENGTH = 4096, 512
"""Characters of an Accept header that are read, and up to which the result is cached. Headers of real clients have about 200."""
INSERTED = 12
"""Clauses up to which Go sorts by insertion (golang/go `src/sort/zsortinterface.go`)."""

_TARGETS = {(kind, v): Target(kind, v) for kind in (TABLE, PARTIAL, PARTIAL_LIST) for v in META_VERSIONS}
_FORMS = {
    (media, pretty, target): Representation(media, pretty, target)
    for media in ACCEPTED
    for pretty in (False, True)
    for target in (None, *_TARGETS.values())
}
INDENTED = _FORMS[JSON, True, None]
"""The form of an error for a client that accepts no form that can carry it."""


class Rules(NamedTuple):
    """The abilities of an endpoint: the target kinds of its objects, whether it accepts a version of the meta types, and whether its
    objects are protobuf messages too."""

    kinds: frozenset[str]
    meta_version: bool
    messages: bool = True


_OBJECTS = Rules(frozenset({TABLE, PARTIAL, PARTIAL_LIST}), meta_version=True)
_NO_TABLES = Rules(frozenset({PARTIAL, PARTIAL_LIST}), meta_version=True)
_CUSTOM = Rules(frozenset({TABLE, PARTIAL, PARTIAL_LIST}), meta_version=True, messages=False)
_ERRORS = Rules(frozenset(), meta_version=False)


def check_route(accept: str, *, watchable: bool) -> None:
    """Raise the router's 406 of a route for objects. `watchable` routes produce their streams too."""
    check_produced(accept, ACCEPTED + STREAMS if watchable else ACCEPTED)


def check_produced(accept: str, produced: Sequence[str]) -> None:
    """Raise the router's 406 if no clause equals a produced type, letter by letter."""
    if accept and not any(_bare(clause) in (*produced, "*/*") for clause in accept.split(",")):
        raise errors.not_acceptable_route(produced)


def _bare(clause: str) -> str:
    return clause.partition(";")[0].strip(" ")


def negotiate(
    accept: str, query: Query, user_agent: str, *, tables: bool = True, messages: bool = True
) -> Representation:
    """Return the form that the client gets. Without `messages`, protobuf has only what is made of objects. Raises 406."""
    found = _winner(accept, (_OBJECTS if tables else _NO_TABLES) if messages else _CUSTOM)
    if found is None:
        raise errors.not_acceptable(ACCEPTED)
    return _dressed(found, query, user_agent)


def streamed(found: Representation) -> Representation:
    """Return the same form for the events of a watch. Raises 406 if it cannot be streamed, without a second choice."""
    if found.media not in STREAMED:
        raise errors.not_acceptable(STREAMS)
    return _FORMS[found.media, False, found.target]


def as_json(found: Representation) -> Representation:
    """Return the same form in compact JSON."""
    return _FORMS[JSON, False, found.target]


def for_error(accept: str, query: Query, user_agent: str) -> Representation | None:
    """Return the form of an error; None if no acceptable form can carry a Status. INDENTED is used then."""
    found = _winner(accept, _ERRORS)
    return _dressed(found, query, user_agent) if found is not None else None


def for_page(
    accept: str, query: Query, user_agent: str, *, kinds: tuple[str, str, Sequence[str]]
) -> tuple[Representation, str] | None:
    """Return the form of a page for people as an object, and its version; None for text. Raises 406.

    `kinds` are the kind, group and versions that a client may ask for. Text is for clients that ask for none.
    Upstream: kubernetes/apiserver `pkg/server/statusz/negotiate/negotiation.go`.
    """
    if not accept.strip(" \t"):
        return None
    kind, group, versions = kinds
    for clause in _clauses(readable(accept)):
        asked = clause.parameters
        if asked.get("stream") or asked.get("sv"):
            continue
        version = asked.get("v", "")
        objects = (asked.get("as"), asked.get("g")) == (kind, group) and version in versions
        for media in (JSON, YAML):
            if objects and clause.matches(media):
                return _dressed(
                    _FORMS[media, asked.get("pretty") == "1" and media == JSON, None], query, user_agent
                ), version
        if clause.matches(TEXT) and asked.keys().isdisjoint(("as", "g", "v")):
            return None
    raise errors.not_acceptable((JSON, YAML, TEXT))


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
        """Compare in goautoneg's order. It is not a consistent order: the result depends on the sorting algorithm."""
        if self.q > other.q or (self.kind != "*" and other.kind == "*"):
            return True
        return self.subkind != "*" and other.subkind == "*"

    def matches(self, media: str) -> bool:
        kind, _, subkind = media.partition("/")
        if self.subkind == "*":
            return self.kind in (kind, "*")
        return self.kind == kind and self.subkind == subkind

    def covers(self, media: str) -> bool:
        """Match with a star in either half, as kube-openapi's handlers do."""
        kind, _, subkind = media.partition("/")
        return self.kind in (kind, "*") and self.subkind in (subkind, "*")


def readable(accept: str) -> str:
    """Return the part of an Accept header that is read: the clauses that end within its first READ characters. A header without such a
    clause accepts nothing."""
    if len(accept) <= READ:
        return accept
    return accept[: max(accept.rfind(",", 0, READ + 1), 0)] or ","


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """Return the first media type of `offered` that the best clause names, for an answer that is not an object; None if no clause names
    one."""
    clauses = _clauses(readable(accept or "*/*"))
    return next((media for clause in clauses for media in offered if clause.covers(media)), None)


def _winner(accept: str, rules: Rules) -> Representation | None:
    return _remembered_winner(accept, rules) if len(accept) <= REMEMBERED_LENGTH else _found_winner(accept, rules)


def _found_winner(accept: str, rules: Rules) -> Representation | None:
    """Return the form of the first clause that some written type satisfies."""
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
    """Return the form of a written type under a clause's parameters; None if it cannot satisfy them."""
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
    elif media == PROTOBUF and not rules.messages:
        return None
    return _FORMS[media, media == JSON and parameters.get("pretty") == "1", target]


def _clauses(accept: str) -> Sequence[_Clause]:
    """Return the clauses in the order in which they are tried: sorted by insertion, as Go sorts up to twelve.

    Go sorts more clauses with another algorithm by an inconsistent order, so clients cannot rely on the result. Here they are sorted by
    quality, then by fewer stars.
    """
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
    """Return what Go's ParseFloat returns for 32 bits (golang/go `src/strconv/atof.go`): 0 for text that is not a number, infinity for too
    large a number."""
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
