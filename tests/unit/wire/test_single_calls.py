"""No single call into C takes long, whatever the body: threads work for large ones, and meanwhile nobody else gets the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.runtime import workers
from apiserver.wire import body
from tests.fixtures import steps
from tests.fixtures.calls import Longest
from tests.unit.wire.served import CLASSES, KINDS

BUDGET_SECONDS = 0.05
TIMES = 3
"""A core that others use too takes longer for the same."""
MOST = 3 << 20
JSON, YAML = "application/json", "application/yaml"


def filled(piece: bytes, size: int = MOST - 512) -> bytes:
    return piece * (size // len(piece))


def parameters(value: bytes) -> bytes:
    """A class with that value in its configuration."""
    opaque = b'{"opaque":{"driver":"d.example.com","parameters":{"p":%b}}}' % value
    return b'{"metadata":{"name":"a"},"spec":{"config":[%b]}}' % opaque


WORST: dict[str, Callable[[], tuple[str, bytes]]] = {
    "a string": lambda: (JSON, parameters(b'"%b"' % filled(b"<&>x"))),
    "a string of escapes": lambda: (JSON, parameters(b'"%b"' % filled(b"\\u003a"))),
    "escapes, and an error behind them": lambda: (JSON, parameters(b'"%b"' % filled(b"\\n")) + b"x"),
    "half characters": lambda: (JSON, parameters(b'"%b"' % filled(b"\\ud800", 256 << 10))),
    "bytes that are no characters": lambda: (JSON, parameters(b'"%b"' % filled(b"\xff"))),
    "strings, and an error behind them": lambda: (
        JSON,
        parameters(b"[%b1]" % filled(b'"%b",' % (b"\\n" * 100))) + b"x",
    ),
    "numbers just too short to be long": lambda: (
        JSON,
        parameters(b"[%b1]" % filled(b"1" * 290 + b"." + b"1" * 290 + b",")),
    ),
    "a number": lambda: (JSON, parameters(filled(b"1", 500 << 10))),
    "members": lambda: (JSON, parameters(b'{%b"x":1}' % b"".join(b'"k%d":1,' % n for n in range(60_000)))),
    "a member twice": lambda: (JSON, parameters(b'{%b"k1":1}' % b"".join(b'"k%d":1,' % n for n in range(20_000)))),
    "a YAML block": lambda: (YAML, b"x: |\n" + filled(b" y\n")),
    "a YAML string": lambda: (YAML, b'x: "%b"' % filled(b"\\x41")),
    "a YAML tag": lambda: (YAML, b"x: !<tag:%b> y" % filled(b"%41")),
    "a YAML number": lambda: (YAML, b"x: " + filled(b"1")),
    "YAML blanks": lambda: (YAML, b"x:" + filled(b" ") + b"1"),
    "a YAML comment": lambda: (YAML, filled(b"#")),
}


@pytest.mark.parametrize("case", WORST)
async def test_no_call_takes_longer_than_others_can_wait(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def here(call: Callable[[], Any]) -> Any:
        with longest:
            return call()

    longest = Longest()
    media, raw = WORST[case]()
    assert len(raw) <= MOST
    monkeypatch.setattr(workers.BODIES, "run", here)
    try:
        await body.decode_object(
            CLASSES, media, raw, kinds=KINDS, now="2026-01-01T00:00:00Z", validation="Strict", warnings=Warnings()
        )
    except StatusError:
        pass
    assert longest.where
    assert longest.seconds <= BUDGET_SECONDS * TIMES * steps.slowness(), longest.where
