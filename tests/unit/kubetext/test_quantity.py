"""Quantities; every result was taken from k8s.io/apimachinery v0.36.3."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubetext import quantity
from kubetext.quantity import QuantityError
from tests.fixtures.cases import each_case

CANONICAL = [
    ("0", "0"),
    ("+0", "0"),
    ("-", "0"),
    (".", "0"),
    ("Ki", "0"),
    ("0.0000000000m", "0"),
    ("1", "1"),
    ("-1", "-1"),
    ("+5", "+5"),
    ("005", "005"),
    ("1000", "1k"),
    ("1024", "1024"),
    ("10000", "10k"),
    ("1000000", "1M"),
    ("100", "100"),
    ("1.5", "1500m"),
    ("1.50", "1500m"),
    ("1.500", "1.500"),
    ("0.500", "500m"),
    ("0.1", "100m"),
    ("1000m", "1"),
    ("1500m", "1500m"),
    ("100m", "100m"),
    ("1n", "1n"),
    ("0.1n", "1n"),
    ("-0.1n", "-1n"),
    ("1.0000000001", "1000000001n"),
    ("1Ki", "1Ki"),
    ("1024Ki", "1Mi"),
    ("0.5Gi", "512Mi"),
    ("1.5Gi", "1536Mi"),
    ("0.5Ki", "512"),
    ("0.0001Ki", "102400u"),
    ("512", "512"),
    ("1.Ki", "1.Ki"),
    ("8Ki", "8Ki"),
    ("80Gi", "80Gi"),
    ("141Gi", "141Gi"),
    ("2048Gi", "2Ti"),
    ("1Ei", "1Ei"),
    ("8Ei", "9223372036854775807"),
    ("-100Ei", "-9223372036854775807"),
    ("16Ti", "16Ti"),
    ("0.0000000001Ki", "103n"),
    ("1e3", "1e3"),
    ("1E3", "1E3"),
    ("1000e3", "1e6"),
    ("12e-2", "120e-3"),
    ("1e1", "10"),
    ("1e0", "1e0"),
    ("1.1e1", "1.1e1"),
    ("1.10e1", "11"),
    ("10E", "10E"),
    ("1000E", "1"),
    ("12345678901234567890", "12345678901234567890"),
    ("12345678901234567890000", "12345678901234567890k"),
    ("1e1000000000", "10e999999999"),
    (" 5 ", "5"),
]


@each_case(("text", "canonical"), CANONICAL)
def test_a_quantity_is_written_in_upstreams_canonical_form(text: str, canonical: str) -> None:
    assert quantity.canonical(text) == canonical


@each_case(("text", "canonical"), CANONICAL)
def test_the_fast_path_says_what_the_parser_says(text: str, canonical: str) -> None:
    assert quantity.parse(text).canonical() == canonical


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", quantity.FORMAT_WRONG),
        ("  ", quantity.FORMAT_WRONG),
        ("abc", quantity.FORMAT_WRONG),
        ("1.2.3", quantity.FORMAT_WRONG),
        ("1 Gi", quantity.FORMAT_WRONG),
        ("1\u0000", quantity.FORMAT_WRONG),
        ("--1", quantity.BAD_SUFFIX),
        ("٣", quantity.FORMAT_WRONG),
        ("1KK", quantity.BAD_SUFFIX),
        ("12e", quantity.BAD_SUFFIX),
        ("1ki", quantity.BAD_SUFFIX),
        ("1Ki5", quantity.BAD_SUFFIX),
        ("i", quantity.BAD_SUFFIX),
        ("1e99999999999999999999", quantity.BAD_SUFFIX),
        ("e-10", quantity.BAD_NUMBER),
        (".e-10", quantity.BAD_NUMBER),
    ],
)
def test_malformed_quantity_gets_upstreams_message(text: str, why: str) -> None:
    with pytest.raises(QuantityError) as caught:
        quantity.parse(text)
    assert str(caught.value) == why


def test_the_text_of_a_wrong_format_names_the_regular_expression() -> None:
    assert quantity.FORMAT_WRONG == (
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )


def test_a_capital_e_alone_is_the_suffix_exa() -> None:
    assert quantity.parse("1E") == quantity.parse("1000P")


@pytest.mark.parametrize(
    ("number", "canonical"),
    [
        (5, "5"),
        (1000, "1k"),
        (0.5, "500m"),
        (2.0, "2"),
        (-3, "-3"),
        (1e-5, "10u"),
        (1.5e-6, "1500n"),
        (1e20, "100E"),
        (1e21, "1e+21"),
        (1e-7, "100e-9"),
    ],
)
def test_a_number_is_a_quantity_as_go_writes_it(number: float, canonical: str) -> None:
    assert quantity.canonical(number) == canonical


@pytest.mark.parametrize(
    ("small", "large"),
    [
        ("1", "2"),
        ("-1", "1"),
        ("1m", "1"),
        ("1023Mi", "1Gi"),
        ("1G", "1Gi"),
        ("-2", "-1"),
        ("1n", "1e1000000000"),
        ("0", "1n"),
    ],
)
def test_quantities_compare_by_value(small: str, large: str) -> None:
    a, b = quantity.parse(small), quantity.parse(large)
    assert a < b
    assert b > a
    assert a != b


@pytest.mark.parametrize(
    ("one", "other"), [("1", "1000m"), ("1Ki", "1024"), ("1e3", "1k"), ("0", "0Gi"), ("0.5Gi", "512Mi")]
)
def test_spelling_does_not_matter_for_equality(one: str, other: str) -> None:
    assert quantity.parse(one) == quantity.parse(other)
    assert hash(quantity.parse(one)) == hash(quantity.parse(other))


def test_a_quantity_equals_no_number() -> None:
    assert quantity.parse("1") != 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("1500m", 2),
        ("-1500m", -2),
        ("1n", 1),
        ("1Gi", 1 << 30),
        ("0.5", 1),
        ("10E", 0),
        ("8Ei", 2**63 - 1),
        ("-5Ei", 0),
        ("484808209076275061e+2", -6859411313501148748),
        ("6000020471854300820830e20", 1941615285653995520),
    ],
)
def test_value_rounds_up_and_overflows_as_upstream_does(text: str, value: int) -> None:
    assert quantity.parse(text).value() == value


@pytest.mark.parametrize(
    ("a", "b", "total", "difference"),
    [
        ("1", "500m", "1500m", "500m"),
        ("1Gi", "1", "1073741825", "1073741823"),
        ("0", "1Ki", "1Ki", "-1Ki"),
        ("1Ki", "1k", "2024", "24"),
    ],
)
def test_sums_and_differences_are_exact(a: str, b: str, total: str, difference: str) -> None:
    assert (quantity.parse(a) + quantity.parse(b)).canonical() == total
    assert (quantity.parse(a) - quantity.parse(b)).canonical() == difference


@pytest.mark.parametrize(
    ("a", "b", "rest"), [("7", "2", "1"), ("-7", "2", "-1"), ("1500m", "1", "500m"), ("1Gi", "1Mi", "0")]
)
def test_the_rest_of_a_division_has_the_sign_of_what_is_divided(a: str, b: str, rest: str) -> None:
    assert (quantity.parse(a) % quantity.parse(b)).canonical() == rest


def test_division_by_zero_is_refused() -> None:
    with pytest.raises(ZeroDivisionError):
        quantity.parse("1") % quantity.parse("0")


def test_calculation_over_absurd_exponents_is_refused() -> None:
    with pytest.raises(OverflowError):
        quantity.parse("1e2000000000") + quantity.parse("1")


def test_absurd_numbers_of_digits_and_absurd_exponents_cost_nothing() -> None:
    with pytest.raises(QuantityError, match=quantity.BAD_NUMBER):
        quantity.parse("1" * 100_000)
    assert quantity.canonical("1e-2000000000") == "1e-9"
    assert quantity.canonical("1234567890123456789e2000000000") == "123456789012345678900e1999999998"


@given(st.integers(-(10**11), 10**11), st.sampled_from(["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi"]))
def test_canonical_text_has_the_same_value_and_is_its_own_canonical_text(number: int, suffix: str) -> None:
    parsed = quantity.parse(f"{number}{suffix}")
    text = parsed.canonical()
    assert quantity.parse(text) == parsed
    assert quantity.canonical(text) == text


def test_respelled_amount_and_its_copies_show_how_it_was_sent() -> None:
    found = quantity.canonical(" 0.5")
    again = copy.deepcopy(found)
    assert isinstance(found, quantity.Respelled)
    assert isinstance(again, quantity.Respelled)
    assert (found, found.sent, again, again.sent) == ("500m", "0.5", "500m", "0.5")
    assert not any(isinstance(quantity.canonical(amount), quantity.Respelled) for amount in ("500m", " 500m", 2))
