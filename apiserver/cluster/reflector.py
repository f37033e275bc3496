"""A local copy of objects of the API server: list, then watch. Knows no kinds.

Lists are read in pages, and from the newest state, so that the copy never goes back in time. A page that is too large is asked for
again with fewer objects, and objects are decoded in small steps, so that no request waits for it. A namespace may have a quarter of a
mebibyte of annotations, a ConfigMap four times as much. While the server is unreachable, the copy stays as it is. Upstream:
kubernetes/client-go `tools/cache/reflector.go`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from apiserver.cluster.client import Client, decoded
from apiserver.cluster.errors import ClusterError, Refused, TooLong, Unreadable

logger = logging.getLogger(__name__)

PAGE = 500
PAGE_BYTES = 8 << 20
"""The rest of a longer answer is not read. The JSON of one object is at most half of that."""
FEWER = 8
"""A page that is too large is asked for again with this many times fewer objects."""
STEP_BYTES = 128 << 10
"""Bytes that are decoded in one step of the event loop, plus one object."""
LIST_SECONDS = 60.0
WATCH_SECONDS = 300.0
"""How long the server is asked to keep a watch open, and up to twice that (client-go's defaultMinWatchTimeout)."""
GRACE_SECONDS = 30.0
FIRST_PAUSE, LAST_PAUSE = 0.8, 15.0
"""Seconds, doubling; a random part makes each up to twice as long, so that replicas do not come back all at once."""
OLD_SECONDS = 60.0
"""The age from which an unconfirmed copy is logged."""
SHORT_SECONDS = 1.0
"""A watch that ends sooner than this, without an event, is a failure."""

Object = Mapping[str, Any]


class Reflector:
    """The copy of one collection: objects by name (of a namespaced kind by "namespace/name"), without their managedFields.

    The caller runs `run` as a task.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        field_selector: str = "",
        collection: Callable[[], MutableMapping[str, Object]] = dict,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`collection` makes the container of the copy. `on_change` is called after each list and each event that the copy has taken in."""
        self.ready = asyncio.Event()
        self._client = client
        self._path = path
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._on_change = on_change
        self._collection = collection
        self._items = collection()
        self._at = ""
        """The resourceVersion to watch from; empty while a list is needed."""
        self._heard = 0
        self._changes = 0
        self._confirmed = client.clock()
        self._problem = ""
        self._is_old = False

    @property
    def items(self) -> Mapping[str, Object]:
        return self._items

    @property
    def version(self) -> int:
        """A number that differs after each change of `items`."""
        return self._changes

    @property
    def age(self) -> float:
        """Seconds since the server last confirmed the copy: by a list, an event, a bookmark, or the start of a watch."""
        return self._client.clock() - self._confirmed

    @property
    def problem(self) -> str:
        """Why the collection is not followed at the moment, empty while it is."""
        return self._problem

    def get(self, name: str) -> Object | None:
        return self._items.get(name)

    async def run(self) -> None:
        """Follow until cancelled. A restart lists again, because the last event may be the one that failed."""
        self._at, pause = "", FIRST_PAUSE
        while True:
            heard, least = self._heard, 0.0
            try:
                if not self._at:
                    await self._list()
                if await self._watch():
                    pause = FIRST_PAUSE
                    continue
                problem = "the watch ended at once"
            except ClusterError as error:
                problem = str(error)
                if not _resumable(error):
                    self._at = ""
                if isinstance(error, Refused) and error.retry_after:
                    least = error.retry_after
            self._problem = problem
            if self._heard > heard:
                pause = FIRST_PAUSE
            elif self.age >= OLD_SECONDS and self.ready.is_set() and not self._is_old:
                self._is_old = True
                about = {"path": self._path, "seconds": round(self.age), "reason": problem}
                logger.error("not confirmed for long: the copy stays in use", extra=about)
            seconds = max(least, pause * (1 + self._client.random()))
            pause = min(pause * 2, LAST_PAUSE)
            about = {"path": self._path, "seconds": round(seconds, 1), "reason": problem}
            logger.warning("a collection cannot be followed and is tried again later", extra=about)
            await self._client.sleep(seconds)

    async def _list(self) -> None:
        found = self._collection()
        most, query = PAGE, self._selector
        while True:
            try:
                page = await self._client.page(
                    self._path, {"limit": str(most), **query}, seconds=LIST_SECONDS, most=PAGE_BYTES
                )
            except TooLong:
                if most == 1:
                    raise
                most = max(1, most // FEWER)
                continue
            await self._take(page.items, found)
            if not page.metadata.get("continue"):
                break
            query = {**self._selector, "continue": page.metadata["continue"]}
        self._at = _version(page.metadata)
        self._items = found
        self._changes += 1
        self._was_heard()
        self.ready.set()
        self._on_change()

    async def _take(self, items: Sequence[bytes | memoryview], into: MutableMapping[str, Object]) -> None:
        size = 0
        for raw in items:
            name, kept = _named(decoded(raw, self._path))
            into[name] = kept
            size += len(raw)
            if size > STEP_BYTES:
                size = 0
                await asyncio.sleep(0)

    async def _watch(self) -> bool:
        """Watch until the server ends it. Return whether it was a normal watch."""
        seconds = WATCH_SECONDS * (1 + self._client.random())
        query = {
            "resourceVersion": self._at,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
            **self._selector,
        }
        began, heard = self._client.clock(), self._heard
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS), self._client.watch(self._path, query) as events:
                self._confirm()
                async for kind, found in events:
                    self._apply(kind, found)
        except TimeoutError:
            raise ClusterError("the server did not end the watch when it should") from None
        return self._heard > heard or self._client.clock() - began >= SHORT_SECONDS

    def _apply(self, kind: str, found: Object) -> None:
        if kind == "ERROR":
            raise _refusal(found)
        if kind == "BOOKMARK":
            self._at = _version(_metadata(found))
            self._was_heard()
            return
        name, kept = _named(found)
        if kind in ("ADDED", "MODIFIED"):
            self._items[name] = kept
        elif kind == "DELETED":
            self._items.pop(name, None)
        else:
            raise Unreadable(f"{self._path}: an event of the unknown type {kind!r}")
        self._at = _version(_metadata(found))
        self._changes += 1
        self._was_heard()
        self._on_change()

    def _was_heard(self) -> None:
        self._heard += 1
        self._confirm()

    def _confirm(self) -> None:
        self._confirmed, self._problem = self._client.clock(), ""
        if self._is_old:
            self._is_old = False
            logger.info("confirmed again", extra={"path": self._path})


def _resumable(error: ClusterError) -> bool:
    """Return whether the version to watch from may still be valid. 410 says that it is not; after any unknown error a list helps."""
    if isinstance(error, Refused):
        return error.code in (429, 502, 503)
    return not isinstance(error, Unreadable)


def _refusal(status: Object) -> Refused:
    """Return the error that an ERROR event carries."""
    code, text, details = status.get("code"), status.get("message"), status.get("details")
    seconds = details.get("retryAfterSeconds") if isinstance(details, dict) else None
    return Refused(
        str(text),
        code=code if isinstance(code, int) else 500,
        retry_after=seconds if isinstance(seconds, int) else None,
    )


def _metadata(found: Object) -> dict[str, Any]:
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        raise Unreadable("an object without metadata")
    return metadata


def _version(metadata: Mapping[str, Any]) -> str:
    version = metadata.get("resourceVersion")
    if not isinstance(version, str) or not version:
        raise Unreadable("an object without resourceVersion")
    return version


def _named(found: Object) -> tuple[str, Object]:
    metadata = _metadata(found)
    metadata.pop("managedFields", None)
    name = metadata.get("name")
    if not isinstance(name, str):
        raise Unreadable("an object without a name")
    namespace = metadata.get("namespace")
    return (f"{namespace}/{name}" if namespace else name), found
