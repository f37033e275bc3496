"""The OpenAPI documents: one of version 2 for everything, and for version 3 an index and a document per group and version.

They are made on first use from the given kinds. All replicas of one release make the same bytes, because a hash that one of them
publishes must be right at every other. Knows no kind. Upstream: kubernetes/kube-openapi `pkg/{builder,builder3,handler,handler3}/`.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any
from urllib.parse import quote

from aiohttp import web

from apiserver.apimachinery.request import Query
from apiserver.discovery import openapi_paths, openapi_protobuf, served
from apiserver.discovery.content import Content, Reply
from apiserver.discovery.openapi_paths import Body, Operation, Parameter, Path
from apiserver.kinds.served import Kinds
from apiserver.runtime import workers
from apiserver.schema.openapi import Definitions, Dialect, Kind, Schema
from apiserver.schema.resource import Resource
from apiserver.wire import as_json, negotiation

TITLE = "Kubernetes"
"""The title by which clients recognise such documents."""

MEDIA_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
STREAMS = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")
IMMUTABLE_SECONDS = 365 * 86400
KEPT = 64
"""Documents of version 3 that are kept in protobuf. The largest of real definitions has 2.6 MB."""

_BEARER = {
    "type": "apiKey",
    "description": "Bearer Token authentication",
    "name": "authorization",
    "in": "header",
}
JSON = "application/json"
_FORMS_2, _FORMS_3 = (
    (
        JSON,
        f"application/com.github.proto-openapi.spec.{version}@v1.0+protobuf",
        f"application/com.github.proto-openapi.spec.{version}.v1.0+protobuf",
    )
    for version in ("v2", "v3")
)
"""The forms of the documents; the first is the default."""


class OpenAPI:
    """The documents of what is served, and the answers to requests for them.

    `patch_types` are the media types that PATCH takes, `version` is the release, `built` the time (in seconds) for Last-Modified.
    """

    def __init__(
        self,
        kinds: Kinds,
        *,
        patch_types: Sequence[str],
        version: str,
        built: float,
        media_types: Sequence[str] = MEDIA_TYPES,
        streams: Sequence[str] = STREAMS,
    ) -> None:
        self._groups, self._release = kinds.groups, kinds.release
        self._writer = _Writer(tuple(media_types), tuple(streams), tuple(patch_types))
        self._info = {"title": TITLE, "version": version}
        self._built = built
        self._lock = threading.Lock()
        self._protobuf: dict[str, Content] = {}
        """The documents of version 3 in protobuf that were asked for last, oldest first."""

    def keys(self) -> list[str]:
        """Return the keys of the version 3 documents: groups, and their versions."""
        return [key for group, versions in self._groups.items() for key in _keys(group, versions)]

    def v2(self, headers: Mapping[str, str]) -> Reply:
        """Answer `/openapi/v2`."""
        vary = [("Vary", "Accept-Encoding"), ("Vary", "Accept")]
        form = negotiation.preferred(headers.get("Accept", ""), _FORMS_2)
        if form is None:
            return Reply.empty(406, vary)
        content = self._v2 if form == JSON else self._v2_protobuf
        return content.reply(headers, extra=[("Content-Type", _called(form)), *vary], compressible=True)

    def v3_root(self) -> Reply:
        """Answer `/openapi/v3` with the places of the documents. Like kube-apiserver's, it has no entity tag and a type of its own."""
        headers = [("Content-Type", "text/plain; charset=utf-8")]
        return Reply(200, headers, self._root)

    def v3_group(self, key: str, query: Query, headers: Mapping[str, str], *, now: float) -> Reply:
        """Answer `/openapi/v3/<key>`. The current hash in the query makes the answer immutable.

        For another hash upstream redirects to the current one. kube-apiserver's proxy turns that into a 502, so here another hash
        counts as none.
        """
        if key not in self._v3:
            return Reply.empty(404)
        vary = [("Vary", "Accept")]
        form = negotiation.preferred(headers.get("Accept", ""), _FORMS_3)
        if form is None:
            return Reply.empty(406, vary)
        content = self._v3[key] if form == JSON else self._v3_protobuf(key)
        extra = [("Content-Type", _called(form)), *vary]
        if query.text("hash") == content.digest:
            extra += content.immutable(now + IMMUTABLE_SECONDS)
        return content.reply(headers, extra=extra)

    def document_v2(self) -> dict[str, Any]:
        """Build the document of version 2, not yet encoded."""
        definitions = Definitions(Dialect.V2, release=self._release)
        kinds = _names(self._groups)
        shared: dict[str, Schema] = {}
        paths: dict[str, Any] = {}
        for group, versions in self._groups.items():
            paths |= self._writer.paths_v2([openapi_paths.group(group)], definitions, shared)
            for version, members in versions.items():
                definitions.within(group, version, members)
                found = _paths(group, version, members, kinds)
                paths |= self._writer.paths_v2(found, definitions, shared)
        return {
            "swagger": "2.0",
            "info": self._info,
            "paths": dict(sorted(paths.items())),
            "definitions": definitions.all(),
            "parameters": dict(sorted(shared.items())),
            "securityDefinitions": {"BearerToken": _BEARER},
            "security": [{"BearerToken": []}],
        }

    def document_v3(self, key: str) -> dict[str, Any]:
        """Build the document of a key, not yet encoded."""
        _, *found_at = key.split("/")
        group, *version = found_at if key.startswith("apis/") else (served.CORE, *found_at)
        definitions = Definitions(Dialect.V3, release=self._release)
        if not version:
            found: Iterable[Path] = [openapi_paths.group(group)]
        else:
            members = self._groups[group][version[0]]
            definitions.within(group, version[0], members)
            found = _paths(group, version[0], members, _names({group: {version[0]: members}}))
        paths = self._writer.paths_v3(found, definitions)
        return {
            "openapi": "3.0.0",
            "info": self._info,
            "paths": dict(sorted(paths.items())),
            "components": {"schemas": definitions.all(), "securitySchemes": {"BearerToken": _BEARER}},
        }

    @cached_property
    def _v2(self) -> Content:
        return Content(as_json.dumps(self.document_v2()), modified=self._built)

    @cached_property
    def _v3(self) -> dict[str, Content]:
        keys = self.keys()
        return {key: Content(as_json.dumps(self.document_v3(key)), modified=self._built) for key in keys}

    @cached_property
    def _v2_protobuf(self) -> Content:
        body = openapi_protobuf.v2(as_json.loads(self._v2.body))
        return Content(body, modified=self._built, digest=self._v2.digest)

    def _v3_protobuf(self, key: str) -> Content:
        """Return a document as protobuf. Few are kept, because clients ask for each once and keep it by its hash."""
        with self._lock:
            found = self._protobuf.pop(key, None)
        if found is None:
            json = self._v3[key]
            body = openapi_protobuf.v3(as_json.loads(json.body))
            found = Content(body, modified=self._built, digest=json.digest)
        with self._lock:
            self._protobuf[key] = found
            while len(self._protobuf) > KEPT:
                del self._protobuf[next(iter(self._protobuf))]
        return found

    @cached_property
    def _root(self) -> bytes:
        urls = {k: {"serverRelativeURL": f"/openapi/v3/{quote(k)}?hash={c.digest}"} for k, c in self._v3.items()}
        return as_json.dumps({"paths": dict(sorted(urls.items()))})


