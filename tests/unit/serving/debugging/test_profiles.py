"""Profiles of the process: CPU time and memory."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from apiserver.filters.state import Request
from apiserver.runtime.workers import PROFILES
from apiserver.serving.debugging import heap, profiler, profiles
from tests.fixtures.connection import Answer
from tests.fixtures.valkey import eventually
from tests.unit.filters.chain import connect

DOCUMENTS = profiles.documents(longest=60)


async def ask(path: str) -> Answer:
    async def serve(request: Request) -> web.StreamResponse:
        return await DOCUMENTS[request.info.path](request)

    return await connect(serve).ask("GET", path)


def busy(until: threading.Event) -> None:
    while not until.is_set():
        sum(range(1000))


def idle(until: threading.Event) -> None:
    until.wait()


def test_profile_has_functions_by_their_cpu_time() -> None:
    over = threading.Event()
    threads = [threading.Thread(target=work, args=(over,)) for work in (busy, idle)]
    for thread in threads:
        thread.start()
    before = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID)
    found = read(gzip.decompress(profiler.cpu_profile(0.5, threading.Event())))
    spent = time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID) - before
    over.set()
    for thread in threads:
        thread.join()
    assert 0 < found["busy"] <= spent
    assert found.get("idle", 0) < found["busy"] / 10


def test_profile_ends_early_when_nobody_waits_for_it() -> None:
    stop = threading.Event()
    stop.set()
    assert read(gzip.decompress(profiler.cpu_profile(1e9, stop))) == {}


async def test_only_one_profile_is_made_at_a_time() -> None:
    first = asyncio.ensure_future(ask("/debug/pprof/profile?seconds=1"))
    await eventually(lambda: PROFILES.full)
    second = await ask("/debug/pprof/profile?seconds=1")
    assert (second.status, second.text) == (500, "Could not enable CPU profiling: cpu profiling already in use\n")
    answer = await first
    assert answer.headers["Content-Type"] == "application/octet-stream"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="profile"'
    assert gzip.decompress(answer.body)


async def test_profile_must_be_shorter_than_a_request() -> None:
    answer = await ask("/debug/pprof/profile?seconds=60")
    assert (answer.status, answer.text) == (400, "profile duration exceeds server's WriteTimeout\n")
    assert answer.headers["X-Go-Pprof"] == "1"


@pytest.mark.parametrize("text", ["", "x", "0", "-3"])
def test_default_duration_is_thirty_seconds(text: str) -> None:
    assert profiles._seconds(text, otherwise=30) == 30


def test_heap_profile_has_what_was_allocated_and_is_still_used() -> None:
    kept: list[bytes] = []

    def keeping() -> None:
        kept.extend(bytes(100_000) for _ in range(20))

    class Holder:
        def dropping(self) -> int:
            return sum(len(bytes(100_000)) for _ in range(20))

    stop = threading.Event()
    profile: list[bytes] = []
    thread = threading.Thread(target=lambda: profile.append(heap.heap_profile(60, stop)))
    thread.start()
    while not tracemalloc.is_tracing():
        time.sleep(0.001)
    keeping()
    Holder().dropping()
    stop.set()
    thread.join()
    assert not tracemalloc.is_tracing()
    found = read(gzip.decompress(profile[0]))
    name = "test_heap_profile_has_what_was_allocated_and_is_still_used"
    assert found[f"{name}.keeping"] >= len(kept) * 100_000
    assert found.get(f"{name}.Holder.dropping", 0) < 100_000


def test_heap_profile_ends_when_it_needs_too_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "MOST_BYTES", 0)
    assert gzip.decompress(heap.heap_profile(1e9, threading.Event()))


async def test_heap_profile_is_served() -> None:
    answer = await ask("/debug/pprof/heap?seconds=1")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="heap"'
    assert gzip.decompress(answer.body)


async def test_index_names_the_profiles() -> None:
    text = (await ask("/debug/pprof/")).text
    assert "href='profile'" in text
    assert "href='heap'" in text
    assert (await ask("/debug/pprof")).headers["Location"] == "/debug/pprof/"


def read(profile: bytes) -> dict[str, int]:
    """Return the last value of each function that a profile names, with that of the functions it calls."""
    samples, lines, names, texts = [], {}, {}, []
    for number, body in members(profile):
        if number == 2:
            assert isinstance(body, bytes)
            found = list(members(body))
            samples.append(([x for n, x in found if n == 1], [x for n, x in found if n == 2][-1]))
        elif number == 4:
            place = dict(members(body))
            lines[place[1]] = dict(members(place[4]))[1]
        elif number == 5:
            function = dict(members(body))
            names[function[1]] = function[2]
        elif number == 6:
            texts.append(body.decode())
    totals: dict[str, int] = {}
    for places, spent in samples:
        for function in {names[lines[place]] for place in places}:
            totals[texts[function]] = totals.get(texts[function], 0) + spent
    return totals


def members(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the members of a protobuf message by number: numbers, and bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        shift = value = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = varint()
            yield key >> 3, message[at : at + size]
            at += size
