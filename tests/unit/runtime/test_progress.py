"""Progress of a long import or export on a terminal; scripts see none of it."""

from __future__ import annotations

import asyncio
import io

import pytest

from apiserver.runtime.progress import BAR_SECONDS, LINE_SECONDS, Shown
from tests.fixtures.valkey import eventually


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


async def test_terminal_gets_a_one_line_bar_that_is_cleared_at_the_end() -> None:
    out = Terminal()
    async with Shown(out, bar_seconds=0.001) as progress:
        progress.begin("exporting resourceslices", 400)
        progress.advance(100)
        await eventually(lambda: "100 of 400" in out.getvalue())
    assert "\rexporting resourceslices [######..................] 100 of 400 (25%)" in out.getvalue().replace(
        "\x1b[K", ""
    )
    assert "\n" not in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


async def test_elsewhere_a_line_comes_from_time_to_time_also_while_nothing_moves() -> None:
    out = io.StringIO()
    async with Shown(out, line_seconds=0.001) as progress:
        progress.begin("importing resourceslices")
        progress.advance(500, left=1500)
        await eventually(lambda: len(out.getvalue().splitlines()) >= 3)
    lines = out.getvalue().splitlines()
    assert set(lines) == {"importing resourceslices: 500 of 2000 (25%)"}
    assert (LINE_SECONDS, BAR_SECONDS) == (10.0, 0.2)


async def test_a_step_of_unknown_size_counts_only() -> None:
    progress = Shown(io.StringIO())
    progress.begin("looking at resourceslices")
    progress.advance(7)
    assert progress.text() == "looking at resourceslices: 7"
    progress.begin("exporting resourceslices", 0)
    assert progress.text() == "exporting resourceslices: 0 of 0 (100%)"
    progress.advance(3)  # written meanwhile
    assert progress.text() == "exporting resourceslices: 3 of 3 (100%)"


async def test_a_quick_command_shows_nothing() -> None:
    out = io.StringIO()
    async with Shown(out) as progress:
        progress.begin("importing resourceslices", 3)
        progress.advance(3)
        await asyncio.sleep(0)
    assert out.getvalue() == ""


@pytest.mark.parametrize("closed", [Closed()])
async def test_work_goes_on_when_no_reader_takes_the_progress(closed: Closed) -> None:
    async with Shown(closed, line_seconds=0.001) as progress:
        progress.begin("importing", 3)
        for _ in range(10):
            await asyncio.sleep(0.001)
        assert progress._task is not None
        assert not progress._task.done()
