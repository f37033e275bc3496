"""Lists, walks and watch-lists of all slices, in every form and encoding: warm, cold, under writes, eight at once."""

from __future__ import annotations

import asyncio
import statistics
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

from bench import accounting, forms
from bench.client import Answer, InitialEvents, Reader
from bench.forms import Form
from bench.workloads import Bench, Result

PAGE = 500
HEAD_BYTES = 4096
"""Bytes of a chunk's body that contain its continue token."""
CHANGED, WRITTEN = 0.05, 0.5
"""How much the length of an answer may differ from that of the one whose objects were counted: ages and compression vary, and what is
written under it gets an annotation and a manager."""
STRIDE = 7919
"""Writes under lists go to slices that lie far apart: as many blocks are touched as there are writes."""
WATCH_LIST = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


@dataclass(frozen=True)
class Listing:
    """All slices in a form, compressed or not."""

    form: Form
    gzip: bool = False

    @property
    def name(self) -> str:
        if self.form is forms.WHOLE:
            return f"LIST {'gzip' if self.gzip else 'identity'}"
        return f"LIST {self.form.name}{' gzip' if self.gzip else ''}"


LISTINGS = tuple(Listing(form, gzip) for form in forms.FORMS for gzip in (False, True))
GZIP = Listing(forms.WHOLE, gzip=True)


class Incomplete(Exception):
    """An answer was not what was asked for."""


def _judged(answer: Answer, size: int, *, changed: float = CHANGED) -> Answer:
    """Every measured answer is held against the one whose objects were counted."""
    if answer.status != 200 or abs(answer.size - size) > size * changed:
        raise Incomplete(f"answered {answer.status} with {answer.size} bytes, and {size} are the whole")
    return answer


async def whole(bench: Bench, listing: Listing, objects: int) -> int:
    """The length of a list that has all objects, outside of what is measured."""
    async with bench.connection() as connection:
        status, body = await connection.fetch("GET", bench.collection, gzip=listing.gzip, accept=listing.form.accept)
    if status != 200:
        raise Incomplete(f"{listing.name} answered {status}")
    count = await asyncio.to_thread(forms.objects, listing.form, body, gzip=listing.gzip)
    if count != objects:
        raise Incomplete(f"{listing.name} has {count} of {objects} objects")
    return len(body)


@asynccontextmanager
async def readers(bench: Bench, count: int) -> AsyncIterator[list[Reader]]:
    opened = [await Reader(bench.target).open() for _ in range(count)]
    try:
        yield opened
    finally:
        for reader in opened:
            reader.close()


async def _loops(clients: list[Reader], operations: int, one: Callable[[Reader], Awaitable[object]]) -> list[float]:
    """Each client starts its next operation when the last one is done; how long each took."""
    numbers, took = iter(range(operations)), list[float]()

    async def loop(reader: Reader) -> None:
        for _ in numbers:
            began = time.perf_counter()
            await one(reader)
            took.append(time.perf_counter() - began)

    await asyncio.gather(*map(loop, clients))
    return took


async def warm(bench: Bench, listing: Listing, *, objects: int, clients: int, operations: int) -> Result:
    """Lists that have been made before: two were, one of them to count its objects."""
    size = await whole(bench, listing, objects)
    path, accept = bench.collection, listing.form.accept

    async def one(reader: Reader) -> None:
        _judged(await reader.get(path, accept, gzip=listing.gzip), size)

    async with readers(bench, clients) as opened:
        await one(opened[0])
        return await _measured(bench, lambda: _loops(opened, operations, one), operations, size)


async def _measured(bench: Bench, run: Callable[[], Awaitable[list[float]]], operations: int, size: int) -> Result:
    """With the peak of memory, and the longest step of the loop where the server tells it."""
    before = await bench.samples()
    resident = accounting.reset_peak(bench.pids)
    meter = accounting.Meter(bench.processes)
    meter.start()
    took = await run()
    meter.stop()
    figures = {"bytes": float(size), "peak_mb": max(0.0, accounting.peak_mb(bench.pids) - resident)}
    figures |= await bench.since(before)
    note = f"{size / 1e6:.1f} MB"
    return Result(operations, meter.wall, meter.cpu, took, note, figures=figures, shares=meter.shares)


async def cold(bench: Bench, listing: Listing, *, objects: int, samples: int, clients: int = 1) -> Result:
    """The first list in this form after a start of the server on the same folder, so many times. One slice was read before.

    With several clients it is the first so many, at once."""
    path, accept = bench.collection, listing.form.accept
    results, answers = list[Result](), list[Answer]()
    for _ in range(samples):
        bench.restart()
        async with readers(bench, clients) as opened:
            for reader in opened:
                await reader.get(f"{path}/s000000", forms.WHOLE.accept)

            async def one(reader: Reader) -> None:
                answers.append(await reader.get(path, accept, gzip=listing.gzip))

            results.append(await _measured(bench, lambda: _loops(opened, clients, one), clients, 0))
    size = await whole(bench, listing, objects)
    for answer in answers:
        _judged(answer, size)
    bodies = [answer.body * 1000 for answer in answers]
    figures = {
        "bytes": float(size),
        "head_ms": statistics.median(answer.head for answer in answers) * 1000,
        "first_byte_ms": statistics.median(bodies),
        "first_byte_most_ms": max(bodies),
        "cpu_least_ms": min(r.cpu for r in results) / clients * 1000,
        "cpu_most_ms": max(r.cpu for r in results) / clients * 1000,
        "peak_mb": max(r.figures["peak_mb"] for r in results),
    }
    figures |= {key: max(r.figures[key] for r in results) for key in ("longest_step_ms",) if key in results[0].figures}
    return Result(
        len(answers),
        sum(r.wall for r in results),
        sum(r.cpu for r in results),
        [answer.whole for answer in answers],
        f"{size / 1e6:.1f} MB, first byte {figures['first_byte_ms']:.1f} ms",
        figures=figures,
    )


