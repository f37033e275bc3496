from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from structuredmerge import sets
from structuredmerge.fieldsv1 import MAX_DEPTH, FieldsError, decode, encode
from structuredmerge.paths import Path, field, item, keyed
from structuredmerge.sets import EMPTY, Set
from tests.unit.structuredmerge.fields import ANY_SETS

A, B, C = map(field, "abc")


@pytest.mark.parametrize(
    ("paths", "text"),
    [
        ([], "{}"),
        ([(A,)], '{"f:a":{}}'),
        ([(A, B)], '{"f:a":{"f:b":{}}}'),
        ([(A,), (A, B), (A, B, C)], '{"f:a":{".":{},"f:b":{".":{},"f:c":{}}}}'),
        ([(C,), (A, B), (B,)], '{"f:a":{"f:b":{}},"f:b":{},"f:c":{}}'),
        ([(A, item("x/y"))], r'{"f:a":{"v:\"x/y\"":{}}}'),
        ([(keyed({"uid": "u1", "n": 1}),)], r'{"k:{\"n\":1,\"uid\":\"u1\"}":{}}'),
        ([(item("<"),), (field("<"),)], r'{"f:<":{},"v:\"\\u003c\"":{}}'),
        ([(field('\x00\b\f\n\r\t\x7f"\\/ü\u2028'),)], '{"f:\\u0000\\u0008\\u000c\\n\\r\\t\x7f\\"\\\\/ü\u2028":{}}'),
        ([(field(""),)], '{"f:":{}}'),
    ],
)
def test_a_set_is_written_as_upstream_writes_it(paths: list[Path], text: str) -> None:
    assert encode(sets.of(paths)).decode() == text
    assert decode(text.encode()) == sets.of(paths)


@given(ANY_SETS)
def test_a_set_survives_being_written_and_read(set_: Set) -> None:
    text = encode(set_)
    assert decode(text) == set_
    assert encode(decode(text)) == text
    json.loads(text)


def shuffled(node: Any, random_: random.Random) -> Any:
    members = [(name, shuffled(below, random_)) for name, below in node.items()]
    random_.shuffle(members)
    return dict(members)


@given(ANY_SETS, st.randoms(use_true_random=False))
def test_elements_may_come_in_any_order(set_: Set, random_: random.Random) -> None:
    text = json.dumps(shuffled(json.loads(encode(set_)), random_), indent=1)
    assert encode(decode(text.encode())) == encode(set_)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("null", []),
        (" {} ", []),
        ('{".":{}}', []),
        ('{"f:a":null}', [(A,)]),
        ('{"f:a":{".":[1,{"x":2}]}}', [(A,)]),
        ('{"x:foo":{"name":{}},"f:a":{}}', [(A,)]),
        ('{"f:a":{"x:foo":{}}}', [(A,)]),
        ('{"f:a":{"x:foo":{},"f:b":{}}}', [(A, B)]),
        ('{"f:a":{"f:b":{},".":{}}}', [(A,), (A, B)]),
        # An element that is there twice is a member if it is one once; what is below it is what was said last.
        ('{"f:a":{},"f:a":{"f:b":{}}}', [(A,), (A, B)]),
        ('{"f:a":{"f:b":{}},"f:a":{"f:c":{}}}', [(A, C)]),
        (r'{"v:1":{},"v:1.0":{"f:b":{}}}', [(item(1),), (item(1), B)]),
        (r'{"f:\ud800":{},"f:\ud83d\ude00":{}}', [(field("\ufffd"),), (field("😀"),)]),
        (r'{"f:\\ud800":{}}', [(field("\\ud800"),)]),
    ],
)
def test_a_text_is_read_as_leniently_as_upstream_reads_it(text: str, paths: list[Path]) -> None:
    assert decode(text.encode()) == sets.of(paths)


