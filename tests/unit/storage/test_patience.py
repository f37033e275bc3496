from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from apiserver.storage import patience
from apiserver.storage.options import StoreOptions
from apiserver.storage.pipeline import Rejected
from tests.fixtures.valkey import Server, eventually

NAME = "store.example"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "PAUSE_SECONDS", 0.0)


def named(port: int = 6379) -> StoreOptions:
    return StoreOptions(url=f"redis://{NAME}:{port}/0", connect_seconds=0.2)


def looked_up(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Answers of DNS for the name, one after the other; the last one for ever. None: nothing."""
    left = list(answers)

    async def getaddrinfo(*_: Any, **__: Any) -> list[Any]:
        answer = left.pop(0) if len(left) > 1 else left[0]
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", answer)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_starting_store_is_waited_for_and_each_reason_logged_once(own_server: Server) -> None:
    told: list[str] = []
    own_server.stop()
    waiting = asyncio.create_task(patience.wait(StoreOptions(url=own_server.url), seconds=60, tell=told.append))
    await eventually(lambda: told)
    await asyncio.to_thread(own_server.start)
    await waiting
    assert told[0].startswith("waiting: no connection to the store: ")
    assert len(set(told)) == len(told)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, f"DNS does not answer for {NAME}: the cluster needs a DNS"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), f"DNS does not answer for {NAME}"),
        (socket.gaierror(socket.EAI_NONAME, "Name not known"), f"DNS has no address for {NAME}: that of a headless"),
    ],
    ids=["silence", "again", "unknown"],
)
async def test_dns_errors_of_a_name_are_reported(
    monkeypatch: pytest.MonkeyPatch, answer: Exception | None, words: str
) -> None:
    looked_up(monkeypatch, answer)
    with pytest.raises(Rejected, match=r"the store did not answer within 0 s: no connection to the store.*; " + words):
        await patience.wait(named(), seconds=0, tell=print)


async def test_a_store_that_refuses_connections_has_a_name_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        looked_up(monkeypatch, closed.getsockname())
        with pytest.raises(Rejected, match=f"Connect call failed.*; DNS knows {NAME}: its pod may be starting"):
            await patience.wait(named(closed.getsockname()[1]), seconds=0, tell=print)


async def test_address_has_no_dns_error() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = StoreOptions(url=f"redis://127.0.0.1:{closed.getsockname()[1]}/0", connect_seconds=0.2)
        with pytest.raises(Rejected, match="Connect call failed") as raised:
            await patience.wait(address, seconds=0, tell=print)
    assert "DNS" not in str(raised.value)


async def test_a_wrong_password_is_not_waited_for(shared_server: Server) -> None:
    options = StoreOptions(url=f"unix://{shared_server.socket}", username="nobody", password="wrong")
    with pytest.raises(Rejected, match=r"^no connection to the store: invalid username-password pair"):
        await patience.wait(options, seconds=5, tell=print)


async def test_a_store_that_accepts_and_says_nothing_is_one_that_does_not_answer(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(tmp_path / "s"))
        silent.listen()
        options = StoreOptions(url=f"unix://{tmp_path / 's'}", connect_seconds=0.2)
        with pytest.raises(Rejected, match="the store did not answer within 0 s: no "):
            await patience.wait(options, seconds=0, tell=print)
