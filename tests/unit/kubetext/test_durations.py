from __future__ import annotations

import pytest

from kubetext import durations
from tests.fixtures.cpu import Spent


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("5s", 5), ("1m30s", 90), ("1.5h", 5400), (".5s", 0.5), ("-5s", -5), ("+3ms", 0.003), ("2us", 2e-6), ("2µs", 2e-6),
     ("1h1m1s1ms1us1ns", 3661.001001001)],
)  # fmt: skip
def test_durations_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert durations.parse(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abc", 'time: invalid duration "abc"'),
        ("", 'time: invalid duration ""'),
        ("+", 'time: invalid duration "+"'),
        (".s", 'time: invalid duration ".s"'),
        ("10", 'time: missing unit in duration "10"'),
        ("1s2", 'time: missing unit in duration "1s2"'),
        ("10x", 'time: unknown unit "x" in duration "10x"'),
        ("1e3s", 'time: unknown unit "e" in duration "1e3s"'),
        ("3s ", 'time: unknown unit "s " in duration "3s "'),
        ("9999999999h", 'time: invalid duration "9999999999h"'),
        ('"\\', 'time: invalid duration "\\"\\\\"'),
        ("1ä", 'time: unknown unit "\\xc3\\xa4" in duration "1\\xc3\\xa4"'),
    ],
)
def test_malformed_duration_gets_gos_message(text: str, message: str) -> None:
    with pytest.raises(ValueError, match="time:") as caught:
        durations.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["9223372036854775807ns", "-9223372036854775808ns", "0.99999999999999999999999s", "0" * 900 + "1s"]
)
def test_value_that_fits_into_64_bits_is_a_duration(text: str) -> None:
    durations.parse(text)


@pytest.mark.parametrize(
    "text", ["9223372036854775808ns", "-9223372036854775809ns", "9" * 900 + "s", "9" * 4400 + "s", "1e9h"]
)
def test_value_beyond_64_bits_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"^time: "):
        durations.parse(text)


@pytest.mark.parametrize("piece", ["0s", "1h", "0.1s", "9", ".", "\x00", "-", "µs"])
def test_one_of_any_length_costs_little_and_is_shown_in_part(piece: str) -> None:
    with Spent() as spent, pytest.raises(ValueError, match=r"^time: invalid duration ") as caught:
        durations.parse(piece * (1_000_000 // len(piece)))
    assert spent.below(0.05)
    assert str(caught.value).endswith(" more characters")
    assert len(str(caught.value)) < 10_000
