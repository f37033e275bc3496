"""What discovery is asked and what it answers: values only, independent of HTTP. Knows no document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Query
from apiserver.wire import as_json, as_yaml, negotiation
from apiserver.wire.representation import Representation


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What of a request discovery looks at. `path` is decoded; headers that were not sent are empty."""

    method: str
    path: str
    query: Query
    accept: str = ""
    user_agent: str = ""
    if_none_match: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`media` is empty when there is no body."""

    status: int
    media: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One document in every form in which it is served, made once."""

    compact: bytes
    pretty: bytes
    yaml: bytes

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Self:
        return cls(compact=as_json.dumps(value) + b"\n", pretty=as_json.pretty(value), yaml=as_yaml.dumps(value))

    def form(self, representation: Representation) -> bytes:
        if representation.media == negotiation.YAML:
            return self.yaml
        return self.pretty if representation.pretty else self.compact


def answered(document: Document, question: Question) -> Answer:
    """A document without conversions; raises the handler's 406."""
    chosen = negotiation.for_error(question.accept, question.query, question.user_agent)
    if chosen is None:
        raise errors.not_acceptable(negotiation.ACCEPTED)
    return Answer(status=200, media=chosen.media, body=document.form(chosen))
