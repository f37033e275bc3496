"""Answer with an entry or a list of entries in the negotiated form. Calls only `wire`."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

from apiserver import metrics
from apiserver.apimachinery import errors
from apiserver.apimachinery.request import Recording
from apiserver.codecs.objects import canonical, conversion
from apiserver.listcache.chunk import ListRange
from apiserver.listcache.piece import Piece, Pieces, Step
from apiserver.runtime import spans, turns
from apiserver.runtime.offload import READ_STORED, RECORD, run_sized
from apiserver.runtime.spans import Span
from apiserver.runtime.workers import Workers
from apiserver.schema.resource import Object, Resource
from apiserver.verbs import recorded
from apiserver.verbs.context import Call, Services
from apiserver.watchcache.entry import Entry, Unreadable
from apiserver.watchcache.errors import Corrupt
from apiserver.wire import negotiation
from apiserver.wire.forms import form as forms
from apiserver.wire.forms.form import Form, ListMeta
from apiserver.wire.representation import Representation

T = TypeVar("T")


class Answer(NamedTuple):
    """The form of the answer. `includeObject` is checked when the answer is made, after the storage access, as upstream does."""

    services: Services
    call: Call
    representation: Representation

    async def stored(self, entry: Entry) -> Any:
        """Answer with one object as it is in memory."""
        form = form_of(self.services, self.call, self.representation)
        data = form.cached_document(entry)
        if data is None:
            return await self.single(entry.value)
        await self._record(entry.value)
        with self._span(form):
            return await self.call.exchange.respond(200, form.media, data)

    async def single(self, value: bytes, *, code: int = 200) -> Any:
        """Answer with one object, from its stored value with a resourceVersion."""
        form = form_of(self.services, self.call, self.representation)
        # Patiently, because a write has happened and must be answered. The requests in flight bound how many wait.
        data = (
            await self.services.workers.run_patiently(form.single, value)
            if form.heavy(len(value))
            else form.single(value)
        )
        await self._record(value)
        with self._span(form):
            return await self.call.exchange.respond(code, form.media, data)

    def _span(self, form: Form) -> Span:
        """Begin the span of writing an answer. Its encoding may be older."""
        spans.event("About to write a response")
        return spans.span("SerializeObject", lambda: {**self.call.answering(), "mediaType": form.media})

    async def _record(self, value: bytes) -> None:
        """Give the answer in JSON to audit."""
        recording = self.call.exchange.recording
        if recording is None or not recording.wants_answer:
            return
        form = form_of(self.services, self.call, negotiation.as_json(self.representation))

        def make() -> bytes:
            return form.single(recorded.bare(value) if recording.bare else value)

        heavy = len(value) > min(form.reach, RECORD.limit)
        text = await self.services.workers.run_patiently(make) if heavy else make()
        recording.answer = (text.removesuffix(b"\n"),)

    def _record_list(self, recording: Recording, entries: Sequence[Entry], meta: ListMeta) -> None:
        """Give a list to audit, which encodes it when it records it."""
        if not recording.wants_answer:
            return
        form = form_of(self.services, self.call, negotiation.as_json(self.representation))
        recording.answer = recorded.Listed(form, entries, meta, bare=recording.bare)

    async def success(self, name: str) -> Any:
        """Answer that an operation on an object succeeded that cannot be shown."""
        return await self._success({"name": name, "kind": self.call.resource.kind}, code=200)

    async def deleted(self, name: str, uid: str) -> Any:
        """Answer that the object was deleted. Upstream's Status has no code here."""
        named = self.call.resource.group_resource
        return await self._success({"name": name, "group": named.group, "kind": named.resource, "uid": uid})

    async def _success(self, details: Mapping[str, str], **more: int) -> Any:
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details,
            **more,
        }
        written = forms.status(self.representation, status)
        recording = self.call.exchange.recording
        if recording is not None and recording.wants_answer:
            recording.answer = (canonical.encode_value(status),)
        return await self.call.exchange.respond(200, self.representation.media, written.run())

    async def listing(self, entries: Sequence[Entry], meta: ListMeta, range_: ListRange) -> Any:
        """Stream a list in pieces. Unreadable objects are left out."""
        if self.call.store.holds_unreadable:
            entries = [entry for entry in entries if entry.readable]
        form, exchange = form_of(self.services, self.call, self.representation), self.call.exchange
        if exchange.recording is not None:
            self._record_list(exchange.recording, entries, meta)
        length, pieces, large = form.listing(entries, meta, range_, compressed=exchange.accepts_gzip)
        metrics.LISTS.labels(_form(self.representation, compressed=exchange.accepts_gzip)).inc()
        parts = made(pieces, self.services.workers)
        with self._span(form):
            return await exchange.stream(200, form.media, parts, length=length, large=large)


