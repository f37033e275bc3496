"""Whole numbers and truth values as Go reads them; results taken from Go 1.26."""

import json

import pytest

from kubetext import strconv


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_a_signed_number_is_read(text: str, value: int) -> None:
    assert strconv.parse_int(text) == value


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "invalid syntax"),
        ("abc", "invalid syntax"),
        ("1.5", "invalid syntax"),
        ("1_000", "invalid syntax"),
        (" 1", "invalid syntax"),
        ("--1", "invalid syntax"),
        ("٣", "invalid syntax"),
        ("9223372036854775808", "value out of range"),
        ("-9223372036854775809", "value out of range"),
        ("99999999999999999999", "value out of range"),
    ],
)
def test_malformed_int64_gets_gos_message(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="ParseInt") as caught:
        strconv.parse_int(text)
    assert str(caught.value) == f'strconv.ParseInt: parsing "{text}": {why}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-1", "invalid syntax"),
        ("+1", "invalid syntax"),
        ("", "invalid syntax"),
        ("18446744073709551616", "value out of range"),
    ],
)
def test_malformed_uint64_gets_gos_message(text: str, why: str) -> None:
    with pytest.raises(ValueError, match="ParseUint") as caught:
        strconv.parse_uint(text)
    assert str(caught.value) == f'strconv.ParseUint: parsing "{text}": {why}'


def test_the_largest_uint64_is_read() -> None:
    assert strconv.parse_uint("18446744073709551615") == 2**64 - 1


def test_oversized_number_hides_later_errors_as_go_stops_reading_there() -> None:
    with pytest.raises(ValueError, match="value out of range"):
        strconv.parse_uint("99999999999999999999x")


def test_thousands_of_digits_are_refused_without_converting_them() -> None:
    with pytest.raises(ValueError, match="value out of range"):
        strconv.parse_int("1" * 10_000)


def test_the_number_is_quoted_as_go_quotes_it() -> None:
    with pytest.raises(ValueError, match="invalid syntax") as caught:
        strconv.parse_int('a"\n')
    assert str(caught.value) == r'strconv.ParseInt: parsing "a\"\n": invalid syntax'


def test_truth_values_are_read_in_the_spellings_of_go_and_in_no_other() -> None:
    assert all(map(strconv.parse_bool, ("1", "t", "T", "TRUE", "true", "True")))
    assert not any(map(strconv.parse_bool, ("0", "f", "F", "FALSE", "false", "False")))
    for text in ("", "yes", "tRUE", "on", " true", "2", "t\n"):
        with pytest.raises(ValueError, match="ParseBool") as caught:
            strconv.parse_bool(text)
        assert str(caught.value) == f"strconv.ParseBool: parsing {json.dumps(text)}: invalid syntax"


def test_floats_are_read_to_their_ends() -> None:
    texts = ("1.5", "-0.0", "1E5", "1e-400", "1.7976931348623158e308")
    assert [strconv.parse_float(text) for text in texts] == [1.5, 0.0, 1e5, 0.0, 1.7976931348623157e308]


@pytest.mark.parametrize("text", ["1e309", "-1e309", "1e999999999", "0.1e99999"])
def test_no_number_is_infinite(text: str) -> None:
    with pytest.raises(ValueError, match=f'^strconv.ParseFloat: parsing "{text}": value out of range$'):
        strconv.parse_float(text)
