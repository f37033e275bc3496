"""The aggregated discovery document: all groups in one answer, with an entity tag. Knows no kind and reads no store.

Upstream: kubernetes/apiserver `pkg/endpoints/discovery/aggregated/{handler,wrapper,negotiation,etag}.go`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from apiserver.discovery import served
from apiserver.discovery.answers import Answer, Document, Question
from apiserver.schema import apidiscovery
from apiserver.schema.resource import Resource, Subresource
from apiserver.wire import as_json, negotiation

Groups = Mapping[str, Mapping[str, Sequence[Resource]]]
"""Resources by group and version."""

GROUP, VERSION, KIND = "apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"
PARAMETERS = f";g={GROUP};v={VERSION};as={KIND}"
"""The parameters that mark the document in Content-Type, always in this order."""


class Aggregated:
    """The document and its tag, made once from what is served."""

    def __init__(self, groups: Groups) -> None:
        value = document(groups)
        self._document = Document(value, apidiscovery.API_GROUP_DISCOVERY_LIST)
        self.etag = f'"{hashlib.sha512(as_json.dumps(value)).hexdigest().upper()}"'

    def answer(self, question: Question) -> Answer | None:
        """Answer a question; None if the client did not validly ask for this form."""
        chosen = None
        if accept := _wanted(question.accept):
            chosen = negotiation.for_error(accept, question.query, question.user_agent)
        if chosen is None:
            return None
        headers = {"ETag": self.etag, "Vary": "Accept", "Cache-Control": "public"}
        # Compared as text: lists, weak tags and `*` are not interpreted.
        if question.if_none_match == self.etag:
            return Answer(status=304, media="", body=b"", headers=headers)
        body = self._document.form(chosen)
        media, recorded = chosen.media + PARAMETERS, self._document.json
        return Answer(status=200, media=media, body=body, recorded=recorded, headers=headers)


def _wanted(accept: str) -> str:
    """Return the clauses that ask for this document, without their parameters for it. Such a clause wins wherever it stands."""
    return ",".join(plain for clause in accept.split(",") if (plain := _without_target(clause)) is not None)


def _without_target(clause: str) -> str | None:
    media, *parameters = clause.split(";")
    target, others = {}, [media]
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip(" ") in ("as", "g", "v"):
            target[name.strip(" ")] = value.strip(" ")
        else:
            others.append(parameter)
    return ";".join(others) if target == {"as": KIND, "g": GROUP, "v": VERSION} else None


def document(groups: Groups) -> dict[str, Any]:
    return {
        "kind": KIND,
        "apiVersion": f"{GROUP}/{VERSION}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name} if name else {},
                "versions": [_version(v, members) for v, members in versions.items()],
            }
            for name, versions in groups.items()
        ],
    }


def _version(version: str, members: Sequence[Resource]) -> dict[str, Any]:
    resources = {"resources": [_resource(r) for r in members]} if members else {}
    return {"version": version, **resources, "freshness": "Current"}


def _kind(kind: str) -> dict[str, str]:
    """Make a kind. Empty group and version mean those of the enclosing version."""
    return {"group": "", "version": "", "kind": kind}


def _resource(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": _kind(resource.kind),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [_subresource(resource, sub) for sub in served.subresources(resource)]
    return entry


def _subresource(resource: Resource, sub: Subresource) -> dict[str, Any]:
    if sub.shows is None:
        kind = _kind(resource.kind)
    else:
        kind = dict(zip(("group", "version", "kind"), sub.shows, strict=True))
    return {"subresource": sub.name, "responseKind": kind, "verbs": list(sub.verbs)}
