"""The detector of long steps counts what a step took, and not what the hypervisor took meanwhile."""

from __future__ import annotations

import logging
import pathlib
import subprocess
import sys
import time

import pytest

from apiserver.config import logs
from tests.fixtures import steal, steps

PROJECT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = [(10.0, 5), (20.0, 7), (20.5, 8)]


@pytest.mark.parametrize(
    ("since", "until", "ticks"),
    [
        (1.0, 5.0, 0),  # nobody knows
        (5.0, 15.0, 0),
        (11.0, 19.0, 0),
        (19.9, 20.0, 3),
        (19.0, 21.0, 4),
        (20.1, 20.4, 0),
        (20.2, 30.0, 2),
        (21.0, 30.0, 0),
    ],
)
def test_stolen_time_between_two_times_counts_with_a_tick_to_spare(since: float, until: float, ticks: int) -> None:
    assert steal._stolen(SAMPLES, since, until) == ticks


@pytest.mark.parametrize("lines", [logs.JsonLines(), logs.TextLines()], ids=["json", "text"])
def test_when_a_step_ended_is_read_from_each_form_of_the_log(lines: logging.Formatter) -> None:
    record = logging.makeLogRecord(
        {"levelno": logging.WARNING, "levelname": "WARNING", "msg": "a step", "created": time.time()}
    )
    assert steps.ended(lines.format(record)) == pytest.approx(record.created, abs=1e-3)


@pytest.mark.parametrize(("slow_runs", "outcome"), [(0, "1 passed"), (2, "1 passed"), (3, "1 failed, 1 passed")])
def test_time_above_a_bound_fails_a_test_only_if_it_comes_in_three_runs(
    tmp_path: pathlib.Path, slow_runs: int, outcome: str
) -> None:
    (tmp_path / "test_one.py").write_text(
        "from tests.fixtures.cpu import Spent\n"
        "runs = []\n"
        "def test_one():\n"
        "    runs.append(1)\n"
        "    with Spent() as spent:\n"
        "        pass\n"
        f"    assert spent.below(60 if len(runs) > {slow_runs} else -60)\n"
    )
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    ran = subprocess.run([*words, str(tmp_path)], cwd=PROJECT, text=True, capture_output=True, check=False)
    assert ran.stdout.splitlines()[-1].startswith(outcome), ran.stdout + ran.stderr
