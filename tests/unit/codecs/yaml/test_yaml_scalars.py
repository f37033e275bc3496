from __future__ import annotations

import math
from typing import Any

import pytest

from apiserver.codecs.yaml import yaml_scalars


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("yEs", "yEs"),
        ("0x1F", 31),
        ("010", 8),
        ("0o17", 15),
        ("0b11", 3),
        ("-0b1", -1),
        ("1_000", 1000),
        ("+5", 5),
        ("08", 8.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("0x", "0x"),
        ("_1", "_1"),
        (".", "."),
        ("1e", "1e"),
        ("1e400", "1e400"),
        ("12:30", "12:30"),
        ("2001-01-01", "2001-01-01"),
        ("18446744073709551615", (1 << 64) - 1),
        ("18446744073709551616", 18446744073709551616.0),
        ("9" * 5000, "9" * 5000),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_a_plain_scalar_means_what_yaml_1_1_says(text: str, value: Any) -> None:
    found = yaml_scalars.value(None, text, plain=True)
    assert (type(found), found) == (type(value), value)


def test_quotes_make_it_text() -> None:
    assert yaml_scalars.value(None, "yes", plain=False) == "yes"


@pytest.mark.parametrize("text", ["yes", "1", "1e3", "~", "12:30:45", "0x1", "", "2001-01-01", "<<"])
def test_text_that_reads_as_something_else_is_recognised(text: str) -> None:
    assert yaml_scalars.reads_as_text(text) == (text == "<<")


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a", "a"),
        (5, "5"),
        (True, "true"),
        (1.5, "1.5"),
        (1e3, "1000"),
        (0.1, "0.1"),
        (1e30, "1e+30"),
        (16777217.5, "1.6777218e+07"),
        (math.inf, ".inf"),
        (-math.inf, "-.inf"),
        (math.nan, ".nan"),
        (1e300, ".inf"),
        (None, None),
        (1 << 63, None),
    ],
)
def test_a_key_becomes_a_member_name(key: Any, text: str | None) -> None:
    assert yaml_scalars.key_text(key) == text


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        ("1.5", "1.5"),
        ("1e+20", "1e+20"),
        ("123456789.5", "1.234567895e+08"),
        ("1e-07", "1e-07"),
        ("0.0001", "0.0001"),
        ("100000.5", "100000.5"),
        ("0.0", "0"),
        ("-0.0", "-0"),
        ("1e-05", "1e-05"),
    ],
)
def test_a_float_prints_as_go_prints_it(literal: str, text: str) -> None:
    assert yaml_scalars.shortest(literal) == text
