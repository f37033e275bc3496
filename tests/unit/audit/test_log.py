"""Events as lines of a file: whole, in order, written by a thread; and disks that fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from apiserver.audit import failures
from apiserver.audit import log as logs
from apiserver.audit.event import Event
from apiserver.audit.log import Log, json_line, legacy_line
from apiserver.audit.rotation import FileError, Keeping, Plain, Rotated, Stdout, Target
from tests.unit.audit.sinks import event, events, lost, until


@asynccontextmanager
async def opened(target: Target, lines: logs.Lines = json_line) -> AsyncIterator[Log]:
    log = Log(target, lines)
    log.start()
    yield log
    await log.stop()


class Slow(Plain):
    """A file whose disk waits for `free`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.free = threading.Event()
        self.groups = 0

    def descriptor(self, size: int) -> int:
        self.groups += 1
        self.free.wait()
        return super().descriptor(size)


class Broken(Plain):
    """A file that cannot be had while there is a `problem`."""

    problem = ""

    def descriptor(self, size: int) -> int:
        if self.problem:
            raise FileError(self.problem)
        return super().descriptor(size)


def read(path: Path) -> list[str]:
    return [json.loads(line)["auditID"] for line in path.read_text().splitlines()]


async def test_an_event_is_in_the_file_when_process_returns(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with opened(Plain(path)) as log:
        assert await log.process(events(1))
        assert read(path) == ["1"]
        assert await log.process(events(2, 3))
    assert read(path) == ["1", "2", "3"]
    line = path.read_text().splitlines()[0]
    assert line.startswith('{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"1",')


async def test_the_legacy_form_is_a_line_of_text(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    async with opened(Plain(path), legacy_line) as log:
        assert await log.process([event("x", uri="/a\nb é", response=[b"{}"])])
    assert path.read_text() == (
        '2023-11-14T22:13:20Z AUDIT: id="x" stage="ResponseComplete" ip="10.0.0.1" method="list" user="jane" '
        'groups="\\"devs\\",\\"system:authenticated\\"" as="<self>" asgroups="<lookup>" user-agent="kubectl" namespace="<none>" '
        'uri="/a\\nb é" response="200"\n'
    )


async def test_a_dash_is_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    async with opened(Stdout()) as log:
        assert await log.process(events("out"))
    assert json.loads(capfd.readouterr().out)["auditID"] == "out"
    os.write(1, b"still open\n")
    assert capfd.readouterr().out == "still open\n"


async def test_events_during_a_write_go_with_the_next_write(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "audit.log")
    async with opened(slow) as log:
        first = asyncio.create_task(log.process(events("first")))
        await until(lambda: slow.groups)
        others = [asyncio.create_task(log.process(events(n))) for n in range(50)]
        await asyncio.sleep(0)
        slow.free.set()
        assert await asyncio.gather(first, *others) == [True] * 51
        assert slow.groups == 2
    assert read(tmp_path / "audit.log") == ["first", *map(str, range(50))]


async def test_an_event_of_many_pieces_is_written_whole(tmp_path: Path) -> None:
    pieces = [b"[", *(b"%d," % n for n in range(5000)), b"5000]"]
    async with opened(Plain(tmp_path / "audit.log")) as log:
        assert await log.process([event(response=pieces), *events("after")])
    first, second = map(json.loads, (tmp_path / "audit.log").read_text().splitlines())
    assert first["responseObject"] == list(range(5001))
    assert second["auditID"] == "after"


async def test_a_large_event_holds_up_no_step_of_the_loop(tmp_path: Path) -> None:
    """The budget is the test session's."""
    long = event(uri="/" + "<é" * 250_000, response=[b'"', *[b"x" * (1 << 19)] * 40, b'"'])
    async with opened(Plain(tmp_path / "audit.log")) as log:
        assert await log.process([long])
    assert (tmp_path / "audit.log").stat().st_size > 20 << 20


async def test_lines_are_divided_among_files_as_if_each_were_written_alone(tmp_path: Path) -> None:
    size = sum(map(len, json_line(event("00"))))
    keeping = Keeping(size=3 * size, days=0, backups=0, compress=False)
    async with opened(Rotated(tmp_path / "audit.log", keeping)) as log:
        assert await log.process(events(*(f"{n:02}" for n in range(10))))
    files = sorted(await asyncio.to_thread(lambda: list(tmp_path.iterdir())))
    assert [read(file) for file in files] == [
        ["00", "01", "02"], ["03", "04", "05"], ["06", "07", "08"], ["09"],
    ]  # fmt: skip
    assert files[-1].name == "audit.log"


async def test_an_event_longer_than_a_file_is_lost_and_its_neighbours_are_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keeping = Keeping(size=2000, days=0, backups=0, compress=False)
    before = lost("log")
    async with opened(Rotated(tmp_path / "audit.log", keeping)) as log:
        assert not await log.process([*events(1), event("long", response=[b"1" * 3000]), *events(2)])
    assert read(tmp_path / "audit.log") == ["1", "2"]
    assert lost("log") == before + 1
    assert re.search(
        r"Error in audit plugin 'log' affecting 1 audit events: write length 3\d\d\d exceeds maximum file size 2000\nImpacted events:\n"
        r"2023-11-14T22:13:20Z AUDIT: id=\"long\" ",
        caplog.text,
    )


async def test_full_disk_stops_nothing_and_is_logged_once_for_each_write(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keeping = Keeping(size=1 << 20, days=0, backups=0, compress=False)
    before = lost("log")
    async with opened(Rotated(Path("/dev/full"), keeping)) as log:
        assert not await log.process(events(*range(5)))
        assert not await log.process(events("again"))
    assert lost("log") == before + 6
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(
        "Error in audit plugin 'log' affecting 5 audit events: write /dev/full: no space left on device\n"
    )
    assert first.count("AUDIT: ") == 3
    assert first.endswith("… and 2 more\n")
    assert "affecting 1 audit events" in second


async def test_the_next_write_tries_again(tmp_path: Path) -> None:
    broken = Broken(tmp_path / "audit.log")
    async with opened(broken) as log:
        broken.problem = "open x: permission denied"
        assert not await log.process(events(1))
        broken.problem = ""
        assert await log.process(events(2))
    assert read(tmp_path / "audit.log") == ["2"]


async def test_after_half_a_line_the_next_one_stands_on_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    real, room = os.writev, [700]

    def writev(fd: int, pieces: list[bytes]) -> int:
        if not room:
            return real(fd, pieces)
        left = room.pop()
        if not left:
            raise OSError(28, os.strerror(28))
        room.append(0)
        return os.write(fd, b"".join(pieces)[:left])

    monkeypatch.setattr(os, "writev", writev)
    one = sum(map(len, json_line(event("1"))))
    assert one < 700 < 2 * one
    async with opened(Plain(path)) as log:
        assert not await log.process(events(1, 2, 3))
        assert await log.process(events(4))
        assert await log.process(events(5))
    lines = path.read_text().splitlines()
    assert [json.loads(line)["auditID"] for line in (lines[0], *lines[2:])] == ["1", "4", "5"]


async def test_nonblocking_pipe_is_waited_for() -> None:
    there, here = os.pipe()
    os.set_blocking(here, False)

    class Pipe(Stdout):
        def descriptor(self, _size: int) -> int:
            return here

    reading = asyncio.create_task(asyncio.to_thread(lambda: b"".join(iter(lambda: os.read(there, 1 << 16), b""))))
    async with opened(Pipe()) as log:
        assert await log.process([event(response=[b"1" * (1 << 20)])])
    os.close(here)
    assert len(await reading) > 1 << 20
    os.close(there)


async def test_caller_waits_until_the_buffer_has_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "WAITING_BYTES", 10_000)
    slow = Slow(tmp_path / "audit.log")
    async with opened(slow) as log:
        coming = [asyncio.create_task(log.process([event(str(n), response=[b"1" * 4000])])) for n in range(6)]
        await until(lambda: slow.groups)
        assert not any(each.done() for each in coming)
        slow.free.set()
        assert await asyncio.gather(*coming) == [True] * 6
        assert slow.groups >= 3
    assert read(tmp_path / "audit.log") == ["0", "1", "2", "3", "4", "5"]


async def test_cancelled_caller_loses_no_event_that_was_taken(tmp_path: Path) -> None:
    slow = Slow(tmp_path / "audit.log")
    async with opened(slow) as log:
        gone = asyncio.create_task(log.process(events("gone")))
        await until(lambda: slow.groups)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        slow.free.set()
        assert await log.process(events("next"))
    assert read(tmp_path / "audit.log") == ["gone", "next"]


async def test_caller_cancelled_before_the_buffer_had_space_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "WAITING_BYTES", 1)
    slow, before = Slow(tmp_path / "audit.log"), lost("log")
    async with opened(slow) as log:
        first, gone, last = [asyncio.create_task(log.process(events(n))) for n in ("first", "gone", "last")]
        await until(lambda: slow.groups)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        slow.free.set()
        assert await first
        assert await last
    assert lost("log") == before + 1
    assert read(tmp_path / "audit.log") == ["first", "last"]


async def test_stop_writes_what_is_left_and_nothing_comes_afterwards(tmp_path: Path) -> None:
    slow, before = Slow(tmp_path / "audit.log"), lost("log")
    log = Log(slow, json_line)
    log.start()
    coming = [asyncio.create_task(log.process(events(n))) for n in range(20)]
    await until(lambda: slow.groups)
    stopping = asyncio.create_task(log.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    slow.free.set()
    await stopping
    assert await asyncio.gather(*coming) == [True] * 20
    assert len(read(tmp_path / "audit.log")) == 20
    assert not await log.process(events("late"))
    assert lost("log") == before + 1


async def test_a_stop_that_is_broken_off_counts_what_a_stuck_disk_has_not_taken(tmp_path: Path) -> None:
    slow, before = Slow(tmp_path / "audit.log"), lost("log")
    log = Log(slow, json_line)
    log.start()
    coming = asyncio.create_task(log.process(events(1, 2)))
    await until(lambda: slow.groups)
    stopping = asyncio.create_task(log.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert lost("log") == before + 2
    slow.free.set()
    await coming


async def test_a_log_that_was_never_started_stops() -> None:
    await Log(Stdout(), json_line).stop()


async def test_an_event_that_cannot_be_written_down_stops_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lines(each: Event) -> Sequence[bytes]:
        if each.audit_id == "1":
            raise ValueError("no such thing")
        return json_line(each)

    async with opened(Plain(tmp_path / "audit.log"), lines) as log:
        assert not await log.process(events(1, 2))
    assert read(tmp_path / "audit.log") == ["2"]
    assert "affecting 1 audit events: ValueError: no such thing" in caplog.text


def test_the_log_line_of_a_loss_is_short_however_long_the_events_are(caplog: pytest.LogCaptureFixture) -> None:
    failures.failed("log", "oh", [event(uri="/" + "x" * 100_000)] * 1000)
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert len(record.getMessage()) < 5000
