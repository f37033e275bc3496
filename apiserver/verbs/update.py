"""Serve PUT: the body is the change.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/update.go`.
"""

from __future__ import annotations

from typing import Any

from apiserver.apimachinery import meta, options
from apiserver.runtime import spans
from apiserver.schema.resource import Object
from apiserver.verbs import lifecycle, recorded, rendering, replace
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry
from apiserver.wire import body


async def update(services: Services, call: Call) -> Any:
    """Replace the stored object, or the part that a subresource owns, by the body."""
    exchange = call.exchange
    answer = rendering.negotiate(services, call)
    raw = await exchange.body()
    spans.event("limitedReadBody succeeded", len=len(raw))
    wanted = options.parse_update(exchange.query)
    body.check_content_type(exchange.content_type)
    sent = await body.decode_object(
        call.resource,
        exchange.content_type,
        raw,
        kinds=services.kinds,
        now=meta.rfc3339(services.now()),
        validation=wanted.validation,
        warnings=exchange.warnings,
    )
    size = body.size_estimate(raw, exchange.content_type)
    await recorded.sent(call, sent, size=size)
    lifecycle.set_namespace(call, sent)
    lifecycle.check_name(call, sent)
    await lifecycle.dedup_owners(sent, exchange.warnings, after_admission=False)

    async def change(_: Entry | None) -> Object:
        return _private(sent)

    order = replace.Order(
        name=call.info.name,
        change=change,
        sub=replace.subresource(call),
        options=wanted,
        whole=True,
        size=size,
    )
    outcome = await replace.replace(services, call, order)
    return await answer.single(outcome.value)


def _private(sent: Object) -> Object:
    """Copy two levels: hooks change the members of an object but never the values inside its lists."""
    return {name: dict(value) if isinstance(value, dict) else value for name, value in sent.items()}
