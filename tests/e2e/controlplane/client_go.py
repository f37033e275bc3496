"""Informers in a process of their own, and what they tell: client-go's (the Go program `informers` beside this file), or those of another
program that takes the same flags and tells the same lines (`fabric8.py`)."""

from __future__ import annotations

import json
import pathlib
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.e2e.controlplane import binaries
from tests.fixtures.processes import start

SECONDS = 120.0

Line = dict[str, Any]


class Informers:
    """Some informers of one resource, as `resource.version.group`. Everything they tell is kept, in its order."""

    def __init__(
        self,
        kubeconfig: pathlib.Path,
        resource: str,
        *,
        count: int = 1,
        metadata: bool = False,
        log: pathlib.Path,
        program: Sequence[str | pathlib.Path] = (),
    ) -> None:
        self.count = count
        self.lines: list[Line] = []
        self._grown = threading.Condition()
        command: list[str | pathlib.Path] = [*program] if program else [binaries.binary("informers")]
        command += ["-kubeconfig", kubeconfig, "-resource", resource]
        command += ["-informers", str(count), *(["-metadata"] if metadata else [])]
        with log.open("ab") as errors:
            self._process = start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            with self._grown:
                self.lines.append(json.loads(text))
                self._grown.notify_all()

    def until(self, happened: Callable[[], object], what: str, *, seconds: float = SECONDS) -> None:
        """Waits for what the informers tell."""
        with self._grown:
            assert self._grown.wait_for(happened, timeout=seconds), f"{what} did not come about within {seconds:.0f} s"

    def until_synced(self) -> None:
        self.until(lambda: sum("synced" in line for line in self.lines) == self.count, "every informer is synced")

    def stop(self) -> list[dict[str, str]]:
        """The objects that each of them holds in the end: versions by key."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._reader.join(SECONDS)
            assert self._process.stdout is not None
            self._process.stdout.close()
        held = {line["informer"]: line["holds"] for line in self.lines if "holds" in line}
        return [held[number] for number in range(self.count)]

    def __enter__(self) -> Informers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.stop()

    # Events

    def events(self, informer: int = 0) -> list[tuple[str, str, str]]:
        """(event, key, version) in order."""
        mine = [line for line in self.lines if line["informer"] == informer and "event" in line]
        return [(line["event"], line["key"], line["version"]) for line in mine]

    def requests(self) -> list[tuple[dict[str, str], int]]:
        """Query and status (0: no answer) of each request."""
        asked = [line for line in self.lines if "request" in line]
        return [(_query(line["request"]), line.get("status", 0)) for line in asked]

    def lists(self) -> list[tuple[dict[str, str], int]]:
        """The requests that read everything: lists, and watches that begin with all objects. One an informer is the first sync."""
        return [(query, status) for query, status in self.requests() if "watch" not in query or _from_all(query)]


def _query(target: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}


def _from_all(query: dict[str, str]) -> bool:
    return query.get("sendInitialEvents") == "true" or "resourceVersion" not in query
