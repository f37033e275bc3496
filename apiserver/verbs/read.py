"""Serve GET and LIST: choose the state, the part of it, and the start of the next chunk.

Upstream: kubernetes/apiserver `pkg/endpoints/handlers/get.go`, `pkg/storage/cacher/delegator.go`, `pkg/storage/etcd3/store.go` GetList.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from time import perf_counter
from typing import Any

from apiserver.apimachinery import errors, options
from apiserver.apimachinery.options import ListOptions
from apiserver.conversion.converter import Converter
from apiserver.listcache.chunk import ListRange
from apiserver.runtime import spans, turns
from apiserver.runtime.spans import Attributes, Span
from apiserver.runtime.workers import BODIES
from apiserver.verbs import continue_token, failures, lifecycle, rendering, selection, unreadable
from apiserver.verbs.context import Call, Services
from apiserver.verbs.selection import Selection
from apiserver.watchcache.entry import Entry, Revision
from apiserver.watchcache.errors import Compacted, Corrupt
from apiserver.watchcache.mvcc import View
from apiserver.wire.forms.form import ListMeta

LIST_TOO_OLD = "The resourceVersion for the provided list is too old."
TOKEN_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted "
    "between the time the first chunk was returned and now may show up in the list."
)
ANY = "0"
"""The version that accepts every state. Upstream compares the text: `00` is a number, and no state is older than it."""
CONTINUE_WITH_VERSION = "specifying resource version is not allowed when using continue"


async def get(services: Services, call: Call) -> Any:
    """Answer with one object: the newest, any, or one not older than a version."""
    answer = rendering.negotiate(services, call)
    return await answer.stored(await one(call))


async def one(call: Call) -> Entry:
    """Return the object that a GET names, in the state that it asks for. Raises StatusError."""
    wanted = options.parse_get(call.exchange.query)
    key = lifecycle.key_of(call, call.info.name)
    spans.event("About to Get from storage")
    with failures.translated(call.info), spans.span("cacher.Get", lambda: _of_get(call, key, wanted.resource_version)):
        await _freshness(call, raw_version(wanted.resource_version), stated=wanted.resource_version)
        entry = call.store.view().get(key)
        if entry is None:
            raise rendering.not_found(call, call.info.name)
        if not entry.readable:
            raise Corrupt(entry.key)
    return entry if call.converter is None else await call.converter.entry(entry)


def _of_get(call: Call, key: str, version: str) -> Attributes:
    return {"audit-id": spans.audit_id(), "key": f"/{call.resource.plural}/{key}", "resource-version": version}


def listing_span(call: Call, name: str = "cacher.GetList") -> Span:
    """Begin the span of finding objects."""
    return spans.span(name, lambda: {"audit-id": spans.audit_id(), "type": str(call.resource.group_resource)})


async def list_(services: Services, call: Call) -> Any:
    """Answer with a collection, whole or in chunks of one snapshot."""
    answer = rendering.negotiate(services, call)
    wanted = options.parse_list(call.exchange.query, watch=False)
    chosen = selection.select(call, wanted)
    if wanted.shard_selector:
        chosen = await selection.within_shard(services, chosen, wanted)
    with failures.translated(call.info), listing_span(call):
        found = await page(call, wanted, chosen, report=unreadable.report(services))
    return await listing(answer, found, chosen)


async def listing(answer: rendering.Answer, found: Page, chosen: Selection) -> Any:
    """Answer with one page in the negotiated form."""
    meta = ListMeta(found.revision, found.continue_token, found.remaining, chosen.shard)
    return await answer.listing(found.entries, meta, found.range)


def raw_version(text: str) -> Revision:
    """Return the version of a GET or watch. One that is not a number is upstream's raw 500."""
    try:
        return Revision(options.parse_revision(text) or 0)
    except ValueError as e:
        raise errors.raw(f'resourceVersion: Invalid value: "{text}": {e}') from e


