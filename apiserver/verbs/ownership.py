"""Whose write it is, and where metadata.managedFields come from: every write is told to the field managers before admission.

Upstream: kubernetes/apimachinery `pkg/util/managedfields/fieldmanager.go`, kubernetes/apiserver
`pkg/endpoints/handlers/{create,update,patch}.go`, `pkg/endpoints/handlers/fieldmanager/equality.go`.
"""

from __future__ import annotations

import functools
import sys
import time

from apiserver import metrics
from apiserver.apimachinery import meta
from apiserver.apimachinery.options import FIELD_MANAGER_BYTES
from apiserver.fieldmanager import manager as fieldmanager
from apiserver.fieldmanager.writer import Writer
from apiserver.runtime.workers import BODIES
from apiserver.schema.resource import Object, Resource
from apiserver.verbs.context import Call, Services
from kubetext import utf8

UNKNOWN = "unknown"
LARGE = 16 << 10
"""Of objects above this many bytes, the new one and the stored one together, the managers are found in a thread."""


def writer(services: Services, call: Call, manager: str, *, force: bool = False) -> Writer:
    """The writer of a request: its fieldManager, or else the program that its User-Agent names."""
    return Writer(
        manager=manager or _program(call.exchange.user_agent),
        resource=call.resource,
        subresource=call.info.subresource,
        now=meta.rfc3339(services.now()),
        force=force,
        # A virtual kind has no store.
        most=sys.maxsize if call.resource.virtual else call.store.object_limit,
    )


def _program(user_agent: str) -> str:
    """What stands before the first slash, as far as it can be printed and is not too long (upstream's prefixFromUserAgent). A byte that is
    no UTF-8 is the character for that, which can be printed."""
    name = user_agent[: 4 * FIELD_MANAGER_BYTES].partition("/")[0]
    if name.isascii() and name.isprintable():
        return name[:FIELD_MANAGER_BYTES] or UNKNOWN
    cut = "".join(c for c in utf8.whole(name) if c.isprintable()).encode("utf-8", "replace")[:FIELD_MANAGER_BYTES]
    return cut.decode("utf-8", "ignore") or UNKNOWN


async def owned(services: Services, call: Call, new: Object, live: Object | None, *, manager: str, size: int) -> Object:
    """`new` with its managedFields. `size` is about how many bytes `new` and `live` have."""
    settle = functools.partial(services.managers.updated, new, live, writer(services, call, manager))
    return await BODIES.run_patiently(settle) if size > LARGE else settle()


async def keep_times(resource: Resource, new: Object, old: Object, *, size: int) -> None:
    """A change that would only stamp new times on managedFields is none: they are as they are stored."""
    since = time.perf_counter()
    keep = functools.partial(fieldmanager.keep_times, resource.shape, new, old)
    heavy = size > LARGE and fieldmanager.differ_in_time(new, old)
    path = await BODIES.run_patiently(keep) if heavy else keep()
    metrics.TIMESTAMP_COMPARISON_SECONDS.labels(path).observe(time.perf_counter() - since)
