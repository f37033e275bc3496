"""Waiting for a stop, and not waiting."""

from __future__ import annotations

import asyncio

import pytest

from apiserver import server


async def test_the_first_signal_begins_and_the_second_hurries() -> None:
    stop = server.Stop()
    stop.signal()
    assert (stop.wanted.is_set(), stop.hurry.is_set()) == (True, False)
    stop.signal()
    assert stop.hurry.is_set()


async def test_waiting_ends_with_the_work_the_time_or_the_second_signal() -> None:
    stop = server.Stop()
    await stop.patiently(asyncio.Event().wait(), seconds=0)
    done = asyncio.Event()
    done.set()
    await stop.patiently(done.wait(), seconds=60)
    waiting = asyncio.ensure_future(stop.patiently(asyncio.Event().wait(), seconds=60))
    stop.signal()
    stop.signal()
    await waiting


async def test_a_step_that_fails_is_logged_and_not_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    async def step() -> None:
        raise RuntimeError("odd")

    await server.Stop().patiently(step(), seconds=60)
    assert "a step of the stop failed" in caplog.text


async def test_work_is_given_up_at_the_first_signal() -> None:
    stop, cancelled = server.Stop(), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.ensure_future(stop.or_done(work()))
    await asyncio.sleep(0)
    stop.signal()
    await waiting
    assert cancelled.is_set()


async def test_an_error_of_the_work_is_the_callers() -> None:
    async def work() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await server.Stop().or_done(work())


@pytest.mark.parametrize(
    "environ", [{}, {"LISTEN_FDS": ""}, {"LISTEN_FDS": "0"}, {"LISTEN_FDS": "1", "LISTEN_PID": "1"}]
)
def test_a_socket_that_is_not_ours_is_not_taken(environ: dict[str, str]) -> None:
    with server.listening_socket("127.0.0.1", 0, environ=environ, pid=4711) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
        assert sock.fileno() != 3 or "LISTEN_FDS" not in environ
