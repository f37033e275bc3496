"""PATCH: a pure function from the live object to the new one, run inside the write loop on every round.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/patch.go`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from apiserver.apimachinery import meta, options
from apiserver.apimachinery.options import PatchOptions
from apiserver.patching import json_patch, merge_patch
from apiserver.schema import conversion
from apiserver.schema.resource import Object
from apiserver.verbs import lifecycle, rendering, replace
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry
from apiserver.wire import body


async def patch(services: Services, call: Call) -> Any:
    """The stored object becomes what the patch makes of it; an absent object is 404 before the patch is even read."""
    exchange = call.exchange
    kind = body.patch_type(exchange.content_type)
    answer = rendering.negotiate(services, call)
    raw = await exchange.body()
    wanted = options.parse_patch(exchange.query, apply=False)
    order = replace.Order(
        name=call.info.name,
        change=_change(services, call, kind=kind, raw=raw, wanted=wanted),
        sub=replace.subresource(call),
        options=wanted.as_update(),
        preconditioned=False,
    )
    stored = await replace.replace(services, call, order)
    return await answer.single(stored)


def _change(services: Services, call: Call, *, kind: str, raw: bytes, wanted: PatchOptions) -> replace.ChangeFunction:
    resource, warnings = call.resource, call.exchange.warnings

    def compute(live: Entry) -> Object:
        sent = body.decode_patch(kind, raw, validation=wanted.field_validation)
        shown = conversion.served(resource, rendering.decoded(live))
        document = {"kind": resource.kind, "apiVersion": resource.api_version, **shown}
        new = body.decode_patched(
            resource,
            _applied(kind, sent.value, document),
            kinds=services.kinds,
            now=meta.rfc3339(services.now()),
            validation=wanted.field_validation,
            warnings=warnings,
            found_in_patch=sent.complaints,
        )
        lifecycle.settle_namespace(call, new)
        lifecycle.check_name(call, new)
        return new

    async def change(live: Entry) -> Object:
        large = len(raw) + len(live.body) > body.LARGE
        return await asyncio.to_thread(compute, live) if large else compute(live)

    return change


def _applied(kind: str, sent: Any, document: Object) -> Any:
    """The document after the patch; StatusError 413 or 422 when it cannot be applied."""
    if kind == body.JSON_PATCH:
        return json_patch.apply(json_patch.parse(sent), document)
    return merge_patch.apply(sent, document)
