"""The detector of long steps counts what a step took, and not what the hypervisor took meanwhile."""

from __future__ import annotations

import logging
import time

import pytest

from apiserver.config import logs
from tests.fixtures import steal, steps

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
