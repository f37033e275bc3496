"""Programs that tests start end with the tests, whatever ends these."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import BinaryIO

import pytest

from tests.fixtures.processes import Process
from tests.fixtures.sentinels import until

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FAMILY = ["sh", "-c", "sleep 1000 & echo started; wait"]
"""A script with a child, as those of the manifests are."""
A_TEST = f"""
import pathlib, sys, time
from tests.fixtures.processes import Process

process = Process({FAMILY}, log=pathlib.Path(sys.argv[1]), pass_fds=[int(sys.argv[2])], group=True)
time.sleep(1000)
"""
SECONDS = 60.0


Pipe = tuple[BinaryIO, BinaryIO]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe: its first end reads nothing more when nobody has the second one."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as first, os.fdopen(writing, "wb") as second:
        yield first, second


def _all_ended(reading: BinaryIO) -> bool:
    ready, _, _ = select.select([reading], [], [], SECONDS)
    return bool(ready) and reading.read() == b""


def _started(log: pathlib.Path) -> bool:
    return log.exists() and "started" in log.read_text()


def test_children_of_a_stopped_script_end_with_it(tmp_path: pathlib.Path, pipe: Pipe) -> None:
    reading, writing = pipe
    process = Process(FAMILY, log=tmp_path / "log", pass_fds=[writing.fileno()], group=True)
    writing.close()
    until(lambda: _started(tmp_path / "log"))
    assert process.stop() == -signal.SIGTERM
    assert _all_ended(reading)


def test_children_of_a_script_end_with_a_killed_test(tmp_path: pathlib.Path, pipe: Pipe) -> None:
    reading, writing = pipe
    words = [sys.executable, "-c", A_TEST, str(tmp_path / "log"), str(writing.fileno())]
    with subprocess.Popen(words, cwd=PROJECT, pass_fds=[writing.fileno()]) as test:
        writing.close()
        until(lambda: _started(tmp_path / "log"))
        test.kill()
    assert _all_ended(reading)
