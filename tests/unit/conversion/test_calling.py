"""Calls of conversion webhooks over real connections. `tests/e2e/test_conversion_webhooks.py` compares answers with kube-apiserver."""

from __future__ import annotations

import asyncio
import json
import pathlib
import threading

import pytest

from apiserver.admission.webhooks.calls import Caller, CallFailed
from apiserver.conversion import calling
from tests.fixtures.conversion_hook import Convert, Hook, Object, converted
from tests.fixtures.valkey import eventually

REVIEW = json.dumps(
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "1", "desiredAPIVersion": "lamps.test/v2", "objects": []},
    }
).encode()


async def asked(hook: Hook) -> bytes:
    caller = Caller()
    try:
        return await calling.asking(caller)(hook.conversion()["webhook"]["clientConfig"], REVIEW)
    finally:
        await caller.close()
        await eventually(
            lambda: not connections_to(hook.port)
        )  # TLS takes some turns of the loop, and as many of the other end


def connections_to(port: int) -> list[str]:
    """The sockets of this machine that are connected to a port, as Linux lists them. A closed one has no inode."""
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [row[1] for row in rows if row[2].endswith(f":{port:04X}") and row[9] != "0"]


def test_webhook_gets_the_timeout_of_kube_apiserver(tmp_path: pathlib.Path) -> None:
    with Hook(tmp_path, lambda obj, target: obj) as hook:
        answer = json.loads(asyncio.run(asked(hook)))
        assert answer["response"]["result"] == {"status": "Success"}
        assert hook.requests[0][0] == "/convert?timeout=30s"


def test_webhook_that_does_not_answer_in_time_fails_the_request(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "SECONDS", 1.0)
    over = threading.Event()

    def late(review: Object, convert: Convert) -> Object:
        over.wait(60)
        return converted(review, convert)

    async def failing(hook: Hook) -> None:
        asyncio.get_running_loop().call_later(1.5, over.set)
        await asked(hook)

    with Hook(tmp_path, lambda obj, target: obj) as hook:
        hook.answer = late
        with pytest.raises(CallFailed) as failed:
            asyncio.run(failing(hook))
    assert str(failed.value) == (
        f'Post "https://127.0.0.1:{hook.port}/convert?timeout=1s": '
        "net/http: request canceled (Client.Timeout exceeded while awaiting headers)"
    )
