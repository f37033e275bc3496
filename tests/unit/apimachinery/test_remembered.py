"""Texts and what they became, within a bound of bytes."""

from __future__ import annotations

from apiserver.apimachinery.remembered import Remembered


def test_cached_result_of_a_text_is_returned_until_evicted() -> None:
    found = Remembered[int](16_000)
    for i in range(200):
        found.add(f"text {i}", i, size=0)
        assert found.get("text 0") == 0

    assert found.size <= 16_000
    assert found.get("text 199") == 199
    assert found.get("text 1") is None
    assert "text 0" in found
    assert "text 1" not in found


def test_bytes_are_counted_as_python_keeps_them() -> None:
    ascii_only, wide = Remembered[int](1 << 20), Remembered[int](1 << 20)
    ascii_only.add("x" * 1000, 1, size=50)
    wide.add("😀" * 1000, 1, size=50)

    assert 1050 < ascii_only.size < 2000
    assert 4050 < wide.size < 5000


def test_a_result_that_would_push_out_many_others_is_not_kept() -> None:
    found = Remembered[int](16_000)
    found.add("small", 1, size=0)
    found.add("large", 2, size=1_000)

    assert found.get("large") is None
    assert found.get("small") == 1


def test_a_text_that_is_added_again_counts_once() -> None:
    found = Remembered[int](16_000)
    found.add("text", 1, size=100)
    size = found.size
    found.add("text", 2, size=100)

    assert (found.get("text"), found.size, len(found)) == (2, size, 1)
