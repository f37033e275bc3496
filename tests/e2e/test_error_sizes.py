"""However much is wrong with a request, the error that tells it is small, and finding it takes little memory."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.fixtures.server import DevServer

MIB = 1 << 20
CLASSES = "/apis/resource.sluice.dev/v1/deviceclasses"
JSON = {"Content-Type": "application/json"}


def owner(i: int) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{i}", "uid": f"uid-{i}", "controller": True}


METADATA: dict[str, Callable[[], dict[str, Any]]] = {
    "controllers": lambda: {"ownerReferences": [owner(i) for i in range(3_000)]},
    "empty finalizers": lambda: {"finalizers": [""] * 300_000},
    "labels": lambda: {"labels": {f"!{i}": "!" for i in range(100_000)}},
    "annotations": lambda: {"annotations": {f"!{i}": "" for i in range(100_000)}},
    "a long label": lambda: {"labels": {"\x01" * 200_000: "\x01" * 200_000}},
    "a long name": lambda: {"name": "\x01" * 500_000},
    "a long generateName": lambda: {"name": "", "generateName": "<" * 3_000_000},
    "unknown members": lambda: {f"{'x' * 1000}{i}": 1 for i in range(3000)},
}


def peak(server: DevServer) -> int:
    """Bytes of memory that the server has needed at most until now."""
    assert server.process is not None
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


@pytest.mark.parametrize("case", sorted(METADATA))
@pytest.mark.parametrize("accept", ["application/json", "application/yaml", "*/*"])
def test_an_error_is_at_most_one_mebibyte(dev: DevServer, case: str, accept: str) -> None:
    body = json.dumps({"metadata": {"name": "a", **METADATA[case]()}}, ensure_ascii=False, separators=(",", ":"))
    before = peak(dev)

    reply = dev.request("POST", f"{CLASSES}?fieldValidation=Strict", body.encode(), headers={**JSON, "Accept": accept})

    assert reply.status in (400, 413, 422)
    assert 0 < len(reply.body) <= MIB
    assert peak(dev) - before < 64 * MIB


@pytest.mark.parametrize("accept", ["application/json", "application/yaml"])
@pytest.mark.parametrize("character", ["x", "%01", "%22", "%3C", "%C3%A9", "%F0%9F%98%80"])
def test_an_error_about_a_long_path_or_query_is_at_most_one_mebibyte(
    dev: DevServer, character: str, accept: str
) -> None:
    long = character * (250_000 // len(character))
    for path in (
        f"{CLASSES}/{long}",
        f"{CLASSES}?fieldSelector={long}",
        f"{CLASSES}?labelSelector={long}",
        f"{CLASSES}?resourceVersion={long}",
        f"{CLASSES}?limit={long}",
        f"{CLASSES}?continue={long}",
        f"/apis/{long}/v1/x",
        f"/{long}",
    ):
        reply = dev.request("GET", path, headers={"Accept": accept})
        assert reply.status >= 400
        assert len(reply.body) <= MIB