async def under_writes(
    bench: Bench, listing: Listing, *, objects: int, lists: int, rate: float, every: float
) -> Result:
    """A list every so many seconds while slices are written at a rate; CPU is net of what the same writes take alone."""
    size = await whole(bench, listing, objects)
    path, accept = bench.collection, listing.form.accept
    alone = accounting.Meter(bench.processes)
    alone.start()
    wrote = await _writing(bench, objects, rate, lambda done: done >= rate * lists * every)
    alone.stop()
    each = {name: cpu / wrote for name, cpu in alone.shares.items()}
    async with readers(bench, 1) as [reader]:
        await reader.get(path, accept, gzip=listing.gzip)
        took = list[float]()
        listed = asyncio.Event()

        async def run() -> list[float]:
            nonlocal wrote
            writing = asyncio.create_task(_writing(bench, objects, rate, lambda _: listed.is_set()))
            begun = time.perf_counter()
            for number in range(lists):
                await asyncio.sleep(max(0.0, begun + number * every - time.perf_counter()))
                began = time.perf_counter()
                _judged(await reader.get(path, accept, gzip=listing.gzip), size, changed=WRITTEN)
                took.append(time.perf_counter() - began)
            listed.set()
            wrote = await writing
            return took

        result = await _measured(bench, run, lists, size)
    result.shares = {name: cpu - each[name] * wrote for name, cpu in result.shares.items()}
    result.net = sum(result.shares.values())
    result.figures["writes_per_list"] = wrote / lists
    result.note += f", {wrote / lists:.1f} writes per list, {sum(each.values()) * 1000:.2f} ms each alone"
    return result


async def _writing(bench: Bench, objects: int, rate: float, enough: Callable[[int], bool]) -> int:
    """How many were written."""
    done, mark = 0, time.time_ns()
    async with bench.connection() as connection:
        began = time.perf_counter()
        while not enough(done):
            await asyncio.sleep(max(0.0, began + done / rate - time.perf_counter()))
            await bench.update(connection, done * STRIDE % objects, f"{mark} {done}")
            done += 1
    return done


async def walk(bench: Bench, *, objects: int, gzip: bool, operations: int) -> Result:
    """All slices in chunks; one operation is a whole walk."""
    base, sizes = bench.collection, list[int]()

    async def one(reader: Reader) -> None:
        token, chunks, size = "", 0, 0
        while True:
            query = f"?limit={PAGE}" + (f"&continue={quote(token)}" if token else "")
            answer = await reader.get(base + query, forms.WHOLE.accept, gzip=gzip, keep=HEAD_BYTES)
            if answer.status != 200:
                raise Incomplete(f"a chunk answered {answer.status}")
            chunks, size = chunks + 1, size + answer.size
            token = _token(answer.start, gzip=gzip)
            if not token:
                break
        if chunks != -(-objects // PAGE):
            raise Incomplete(f"{chunks} chunks of {PAGE} are not {objects} objects")
        sizes.append(size)

    async with readers(bench, 1) as opened:
        await one(opened[0])
        return await _measured(bench, lambda: _loops(opened, operations, one), operations, sizes[0])


def _token(start: bytes, *, gzip: bool) -> str:
    """The continue token in the beginning of a chunk."""
    text = zlib.decompressobj(31).decompress(start, HEAD_BYTES) if gzip else start
    before, _, _ = text.partition(b'"items"')
    _, found, rest = before.partition(b'"continue":"')
    return rest[: rest.index(b'"')].decode() if found else ""


async def watch_list(bench: Bench, form: Form, *, objects: int, operations: int) -> Result:
    """Initial events up to their bookmark, each time on a connection that was opened before and is closed then."""
    path, accept = bench.collection + WATCH_LIST, form.watched
    check = await InitialEvents(bench.target, keep=True).open()
    answer = await check.get(path, accept)
    if answer.status != 200:
        raise Incomplete(f"a watch-list answered {answer.status}")
    count = await asyncio.to_thread(forms.events, form, bytes(check.received))
    if count != objects:
        raise Incomplete(f"a watch-list has {count} of {objects} objects")
    opened = [await InitialEvents(bench.target).open() for _ in range(operations)]

    async def run() -> list[float]:
        return [_judged(await each.get(path, accept), answer.size).whole for each in opened]

    return await _measured(bench, run, operations, answer.size)


async def memory_of_all(bench: Bench, *, objects: int) -> Result:
    """Memory that a fresh server holds more after it has listed all slices in every form, twice each."""
    bench.restart()
    await whole(bench, LISTINGS[0], objects)
    before = accounting.resident_mb(bench.pids)
    meter = accounting.Meter(bench.processes)
    meter.start()
    async with readers(bench, 1) as [reader]:
        for _ in range(2):
            for listing in LISTINGS:
                await reader.get(bench.collection, listing.form.accept, gzip=listing.gzip)
    meter.stop()
    figures = {"memory_mb": accounting.resident_mb(bench.pids) - before} | await bench.held()
    note = ", ".join(f"{key} {value:.1f}" for key, value in figures.items())
    return Result(2 * len(LISTINGS), meter.wall, meter.cpu, note=note, figures=figures)
