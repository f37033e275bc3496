"""Objects as rows of a meta.k8s.io Table: the kind's columns, or name and creation time for a kind that declares none.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/response.go`, `pkg/registry/rest/table.go`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Query
from apiserver.schema import shapes
from apiserver.schema.resource import Column, Object, Resource
from apiserver.wire import as_json, as_partial
from apiserver.wire.negotiation import Target

NONE, METADATA, OBJECT = "None", "Metadata", "Object"
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark behind the initial events; its row keeps metadata whatever the client asked for."""


def include_object(query: Query) -> str:
    """What a row carries besides its cells. Raises 400."""
    asked = query.text("includeObject") or METADATA
    if asked not in (NONE, METADATA, OBJECT):
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{asked}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return asked


def _documented(name: str) -> str:
    return next((field.doc for field in shapes.OBJECT_META.fields if field.name == name), "")


def _name(obj: Object, _: float) -> str:
    return str(obj["metadata"].get("name", ""))


def _created(obj: Object, _: float) -> str:
    return str(obj["metadata"].get("creationTimestamp", ""))


DEFAULT_COLUMNS = (
    Column(name="Name", cell=_name, format="name", description=_documented("name")),
    Column(name="Created At", cell=_created, type="date", description=_documented("creationTimestamp")),
)


def columns_of(resource: Resource) -> Sequence[Column]:
    return resource.columns or DEFAULT_COLUMNS


def definitions(resource: Resource) -> bytes:
    """The JSON of the column definitions."""
    return _definitions(tuple(columns_of(resource)))


@functools.lru_cache(maxsize=64)
def _definitions(columns: tuple[Column, ...]) -> bytes:
    return as_json.dumps(
        [
            {"name": c.name, "type": c.type, "format": c.format, "description": c.description, "priority": c.priority}
            for c in columns
        ]
    )


def head(target: Target, metadata: bytes, columns: bytes) -> bytes:
    """A Table up to its rows, without the brace that closes it."""
    return b'{"kind":"Table","apiVersion":"%b","metadata":%b,"columnDefinitions":%b' % (
        target.api_version.encode(),
        metadata,
        columns,
    )


def row(target: Target, resource: Resource, body: bytes, *, include_object: str, now: float) -> bytes:
    """One object as a row."""
    return _row(target, resource, body, as_json.loads(body), include_object=include_object, now=now)


def single(target: Target, resource: Resource, body: bytes, *, first: bool, include_object: str, now: float) -> bytes:
    """One object as a Table at the object's version (an object that was only tried out has none). Columns are named if it is the first
    of a stream."""
    obj: Object = as_json.loads(body)
    version = obj["metadata"].get("resourceVersion")
    metadata = as_json.dumps({"resourceVersion": version} if version else {})
    columns = definitions(resource) if first else b"null"
    only = _row(target, resource, body, obj, include_object=include_object, now=now)
    return b'%b,"rows":[%b]}' % (head(target, metadata, columns), only)


def _row(target: Target, resource: Resource, body: bytes, obj: Object, *, include_object: str, now: float) -> bytes:
    cells = as_json.dumps([column.cell(obj, now) for column in columns_of(resource)])
    return b'{"cells":%b,"object":%b}' % (cells, _attached(target, resource, body, obj, include_object=include_object))


def _attached(target: Target, resource: Resource, body: bytes, obj: Object, *, include_object: str) -> bytes:
    if include_object == OBJECT:
        return resource.head + body[1:]
    marked = obj["metadata"].get("annotations", {}).get(INITIAL_EVENTS_END) == "true"
    if include_object == METADATA or marked:
        return as_partial.partial(target, body)
    return b"null"
