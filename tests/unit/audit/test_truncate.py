"""Large events lose their objects, larger ones are lost, and batches are divided."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from apiserver.apimachinery.request import Level
from apiserver.audit.event import Event
from apiserver.audit.truncate import Truncating
from apiserver.config.auditing import Truncate
from tests.unit.audit.sinks import Recording, event, events, lost


class Keeping(Recording):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Event] = []

    async def process(self, events: Sequence[Event]) -> bool:
        self.kept += events
        return await super().process(events)


def truncating(delegate: Recording, *, event_size: int, batch_size: int = 1 << 20) -> Truncating:
    return Truncating(delegate, Truncate(enabled=True, max_batch_size=batch_size, max_event_size=event_size))


def size(each: Event) -> int:
    return len(b"".join(each.line())) + len("\n")


async def test_oversized_event_is_recorded_without_its_objects_and_says_so() -> None:
    delegate = Keeping()
    large = event("large", request=[b"1" * 500], response=[b"2" * 500], annotations={"b": "c"})
    backend = truncating(delegate, event_size=900)
    assert await backend.process([*events(1), large])
    small, cut = (json.loads(b"".join(each.line())) for each in delegate.kept)
    assert small["auditID"] == "1"
    assert "annotations" not in small
    assert cut["annotations"] == {"audit.k8s.io/truncated": "true", "b": "c"}
    assert not {"requestObject", "responseObject"} & set(cut)


async def test_the_line_end_counts() -> None:
    whole = event(response=[b"2" * 500])
    for limit, objects in ((size(whole), True), (size(whole) - 1, False)):
        delegate = Keeping()
        await truncating(delegate, event_size=limit).process([whole])
        assert bool(delegate.kept[0].response_object) is objects


@pytest.mark.parametrize("level", [Level.METADATA, Level.REQUEST])
async def test_event_that_is_still_too_large_is_dropped_without_a_refusal(
    level: Level, caplog: pytest.LogCaptureFixture
) -> None:
    delegate, before = Recording(), lost("truncate")
    large = event("large", uri="/" + "x" * 20_000, level=level)
    assert await truncating(delegate, event_size=10_000).process([large, *events("small")])
    assert delegate.batches == [["small"]]
    assert lost("truncate") == before + 1
    assert (
        "Error in audit plugin 'truncate' affecting 1 audit events: event is too large even after truncating\n"
        in caplog.text
    )


async def test_a_batch_that_is_too_large_is_divided() -> None:
    delegate = Recording()
    one = size(event("0"))
    backend = truncating(delegate, event_size=one, batch_size=3 * one)
    assert await backend.process(events(*range(7)))
    assert delegate.batches == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


async def test_result_of_one_part_counts_for_the_whole() -> None:
    delegate = Recording()
    delegate.answer = False
    one = size(event("0"))
    assert not await truncating(delegate, event_size=one, batch_size=one).process(events(*range(2)))
    assert delegate.batches == [["0"], ["1"]]


async def test_it_starts_and_stops_what_is_behind_it() -> None:
    delegate = Recording()
    backend = truncating(delegate, event_size=1000)
    backend.start()
    await backend.stop()
    assert delegate.calls == ["start", "stop"]


async def test_a_large_event_holds_up_no_step_of_the_loop() -> None:
    """The budget is the test session's."""
    delegate = Keeping()
    large = event(uri="/" + "é<" * 400_000, response=[b"1" * (1 << 19)] * 60)
    assert await truncating(delegate, event_size=64 << 20).process([large])
    assert delegate.kept == [large]
