"""An entry or a list of entries as the response that was negotiated. Everything here calls down into `wire`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from apiserver.apimachinery import errors
from apiserver.schema.resource import Object
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry
from apiserver.wire import negotiation, representation
from apiserver.wire.negotiation import Representation


@dataclass(frozen=True, slots=True)
class Answer:
    """What the client will get, once the verb has it. `includeObject` is judged here, after the storage access, as upstream does."""

    services: Services
    call: Call
    form: Representation

    async def single(self, body: bytes, *, code: int = 200) -> Any:
        """One object."""
        exchange, form = self.call.exchange, self.form
        include = representation.include_object(form, exchange.query)
        now = self.services.now()
        data = representation.single(form, self.call.resource, body, include_object=include, now=now)
        return await exchange.respond(code, form.media, data)

    async def listing(
        self, entries: Sequence[Entry], *, revision: int, continue_token: str = "", remaining: int | None = None
    ) -> Any:
        """A list, streamed in pieces from stored bytes."""
        exchange, form = self.call.exchange, self.form
        include = representation.include_object(form, exchange.query)
        length, pieces = representation.listing(
            form,
            self.call.resource,
            [entry.body for entry in entries],
            revision=revision,
            continue_token=continue_token,
            remaining=remaining,
            include_object=include,
            now=self.services.now(),
        )
        return await exchange.stream(200, form.media, pieces, length=length)


def negotiate(services: Services, call: Call) -> Answer:
    """What the client will get, or 406. A status endpoint has no Table form."""
    exchange, tables = call.exchange, not call.info.subresource
    form = negotiation.negotiate(exchange.accept, exchange.query, exchange.user_agent, tables=tables)
    return Answer(services, call, form)


def decoded(entry: Entry) -> Object:
    """The stored object, resourceVersion included. The caller owns the result."""
    obj: Object = orjson.loads(entry.body)
    return obj


def gone(call: Call, name: str) -> errors.StatusError:
    return errors.not_found(call.resource.group_resource, name)
