"""Calls of libraries as functions; their values and costs within expressions are promises (tests/promises/cel)."""

from typing import Any

import pytest

from kubecel.check.declarations import Library
from kubecel.libraries import lists, quantity, regex, semver, strings
from kubecel.values.errors import CostExceeded, EvaluationError


def call(library: Library, overload: str, *arguments: Any) -> Any:
    (found,) = (o for f in library.functions for o in f.overloads if o.id == overload)
    assert found.call is not None
    return found.call(*arguments)


def make_quantity(text: str) -> Any:
    return call(quantity.LIBRARY, "string_to_quantity", text)


def make_semver(text: str) -> Any:
    return call(semver.LIBRARY, "string_to_semver", text)


@pytest.mark.parametrize(
    ("text", "integer", "approximate"),
    [
        ("50k", 50000, 50000.0),
        ("1Pi", None, 1125899906842624.1),
        ("1000m", None, 1.0),
        ("0.0", None, 0.0),
        ("9223372036854775807", None, 9.223372036854776e18),
        ("999999999999999999", 999999999999999999, 1e18),
        ("-13.3Ei", None, -9.223372036854776e18),
        ("1e400", None, float("inf")),
    ],
)
def test_a_quantity_is_an_integer_when_it_is_kept_as_one(text: str, integer: int | None, approximate: float) -> None:
    amount = make_quantity(text)
    assert call(quantity.LIBRARY, "quantity_is_integer", amount) is (integer is not None)
    assert call(quantity.LIBRARY, "quantity_get_float", amount) == approximate
    if integer is None:
        with pytest.raises(EvaluationError, match=r"^cannot convert value to integer$"):
            call(quantity.LIBRARY, "quantity_get_int", amount)
    else:
        assert call(quantity.LIBRARY, "quantity_get_int", amount) == integer


def test_quantity_sum_equals_on_the_left_and_fails_on_the_right() -> None:
    total = call(quantity.LIBRARY, "quantity_add_int", make_quantity("1k"), 24)
    assert total == make_quantity("1Ki")
    with pytest.raises(EvaluationError, match=r"^no such overload$"):
        assert make_quantity("1Ki") == total


def test_quantities_that_lie_very_far_apart_are_not_added() -> None:
    with pytest.raises(EvaluationError):
        call(quantity.LIBRARY, "quantity_add", make_quantity("1e2000000000"), make_quantity("1"))


@pytest.mark.parametrize(
    "text", ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-rc.1", "1.0.0"]
)
def test_prereleases_come_before_the_version(text: str) -> None:
    ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-rc.1", "1.0.0"]
    for other in ordered:
        expected = (ordered.index(text) > ordered.index(other)) - (ordered.index(text) < ordered.index(other))
        assert call(semver.LIBRARY, "semver_compare_to", make_semver(text), make_semver(other)) == expected


def test_a_version_number_is_an_int64_in_an_expression() -> None:
    assert call(semver.LIBRARY, "semver_major", make_semver("18446744073709551615.0.0")) == -1


def test_no_more_matches_are_listed_than_fit_into_a_second() -> None:
    with pytest.raises(CostExceeded):
        call(regex.LIBRARY, "string_find_all_string", "a" * 300_000, "a")


def nested(levels: int) -> list[Any]:
    """A list of lists that hold the same list twice, and so on: small in memory, endless when it is written out."""
    value: list[Any] = [1]
    for _ in range(levels):
        value = [value, value]
    return value


def test_a_list_that_holds_itself_many_times_is_not_written_out() -> None:
    with pytest.raises(CostExceeded):
        call(lists.EXTENSION_V3, "list_flatten_int", nested(60), 100)
    with pytest.raises(CostExceeded):
        call(strings.LIBRARY_V2, "string_format", "%s", [nested(60)])


def test_deeply_nested_list_is_flattened_and_written_without_recursion() -> None:
    value: list[Any] = [1]
    for _ in range(50_000):
        value = [value]
    assert call(lists.EXTENSION_V3, "list_flatten_int", value, 100_000) == [1]
    assert len(call(strings.LIBRARY_V2, "string_format", "%s", [value])) == 100_003


def test_a_string_is_not_replaced_into_one_that_no_evaluation_may_make() -> None:
    with pytest.raises(CostExceeded):
        call(strings.LIBRARY_V2, "string_replace_string_string", "a" * 100_000, "a", "b" * 100_000)


@pytest.mark.parametrize("length", [0, 1, 2, 12, 13, 1000])
@pytest.mark.parametrize("distinct", [1, 3, 10_000])
def test_sort_by_keeps_the_order_of_elements_with_equal_keys(length: int, distinct: int) -> None:
    keys = [index * 7919 % distinct for index in range(length)]
    found = call(lists.EXTENSION_V3, "list_int_sortByAssociatedKeys", list(range(length)), keys)
    assert found == [index for _, index in sorted(zip(keys, range(length), strict=True))]


def test_sort_keeps_every_element_when_keys_have_no_order() -> None:
    found = call(lists.EXTENSION_V3, "list_double_sort", [float("nan")] * 50 + [1.0])
    assert len(found) == 51
    assert found.count(1.0) == 1
