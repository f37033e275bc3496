"""Batches: how large, how soon, how fast, how many at once; and the fate of events when the buffer is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from apiserver.audit import buffered as buffers
from apiserver.audit.buffered import Bucket, Buffered
from apiserver.audit.event import Event
from apiserver.config.auditing import Batch
from tests.unit.audit.sinks import Recording, event, events, lost, until

LONG = 3600.0


def batch(**settings: Any) -> Batch:
    plain: dict[str, Any] = {
        "buffer_size": 100, "max_size": 1, "max_wait": 0.0, "throttle_enable": False, "throttle_qps": 0.0, "throttle_burst": 0,
    }  # fmt: skip
    return Batch(**(plain | settings))


@asynccontextmanager
async def opened(delegate: Recording, *, concurrent: int = 1, **settings: Any) -> AsyncIterator[Buffered]:
    buffered = Buffered(delegate, batch(**settings), concurrent=concurrent)
    buffered.start()
    yield buffered
    delegate.open.set()
    await buffered.stop()


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_no_request_waits_for_what_becomes_of_its_events() -> None:
    delegate = Recording()
    delegate.open.clear()
    delegate.answer = False
    async with opened(delegate) as buffered:
        for n in range(3):
            assert await buffered.process(events(n))
    assert delegate.batches == [["0"], ["1"], ["2"]]
    assert delegate.calls == ["start", "stop"]


async def test_a_full_batch_goes_at_once_and_the_rest_when_its_time_has_come() -> None:
    delegate = Recording()
    async with opened(delegate, max_size=3, max_wait=LONG) as buffered:
        await buffered.process(events(*range(7)))
        await until(lambda: len(delegate.batches) == 2)
        await turns()
        assert delegate.batches == [["0", "1", "2"], ["3", "4", "5"]]
    assert delegate.batches[2:] == [["6"]]


async def test_incomplete_batch_is_sent_after_the_longest_wait() -> None:
    delegate = Recording()
    async with opened(delegate, max_size=400, max_wait=0.005) as buffered:
        await buffered.process(events(1))
        await until(lambda: delegate.batches)
        await buffered.process(events(2, 3))
        await until(lambda: len(delegate.batches) == 2)
    assert delegate.batches == [["1"], ["2", "3"]]


async def test_without_a_wait_a_batch_is_what_there_is() -> None:
    delegate = Recording()
    async with opened(delegate, max_size=400) as buffered:
        await buffered.process(events(1, 2, 3))
        await until(lambda: delegate.batches)
    assert delegate.batches == [["1", "2", "3"]]


async def test_events_beyond_a_full_buffer_are_dropped_with_upstreams_message(caplog: pytest.LogCaptureFixture) -> None:
    delegate, before = Recording(), lost("buffered")
    delegate.open.clear()
    async with opened(delegate, buffer_size=3) as buffered:
        await buffered.process(events("sent"))
        await until(lambda: delegate.batches)
        await buffered.process(events("next"))  # it waits outside of the buffer for its turn
        await turns()
        assert await buffered.process(events(1, 2, 3, 4, 5))
        assert lost("buffered") == before + 2
    assert delegate.batches == [["sent"], ["next"], ["1"], ["2"], ["3"]]
    assert (
        "Error in audit plugin 'buffered' affecting 2 audit events: audit buffer queue blocked\nImpacted events:\n"
        in caplog.text
    )


async def test_a_buffer_is_full_of_a_few_events_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "BUFFER_BYTES", 100_000)
    delegate, before = Recording(), lost("buffered")
    delegate.open.clear()
    large = [event(str(n), response=[b"1" * 40_000]) for n in range(3)]
    async with opened(delegate) as buffered:
        await buffered.process(large[:1])
        await until(lambda: delegate.batches)
        await buffered.process(large[1:])
        assert lost("buffered") == before + 1, "what is on its way counts"
        delegate.open.set()
        await until(lambda: len(delegate.batches) == 2 and not delegate.inside)
        await buffered.process([event("huge", response=[b"1" * 1_000_000])])
        await until(lambda: len(delegate.batches) == 3)
    assert delegate.batches == [["0"], ["1"], ["huge"]]
    assert lost("buffered") == before + 1


async def test_so_many_batches_are_with_the_delegate_at_once() -> None:
    delegate = Recording()
    delegate.open.clear()
    async with opened(delegate, concurrent=3, max_size=2, max_wait=LONG) as buffered:
        await buffered.process(events(*range(12)))
        await until(lambda: delegate.inside == 3)
        await turns()
        assert delegate.inside == 3
        delegate.open.set()
        await until(lambda: len(delegate.batches) == 6)


async def test_one_at_a_time_keeps_the_order() -> None:
    delegate = Recording()
    delegate.open.clear()
    async with opened(delegate) as buffered:
        await buffered.process(events(*range(10)))
        await until(lambda: delegate.inside)
        await turns()
        assert delegate.inside == 1
    assert [only for (only,) in delegate.batches] == list(map(str, range(10)))


def test_a_bucket_gives_a_burst_and_then_so_many_in_a_second() -> None:
    now = 100.0
    bucket = Bucket(10, 3, clock=lambda: now)
    assert [bucket.take() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    now += 0.25
    assert bucket.take() == pytest.approx(0.05)
    now += 1000
    assert [bucket.take() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


async def test_batches_are_throttled_when_that_is_enabled() -> None:
    delegate, before = Recording(), lost("buffered")
    settings = batch(throttle_enable=True, throttle_qps=1e-6, throttle_burst=2)
    buffered = Buffered(delegate, settings, concurrent=1)
    buffered.start()
    await buffered.process(events(*range(5)))
    await until(lambda: len(delegate.batches) == 2)
    await turns()
    assert delegate.batches == [["0"], ["1"]]
    stopping = asyncio.create_task(buffered.stop())
    await turns()
    assert not stopping.done()
    stopping.cancel()
    await asyncio.wait((stopping,))
    assert lost("buffered") == before + 3, "who has no time for them is told"
    assert delegate.calls == ["start", "stop"]


async def test_infinite_rate_is_no_limit() -> None:
    delegate = Recording()
    async with opened(delegate, throttle_enable=True, throttle_qps=float("inf"), throttle_burst=1) as buffered:
        await buffered.process(events(*range(5)))
        await until(lambda: len(delegate.batches) == 5)


async def test_stop_sends_a_full_buffer_and_nothing_comes_afterwards(caplog: pytest.LogCaptureFixture) -> None:
    delegate, before = Recording(), lost("buffered")
    delegate.open.clear()
    buffered = Buffered(delegate, batch(buffer_size=1000, max_size=100, max_wait=LONG), concurrent=2)
    buffered.start()
    await buffered.process(events(*range(1000)))
    stopping = asyncio.create_task(buffered.stop())
    await until(lambda: delegate.inside == 2)
    assert await buffered.process(events("late", "later"))
    assert lost("buffered") == before + 2
    assert "affecting 2 audit events: audit backend shut down\n" in caplog.text
    delegate.open.set()
    await stopping
    assert [each for sent in delegate.batches for each in sent] == list(map(str, range(1000)))
    assert delegate.calls == ["start", "stop"]


async def test_a_delegate_that_fails_is_counted_and_the_next_batch_goes(caplog: pytest.LogCaptureFixture) -> None:
    class Failing(Recording):
        async def process(self, events: Sequence[Event]) -> bool:
            await super().process(events)
            if len(self.batches) == 1:
                raise ValueError("a bug")
            return True

    delegate, before = Failing(), lost("buffered")
    async with opened(delegate) as buffered:
        await buffered.process(events(1, 2))
        await until(lambda: len(delegate.batches) == 2)
    assert lost("buffered") == before + 1
    assert "affecting 1 audit events: ValueError: a bug" in caplog.text


async def test_a_buffer_that_was_never_started_stops() -> None:
    await Buffered(Recording(), batch(), concurrent=1).stop()