async def _freshness(call: Call, revision: Revision, *, stated: str) -> None:
    """Wait until the state in memory is fresh enough. Unset: it has everything committed before this request. N: everything up to N. 0: no
    wait."""
    if not stated:
        await call.store.barrier()
    elif revision:
        await call.store.reach(revision)
    spans.event("watchCache fresh enough")


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list: its objects, their snapshot, and the continue token."""

    entries: Sequence[Entry]
    revision: Revision
    continue_token: str = ""
    remaining: int | None = None
    begins: bool = True
    """The first object of the resource is among those that were examined."""
    ends: bool = True
    sparse: bool = False

    @property
    def range(self) -> ListRange:
        """Return the range of the resource that the page shows."""
        return ListRange(self.revision, self.sparse, self.begins, self.ends)


async def page(
    call: Call, wanted: ListOptions, chosen: Selection, *, exact: bool = False, report: unreadable.Report | None = None
) -> Page:
    """Read one page.

    `exact` makes a stated version mean that very state, as deletecollection does. For one object with a known storage key, only
    resourceVersionMatch does so (kubernetes/apiserver `pkg/storage/interfaces.go` ValidateListOptions: Recursive).

    `report` reports unreadable objects instead of leaving them out. A request that accepts any state gets no report, because upstream's
    cache holds no such objects.
    """
    if chosen.prefix in ("./", "../"):
        # No object can have such keys. Upstream's storage refuses only those that lead out of the collection.
        raise errors.raw(f'invalid key: "/{call.resource.plural}/{chosen.prefix[:-1]}"')
    token = continue_token.decode(wanted.continue_token) if wanted.continue_token else None
    revision = _list_version(wanted)
    if token is not None and wanted.resource_version not in ("", ANY):
        raise errors.bad_request(CONTINUE_WITH_VERSION)
    limit = 0 if wanted.resource_version == ANY else max(wanted.limit, 0)
    exact = chosen.key is None and (exact or (bool(limit) and not wanted.match))
    if token is not None:
        start, view = token.key, await _token_state(call, token)
    else:
        start, view = "", await _state(call, wanted, revision, exact=exact)
    converter = call.converter_of_view()
    found = await _cut(view, chosen, limit, start=start, converter=converter)
    whole = not chosen.prefix
    begins, ends = whole and not start, whole and not found.continue_token
    # Some objects may have been converted, the others still belong to their groups.
    found = replace(found, begins=begins, ends=ends, sparse=chosen.test is not None or converter is not None)
    if report is not None and call.store.holds_unreadable:
        content = wanted.resource_version and token is None and _newest_will_do(wanted, revision, exact=exact)
        if not content and (wrong := await _unreadable(view, chosen, found, start=start)):
            raise unreadable.refusal(call, wrong, report)
    return found


async def _unreadable(view: View, chosen: Selection, found: Page, *, start: str) -> list[Entry]:
    """Return the unreadable entries that were passed while the page was read, whether selected or not."""
    wrong: list[Entry] = []
    async for seen in matching(view, replace(chosen, test=_is_unreadable, lengthy=None, field=None), start=start):
        wrong += seen
    return [entry for entry in wrong if not found.continue_token or entry.key <= found.entries[-1].key]


def _is_unreadable(entry: Entry) -> bool:
    return not entry.readable


def _list_version(wanted: ListOptions) -> Revision:
    text = wanted.resource_version
    try:
        return Revision(options.parse_revision(text) or 0)
    except ValueError as e:
        if wanted.continue_token:
            raise errors.bad_request(CONTINUE_WITH_VERSION) from e
        raise errors.bad_request(f'invalid resource version: resourceVersion: Invalid value: "{text}": {e}') from e


async def _state(call: Call, wanted: ListOptions, revision: Revision, *, exact: bool) -> View:
    await _freshness(call, revision, stated=wanted.resource_version)
    if _newest_will_do(wanted, revision, exact=exact):
        return call.store.view()
    try:
        return await _state_at(call, revision)
    except Compacted as e:
        raise errors.expired(LIST_TOO_OLD) from e


def _newest_will_do(wanted: ListOptions, revision: Revision, *, exact: bool) -> bool:
    return not revision or wanted.match == "NotOlderThan" or not (exact or wanted.match == "Exact")


async def _state_at(call: Call, revision: Revision) -> View:
    """Compute an older state; other tasks run meanwhile."""
    while call.store.approach(revision):  # noqa: ASYNC110  (this waits for nothing: it yields)
        await asyncio.sleep(0)
    return call.store.view_at(revision)


async def _token_state(call: Call, token: continue_token.Token) -> View:
    if token.revision < 0:
        await call.store.barrier()
        return call.store.view()
    revision = Revision(token.revision)
    await call.store.reach(revision)
    try:
        return await _state_at(call, revision)
    except Compacted as e:
        onward = continue_token.Token(continue_token.INCONSISTENT, token.key)
        raise errors.expired(TOKEN_TOO_OLD, continue_token=onward.encode()) from e


SLICE = 256
"""Objects that are examined before other tasks may run."""
SLICE_SECONDS = 0.002
FEW_LABELS = 16 * SLICE
"""Labels of a slice whose objects are all tested at once, half a millisecond. The cost of a test grows with the labels of an object."""


async def slices(
    entries: Iterator[Entry], *, tested: bool, converter: Converter | None = None
) -> AsyncIterator[list[Entry]]:
    """Yield the objects of a state in slices. Other tasks run in between; a state never changes."""
    began = perf_counter()
    while seen := list(islice(entries, SLICE)):
        if converter is not None:
            seen = await converter.entries(seen)
        one_by_one = tested and sum(len(entry.labels) for entry in seen) > FEW_LABELS
        for part in [[entry] for entry in seen] if one_by_one else (seen,):
            yield part
            if perf_counter() - began > SLICE_SECONDS:
                await turns.next_turn()
                began = perf_counter()


async def matching(
    view: View, chosen: Selection, *, start: str = "", converter: Converter | None = None
) -> AsyncIterator[list[Entry]]:
    """Yield the selected objects of each slice of a state in key order, from `start` on."""
    if chosen.key is not None and not start:
        only = view.get(chosen.key)
        entries = iter((only,) if only is not None else ())
    else:
        entries = _candidates(view, chosen, start)
    async for seen in slices(entries, tested=chosen.test is not None, converter=converter):
        yield await _selected(seen, chosen)


def _candidates(view: View, chosen: Selection, start: str) -> Iterator[Entry]:
    """Return the objects to test, in key order: those with the value of an indexed field, or all of the scope."""
    start = chosen.prefix + start
    found = None if chosen.field is None else view.having(chosen.field, chosen.prefix, start=start)
    return view.scan(chosen.prefix, start=start) if found is None else found


async def _selected(seen: list[Entry], chosen: Selection) -> list[Entry]:
    """Return the objects of a slice that pass the test."""
    if chosen.test is None:
        return seen
    passed = filter(chosen.test, seen)
    if chosen.lengthy is not None and any(map(chosen.lengthy, seen)):
        return await BODIES.run_patiently(list, passed)
    return list(passed)


async def each(view: View, chosen: Selection) -> AsyncIterator[Entry]:
    """Yield the same one by one."""
    async for found in matching(view, chosen):
        for entry in found:
            yield entry


async def _cut(view: View, chosen: Selection, limit: int, *, start: str, converter: Converter | None) -> Page:
    """Return the selected objects from `start` on, at most `limit` of them."""
    if limit and (start or chosen.key is None):
        return await _first(view, chosen, limit, start=start, converter=converter)
    if chosen.key is None and chosen.test is None and converter is None:
        return Page(view.slice(chosen.prefix, start=chosen.prefix + start), view.revision)
    taken: list[Entry] = []
    async for found in matching(view, chosen, start=start, converter=converter):
        taken += found
    return Page(taken, view.revision)


async def _first(view: View, chosen: Selection, limit: int, *, start: str, converter: Converter | None) -> Page:
    """Return one chunk. It has a successor if there are more objects, because it is unknown whether more are selected."""
    if chosen.test is None:
        every = view.slice(chosen.prefix, start=chosen.prefix + start)
        some: Sequence[Entry] = every.first(limit)
        if converter is not None:
            some = await converter.entries(some)
        return _chunk(view, chosen, some, start=start, all_of_it=len(every) <= limit)
    taken: list[Entry] = []
    async for seen in slices(_candidates(view, chosen, start), tested=True, converter=converter):
        taken += await _selected(seen, chosen)
        if len(taken) >= limit:
            break
    del taken[limit:]
    all_of_it = len(taken) < limit or not view.count(chosen.prefix, after=taken[-1].key)
    return _chunk(view, chosen, taken, start=start, all_of_it=all_of_it)


def _chunk(view: View, chosen: Selection, taken: Sequence[Entry], *, start: str, all_of_it: bool) -> Page:
    if all_of_it:
        return Page(taken, view.revision)
    last = taken[-1].key[len(chosen.prefix) :]
    remaining = view.count(chosen.prefix, start=chosen.prefix + start) - len(taken) if chosen.unfiltered else None
    onward = continue_token.after(last, revision=view.revision)
    return Page(taken, view.revision, onward.encode(), remaining)