KEY = "parsing key as path element: "


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("5", "ReadMapCB: expect { or n, but found 5, error found in #1 byte of ...|5|..., bigger context ...|5|..."),
        (
            '{"f:a":[]}',
            'ReadMapCB: expect { or n, but found [, error found in #8 byte of ...|{"f:a":[]}|..., bigger context ...|{"f:a":[]}|...',
        ),
        (
            '{"name":{}}',
            KEY
            + 'missing colon: name, error found in #8 byte of ...|{"name":{}}|..., bigger context ...|{"name":{}}|...',
        ),
        (
            '{"f:a": {} , "x" : {}}',
            KEY + 'key must be 2 characters long:, error found in #10 byte of ...|{} , "x" : {}}|..., bigger context '
            '...|{"f:a": {} , "x" : {}}|...',
        ),
        (
            '{"x:skipped":{"no":1},"f:é":{"i:a":{}}}',
            KEY
            + 'strconv.Atoi: parsing "a": invalid syntax, error found in #10 byte of ...|\ufffd":{"i:a":{}}}|..., bigger context '
            '...|{"x:skipped":{"no":1},"f:é":{"i:a":{}}}|...',
        ),
    ],
)
def test_first_fault_is_reported_with_its_surroundings(text: str, error: str) -> None:
    with pytest.raises(FieldsError) as raised:
        decode(text.encode())
    assert str(raised.value) == error


def test_data_after_a_json_value_is_ignored_or_refused() -> None:
    """v6.3.3 of structured-merge-diff ignores it, v6.4.2 refuses it. Recorded with both kube-apiservers."""
    for key, read in {
        "v:1 x": item(1),
        'v:"é"x': item("é"),
        'k:{"a":1}{}': keyed({"a": 1}),
        "k:null x": keyed({}),
    }.items():
        text = json.dumps({f"{key}": {}}, ensure_ascii=False).encode()
        assert decode(text) == sets.of([(read,)])
        with pytest.raises(FieldsError, match="managedFields parsing: unexpected trailing data after JSON object"):
            decode(text, whole=True)
    for key in ("v:1 ", "v: 1\\n", 'k: {\\"a\\":1} '):
        text = f'{{"{key}":{{}}}}'.encode()
        assert decode(text, whole=True) == decode(text) != EMPTY
    assert decode(b'{"f:a":{}} \n', whole=True) == decode(b' {"f:a":{}}x') == sets.of([(A,)])
    with pytest.raises(FieldsError) as raised:
        decode('{"f:é":{}} x'.encode(), whole=True)
    assert str(raised.value) == (
        'managedFields parsing: unexpected trailing data after JSON object, error found in #10 byte of ...|f:é":{}} x|..., '
        'bigger context ...|{"f:é":{}} x|...'
    )


def test_message_about_a_long_text_shows_one_piece_around_the_fault() -> None:
    text = '{"f:' + "x" * 4086 + '":{},"bad":{}}'
    with pytest.raises(FieldsError) as raised:
        decode(text.encode())
    assert (
        str(raised.value)
        == KEY + 'missing colon: bad, error found in #5 byte of ...|bad":{}}|..., bigger context ...|bad":{}}|...'
    )


@pytest.mark.parametrize(
    "text", ["", "{", '{"f:a":}', '{"f:a":{}', '{"f:a":NaN}', "\ufeff{}", "{'f:a':{}}", "[" * 100_000]
)
def test_bytes_that_are_no_json_are_refused(text: str) -> None:
    with pytest.raises(FieldsError):
        decode(text.encode())


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(FieldsError):
        decode(b'{"f:\xff":{}}')


def nested(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"{}" + b"}" * levels


def test_a_set_of_a_hundred_levels_is_read_and_no_deeper_one() -> None:
    assert encode(decode(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for levels in (MAX_DEPTH + 2, 900, 100_000):
        with pytest.raises(FieldsError):
            decode(nested(levels))


def test_nothing_is_the_empty_set() -> None:
    assert decode(b"{}") is EMPTY
    assert encode(EMPTY) == b"{}"
