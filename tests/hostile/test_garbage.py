"""A request leaves no reference cycles: its body and its objects are freed with the answer.

A server looks for reference cycles seldom, and no other thread runs meanwhile. Cycles would hold large bodies until then, and delay all."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.fixtures import sentinels
from tests.fixtures.server import DevServer, Reply
from tests.hostile.campaign import FLAGS
from tests.hostile.generator import GROUP
from tests.hostile.rules import as_files

CLASSES = f"/apis/{GROUP}/v1/deviceclasses"
CLAIMS = f"/apis/{GROUP}/v1/namespaces/default/resourceclaims"
TIMES = 20
FEW = 2
"""Objects a request. The work of no request, such as a connection of the store, may leave some."""
LARGE = "x" * 200_000
COUNTER = """
import gc, os, signal

def count(*_):
    gc.disable()
    with open(os.environ["GARBAGE"], "a") as found:
        print(gc.collect(), file=found)

signal.signal(signal.SIGUSR1, count)
"""
"""The server's Python runs it first: at the signal, it writes how many objects nothing refers to any more but they themselves."""


class Observed:
    """A server whose garbage is counted and not collected otherwise."""

    def __init__(self, server: DevServer, found: pathlib.Path) -> None:
        self._server = server
        self._found = found
        self._numbers = itertools.count()

    def garbage(self) -> int:
        """Return how many objects are garbage, and free them."""
        before = self._counts()
        os.kill(self._server.pid, signal.SIGUSR1)
        sentinels.until(lambda: len(self._counts()) > len(before))
        return self._counts()[-1]

    def _counts(self) -> list[int]:
        return [int(line) for line in self._found.read_text().splitlines() if line]

    def name(self) -> str:
        return f"n-{next(self._numbers)}"

    def send(self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str) -> Reply:
        sent = body if body is None or isinstance(body, str) else json.dumps(body)
        return self._server.request(method, path, sent, headers={"Content-Type": media, **headers})

    def claim(self, name: str = "", **metadata: Any) -> dict[str, Any]:
        request = {"name": "a", "exactly": {"deviceClassName": "gpu.example.com"}}
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name or self.name(), **metadata},
            "spec": {"devices": {"requests": [request]}},
        }

    def device_class(self, expression: str) -> dict[str, Any]:
        selectors = [{"cel": {"expression": expression}}]
        metadata = {"name": self.name()}
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "DeviceClass",
            "metadata": metadata,
            "spec": {"selectors": selectors},
        }

    def patch(self, form: str, body: Any, query: str = "", name: str = "standing") -> Reply:
        return self.send("PATCH", f"{CLAIMS}/{name}{query}", body, f"application/{form}")


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    folder = tmp_path_factory.mktemp("garbage")
    (folder / "sitecustomize.py").write_text(COUNTER)
    found = folder / "found"
    found.touch()
    environ = {"GARBAGE": str(found), "PYTHONPATH": f"{folder}{os.pathsep}{pathlib.Path.cwd()}"}
    with (
        as_files(folder) as rules,
        DevServer(folder / "data", "--no-samples", *FLAGS, *rules, environ=environ) as server,
    ):
        made = Observed(server, found)
        assert made.send("POST", CLAIMS, made.claim("standing")).status == 201
        yield made


REQUESTS: dict[str, tuple[int, Callable[[Observed], Reply]]] = {
    "create": (201, lambda to: to.send("POST", CLAIMS, to.claim())),
    "create of a large object": (201, lambda to: to.send("POST", CLAIMS, to.claim(annotations={"large": LARGE}))),
    "create with expressions": (
        201,
        lambda to: to.send(
            "POST", f"{CLASSES}?dryRun=All", to.device_class(f"device.driver == 'x' && true // {to.name()}")
        ),
    ),
    "create from YAML": (201, lambda to: to.send("POST", CLAIMS, json.dumps(to.claim()), "application/yaml")),
    "get": (200, lambda to: to.send("GET", f"{CLAIMS}/standing")),
    "list": (200, lambda to: to.send("GET", f"{CLAIMS}?limit=20")),
    "merge patch": (200, lambda to: to.patch("merge-patch+json", {"metadata": {"labels": {"a": to.name()}}})),
    "JSON patch": (
        200,
        lambda to: to.patch("json-patch+json", [{"op": "add", "path": "/metadata/labels", "value": {"b": to.name()}}]),
    ),
    "strategic merge patch": (
        200,
        lambda to: to.patch("strategic-merge-patch+json", {"metadata": {"labels": {"c": to.name()}}}),
    ),
    "apply": (
        200,
        lambda to: to.patch(
            "apply-patch+yaml", to.claim("standing", labels={"d": to.name()}), "?fieldManager=m&force=true"
        ),
    ),
    "malformed body": (400, lambda to: to.send("POST", CLAIMS, '{"a')),
    "malformed large body": (400, lambda to: to.send("POST", CLAIMS, f'{{"a": "{LARGE}')),
    "invalid object": (422, lambda to: to.send("POST", CLAIMS, to.claim("N O"))),
    "invalid large object": (422, lambda to: to.send("POST", CLAIMS, to.claim("N O", annotations={"large": LARGE}))),
    "invalid expression": (422, lambda to: to.send("POST", CLASSES, to.device_class("a||" * 500))),
    "existing name": (409, lambda to: to.send("POST", CLAIMS, to.claim("standing"))),
    "patch that does not fit": (
        422,
        lambda to: to.patch("json-patch+json", [{"op": "test", "path": "/metadata/name", "value": 1}]),
    ),
    "body above the limit": (413, lambda to: to.send("POST", CLAIMS, " " * 3_200_000)),
    "absent object": (404, lambda to: to.send("GET", f"{CLAIMS}/absent")),
    "refused selector": (400, lambda to: to.send("GET", f"{CLAIMS}?labelSelector=a+in")),
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_requests_leave_nothing_to_the_garbage_collector(observed: Observed, request_: str) -> None:
    status, send = REQUESTS[request_]
    assert send(observed).status == status
    observed.garbage()
    assert {send(observed).status for _ in range(TIMES)} == {status}
    assert observed.garbage() <= FEW * TIMES
