"""Stored bytes in the form that was negotiated: single objects, lists, watch events, errors.

What clients ask for nearly always, plain JSON, is put together from stored bytes; every other form is made object by object. Lists
come in pieces, each cheap enough to be made between two turns of the event loop.
Upstream: kubernetes/apiserver `pkg/endpoints/handlers/response.go`, kubernetes/apimachinery `pkg/runtime/serializer/json`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Query
from apiserver.schema import canonical, conversion
from apiserver.schema.resource import Resource
from apiserver.schema.types import Struct
from apiserver.wire import as_json, as_partial, as_table, as_yaml, frames, negotiation, type_meta
from apiserver.wire.negotiation import Representation, Target

PIECE = 256 << 10
"""Bytes after which a piece of a list is handed on."""
_ELEMENTS = {negotiation.JSON: 64, negotiation.YAML: 1}
"""Converted objects a piece may hold."""


def include_object(rep: Representation, query: Query) -> str:
    """The query's `includeObject`, which only a Table looks at. Raises 400."""
    is_table = rep.target is not None and rep.target.kind == negotiation.TABLE
    return as_table.include_object(query) if is_table else as_table.METADATA


# Single objects.


def single(rep: Representation, resource: Resource, body: bytes, *, include_object: str, now: float) -> bytes:
    """One object. Raises 406 for a form that only lists have."""
    if rep.target is None:
        return _dressed(rep, resource.head + conversion.body(resource, body)[1:])
    if rep.target.kind == negotiation.PARTIAL_LIST:
        what = "you requested PartialObjectMetadataList, but the requested object is not a list"
        raise errors.not_convertible(f"{what} (*{type_meta.hub_type(resource)})")
    return _dressed(rep, _converted(rep.target, resource, body, first=True, include_object=include_object, now=now))


def _converted(
    target: Target, resource: Resource, body: bytes, *, first: bool, include_object: str, now: float
) -> bytes:
    if target.kind != negotiation.TABLE:
        return as_partial.partial(target, body)
    return as_table.single(
        target, resource, conversion.body(resource, body), first=first, include_object=include_object, now=now
    )


def _dressed(rep: Representation, compact: bytes) -> bytes:
    """JSON text in the representation's syntax."""
    if rep.media == negotiation.YAML:
        return as_yaml.dumps(as_json.loads(compact))
    return as_json.pretty(as_json.loads(compact)) if rep.pretty else compact + b"\n"


def status(rep: Representation | None, value: dict[str, Any]) -> bytes:
    """An error's Status, indented when nothing was negotiated."""
    return _dressed(rep or negotiation.INDENTED, as_json.dumps(value))


# Lists.


def listing(
    rep: Representation,
    resource: Resource,
    bodies: Sequence[bytes],
    *,
    revision: int,
    continue_token: str = "",
    remaining: int | None = None,
    include_object: str,
    now: float,
) -> tuple[int | None, Iterator[bytes]]:
    """(length in bytes if it is known, pieces). Raises 406 for a form that only single objects have, at once."""
    metadata = _list_metadata(revision, continue_token, remaining)
    target = rep.target
    if target is None:
        head = b'{"kind":"%b","apiVersion":"%b","metadata":%b' % (
            resource.list_kind.encode(),
            resource.api_version.encode(),
            metadata,
        )
        if rep.media == negotiation.JSON and not rep.pretty and resource.conversion is None:
            return _stored_list(head, bodies)
        return None, _pieces(rep, head, b"items", _shown(resource, bodies))
    if target.kind == negotiation.TABLE:
        head, shown = as_table.head(target, metadata, as_table.definitions(resource)), _shown(resource, bodies)
        rows = (as_table.row(target, resource, b, include_object=include_object, now=now) for b in shown)
        return None, _pieces(rep, head, b"rows", None if not bodies and not resource.columns else rows)
    if target.kind == negotiation.PARTIAL:
        what = "you requested PartialObjectMetadata, but the requested object is a list"
        raise errors.not_convertible(f"{what} (*{type_meta.hub_type(resource)}List)")
    head = b'{"kind":"%b","apiVersion":"%b","metadata":%b' % (
        target.kind.encode(),
        target.api_version.encode(),
        metadata,
    )
    return None, _pieces(rep, head, b"items", (as_partial.partial(target, b) for b in bodies))


def _shown(resource: Resource, bodies: Sequence[bytes]) -> Iterable[bytes]:
    """Stored objects in the version that is asked for, converted one by one as they are needed."""
    return bodies if resource.conversion is None else (conversion.body(resource, body) for body in bodies)


def _list_metadata(revision: int, continue_token: str, remaining: int | None) -> bytes:
    members: dict[str, Any] = {"resourceVersion": str(revision)}
    if continue_token:
        members["continue"] = continue_token
    if remaining is not None:
        members["remainingItemCount"] = remaining
    return as_json.dumps(members)


def _stored_list(head: bytes, bodies: Sequence[bytes]) -> tuple[int, Iterator[bytes]]:
    opening, closing = head + b',"items":[', b"]}\n"
    length = len(opening) + sum(map(len, bodies)) + max(len(bodies) - 1, 0) + len(closing)
    return length, _stored_pieces(opening, bodies, closing)


