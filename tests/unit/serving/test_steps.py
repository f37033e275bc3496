"""Steps that hold the event loop are measured, and named."""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiserver import metrics
from apiserver.serving import dynamiccertificates, pki, steps, tls
from tests.fixtures.valkey import eventually

LONG = 0.06
LOOPS: dict[str, type[asyncio.AbstractEventLoop]] = {
    "uvloop": steps.Loop,
    "asyncio": type("Loop", (steps.Measured, asyncio.SelectorEventLoop), {}),
}
Run = Callable[[Coroutine[Any, Any, None]], None]


def burn() -> None:
    end = time.thread_time() + LONG
    while time.thread_time() < end:
        pass


class Seen(logging.Handler):
    """Messages of the meter about steps that burn; others take long now and then where the machine is busy."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "cpu_seconds", LONG) >= LONG:
            self.records.append(record)

    @property
    def steps(self) -> list[str]:
        return [record.step for record in self.records]


@pytest.fixture
def seen() -> Iterator[Seen]:
    """Instead of the suite's detector: these tests are above the budget on purpose."""
    logger, handler = logging.getLogger(steps.__name__), Seen()
    before = logger.handlers[:]
    logger.handlers[:] = [handler]
    yield handler
    logger.handlers[:] = before


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main)

    return run


async def soon() -> None:
    await asyncio.sleep(0)


def test_a_task_is_named_with_the_place_where_it_waits_now(seen: Seen, run: Run) -> None:
    async def main() -> None:
        await asyncio.create_task(work(), name="GET /apis")

    async def work() -> None:
        burn()
        await soon()

    run(main())
    (record,) = seen.records
    assert record.step.startswith("GET /apis test_steps.work:")
    assert " > test_steps.soon:" in record.step
    assert LONG <= record.cpu_seconds <= record.wall_seconds + 0.001


def test_a_step_after_an_await_counts_by_itself(seen: Seen, run: Run) -> None:
    async def main() -> None:
        for _ in range(3):
            burn()
            await asyncio.sleep(0.001)

    run(main())
    assert len(seen.records) == 3


def test_callbacks_timers_and_readers_are_steps(seen: Seen, run: Run) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        calls: asyncio.Queue[None] = asyncio.Queue()

        def hold() -> None:
            burn()
            calls.put_nowait(None)

        def readable(ours: socket.socket) -> None:
            loop.remove_reader(ours)
            hold()

        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop.call_soon(hold)
            loop.call_later(0.001, hold)
            loop.call_at(loop.time() + 0.002, hold)
            await asyncio.to_thread(loop.call_soon_threadsafe, hold)
            loop.add_reader(ours, readable, ours)
            theirs.send(b"x")
            for _ in range(5):
                await calls.get()

    run(main())
    assert sorted(name.rpartition(".")[2] for name in seen.steps) == ["hold"] * 4 + ["readable"]


def test_waiting_is_not_work(seen: Seen, run: Run) -> None:
    async def main() -> None:
        time.sleep(LONG)  # noqa: ASYNC251

    run(main())
    assert not seen.records


def test_work_of_a_connection_is_measured_in_steps(seen: Seen, run: Run, tmp_path: Path) -> None:
    """Its handshake, its encryption, and what its protocol makes of it."""

    class Slow(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            burn()

        def data_received(self, data: bytes) -> None:
            burn()

        def connection_lost(self, exc: Exception | None) -> None:
            burn()
            gone.set()

    gone = threading.Event()
    kit = pki.kit(tmp_path, hosts=["localhost"], user="x", groups=[], now=dt.datetime.now(dt.UTC))
    client = ssl.create_default_context(cadata=kit.ca_pem.decode())

    def ask(sock: socket.socket) -> None:
        with client.wrap_socket(sock, server_hostname="localhost") as connection:
            connection.sendall(b"x")

    async def main() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        asking = asyncio.ensure_future(asyncio.to_thread(ask, theirs))
        await tls.accept(ours, dynamiccertificates.Certificates(kit.files).context, Slow)
        await asking
        await eventually(gone.is_set)

    run(main())
    shaking, *others = seen.steps  # the first is the task's, which is named with the place where it waits by then
    assert ".main:" in shaking
    assert [name.rpartition(".")[2] for name in others] == ["_readable", "_lost"]


def test_garbage_collection_counts_for_the_step_and_is_logged(seen: Seen, run: Run) -> None:
    async def main() -> None:
        kept = [{"n": n} for n in range(1000)]
        end = time.thread_time() + LONG
        while time.thread_time() < end:
            gc.collect()
        del kept

    steps.METER.start()
    run(main())
    (record,) = seen.records
    assert 0 < record.collector_seconds <= record.cpu_seconds


def test_garbage_collection_of_another_thread_is_logged_by_itself(
    seen: Seen, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "BUDGET_SECONDS", 0.0)
    caplog.set_level(logging.INFO, logger=steps.__name__)
    steps.METER.start()
    of_all = metrics.COLLECTION_SECONDS.labels("2")
    before, took = of_all.count, of_all.sum
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join()
    told = [record for record in caplog.records if record.msg == steps.COLLECTION_MESSAGE]
    assert of_all.count == before + len(told) > before
    assert {record.__dict__["generation"] for record in told} == {2}
    assert sum(record.__dict__["cpu_seconds"] for record in told) == pytest.approx(of_all.sum - took, abs=0.001)


def test_every_step_is_in_the_metric(seen: Seen, run: Run) -> None:
    def above() -> int:
        return sum(metrics.LOOP_STEP_SECONDS.only.counts[steps_above:])

    steps_above = metrics.LOOP_STEP_SECONDS.only.bounds.index(0.05) + 1

    async def main() -> None:
        burn()
        for _ in range(100):
            await asyncio.sleep(0)

    before, long_before = metrics.LOOP_STEP_SECONDS.only.count, above()
    run(main())
    assert metrics.LOOP_STEP_SECONDS.only.count >= before + 101
    assert above() == long_before + 1


def test_an_error_passes_through(run: Run) -> None:
    async def main() -> None:
        raise LookupError("x")

    with pytest.raises(LookupError):
        run(main())
    with pytest.raises(ValueError, match="x"):
        steps.METER.run(int, "x")
