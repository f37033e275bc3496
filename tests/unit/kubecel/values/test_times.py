from __future__ import annotations

import pytest

from kubecel.values.errors import EvaluationError
from kubecel.values.times import Clock, Duration, Timestamp, add_time, parse_duration, parse_timestamp, subtract_times


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("2024-02-29T12:34:56Z", "2024-02-29T12:34:56Z"),
        ("2024-02-29T12:34:56.789+05:30", "2024-02-29T12:34:56.789+05:30"),
        ("2024-02-29T12:34:56-00:30", "2024-02-29T12:34:56-00:30"),
        ("2024-02-29T12:34:56+00:00", "2024-02-29T12:34:56Z"),
        ("2024-02-29T1:34:56Z", "2024-02-29T01:34:56Z"),
        ("2024-02-29T01:34:56,5Z", "2024-02-29T01:34:56.5Z"),
        ("2024-02-29T01:34:56.1234567899Z", "2024-02-29T01:34:56.123456789Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00Z"),
        ("0000-12-31T23:00:00-02:00", "0000-12-31T23:00:00-02:00"),
        ("1582-10-15T00:00:00+24:00", "1582-10-15T00:00:00+24:00"),
    ],
)
def test_a_timestamp_is_read_and_printed_with_its_offset(text: str, printed: str) -> None:
    assert str(parse_timestamp(text)) == printed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2024-02-30T00:00:00Z",
        "2023-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-02-29T24:00:00Z",
        "2024-02-29T23:59:60Z",
        "2024-02-29T00:00:00",
        "2024-02-29 00:00:00Z",
        "2024-02-29T00:00:00+25:00",
        "2024-02-29T00:00:00.Z",
        "2024-2-29T00:00:00Z",
        "2024-02-29t00:00:00z",
    ],
)
def test_text_that_go_does_not_read_is_no_timestamp(text: str) -> None:
    assert parse_timestamp(text) is None


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("-0", 0),
        ("1h30m", 5400 * 10**9),
        ("-1.5s", -15 * 10**8),
        (".5ms", 500_000),
        ("1.s", 10**9),
        ("+1µs1μs", 2000),
        ("0.1ns", 0),
        ("-2562047h47m16.854775808s", -(2**63)),
        ("0.9223372036854775808h", 3320413933267),
    ],
)
def test_a_duration_is_read_as_go_reads_it(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == Duration(nanoseconds)


@pytest.mark.parametrize(
    "text", ["", "-", "1", "1x", ".s", "1h ", "1d", "2562047h47m16.854775808s", "9" * 40 + "s", "1h" * 5000]
)
def test_text_that_go_does_not_read_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("nanoseconds", "seconds", "go"),
    [
        (0, "0s", "0s"),
        (1, "0.000000001s", "1ns"),
        (1500, "0.0000015s", "1.5µs"),
        (-90 * 10**9, "-90s", "-1m30s"),
        (5400 * 10**9 + 1, "5400.000000001s", "1h30m0.000000001s"),
        (2**63 - 1, "9223372036.854776s", "2562047h47m16.854775807s"),
    ],
)
def test_a_duration_is_printed_in_seconds_and_in_errors_as_go_prints_it(
    nanoseconds: int, seconds: str, go: str
) -> None:
    assert (str(Duration(nanoseconds)), Duration(nanoseconds).go_text()) == (seconds, go)


def test_whole_hours_are_counted_in_double_precision() -> None:
    assert Duration(9223372036854 * 10**6).hours() == 2562047
    assert Duration(-(3600 * 10**9) - 1).hours() == -1
    assert Duration(2562047 * 3600 * 10**9 - 1).hours() == 2562047


def test_time_is_added_up_within_the_years_1_to_9999() -> None:
    last = parse_timestamp("9999-12-31T23:59:59.999999999Z")
    assert last is not None
    assert str(add_time(last, -1_000_000_000)) == "9999-12-31T23:59:58.999999999Z"
    with pytest.raises(EvaluationError, match=r"^timestamp overflow$"):
        add_time(last, 1)
    with pytest.raises(EvaluationError, match=r"^integer overflow$"):
        subtract_times(last, Timestamp(-62135596800))


@pytest.mark.parametrize(
    ("zone", "hour"),
    [
        ("UTC", 23),
        ("", 23),
        ("Local", 23),
        ("+05:30", 5),
        ("-08:15", 15),
        ("05:30", 5),
        ("Asia/Kolkata", 5),
        ("+1000:00", 15),
    ],
)
def test_a_clock_shows_the_time_of_its_zone(zone: str, hour: int) -> None:
    moment = parse_timestamp("2023-07-01T23:59:59Z")
    assert moment is not None
    assert Clock(moment, zone).seconds // 3600 == hour


@pytest.mark.parametrize(
    ("zone", "problem"),
    [
        ("Nope/Nowhere", "unknown time zone Nope/Nowhere"),
        ("../etc/passwd", "time: invalid location name"),
        ("/etc/passwd", "time: invalid location name"),
        ("a:b", 'strconv.Atoi: parsing "a": invalid syntax'),
        (":", 'strconv.Atoi: parsing "": invalid syntax'),
        ("1:99999999999999999999", 'strconv.Atoi: parsing "99999999999999999999": value out of range'),
        ("\0", "unknown time zone \0"),
        ("x" * 10_000, "unknown time zone " + "x" * 4096),
    ],
)
def test_unknown_zone_is_an_error(zone: str, problem: str) -> None:
    with pytest.raises(EvaluationError) as failed:
        Clock(Timestamp(0), zone)
    assert str(failed.value) == problem


def test_the_calendar_knows_its_ends() -> None:
    first, last = Clock(Timestamp(-62135596800), "America/New_York"), Clock(Timestamp(253402300799), "Asia/Tokyo")
    assert (first.year, first.month, first.day, first.day_of_week) == (0, 11, 31, 0)
    assert (last.year, last.month, last.day, last.day_of_year) == (10000, 0, 1, 0)