def _stored_pieces(opening: bytes, bodies: Sequence[bytes], closing: bytes) -> Iterator[bytes]:
    """Joins as many stored objects as make up a piece, never all of them."""
    start, size, before = 0, 0, opening
    for end, body in enumerate(bodies, 1):
        size += len(body)
        if size >= PIECE:
            yield before + b",".join(bodies[start:end])
            start, size, before = end, 0, b","
    if start < len(bodies):
        yield before + b",".join(bodies[start:]) + closing
    else:
        yield (opening if not bodies else b"") + closing


def _pieces(rep: Representation, head: bytes, member: bytes, elements: Iterable[bytes] | None) -> Iterator[bytes]:
    """A list whose elements are converted one by one. `head` lacks its closing brace; None elements are null."""
    if rep.media == negotiation.YAML:
        parts = _yaml_parts(head, member.decode(), elements)
    elif rep.pretty:
        parts = _pretty_parts(head, member, elements)
    else:
        parts = _compact_parts(head, member, elements)
    return _batched(parts, _ELEMENTS[rep.media])


def _batched(parts: Iterator[bytes], most: int) -> Iterator[bytes]:
    batch: list[bytes] = []
    size = 0
    for part in parts:
        batch.append(part)
        size += len(part)
        if len(batch) >= most or size >= PIECE:
            yield b"".join(batch)
            batch.clear()
            size = 0
    if batch:
        yield b"".join(batch)


def _compact_parts(head: bytes, member: bytes, elements: Iterable[bytes] | None) -> Iterator[bytes]:
    if elements is None:
        yield head + b',"' + member + b'":null}\n'
        return
    before = head + b',"' + member + b'":['
    for element in elements:
        yield before + element
        before = b","
    yield (b"" if before == b"," else before) + b"]}\n"


def _pretty_parts(head: bytes, member: bytes, elements: Iterable[bytes] | None) -> Iterator[bytes]:
    opening = as_json.pretty(as_json.loads(head + b"}")).removesuffix(b"\n}") + b',\n  "' + member + b'": '
    if elements is None:
        yield opening + b"null\n}"
        return
    before = opening + b"[\n    "
    for element in elements:
        yield before + as_json.pretty(as_json.loads(element)).replace(b"\n", b"\n    ")
        before = b",\n    "
    yield b"\n  ]\n}" if before[:1] == b"," else opening + b"[]\n}"


def _yaml_parts(head: bytes, member: str, elements: Iterable[bytes] | None) -> Iterator[bytes]:
    """Members stand sorted, so some of the head come before the list and some behind it."""
    members = as_json.loads(head + b"}")
    order = as_yaml.in_order({**members, member: None})
    at = order.index(member)
    first = as_yaml.dumps({name: members[name] for name in order[:at]})
    if elements is None:
        yield first + as_yaml.dumps({member: None})
    else:
        before = first + f"{member}:\n".encode()
        for element in elements:
            yield before + as_yaml.dumps([as_json.loads(element)])
            before = b""
        if before:
            yield first + as_yaml.dumps({member: []})
    if order[at + 1 :]:
        yield as_yaml.dumps({name: members[name] for name in order[at + 1 :]})


# Watch events.


def frame(
    rep: Representation,
    resource: Resource,
    event_type: str,
    body: bytes,
    *,
    first: bool,
    include_object: str,
    now: float,
) -> bytes:
    """One event as a line. Empty for PartialObjectMetadataList, which no event can be: the stream ends there, as upstream's does."""
    if rep.target is None:
        return frames.event(event_type, resource.head + conversion.body(resource, body)[1:])
    if rep.target.kind == negotiation.PARTIAL_LIST:
        return b""
    obj = _converted(rep.target, resource, body, first=first, include_object=include_object, now=now)
    return frames.event(event_type, obj)


def bookmark(
    rep: Representation,
    resource: Resource,
    revision: int,
    *,
    marker: bool,
    first: bool,
    include_object: str,
    now: float,
) -> bytes:
    """A bookmark: the zero object of the kind at `revision`. `marker` tells that the initial events are complete."""
    body = _zero_at(resource.stored.shape, revision, marker=marker)
    return frame(rep, resource, "BOOKMARK", body, first=first, include_object=include_object, now=now)


_EMPTY = b'{"metadata":{}'


def _zero_at(shape: Struct, revision: int, *, marker: bool) -> bytes:
    annotation = b',"annotations":{"%b":"true"}' % as_table.INITIAL_EVENTS_END.encode() if marker else b""
    return b'{"metadata":{"resourceVersion":"%d"%b}%b' % (revision, annotation, _zero(shape)[len(_EMPTY) :])


@functools.lru_cache(maxsize=64)
def _zero(shape: Struct) -> bytes:
    zero = canonical.zero(shape)
    return as_json.dumps({"metadata": {}, **{name: x for name, x in zero.items() if name != "metadata"}})


def error_frame(rep: Representation, value: dict[str, Any]) -> bytes:
    """An ERROR event. Its Status passes every conversion unchanged."""
    assert rep.media in negotiation.STREAMED
    return frames.event("ERROR", as_json.dumps(value))
