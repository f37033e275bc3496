from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.codecs.json import json_syntax
from apiserver.wire import as_json
from tests.fixtures.cases import each_case
from tests.unit.wire import recorded

CASES = recorded.cases("go_json.jsonl")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)


@each_case("case", CASES, ids=lambda c: c["raw"])
def test_a_value_is_read_or_refused_as_go_does(case: dict[str, Any]) -> None:
    raw = recorded.raw(case)
    if case["error"]:
        with pytest.raises(as_json.SyntaxProblem) as refused:
            as_json.loads(raw)
        assert str(refused.value) == case["error"]
    else:
        assert repr(as_json.loads(raw)) == repr(json.loads(json_syntax.mended(raw)))


@pytest.mark.parametrize("case", [c for c in CASES if not c["error"]], ids=lambda c: c["raw"])
def test_no_repeated_member_goes_unsuspected(case: dict[str, Any]) -> None:
    repeated = any(text.startswith("duplicate") for text in case["strict"])
    assert as_json.read(recorded.raw(case)).suspicious or not repeated


@pytest.mark.parametrize(
    "raw",
    [b'{"a" : "x:y", "b":[{"c":{}}], "d":"\\"q\\":"}', b'{\n  "time": "00:00:00"\n}', b'{"a":"\xc3\xa4\\u00e4:"}'],
)
def test_a_regular_document_is_not_suspicious(raw: bytes) -> None:
    assert not as_json.read(raw).suspicious


def test_a_colon_written_as_an_escape_hides_nothing() -> None:
    assert as_json.read(b'{"a":1,"a":"\\u003a"}').suspicious
    assert as_json.read(b'{"a":1,"\\u0061":"\\u003A"}').suspicious


def test_whole_numbers_stay_exact_whatever_their_size() -> None:
    numbers = [9007199254740993, -9223372036854775809, 18446744073709551616]
    assert as_json.loads(b"[9007199254740993, -9223372036854775809, 18446744073709551616]") == numbers
    assert as_json.loads(b'["\\ud800", 9007199254740993, -9223372036854775809, 18446744073709551616]')[1:] == numbers


@pytest.mark.parametrize("raw", [b"1" * 5000, b"-" + b"9" * 400 + b".5"])
def test_a_number_of_absurd_length_is_refused_and_does_not_fail(raw: bytes) -> None:
    with pytest.raises(
        as_json.SyntaxProblem, match=r"json: cannot unmarshal number [-.0-9]+ into Go value of type float64"
    ):
        as_json.loads(raw)


@pytest.mark.parametrize("depth", [10, 800, 950, 1023])
def test_a_thousand_levels_are_read(depth: int) -> None:
    value = as_json.loads(b"[" * depth + b"]" * depth)
    for _ in range(depth - 1):
        [value] = value
    assert value == []


@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
@pytest.mark.parametrize("depth", [1100, 5000, 10_000, 10_001])
def test_more_levels_than_can_be_handled_are_refused_in_one_text(depth: int, opening: bytes) -> None:
    """How many those are depends on the Python; never more than Go takes."""
    raw = opening * depth + b"0" + (b"]" if opening == b"[" else b"}") * depth
    value: Any = None
    refusal = ""
    try:
        value = as_json.loads(raw)
    except as_json.SyntaxProblem as e:
        refusal = str(e)
    if refusal:
        assert refusal == f"invalid character '{opening[:1].decode()}' exceeded max depth"
        return
    assert depth <= 10_000
    for _ in range(depth):
        [value] = value.values() if isinstance(value, dict) else value
    assert value == 0


@given(VALUES)
def test_written_document_reads_the_same(value: Any) -> None:
    written = as_json.dumps(value)
    assert as_json.loads(written) == value
    assert b"\n" not in written
    assert not set(b"<>&") & set(written)
    assert as_json.loads(as_json.pretty(value)) == value


def test_characters_special_in_html_are_escaped_as_go_escapes_them() -> None:
    assert as_json.dumps({"a": '<&>\u2028\u2029ä\U0001f600"\\\b\f\n\t\x01/'}) == (
        '{"a":"\\u003c\\u0026\\u003e\\u2028\\u2029ä\U0001f600\\"\\\\\\b\\f\\n\\t\\u0001/"}'.encode()
    )


def test_pretty_is_two_blanks_a_level_without_a_newline_at_the_end() -> None:
    assert as_json.pretty({"kind": "Status", "metadata": {}, "causes": [], "details": {"a": [1]}}) == (
        b'{\n  "kind": "Status",\n  "metadata": {},\n  "causes": [],\n  "details": {\n    "a": [\n      1\n    ]\n  }\n}'
    )


@given(VALUES)
def test_text_is_indented_as_the_encoder_indents_values(value: Any) -> None:
    assert as_json.indent(orjson.dumps(value)) == orjson.dumps(value, option=orjson.OPT_INDENT_2)


def test_values_that_the_quick_encoder_refuses_are_written_too() -> None:
    deep = json.loads("[" * 500 + "]" * 500)
    assert as_json.dumps(deep) == b"[" * 500 + b"]" * 500
    assert as_json.loads(as_json.pretty(deep)) == deep
    assert as_json.dumps({"a": 1 << 80, "b": "ä<"}) == b'{"a":%d,"b":"\xc3\xa4\\u003c"}' % (1 << 80)


@pytest.mark.parametrize(
    ("paths", "text", "found"),
    [
        (["a"], '{"a":{"b":[1,{"c":2}]},"d":3}', {"a": {"b": [1, {"c": 2}]}}),
        (["a.b", "d"], '{"a":{"b":1,"c":2},"d":null}', {"a": {"b": 1}, "d": None}),
        (["a.b", "a"], '{"a":{"b":1,"c":2}}', {"a": {"b": 1, "c": 2}}),
        (["a.b.c"], '{"x":[{"a":1}]}', {}),
        (["a.b"], '{"a":{}}', {"a": {}}),
        (["a.b"], '{"a":[1],"c":2}', {"a": [1], "c": 2}),
        (["a.b"], "[1]", [1]),
        (["a"], '{"a":123456789012345678901234567890,"b":1}', {"a": 123456789012345678901234567890}),
    ],
)
def test_excerpt_has_the_named_members_or_everything_without_objects(paths: list[str], text: str, found: Any) -> None:
    assert as_json.excerpt(frozenset(paths))(text.encode()) == found


def test_an_excerpt_of_what_is_no_json_is_refused_as_the_whole_is() -> None:
    with pytest.raises(json_syntax.SyntaxProblem):
        as_json.excerpt(frozenset(["a"]))(b'{"a":1,"b":}')
