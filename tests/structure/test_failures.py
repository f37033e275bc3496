"""A failed test fails alone."""

from __future__ import annotations

import pathlib
import subprocess
import sys

PROJECT = pathlib.Path(__file__).resolve().parents[2]
LEAVES_ALL_OPEN = """
import asyncio, gc, socket, subprocess, sys
import pytest

listening = socket.create_server(("127.0.0.1", 0))

def test_that_fails():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    plain = socket.socket()
    cycle = [process, plain]
    cycle.append(cycle)
    assert False

def test_that_follows(): gc.collect()

async def test_that_fails_with_a_connection():
    reader, writer = await asyncio.open_connection(*listening.getsockname())
    assert False

def test_that_follows_it(): gc.collect()

@pytest.fixture
def broken():
    loop = asyncio.new_event_loop()
    cycle = [loop]
    cycle.append(cycle)
    raise RuntimeError

def test_with_a_failing_fixture(broken): pass

def test_that_follows_that(): gc.collect()

def test_that_is_last(): listening.close()
"""


def test_handles_left_open_by_a_failed_test_fail_no_other(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "test_leaving.py"
    file.write_text(LEAVES_ALL_OPEN)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(PROJECT / "pyproject.toml"), "--rootdir", str(tmp_path)]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert "2 failed, 4 passed, 1 error" in done.stdout, done.stdout + done.stderr