def _keys(group: str, versions: Iterable[str]) -> list[str]:
    root = served.root(group).removeprefix("/")
    return [root, *(f"{root}/{version}" for version in versions)]


def _paths(group: str, version: str, members: Sequence[Resource], kinds: Sequence[Kind]) -> list[Path]:
    found = [openapi_paths.group_version(group, version)]
    for resource in members:
        found += openapi_paths.resource(resource, kinds)
    return found


def _names(groups: Mapping[str, Iterable[str]]) -> list[Kind]:
    """Return the groups and versions that have the shared messages: the core one, and each that is served."""
    found = [("", "v1", "")]
    found += ((group, version, "") for group, versions in groups.items() for version in sorted(versions))
    return list(dict.fromkeys(found))


class _Writer:
    """Writes paths and operations in either version of OpenAPI."""

    def __init__(self, media_types: Sequence[str], streams: Sequence[str], patch_types: Sequence[str]) -> None:
        self._media_types = media_types
        self._streams = streams
        self._patch_types = patch_types

    def _patches(self, body: Body) -> Sequence[str]:
        """Return the media types of patches."""
        return [media for media in self._patch_types if body.strategic or "strategic" not in media]

    def paths_v3(self, paths: Iterable[Path], definitions: Definitions) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for path in paths:
            item = {op.method: self._operation_v3(path, op, definitions) for op in path.operations}
            found[path.path] = _with_parameters(item, [_parameter_v3(p) for p in path.parameters])
        return found

    def _operation_v3(self, path: Path, operation: Operation, definitions: Definitions) -> Schema:
        written = _head(path, operation)
        if operation.parameters:
            written["parameters"] = [_parameter_v3(p) for p in operation.parameters]
        if body := operation.body:
            types = sorted(self._patches(body)) if body.patch else ("*/*",)
            content = {media: {"schema": body.reference(definitions)} for media in types}
            written["requestBody"] = {"content": content, **({"required": True} if body.required else {})}
        media_types = sorted(self._produced(operation))
        responses: Schema = {
            str(code): {
                "description": openapi_paths.SUCCESS[code],
                "content": {media: {"schema": reference(definitions)} for media in media_types},
            }
            for code, reference in operation.answers.items()
        }
        written["responses"] = responses | {"401": {"description": "Unauthorized"}}
        return written | _extensions(path, operation, ("group", "version", "kind"))

    def paths_v2(self, paths: Iterable[Path], definitions: Definitions, shared: dict[str, Schema]) -> dict[str, Any]:
        """Write paths for version 2. `shared` collects the parameters that operations refer to."""
        found: dict[str, Any] = {}
        for path in paths:
            item = {op.method: self._operation_v2(path, op, definitions, shared) for op in path.operations}
            found[path.path] = _with_parameters(item, [_parameter_v2(p, shared) for p in path.parameters])
        return found

    def _operation_v2(
        self, path: Path, operation: Operation, definitions: Definitions, shared: dict[str, Schema]
    ) -> Schema:
        body = operation.body
        consumes = self._media_types if path.kind is None else ["*/*"]
        head = _head(path, operation)
        written = {
            "description": head.pop("description"),
            "consumes": list(self._patches(body) if body is not None and body.patch else consumes),
            "produces": list(self._produced(operation)),
            "schemes": ["https"],
            **head,
        }
        parameters = [(p.name, _parameter_v2(p, shared)) for p in operation.parameters]
        if body is not None:
            parameters.append(("body", _body_v2(body, definitions, shared)))
        if parameters:
            written["parameters"] = [p for _, p in sorted(parameters, key=lambda named: named[0])]
        responses: Schema = {
            str(code): {"description": openapi_paths.SUCCESS[code], "schema": reference(definitions)}
            for code, reference in operation.answers.items()
        }
        written["responses"] = responses | {"401": {"description": "Unauthorized"}}
        return written | _extensions(path, operation, ("group", "kind", "version"))

    def _produced(self, operation: Operation) -> Sequence[str]:
        return (*self._media_types, *self._streams) if operation.streams else self._media_types


