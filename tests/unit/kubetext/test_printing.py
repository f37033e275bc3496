from __future__ import annotations

from typing import Any

import pytest

from kubetext import printing


@pytest.mark.parametrize(
    ("value", "plain", "text"),
    [
        (None, "<nil>", "%!s(<nil>)"),
        ("x", "x", "x"),
        (True, "true", "%!s(bool=true)"),
        (5, "5", "%!s(int64=5)"),
        (1 << 63, "9.223372036854776e+18", "%!s(float64=9.223372036854776e+18)"),
        ([], "[]", "[]"),
        ({}, "map[]", "map[]"),
        ([None, "a b", [1.0]], "[<nil> a b [1]]", "[<nil> a b [%!s(float64=1)]]"),
        ({"b": 1, "a": {"c": False}}, "map[a:map[c:false] b:1]", "map[a:map[c:%!s(bool=false)] b:%!s(int64=1)]"),
    ],
)
def test_values_print_as_go_prints_them(value: Any, plain: str, text: str) -> None:
    assert (printing.plain(value), printing.text(value)) == (plain, text)


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (1000000.0, "1e+06"),
        (100000.0, "100000"),
        (123456.5, "123456.5"),
        (1.5, "1.5"),
        (-2.0, "-2"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1e20, "1e+20"),
        (123456789.0, "1.23456789e+08"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (-2.5e-10, "-2.5e-10"),
        (1e100, "1e+100"),
    ],
)
def test_floats_print_as_go_prints_them(number: float, shown: str) -> None:
    assert printing.plain(number) == shown


def test_no_depth_fails() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    assert printing.plain(deep) == "[" * 5_001 + "]" * 5_001
