from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.codecs.objects import times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-01T12:00:00Z", "2026-06-01T12:00:00Z"),
        ("2024-02-29T07:08:09.5+01:00", "2024-02-29T06:08:09Z"),
        ("1999-12-31T23:59:59-14:00", "2000-01-01T13:59:59Z"),
        ("2024-01-02T3:04:05Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05,999Z", "2024-01-02T03:04:05Z"),
        ("2024-01-02T03:04:05+24:60", "2024-01-01T02:04:05Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
        ("0000-01-01T00:00:00+01:00", "-0001-12-31T23:00:00Z"),
        ("9999-12-31T23:59:59-01:00", "10000-01-01T00:59:59Z"),
        (times.ZERO, times.ZERO),
    ],
)
def test_a_time_becomes_utc_with_whole_seconds(text: str, expected: str) -> None:
    assert times.canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-01-02T03:04:05.123456Z", "2024-01-02T03:04:05.123456Z"),
        ("2024-01-02T03:04:05.000001+02:30", "2024-01-02T00:34:05.000001Z"),
    ],
)
def test_a_micro_time_keeps_six_digits(text: str, expected: str) -> None:
    assert times.canonical(text, micro=True) == expected


LAYOUT = '" as "2006-01-02T15:04:05Z07:00": cannot parse '


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", f'parsing time "{LAYOUT}"" as "2006"'),
        ("yesterday", f'parsing time "yesterday{LAYOUT}"yesterday" as "2006"'),
        ("2024-13-01T00:00:00Z", 'parsing time "2024-13-01T00:00:00Z": month out of range'),
        ("2023-02-29T00:00:00Z", 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ("2024-01-01T24:00:00Z", 'parsing time "2024-01-01T24:00:00Z": hour out of range'),
        ("2024-01-01T00:60:00Z", 'parsing time "2024-01-01T00:60:00Z": minute out of range'),
        ("2024-01-01T00:00:60Z", 'parsing time "2024-01-01T00:00:60Z": second out of range'),
        ("2024-01-01 00:00:00Z", f'parsing time "2024-01-01 00:00:00Z{LAYOUT}" 00:00:00Z" as "T"'),
        ("2024-01-01T00:00:00", f'parsing time "2024-01-01T00:00:00{LAYOUT}"" as "Z07:00"'),
        ("2024-01-01T00:00:00Zx", 'parsing time "2024-01-01T00:00:00Zx": extra text: "x"'),
        ("2024-01-01T00:00:00+25:00", 'parsing time "2024-01-01T00:00:00+25:00": time zone offset hour out of range'),
        ('é"', f'parsing time "\\xc3\\xa9\\"{LAYOUT}"\\xc3\\xa9\\"" as "2006"'),
    ],
)
def test_malformed_time_is_refused_with_gos_message(text: str, error: str) -> None:
    with pytest.raises(times.TimeError) as refused:
        times.canonical(text)
    assert str(refused.value) == error


def test_malformed_time_is_quoted_within_bounds() -> None:
    with pytest.raises(times.TimeError) as refused:
        times.canonical("\ud800" * 400_000 + "é" * 400_000)
    assert str(refused.value).endswith(' more bytes as "2006"')
    assert len(str(refused.value)) < 128 << 10


def test_a_micro_time_without_its_six_digits_is_refused() -> None:
    with pytest.raises(times.TimeError, match=r'cannot parse "Z" as ".000000"$'):
        times.canonical("2024-01-02T03:04:05Z", micro=True)


@given(st.datetimes(timezones=st.builds(lambda m: dt.timezone(dt.timedelta(minutes=m)), st.integers(-1439, 1439))))
def test_every_time_reads_as_the_same_instant(at: dt.datetime) -> None:
    try:
        expected = at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    except OverflowError:  # the year 0 or 10000 in UTC
        return
    assert times.canonical(at.isoformat()) == expected
    assert times.canonical(expected) == expected
