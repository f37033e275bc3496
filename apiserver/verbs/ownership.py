"""Find the writer of a request, and update metadata.managedFields before admission.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/fieldmanager.go`, kubernetes/apiserver
`pkg/endpoints/handlers/{create,update,patch}.go`, `pkg/endpoints/handlers/fieldmanager/equality.go`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from apiserver import metrics
from apiserver.apimachinery import meta
from apiserver.apimachinery.options import FIELD_MANAGER_BYTES
from apiserver.conversion.review import Failed
from apiserver.fieldmanager import manager as fieldmanager
from apiserver.fieldmanager.converted import Converted, Unconverted, VersionError
from apiserver.fieldmanager.writer import Writer
from apiserver.runtime import offload
from apiserver.schema.resource import Object, Resource
from apiserver.verbs.context import Call, Services
from kubetext import utf8

T = TypeVar("T")
UNKNOWN = "unknown"


def writer(services: Services, call: Call, manager: str, *, force: bool = False) -> Writer:
    """Return the writer of a request: its fieldManager, or the program that its User-Agent names."""
    custom = call.resource.custom
    return Writer(
        manager=manager or _program(call.exchange.user_agent),
        resource=call.resource,
        subresource=call.info.subresource,
        now=meta.rfc3339(services.now()),
        force=force,
        # A virtual kind has no store.
        most=sys.maxsize if call.resource.virtual else call.store.object_limit,
        converted=Converted() if custom is not None and custom.webhook is not None else None,
    )


def _program(user_agent: str) -> str:
    """Return the printable text before the first slash, cut to the longest manager name (upstream's prefixFromUserAgent). A byte that is
    not UTF-8 becomes U+FFFD, which is printable."""
    name = user_agent[: 4 * FIELD_MANAGER_BYTES].partition("/")[0]
    if name.isascii() and name.isprintable():
        return name[:FIELD_MANAGER_BYTES] or UNKNOWN
    cut = "".join(c for c in utf8.whole(name) if c.isprintable()).encode("utf-8", "replace")[:FIELD_MANAGER_BYTES]
    return cut.decode("utf-8", "ignore") or UNKNOWN


def owned(
    services: Services, call: Call, new: Object, live: Object | None, *, manager: str, size: int
) -> Awaitable[Object]:
    """Return `new` with its managedFields. `size` estimates the bytes of `new` and `live` together."""
    by = writer(services, call, manager)

    def made() -> Awaitable[Object]:
        return offload.run_sized(offload.CHANGE, size, services.managers.updated, new, live, by)

    return made() if by.converted is None else converting(services, by.converted, made)


async def converting(services: Services, converted: Converted, made: Callable[[], Awaitable[T]]) -> T:
    """Return what `made` returns, once it has all conversions that its managers need."""
    while True:
        try:
            return await made()
        except Unconverted as asked:
            result: Object | VersionError
            try:
                result = await services.conversions.typed(asked.source, asked.target, asked.value)
            except Failed as e:
                result = VersionError(str(e))
            converted.add(asked, result)


async def keep_times(resource: Resource, new: Object, old: Object, *, size: int) -> None:
    """Keep the stored times of managedFields if the change would only set new times."""
    since = time.perf_counter()
    if size > offload.CHANGE.limit and not fieldmanager.differ_in_time(new, old):
        size = 0  # there is nothing to compare
    path = await offload.run_sized(offload.CHANGE, size, fieldmanager.keep_times, resource.shape, new, old)
    metrics.TIMESTAMP_COMPARISON_SECONDS.labels(path).observe(time.perf_counter() - since)
