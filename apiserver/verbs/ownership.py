"""Who set which field: what a keeper of metadata.managedFields is told, and where it stands in the life of an object.

A keeper is composed in `app` (`Services.ownership`). Without one, what clients send as managedFields is checked and dropped.
Upstream: kubernetes/apimachinery `pkg/util/managedfields/fieldmanager.go`, kubernetes/apiserver
`pkg/endpoints/handlers/{create,patch}.go`.
"""

from __future__ import annotations

from typing import Protocol

from apiserver.apimachinery import meta
from apiserver.apimachinery.options import FIELD_MANAGER_BYTES
from apiserver.fieldmanager.writer import Writer
from apiserver.schema.resource import Object
from apiserver.verbs.context import Call, Services

UNKNOWN = "unknown"


class Ownership(Protocol):
    """Keeps metadata.managedFields."""

    async def own(self, new: Object, live: Object | None, writer: Writer) -> Object:
        """`new` with the managedFields that it is stored with, before admission. It comes with those that the client sent; `live` is
        the stored object, None on create."""


def writer(services: Services, call: Call, manager: str, *, force: bool = False) -> Writer:
    """The writer of a request: its fieldManager, or else the program that its User-Agent names."""
    return Writer(
        manager=manager or _program(call.exchange.user_agent),
        resource=call.resource,
        subresource=call.info.subresource,
        now=meta.rfc3339(services.now()),
        force=force,
    )


def _program(user_agent: str) -> str:
    """What stands before the first slash, as far as it can be printed and is not too long (upstream's prefixFromUserAgent)."""
    name = user_agent[: 4 * FIELD_MANAGER_BYTES].partition("/")[0]
    if name.isascii() and name.isprintable():
        return name[:FIELD_MANAGER_BYTES] or UNKNOWN
    cut = "".join(c for c in name if c.isprintable()).encode("utf-8", "replace")[:FIELD_MANAGER_BYTES]
    return cut.decode("utf-8", "ignore") or UNKNOWN


async def owned(services: Services, call: Call, new: Object, live: Object | None, *, manager: str) -> Object:
    """`new` once its fields have owners, where somebody keeps them."""
    if services.ownership is None:
        return new
    return await services.ownership.own(new, live, writer(services, call, manager))
