from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from apiserver.serving import lookups, steps

NAME = "store.example"


class Asyncio(lookups.Lookups, asyncio.SelectorEventLoop):
    """Where there is no uvloop."""


@pytest.fixture(params=[steps.Loop, Asyncio], ids=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], list[str]]:
    """Runs a coroutine on a loop whose lookups wait until they are answered; returns the lines of the log."""
    told: list[str] = []

    class Answered(request.param):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[tuple[str, asyncio.Future[list[Any]]]] = []

        async def getaddrinfo(self, host: str, port: int, **settings: Any) -> list[Any]:
            if host != NAME:
                found: list[Any] = await super().getaddrinfo(host, port, **settings)
                return found
            self.asked.append((host, self.create_future()))
            return await self.asked[-1][1]

    def run(story: Coroutine[Any, Any, None]) -> list[str]:
        with asyncio.Runner(loop_factory=Answered) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
            runner.run(story)
            gc.collect()
        return told

    return run


def asked() -> list[tuple[str, asyncio.Future[list[Any]]]]:
    found: list[tuple[str, asyncio.Future[list[Any]]]] = asyncio.get_running_loop().asked  # type: ignore[attr-defined]
    return found


async def attempt(port: int = 6379) -> asyncio.Task[Any]:
    """To connect, as far as the lookup."""
    task = asyncio.create_task(asyncio.open_connection(NAME, port))
    # The attempt begins; then the lookup, which has a task of its own.
    for _ in range(3):
        await asyncio.sleep(0)
    assert asked()
    return task


def answer(*addresses: tuple[str, int]) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]


def test_concurrent_lookups_of_a_name_share_one_and_waiters_get_its_error(
    run: Callable[[Coroutine[Any, Any, None]], list[str]],
) -> None:
    async def story() -> None:
        given_up = [await attempt() for _ in range(3)]
        waits = await attempt()
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        [(name, lookup)] = asked()
        assert name == NAME
        lookup.set_exception(socket.gaierror(-3, "Temporary failure in name resolution"))
        with pytest.raises(socket.gaierror):
            await waits

    assert run(story()) == []


def test_abandoned_lookup_ends_silently_and_the_next_is_a_new_one(
    run: Callable[[Coroutine[Any, Any, None]], list[str]],
) -> None:
    async def story() -> None:
        task = await attempt()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        asked()[0][1].set_exception(socket.gaierror(-3, "Temporary failure in name resolution"))
        for _ in range(3):
            await asyncio.sleep(0)
        del asked()[:]
        again = await attempt()
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)
        assert len(asked()) == 1
        asked()[0][1].set_result([])

    assert run(story()) == []


def test_every_address_of_a_name_is_tried(run: Callable[[Coroutine[Any, Any, None]], list[str]]) -> None:
    async def story() -> None:
        served = asyncio.Event()

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.set()
            writer.close()

        # Bound and not listening: connections are refused.
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
                del asked()[:]
                task = await attempt()
                asked()[0][1].set_result(answer(closed.getsockname(), server.sockets[0].getsockname()))
                _, writer = await task
                await served.wait()
                writer.close()
            del asked()[:]
            refused = await attempt()
            asked()[0][1].set_result(answer(closed.getsockname()))
            with pytest.raises(ConnectionRefusedError):
                await refused

    assert run(story()) == []
