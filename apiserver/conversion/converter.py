"""Show stored objects in the version of a request where a webhook converts, and convert what is written back.

Each stored value names its version. It is the stored version of the definition that wrote it, which may have changed since. The webhook
converts from that version to the one of the request, in one step. The next write stores the object in the present stored version.

A converted entry has the key and the revision of the stored one. So everything behind it works as for the stored version. It is cached in
the byte budget of encodings, and belongs to no group of a list: nothing is cached for it beside itself.

Upstream converts each object by a call of its own. Here lists send some together, and objects one by one when that fails.
Upstream: kubernetes/apiextensions-apiserver `pkg/apiserver/customresource_handler.go` (crdConversionRESTOptionsGetter).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import msgspec

from apiserver.apimachinery import errors
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, indexed
from apiserver.conversion import review
from apiserver.conversion.calling import Calls, Version
from apiserver.conversion.review import Failed, Failure
from apiserver.listcache.encoding import EncodingCache, Encodings
from apiserver.schema.custom import Custom
from apiserver.schema.resource import Object, Resource
from apiserver.watchcache.entry import (
    SUPERSEDED,
    Entry,
    Event,
    Key,
    Revision,
    batches,
    mark,
    splice,
    split,
)

MOST_OBJECTS, MOST_BYTES = 64, 256 << 10
"""Objects of one call, and their bytes; a larger object goes alone. Their results are made in one piece of work."""
LOOKED_UP = 256
"""Entries that are looked up in the cache before other tasks run."""


class Unconvertible(Exception):
    """A stored entry cannot be converted. The text says why."""

    def __init__(self, entry: Entry, why: str) -> None:
        super().__init__(why)
        self.entry = entry


class Conversions:
    """The conversions of all kinds of a server. `cache` has the byte budget of converted objects. `guarded`: objects that cannot be read
    are reported as corrupt (gate AllowUnsafeMalformedObjectDeletion), and those that cannot be converted are among them."""

    def __init__(self, calls: Calls, cache: EncodingCache, *, guarded: bool = False) -> None:
        self._calls = calls
        self._cache = cache
        self._guarded = guarded
        self._converters: dict[Custom, Converter] = {}

    def of(self, resource: Resource) -> Converter | None:
        """Return the converter of a version; None for kinds whose stored values name no version."""
        custom = resource.custom
        if custom is None:
            return None
        found = self._converters.get(custom)
        if found is None:
            found = self._converters[custom] = Converter(resource, self._calls, self._cache, guarded=self._guarded)
        return found

    async def typed(self, source: Resource, target: Resource, value: Object) -> Object:
        """Convert an object between two versions, for the managers of its fields. It loses nothing that the webhook leaves. The result has
        kind and apiVersion. Raises Failed."""
        head = {"apiVersion": target.api_version, "kind": target.kind}
        members = {name: x for name, x in value.items() if name not in head}
        if not any(members.values()):
            return {**members, **head}

        def take(_: int, raw: bytes) -> Object:
            return {**head, **_taken(raw, members, source, target)}

        sent = canonical.encode_value({"apiVersion": source.api_version, "kind": source.kind, **members})
        return (await self._calls.convert(source, target, [sent], take))[0]


class _Source(NamedTuple):
    """A version in which an object is stored."""

    version: str
    kind: str
    api_version: str


class Converter:
    """Converts the objects of a kind between the versions in which they are stored and that of requests."""

    def __init__(self, resource: Resource, calls: Calls, cache: EncodingCache, *, guarded: bool) -> None:
        assert resource.custom is not None
        self._guarded = guarded
        self.resource = resource
        self._custom = resource.custom
        self._stored = resource.stored
        self._own = resource.encoded_version
        """The version of objects that are shown as they are. Without a webhook, it is the stored one."""
        self._current = self._stored.version
        self._calls = calls
        self._cache = cache
        self._known = Encodings(cache)
        self._running: dict[tuple[Key, Revision], asyncio.Task[dict[tuple[Key, Revision], Entry]]] = {}
        self._index = indexed.reader(resource)
        self._event_key = f"converted {resource.api_version}"

    # Reading

    def needed(self, versions: Set[str]) -> bool:
        """Return whether objects that are stored in these versions have to be converted."""
        return any(version != self._own for version in versions)

    async def entry(self, entry: Entry) -> Entry:
        """Return a stored entry in this version. Raises StatusError 500."""
        if entry.version == self._own:
            return entry
        try:
            return (await self._converted((entry,)))[0]
        except Unconvertible as e:
            if not self._guarded:
                raise errors.raw(str(e)) from e
            raise errors.internal(self._corrupt(e)) from e

    async def entries(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the entries of a list in this version. Raises StatusError 500 for the first that cannot be converted."""
        try:
            return await self._converted(entries)
        except Unconvertible as e:
            if not self._guarded:
                raise errors.raw(str(e)) from e
            root = "/registry"
            text = self._corrupt(e, root)
            cause = {
                "reason": "UnexpectedServerResponse",
                "message": text,
                "field": f"{root}/{self.resource.storage_name}/{e.entry.key}",
            }
            raise errors.unreadable(self.resource.group_resource, [cause], why=f": {text}") from e

    def _corrupt(self, e: Unconvertible, root: str = "") -> str:
        where = f"Key: {root}/{self.resource.storage_name}/{e.entry.key}, ResourceVersion: 0"
        return f"StorageError: corrupt object, Code: 7, {where}, AdditionalErrorMsg: {_undecodable(e)}"

    async def _converted(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return stored entries in this version. Raises Unconvertible for the first that cannot be converted."""
        found: list[Entry] = []
        for start in range(0, len(entries), LOOKED_UP):
            if start:
                await asyncio.sleep(0)
            some = entries[start : start + LOOKED_UP]
            known = [self._looked_up(entry) for entry in some]
            missing = [entry for entry, one in zip(some, known, strict=True) if one is None]
            made = await self._all(missing) if missing else {}
            found += [one or made[entry.key, entry.revision] for entry, one in zip(some, known, strict=True)]
        return found

    def _looked_up(self, entry: Entry) -> Entry | None:
        if entry.version == self._own or not entry.readable:
            return entry
        made: Entry | None = self._known.use((entry.key, entry.revision))
        return made

    async def _all(self, entries: Sequence[Entry]) -> dict[tuple[Key, Revision], Entry]:
        """Convert entries that are not cached. Those that another request converts right now are awaited."""
        found: dict[tuple[Key, Revision], Entry] = {}
        fresh = []
        waiting = dict[asyncio.Task[dict[tuple[Key, Revision], Entry]], None]()
        for entry in entries:
            running = self._running.get((entry.key, entry.revision))
            if running is None:
                fresh.append(entry)
            else:
                waiting[running] = None
        for alike in _by_version(fresh):
            for batch in batches(alike, count=MOST_OBJECTS, size=MOST_BYTES):
                found.update(await asyncio.shield(self._started(batch)))
        for running in waiting:
            found.update(await asyncio.shield(running))
        return found

    def _started(self, batch: Sequence[Entry]) -> asyncio.Task[dict[tuple[Key, Revision], Entry]]:
        """Convert a batch in a task: whoever waits for it may leave."""
        keys = [(entry.key, entry.revision) for entry in batch]
        task = asyncio.get_running_loop().create_task(self._batch(batch), name="conversion")
        for key in keys:
            self._running[key] = task

        def done(task: asyncio.Task[Any]) -> None:
            for key in keys:
                self._running.pop(key, None)
            if not task.cancelled():
                task.exception()  # marks it as seen: those that wait still get it

        task.add_done_callback(done)
        return task

    async def _batch(self, batch: Sequence[Entry]) -> dict[tuple[Key, Revision], Entry]:
        try:
            made = await self._called(batch)
        except (Failed, ValueError) as e:
            if len(batch) == 1 or (isinstance(e, Failed) and e.failure is Failure.CALL):
                raise Unconvertible(batch[0], str(e)) from e
            made = [await self._alone(entry) for entry in batch]
        for entry in made:
            self._cache.keep(self._known, (entry.key, entry.revision), entry, size=entry.size)
        return {(entry.key, entry.revision): entry for entry in made}

    async def _alone(self, entry: Entry) -> Entry:
        try:
            return (await self._called([entry]))[0]
        except (Failed, ValueError) as e:
            raise Unconvertible(entry, str(e)) from e

    async def _called(self, batch: Sequence[Entry]) -> list[Entry]:
        """Convert entries of one version."""
        source = self._source(batch[0])
        if source.version not in self._custom.versions:
            raise ValueError(f"request to convert CR from an invalid group/version: {source.api_version}")
        bodies = [_unversioned(entry) for entry in batch]
        if self._custom.webhook is None:
            return [self._entry(entry, self._pruned(body)) for entry, body in zip(batch, bodies, strict=True)]

        def take(place: int, raw: bytes) -> Entry:
            entry = batch[place]
            value = self._value(raw, bodies[place], source, self.resource)
            return self._entry(entry, value)

        return await self._calls.convert(source, self.resource, [_headed(source, body) for body in bodies], take)

    def _pruned(self, line: bytes) -> bytes:
        """Return the line of an object in the stored version, of a definition without a webhook. Memory has such objects only while another
        definition takes over."""
        assert self._stored.custom is not None
        shape = self._stored.shape
        return canonical.encode(shape, self._stored.custom.convert(canonical.decode(shape, line)))

    def _source(self, entry: Entry) -> _Source:
        return _Source(entry.version, self.resource.kind, f"{self.resource.group}/{entry.version}")

    def _entry(self, stored: Entry, value: bytes) -> Entry:
        labels, fields = self._index(value)
        body = splice(value, stored.revision) if _version(stored) in stored.body else value
        return Entry(
            stored.key, stored.revision, body, labels, fields, group=SUPERSEDED, adopted=True, version=self._own
        )

    def _value(self, raw: bytes, before: bytes, source: Version, target: Resource) -> bytes:
        """Return the line of a converted object as the version encodes it. `before` is the line that was sent."""
        original = canonical.decode(target.shape, before)
        obj = _taken(raw, original, source, target)
        assert target.custom is not None
        return canonical.encode(target.shape, target.custom.convert(obj))

    # Changes

    def known_event(self, event: Event) -> Event | None:
        """Return a change in this version if it was converted before."""
        previous = event.previous
        if event.entry.version == self._own and (previous is None or previous.version == self._own):
            return event
        held = event.encodings
        found: Event | None = held.get(self._event_key) if held is not None else None
        return found

    async def event(self, event: Event) -> Event:
        """Return a change in this version. All watchers share it. Raises Unconvertible."""
        found = self.known_event(event)
        if found is not None:
            return found
        previous = event.previous
        both = [event.entry] if previous is None else [event.entry, previous]
        entry, *before = await self._converted(both)
        found = self.known_event(event)  # another watcher's, who waited as well
        if found is None:
            found = Event(event.revision, event.type, entry, before[0] if before else None)
            size = entry.size + (before[0].size if before else 0)
            self._cache.remember(event, self._event_key, found, size=size)
        return found

    # Writing

    async def live(self, entry: Entry, *, deletes: bool) -> Entry:
        """Return a stored entry in this version, for a write or a deletion. It counts as adopted if the write stores it in another version.
        Raises StatusError 500."""
        if entry.version == self._own != self._current:
            return msgspec.structs.replace(entry, group=SUPERSEDED, adopted=True)
        return await self.entry(entry) if deletes else await self.written(entry, dry_run=False)

    async def stored(self, value: bytes) -> bytes:
        """Return the value to store for a value of this version, both without resourceVersion. Raises StatusError 500."""
        if not self.resource.converted:
            return value
        line, _ = split(value)

        def take(_: int, raw: bytes) -> bytes:
            return self._value(raw, line, self.resource, self._stored) + mark(self._current)

        try:
            return (await self._calls.convert(self.resource, self._stored, [_headed(self.resource, line)], take))[0]
        except (Failed, ValueError) as e:
            raise errors.raw(str(e)) from e

    async def written(self, entry: Entry, *, dry_run: bool) -> Entry:
        """Return the entry of a write in this version. That of a dry run has the revision of another state. Raises StatusError 500."""
        if entry.version == self._own:
            return entry
        try:
            return await self._alone(entry) if dry_run else (await self._converted((entry,)))[0]
        except Unconvertible as e:
            raise errors.raw(_undecodable(e) if self._guarded and not dry_run else str(e)) from e


def _undecodable(e: Unconvertible) -> str:
    return f"object not decodable revision={e.entry.revision}: {e}"


def _by_version(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Yield the entries of each version in which some are stored, in order."""
    alike: dict[str, list[Entry]] = {}
    for entry in entries:
        alike.setdefault(entry.version, []).append(entry)
    yield from alike.values()


def _taken(raw: bytes, original: Object, source: Version, target: Resource) -> Object:
    subject = f"{source.api_version}, Kind={source.kind}"
    return review.taken(raw, original, subject=subject, kind=source.kind, target=target.api_version)


def _version(entry: Entry) -> bytes:
    return b',"resourceVersion":"%d"' % entry.revision


def _unversioned(entry: Entry) -> bytes:
    """Return the stored value of an entry: webhooks do not see its resourceVersion."""
    return entry.body.replace(_version(entry), b"", 1)


def _headed(version: Version, value: bytes) -> bytes:
    """Return the JSON of a stored value as Go writes it, with apiVersion and kind."""
    head = {"apiVersion": version.api_version, "kind": version.kind}
    return rawjson.escaped(rawjson.dumps(head))[:-1] + b"," + value[1:]
