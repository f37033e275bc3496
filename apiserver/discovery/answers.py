"""Questions to discovery and their answers: values only, independent of HTTP. Knows no document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Query
from apiserver.schema.types import Struct
from apiserver.wire import negotiation
from apiserver.wire.forms import form
from apiserver.wire.representation import Representation


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The relevant parts of a request. `path` is decoded; missing headers are empty."""

    method: str
    path: str
    query: Query
    accept: str = ""
    user_agent: str = ""
    if_none_match: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer. `media` is empty without a body; `recorded` is the document as JSON for the audit log."""

    status: int
    media: str
    body: bytes
    recorded: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Document:
    """One document in every form in which it is served. A form is made when it is first asked for: composing a server makes none."""

    value: Mapping[str, Any]
    shape: Struct
    made: dict[Representation, bytes] = field(default_factory=dict, init=False, compare=False, repr=False)

    def form(self, representation: Representation) -> bytes:
        found = self.made.get(representation)
        if found is None:
            found = self.made[representation] = form.document(representation, self.value, self.shape).run()
        return found

    @property
    def json(self) -> bytes:
        return self.form(negotiation.as_json(negotiation.INDENTED))


def answered(document: Document, question: Question) -> Answer:
    """Answer with a document without conversions. Raises the handler's 406."""
    chosen = negotiation.for_error(question.accept, question.query, question.user_agent)
    if chosen is None:
        raise errors.not_acceptable(negotiation.ACCEPTED)
    return Answer(status=200, media=chosen.media, body=document.form(chosen), recorded=document.json)


def routed(document: Document | None, question: Question) -> Document:
    """Return the document that upstream's router finds. Raises its StatusErrors."""
    if document is None:
        raise errors.no_such_path()
    if question.method != "GET":
        raise errors.method_not_allowed()
    negotiation.check_route(question.accept, watchable=False)
    return document
