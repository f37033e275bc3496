from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.codecs.json import json_syntax
from apiserver.codecs.json.json_syntax import SyntaxProblem
from tests.fixtures import steps
from tests.fixtures.calls import Longest
from tests.fixtures.cases import each_case
from tests.unit.wire import recorded

CASES = recorded.cases("go_json.jsonl")


def rounded(value: Any) -> Any:
    """Go's decoder knows int64 and float64 only, and its encoder writes whole floats without a point."""
    match value:
        case bool() | str() | None:
            return value
        case dict():
            return {name: rounded(x) for name, x in value.items()}
        case list():
            return [rounded(x) for x in value]
    return float(value)


@each_case("case", CASES, ids=lambda c: c["raw"])
def test_the_verdict_and_the_text_are_those_of_go(case: dict[str, Any]) -> None:
    raw, error = recorded.raw(case), case["error"]
    if error and "cannot unmarshal" not in error:
        with pytest.raises(SyntaxProblem) as refused:
            json_syntax.check(raw)
        assert str(refused.value) == error
        return
    json_syntax.check(raw)
    assert str(json_syntax.too_big(raw) or "") == error
    if not error:
        assert rounded(json.loads(json_syntax.mended(raw))) == rounded(json.loads(case["value"]))


@given(
    st.recursive(
        st.sampled_from([b"1", b"-0.5e3", b'"a\\u00e9\\""', b"true", b"null", b"[]", b"{ }"]),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda x: b"[" + b" , ".join(x) + b"]")
            | st.lists(inner, max_size=3).map(lambda x: b"{" + b",".join(b'"k" :' + v for v in x) + b"}")
        ),
        max_leaves=30,
    ),
    st.data(),
)
def test_every_cut_and_every_change_is_found_by_the_standard_library_too(raw: bytes, data: st.DataObject) -> None:
    json_syntax.check(raw)
    at = data.draw(st.integers(0, len(raw)))
    for wrong in (
        raw[:at],
        raw[:at] + data.draw(st.sampled_from([b"x", b",", b"]", b"}", b'"', b":", b"1"])) + raw[at:],
    ):
        try:
            json.loads(wrong)
        except ValueError:
            with pytest.raises(SyntaxProblem):
                json_syntax.check(wrong)
        else:
            json_syntax.check(wrong)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"x":1,"a":', b'[1,"x", '])
def test_ten_thousand_levels_are_in_order_and_one_more_is_not(opening: bytes) -> None:
    closing = b"]" if opening[:1] == b"[" else b"}"
    json_syntax.check(opening * 10_000 + b"0" + closing * 10_000)
    with pytest.raises(SyntaxProblem, match=r"invalid character '[\[{]' exceeded max depth"):
        json_syntax.check(opening * 10_001 + b"0" + closing * 10_001)


@pytest.mark.parametrize("inner", [b"[[[[[0]]]]]", b'{"a":{"b":{"c":{"d":{}}}}}'])
def test_the_limit_holds_for_levels_that_are_judged_in_one_go(inner: bytes) -> None:
    for outside in range(9_990, 10_001):
        raw = b"[" * outside + inner + b"," + inner + b"]" * outside
        if outside + 5 <= 10_000:
            json_syntax.check(raw)
        else:
            with pytest.raises(SyntaxProblem, match="exceeded max depth"):
                json_syntax.check(raw)


@pytest.mark.parametrize(
    ("raw", "cut"),
    [
        (b'{"a":[{"b":[1]},2,"]"],"c":{}}', b'{"a":[null,2,"]"],"c":{}}'),
        (b'[[ [],"[{\\"",[[3]] ],[]]', b'[[ null,"[{\\"",null ],[]]'),
        (b' "[[[" ', b' "[[[" '),
        (b"[[]]", b"[[]]"),
    ],
)
def test_levels_below_a_depth_can_be_cut_away(raw: bytes, cut: bytes) -> None:
    assert json_syntax.cut(raw, 2) == cut


def test_three_megabytes_of_brackets_are_refused_at_once() -> None:
    with pytest.raises(SyntaxProblem, match="exceeded max depth"):
        json_syntax.check(b"[" * (3 << 20))


def test_every_byte_that_is_no_utf8_becomes_a_replacement_character() -> None:
    assert json_syntax.mended(b'"a\xe2\x82b\xffc"') == '"a\ufffd\ufffdb\ufffdc"'


def test_half_a_character_becomes_a_replacement_character() -> None:
    assert json_syntax.mended(rb'"\ud83d\ude00 \ud800 \udc00x \\ud800 \uD83D\ud83d\ude00"') == (
        r'"\ud83d\ude00 \ufffd \ufffdx \\ud800 \ufffd\ud83d\ude00"'
    )


RUNS = st.integers(280, 1200).map(lambda length: b"1" * length)


@given(st.lists(st.one_of(RUNS, st.sampled_from([b",", b'"ab"', b"12", b"x" * 70])), max_size=12).map(b"".join))
def test_digits_count_in_numbers_of_three_hundred_and_more(raw: bytes) -> None:
    found = [len(run) for run in re.findall(rb"[0-9]+", raw)]
    assert json_syntax._digits(raw) == sum(length for length in found if length >= 300)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"status":{"devices":[' + b'{"driver":"d.example.com","pool":"p","device":"d12345"},' * 24_000 + b"]}}",
        b"[" + b"1," * 700_000 + b"1]",
        b"[" + b",".join([b"1" * 299] * 4_500) + b"]",
    ],
    ids=["an object", "ones", "numbers that are almost long"],
)
def test_the_interpreter_is_not_held_by_the_search_for_long_numbers(raw: bytes) -> None:
    with Longest() as held:
        json_syntax._digits(raw)
    assert held.seconds < 0.01 * steps.slowness(), held.where