@functools.lru_cache(maxsize=64)
def _form(representation: Representation, *, compressed: bool) -> str:
    """Return the label of a form: what is written, the media type without `application/`, and whether it may be compressed."""
    kind = f"{representation.target.kind} " if representation.target is not None else ""
    written = representation.media.rpartition("/")[2].rpartition(".")[2]
    return f"{kind}{written}{' gzip' if compressed else ''}"


def negotiate(services: Services, call: Call) -> Answer:
    """Return the form that the client will get. Raises 406. A status endpoint has no Table form, except that of custom resources."""
    return Answer(services, call, negotiated(call))


def negotiated(call: Call) -> Representation:
    """Return the same form alone."""
    exchange, tables, messages = call.exchange, not call.info.subresource, call.resource.custom is None
    return negotiation.negotiate(exchange.accept, exchange.query, exchange.user_agent, tables=tables, messages=messages)


def form_of(services: Services, call: Call, representation: Representation) -> Form:
    """Return the negotiated form. Raises 400 for a query that does not fit it."""
    return services.forms.of(representation, call.resource, call.exchange.query)


STEP_SECONDS = 0.002
"""How long pieces are made before other tasks run."""
MOST_READY = 4
"""Cached pieces after which the clock is read."""


async def made(pieces: Pieces, workers: Workers) -> AsyncIterator[bytes | Piece]:
    """Yield the pieces of a list, or of the beginning of a watch. Run their steps, heavy ones in a thread."""
    began, ready = perf_counter(), 0
    for piece in pieces:
        if isinstance(piece, Step):
            if piece.heavy:
                await workers.run_patiently(piece.run)
            else:
                piece.run()
        else:
            ready += 1
            if piece != b"":
                yield piece
                if ready < MOST_READY:
                    continue
        ready = 0
        if perf_counter() - began > STEP_SECONDS:
            await turns.next_turn()
            began = perf_counter()


def decoded(resource: Resource, entry: Entry) -> Object:
    """Return the stored object with its resourceVersion, in the version in which writes are judged. `resource` is the kind in any version.
    The caller owns the result. Raises Corrupt."""
    if not entry.readable:
        raise Corrupt(entry.key)
    try:
        return conversion.hub_of_stored(resource, canonical.decode(resource.stored.shape, entry.value))
    except ValueError as e:
        raise Corrupt(entry.key) from e


def patiently(read: Callable[[Resource, Entry], T], resource: Resource, entry: Entry) -> Awaitable[T]:
    """Call `decoded` or `remains`, in a thread if the object is large."""
    return run_sized(READ_STORED, entry.size, read, resource, entry)


def remains(resource: Resource, entry: Entry) -> tuple[Entry, Object]:
    """Return the entry and its object, for callers that delete it or only check its existence. An unreadable object is replaced by a
    minimal one."""
    try:
        obj = decoded(resource, entry)
        if isinstance(obj["metadata"]["uid"], str):
            return entry, obj
    except (Corrupt, LookupError, TypeError):
        pass
    stand_in = entry if not entry.readable else Unreadable.named(entry.key, entry.revision, entry.fields)
    return stand_in, canonical.decode(resource.stored.shape, stand_in.value)


def not_found(call: Call, name: str) -> errors.StatusError:
    return errors.not_found(call.resource.group_resource, name)
