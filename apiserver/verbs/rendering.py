"""An entry or a list of entries as the response that was negotiated. Everything here calls down into `wire`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from apiserver.apimachinery import errors
from apiserver.schema.resource import Object
from apiserver.verbs.context import Call
from apiserver.watchcache.entry import Entry
from apiserver.wire import negotiation, representation
from apiserver.wire.negotiation import Representation


def negotiate(call: Call) -> Representation:
    """What the client will get, or 406. A status endpoint has no Table form."""
    exchange = call.exchange
    return negotiation.negotiate(exchange.accept, exchange.query, exchange.user_agent, tables=not call.info.subresource)


def decoded(entry: Entry) -> Object:
    """The stored object, resourceVersion included. The caller owns the result."""
    obj: Object = orjson.loads(entry.body)
    return obj


async def single(call: Call, rep: Representation, body: bytes, *, code: int = 200, now: float) -> Any:
    """One object. `includeObject` is judged here, after the storage access, as upstream does."""
    include = representation.include_object(rep, call.exchange.query)
    data = representation.single(rep, call.resource, body, include_object=include, now=now)
    return await call.exchange.respond(code, rep.media, data)


async def listing(
    call: Call,
    rep: Representation,
    entries: Sequence[Entry],
    *,
    revision: int,
    continue_token: str = "",
    remaining: int | None = None,
    now: float,
) -> Any:
    """A list, streamed in pieces from stored bytes."""
    include = representation.include_object(rep, call.exchange.query)
    bodies = [entry.body for entry in entries]
    length, pieces = representation.listing(
        rep,
        call.resource,
        bodies,
        revision=revision,
        continue_token=continue_token,
        remaining=remaining,
        include_object=include,
        now=now,
    )
    return await call.exchange.stream(200, rep.media, pieces, length=length)


def gone(call: Call, name: str) -> errors.StatusError:
    return errors.not_found(call.resource.group_resource, name)
