"""Waiting for a stop, and not waiting."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from apiserver import server
from apiserver.serving import listener


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
    with listener.listening_socket("127.0.0.1", 0, environ=environ, pid=4711) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
        assert sock.fileno() != 3 or "LISTEN_FDS" not in environ


# ---------------------------------------------------------------------------------------------------------------- the start


class Opening:
    """As much of a server as opens."""

    address = ("127.0.0.1", 1)

    def __init__(self) -> None:
        self.opened, self.alone = asyncio.Event(), asyncio.Event()

    async def left_alone(self, seconds: float) -> None:
        assert seconds == server.HAND_OVER_SECONDS
        await self.alone.wait()

    def open(self) -> None:
        self.opened.set()


def announcing(opening: Opening, complete: asyncio.Future[None], *, shared: bool) -> asyncio.Future[None]:
    return asyncio.ensure_future(server._announce(cast(server.Server, opening), complete, shared=shared))


async def test_a_port_of_our_own_opens_before_everything_is_there() -> None:
    opening, complete = Opening(), asyncio.get_running_loop().create_future()
    announced = announcing(opening, complete, shared=False)
    await opening.opened.wait()
    assert not announced.done()
    complete.set_result(None)
    await announced


async def test_inherited_port_stays_with_the_predecessor_until_all_is_ready() -> None:
    opening, complete = Opening(), asyncio.get_running_loop().create_future()
    announced = announcing(opening, complete, shared=True)
    await asyncio.wait((announced,), timeout=0.05)
    assert not opening.opened.is_set()
    complete.set_result(None)
    await announced
    assert opening.opened.is_set()


async def test_inherited_port_opens_when_nobody_else_accepts_its_connections() -> None:
    opening, complete = Opening(), asyncio.get_running_loop().create_future()
    announced = announcing(opening, complete, shared=True)
    opening.alone.set()
    await opening.opened.wait()
    complete.cancel()
    with pytest.raises(asyncio.CancelledError):
        await announced


async def test_a_start_that_fails_at_once_takes_no_connection() -> None:
    opening, complete = Opening(), asyncio.get_running_loop().create_future()
    complete.set_exception(OSError("no"))
    with pytest.raises(OSError, match="no"):
        await announcing(opening, complete, shared=True)
    assert not opening.opened.is_set()
