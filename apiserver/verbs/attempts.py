"""Repeat conditional writes: try on the object in memory, and again on the newer one if another write came first.

Storage answers "committed" or "moved" and never calls back. After a lost race, everything runs again on the newer object, admission
included. An error found on an object from memory that turns out to be stale is not reported: the attempt is repeated.
Upstream: kubernetes/apiserver `pkg/storage/etcd3/store.go` GuaranteedUpdate, conditionalDelete.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from apiserver.apimachinery.errors import StatusError
from apiserver.conversion.converter import Converter
from apiserver.storage.errors import KeyExists, Moved
from apiserver.storage.store import Write
from apiserver.verbs import failures
from apiserver.verbs.context import Call
from apiserver.watchcache.entry import Entry, Key

Result = TypeVar("Result")
DELETES = ("delete", "deletecollection")


async def until_done(call: Call, key: Key, attempt: Callable[[Entry | None], Awaitable[Result]]) -> Result:
    """Return the result of `attempt` on the object of this key, or on None if there is no such object. Raises StatusError.

    `attempt` gets the object in the version of the request.
    """
    if call.converter is not None:
        attempt = _converting(call, call.converter, attempt)
    with failures.translated(call.info):
        live, fresh = call.store.view().get(key), False
        while True:
            if live is not None:
                call.exchange.hold(size=live.size)  # an attempt that fails leaves a decoded object, too
            try:
                result = await attempt(live)
            except (Moved, KeyExists) as e:
                live, fresh = e.entry, True
            except StatusError:
                if fresh:
                    raise
                await call.store.barrier()
                newest = call.store.view().get(key)
                if _revision(newest) == _revision(live):
                    raise
                live, fresh = newest, True
            else:
                call.exchange.free()
                return result
            call.exchange.free()  # a client may bring about many rounds


def _converting(
    call: Call, converter: Converter, attempt: Callable[[Entry | None], Awaitable[Result]]
) -> Callable[[Entry | None], Awaitable[Result]]:
    deletes = call.info.verb in DELETES

    async def converted(live: Entry | None) -> Result:
        return await attempt(None if live is None else await converter.live(live, deletes=deletes))

    return converted


async def commit(call: Call, write: Write, *, dry_run: bool) -> Entry:
    """Commit a write in the version of the request, and return its entry in that version. Raises StatusError, and as `Store.commit`."""
    converter = call.converter
    if converter is None:
        return await call.store.commit(write, dry_run=dry_run)
    if write.value is not None:
        write = write._replace(value=await converter.stored(write.value))
    return await converter.written(await call.store.commit(write, dry_run=dry_run), dry_run=dry_run)


def _revision(entry: Entry | None) -> int:
    return entry.revision if entry is not None else 0
