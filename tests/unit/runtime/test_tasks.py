"""Work that must go on: what becomes of its failures, and how soon it is begun again."""

from __future__ import annotations

import asyncio
import itertools
import pathlib

import pytest

from apiserver.runtime import tasks
from tests.fixtures.failing import failures

_NUMBERS = itertools.count()


class Work:
    """Fails as often as told, and then goes on until it is cancelled. `paused` are the pauses before each new beginning."""

    def __init__(self, *outcomes: Exception | None) -> None:
        self.name = f"test {next(_NUMBERS)}"
        self.outcomes = list(outcomes)
        self.paused: list[float] = []
        self.goes_on = asyncio.Event()

    async def run(self) -> None:
        if self.outcomes:
            outcome = self.outcomes.pop(0)
            if outcome is None:
                return
            raise outcome
        self.goes_on.set()
        await asyncio.Event().wait()

    async def sleep(self, seconds: float) -> None:
        self.paused.append(seconds)

    async def supervised(self, *, passing: tuple[type[Exception], ...] = (), longest_pause: float = 15.0) -> None:
        await tasks.supervised(self.run, name=self.name, passing=passing, longest_pause=longest_pause, sleep=self.sleep)


async def test_a_failure_is_logged_and_counted_and_the_work_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(RuntimeError("odd"), ValueError("odder"))
    task = asyncio.create_task(work.supervised())
    await work.goes_on.wait()
    assert failures(work.name) == 2
    assert [(record.task, record.error) for record in caplog.records] == [(work.name, "odd"), (work.name, "odder")]  # type: ignore[attr-defined]
    assert all(record.exc_info for record in caplog.records)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_pauses_start_at_zero_and_double_up_to_the_longest() -> None:
    work = Work(*[RuntimeError()] * 7)
    task = asyncio.create_task(work.supervised(longest_pause=0.1))
    await work.goes_on.wait()
    assert work.paused == [0.0, 0.01, 0.02, 0.04, 0.08, 0.1, 0.1]
    task.cancel()
    await asyncio.wait((task,))


async def test_a_run_that_lasted_is_a_new_beginning() -> None:
    work = Work(*[RuntimeError()] * 4)
    task = asyncio.create_task(work.supervised(longest_pause=-1))
    await work.goes_on.wait()
    assert work.paused == [0.0] * 4
    task.cancel()
    await asyncio.wait((task,))


async def test_error_that_the_caller_handles_is_no_failure() -> None:
    work = Work(RuntimeError(), LookupError("mine"))
    with pytest.raises(LookupError, match="mine"):
        await work.supervised(passing=(LookupError,))
    assert failures(work.name) == 1


async def test_work_that_is_done_is_not_begun_again() -> None:
    work = Work(None, RuntimeError())
    await work.supervised()
    assert failures(work.name) == 0
    assert len(work.outcomes) == 1


async def test_time_limits_hold_after_a_work_that_failed_beside_others() -> None:
    """A group that ends with an error asks its own task to be cancelled. With Python 3.11.2 a later time limit of that task cancels it."""
    for _ in range(2):
        with pytest.raises(ExceptionGroup):
            await tasks.together([Work(ValueError()).run(), asyncio.Event().wait()])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await asyncio.Event().wait()


def test_groups_of_tasks_have_tasks_of_their_own() -> None:
    """A request or a loop that goes on after a group must not be the group's task. The connector's sessions run apart."""
    package = pathlib.Path(tasks.__file__).parents[1]
    users = {
        str(file.relative_to(package)) for file in package.rglob("*.py") if "asyncio.TaskGroup()" in file.read_text()
    }
    assert users == {"runtime/tasks.py", "storage/primaries/connector.py"}


async def test_work_apart_ends_with_its_caller() -> None:
    ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.create_task(tasks.apart(work()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended.is_set()
