"""Watchers: what a delivery costs, in each form, and what the same bytes cost that are only written; how soon an event comes, and how
soon it would come from the store alone."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from apiserver.serving import pki
from apiserver.storage import functions, pipeline
from apiserver.storage.functions import Commands, Mutation
from apiserver.storage.operations import administration
from apiserver.storage.operations.embedded import Embedded
from apiserver.storage.options import StoreOptions
from apiserver.watchcache import keys
from bench import accounting, client
from bench.client import Seen, Target, WatchProtocol
from bench.forms import Form
from bench.workloads import Bench, Result, slice_body, until

WATCH = "watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
MARK = b"MODIFIED"
RESOURCE = "resource.sluice.dev/resourceslices"
DEADLINE_MS = 60_000


def marks(tail: bytes, data: bytes) -> int:
    """Events that end in what came, which lies behind the tail: those that stood in the tail were counted."""
    return (tail[1 - len(MARK) :] + data).count(MARK)


@contextlib.asynccontextmanager
async def watching(target: Target, count: int, seen: Seen, accept: str) -> AsyncIterator[list[WatchProtocol]]:
    protocols = [await client.watcher(target, WATCH, seen, accept=accept) for _ in range(count)]
    try:
        yield protocols
    finally:
        for protocol in protocols:
            protocol.transport.close()


ROUNDS = 5
"""Turns that ours and the bare thing take: the machine is half as fast from one second to the next."""


async def fan_out(bench: Bench, form: Form, *, watchers: int, writes: int, rate: float) -> Result:
    """Every write goes to every watcher. CPU per delivery is net of what the same writes cost without watchers; for a server of ours
    also in times of what it costs to write the same bytes to as many connections, in turn."""
    alone = await bench.writes(writes, rate, "a")
    count, frame = 0, b""

    def seen(tail: bytes, data: bytes) -> None:
        nonlocal count, frame
        count += marks(tail, data)
        if data.count(MARK) == 1 and data.endswith(b"\r\n") and tail.endswith(b"\r\n"):
            frame = data

    bare, bare_cpu, wall = Bare(watchers), 0.0, 0.0
    used = dict.fromkeys(bench.processes, 0.0)
    async with (
        watching(bench.target, watchers, seen, form.watched) as protocols,
        bare.opened() if bench.ours else contextlib.nullcontext(),
    ):
        for number in range(ROUNDS):
            meter, due = accounting.Meter(bench.processes), count + writes // ROUNDS * watchers
            meter.start()
            await bench.writes(writes // ROUNDS, rate, f"b{number}")
            await until(lambda due=due: count >= due or any(p.lost for p in protocols))  # type: ignore[misc]
            meter.stop()
            wall += meter.wall
            used = {name: used[name] + cpu for name, cpu in meter.shares.items()}
            if bench.ours:
                bare_cpu += await bare.write(frame, writes=writes // ROUNDS, rate=rate)
        memory = accounting.resident_mb(bench.pids)
        lost = sum(p.lost for p in protocols)
    shares = {name: cpu - alone.shares[name] * (writes // ROUNDS * ROUNDS) / writes for name, cpu in used.items()}
    net = sum(shares.values())
    figures = {"cpu_us": net / count * 1e6, "lost": float(lost), "memory_mb": memory, "bytes": float(len(frame))}
    note = f"{figures['cpu_us']:.1f} µs each, {lost} watchers lost, {memory:.0f} MB"
    if bench.ours:
        each = bare_cpu / bare.count
        figures |= {"bare_us": each * 1e6, "of_bare": net / count / each}
        note += f", {figures['of_bare']:.2f} of a bare write ({each * 1e6:.1f} µs, {len(frame)} bytes)"
    return Result(count, wall, sum(used.values()), note=note, net=net, figures=figures, shares=shares)


class Bare:
    """A process that only writes what it is sent to every one of its connections ([bare.py](bare.py)). `count`: what came there."""

    def __init__(self, watchers: int) -> None:
        self.count = 0
        self._watchers = watchers

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            kit = pki.kit(
                Path(folder), hosts=["localhost", "127.0.0.1"], user="nobody", groups=[], now=dt.datetime.now(dt.UTC)
            )
            pair = (str(kit.files.cert), str(kit.files.key))
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "bench.bare", *pair, stdout=asyncio.subprocess.PIPE
            )
            try:
                assert process.stdout is not None
                target = Target.local(int(await process.stdout.readline()), kit.ca_pem)
                self._connection, self._pid = await client.Connection(target).open(), process.pid
                async with watching(target, self._watchers, self._seen, client.JSON):
                    yield
                self._connection.close()
            finally:
                process.kill()
                await process.wait()

    def _seen(self, tail: bytes, data: bytes) -> None:
        self.count += marks(tail, data)

    async def write(self, frame: bytes, *, writes: int, rate: float) -> float:
        """CPU seconds that it takes."""
        if not frame:
            raise RuntimeError("no event came in one piece")
        meter, due = accounting.Meter({"bare": [self._pid]}), self.count + writes * self._watchers
        meter.start()
        began = time.perf_counter()
        for i in range(writes):
            await asyncio.sleep(max(0.0, began + i / rate - time.perf_counter()))
            await self._connection.request("POST", "/", frame)
        await until(lambda: self.count >= due)
        meter.stop()
        return meter.cpu


async def propagation(bench: Bench, *, writes: int, rate: float) -> Result:
    """From the start of a write to its event at one watcher, writes at a fixed rate; for a server of ours also in times of what the
    store alone takes."""
    result = await bench.propagation(writes=writes, rate=rate)
    if bench.ours:
        bare = 1000 * accounting.percentile(await round_trips(writes=writes, rate=rate), 0.5)
        result.figures |= {"bare_ms": bare, "of_bare": 1000 * accounting.percentile(result.latencies, 0.5) / bare}
        result.note += f", {result.figures['of_bare']:.2f} of the store alone ({bare:.2f} ms)"
    return result


async def round_trips(*, writes: int, rate: float) -> list[float]:
    """Seconds from the start of a change by the store's function to the moment when a blocking XREAD on another connection has it:
    the store as `sluice dev` runs it, an object as large as the slices."""
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        embedded = Embedded(Path(folder))
        url = await embedded.start()
        try:
            await administration.init(StoreOptions(url=embedded.admin_url), [RESOURCE])
            options = StoreOptions(url=url)
            writer, reader = [await pipeline.Connection.open(options, name) for name in ("writer", "reader")]
            try:
                return await _round_trips(writer, reader, writes=writes, rate=rate)
            finally:
                for connection in (writer, reader):
                    await connection.close()
        finally:
            await embedded.stop()


async def _round_trips(
    writer: pipeline.Connection, reader: pipeline.Connection, *, writes: int, rate: float
) -> list[float]:
    commands, value = Commands(RESOURCE), slice_body("resource.sluice.dev", "s", "node-000000")
    head = functions.head(await writer.call(commands.head))
    deadline, last = b"%d" % (head.now_ms + 10 * DEADLINE_MS), keys.stream_id(head.last).encode()
    started, arrived = list[float](), list[float]()
    expected, began = b"-", time.perf_counter()
    for number in range(writes):
        await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
        came = reader.call(pipeline.pack("XREAD", "BLOCK", DEADLINE_MS, "STREAMS", commands.log, last))
        came.add_done_callback(lambda _: arrived.append(time.perf_counter()))
        await asyncio.sleep(0)
        change = Mutation(b"s", expected, b"bench.%d" % number, b"uid", value)
        started.append(time.perf_counter())
        answer = await writer.call(commands.change(b"%d" % head.epoch, deadline, change))
        if answer[0] != b"OK":
            raise RuntimeError(f"the store answered {answer[:2]}")
        [[_, [[last, _]]]] = await came
        expected = last
    return [end - begin for begin, end in zip(started, arrived, strict=True)]