def _head(path: Path, operation: Operation) -> Schema:
    return {"tags": [path.tag], "description": operation.doc, "operationId": operation.id}


def _extensions(path: Path, operation: Operation, order: Sequence[str]) -> Schema:
    """Return the extensions. `order` is that of the kind's parts: of a Go struct in version 3, of a map in version 2."""
    if path.kind is None:
        return {}
    parts = dict(zip(("group", "version", "kind"), path.kind, strict=True))
    return {
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {name: parts[name] for name in order},
    }


def _with_parameters(item: Schema, parameters: Sequence[Schema]) -> Schema:
    return item | ({"parameters": list(parameters)} if parameters else {})


def _place(parameter: Parameter) -> Schema:
    place: Schema = {
        "name": parameter.name,
        "in": "path" if parameter.in_path else "query",
        "description": parameter.doc,
    }
    return place | ({"required": True} if parameter.in_path else {})


def _parameter_v3(parameter: Parameter) -> Schema:
    return _place(parameter) | {"schema": {"type": parameter.type, "uniqueItems": True}}


def _parameter_v2(parameter: Parameter, shared: dict[str, Schema]) -> Schema:
    place = _place(parameter)
    described = {"description": place.pop("description")}
    written = {"uniqueItems": True, "type": parameter.type} | described | place
    return _share(written, shared) if parameter.shared else written


def _body_v2(body: openapi_paths.Body, definitions: Definitions, shared: dict[str, Schema]) -> Schema:
    written: Schema = {"name": "body", "in": "body"}
    if body.required:
        written["required"] = True
    written["schema"] = body.reference(definitions)
    return written if body.own else _share(written, shared)


def _share(parameter: Schema, shared: dict[str, Schema]) -> Schema:
    """Return a reference to a parameter of the document, named after its content."""
    digest = hashlib.sha256(as_json.dumps(parameter)).digest()
    name = f"{parameter['name']}-{base64.urlsafe_b64encode(digest[:6]).decode()}"
    shared[name] = parameter
    return {"$ref": f"#/parameters/{name}"}


def _called(form: str) -> str:
    """Return the media type of an answer. A form with `@` is accepted in requests only, because no media type may contain it."""
    return form.replace("@", ".")


def respond(reply: Reply) -> web.Response:
    """Make the response. The framework adds nothing to it."""
    response = web.Response(status=reply.status, body=reply.body or None)
    response.headers.extend(reply.headers)
    return response


async def serve_v2(openapi: OpenAPI, request: web.Request) -> web.Response:
    """Handle `/openapi/v2`."""
    return respond(await workers.DOCUMENTS.run(openapi.v2, request.headers))


async def serve_v3_root(openapi: OpenAPI) -> web.Response:
    """Handle `/openapi/v3`."""
    return respond(await workers.DOCUMENTS.run(openapi.v3_root))


async def serve_v3_group(
    openapi: OpenAPI, request: web.Request, *, path: str, query: Query, now: float
) -> web.Response:
    """Handle everything below `/openapi/v3/`; `path` is the decoded path."""
    key = path.removeprefix("/openapi/v3/")
    return respond(await workers.DOCUMENTS.run(openapi.v3_group, key, query, request.headers, now=now))
