"""Text with lone surrogates, read by decoders that refuse it: every value as Go reads it, every raw JSON as it was sent."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any

import msgspec
import orjson
import pytest

from apiserver.codecs.json import surrogates
from kubetext import utf8
from tests.fixtures.cases import each_case

MEMBERS = surrogates.kept(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)
VALUES = surrogates.kept(msgspec.json.Decoder().decode)
PIECES = (
    r"\ud800", r"\uD800", r"\uDbFf", r"\udc00", r"\uDFFF", r"\ud83d\ude00", r"\\", r"\u0000", r"\u00000", r"\u0000d800",
    r"\\ud800", r"\"", r"\ufffd", r"\n", "a", "d800", "0", "é", "😀", " ", "{", "[",
)  # fmt: skip
"""Parts of the strings."""


def go_reads(text: str) -> Any:
    return json.loads(text, object_pairs_hook=lambda pairs: {_whole(name): x for name, x in pairs}, parse_int=int)


def _whole(text: str) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {_whole(name): cleaned(x) for name, x in value.items()}
    if isinstance(value, list):
        return list(map(cleaned, value))
    return _whole(value) if isinstance(value, str) else value


def some_string(rng: random.Random) -> str:
    return '"' + "".join(rng.choices(PIECES, k=rng.randrange(8))) + '"'


def some_value(rng: random.Random, levels: int = 3) -> str:
    kind = rng.randrange(4 if levels else 2)
    if kind == 0:
        return rng.choice(("1", "null", "true", "-1.5"))
    if kind == 1:
        return some_string(rng)
    below = [some_value(rng, levels - 1) for _ in range(rng.randrange(4))]
    if kind == 2:
        return "[" + " , ".join(below) + "]"
    return "{ " + ",\t".join(f"{some_string(rng)} : {x}" for x in below) + "}"


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_read_as_go_reads_it(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        text = some_value(rng)
        meant = cleaned(go_reads(text))
        assert VALUES(text.encode()) == meant
        assert VALUES(text) == meant
        assert surrogates.replaced(msgspec.json.decode)(text.encode()) == meant
        assert surrogates.replaced(orjson.loads)(memoryview(text.encode())) == meant
        assert json.loads(utf8.paired(text)) == meant
        assert len(utf8.paired(text)) == len(text)


@pytest.mark.parametrize("seed", range(20))
def test_raw_json_and_formatted_text_keep_what_was_sent(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        values = [some_value(rng) for _ in range(3)]
        text = "{" + ",".join(f'"{i}":{x}' for i, x in enumerate(values)) + r',"last":"\ud800"}'
        found = MEMBERS(text.encode())
        assert [bytes(x).decode() for x in found.values()] == [*values, r'"\ud800"']
        compact = surrogates.formatted(text.encode())
        assert re.findall(rb'"(?:[^"\\]|\\.)*"', compact) == re.findall(rb'"(?:[^"\\]|\\.)*"', text.encode())
        assert go_reads(compact.decode()) == go_reads(text)
        assert surrogates.formatted(surrogates.formatted(text.encode(), indent=2)) == compact


@pytest.mark.parametrize(
    "between", [r"\ud83d\ude00", r"\ud83d", r"\ude00", r"\u0041", r"\\", "x", r"\ud83d\ud83d\ude00"]
)
def test_long_text_is_cut_between_characters(between: str) -> None:
    for shift in range(14):
        text = '["' + "x" * shift + between * 30_000 + r'","\ud800"]'
        found = surrogates.kept(msgspec.json.Decoder(list[msgspec.Raw]).decode)(text.encode())
        assert b"[%b]" % b",".join(map(bytes, found)) == text.encode()
        assert VALUES(text.encode()) == cleaned(go_reads(text))


def test_structs_hold_what_was_sent() -> None:
    class Found(msgspec.Struct):
        name: str = ""
        raw: msgspec.Raw = msgspec.Raw()
        items: list[msgspec.Raw] | None = None

    text = rb'{"name":"a\ud800","raw":"\ud800","items":["\udc00",{"a":"\ud800"}],"other":"\ud800"}'
    found = surrogates.kept(msgspec.json.Decoder(Found).decode)(text)
    assert found.name == "a\ufffd"
    assert bytes(found.raw) == rb'"\ud800"'
    assert list(map(bytes, found.items or ())) == [rb'"\udc00"', rb'{"a":"\ud800"}']


def test_a_reader_of_other_members_skips_raw_json() -> None:
    class Found(msgspec.Struct):
        name: str

    read = surrogates.skipped(msgspec.json.Decoder(Found).decode)
    for sent in (r"\ud800", r"\uD800", r"\udc00\ud800", r"\\\ud800", r"\ud83d\ude00\udc00"):
        text = '{"raw":"' + sent + '","name":"C:\\\\ud800 ü"}'
        assert read(text.encode()).name == "C:\\ud800 ü"


READERS: list[Callable[[bytes], Any]] = [
    VALUES,
    MEMBERS,
    surrogates.replaced(msgspec.json.decode),
    surrogates.replaced(orjson.loads),
    surrogates.skipped(msgspec.json.decode),
    surrogates.formatted,
]
NO_JSON = (
    rb'{"a":"\ud8zz"}', rb'{"a":"\ud80"}', rb'{"a":"\ud800', rb'{"a":"\ud800"', b'{"a":"\\ud800\0"}', rb'{"a":"\ud800\udczz"}',
    rb'{"a":"\ud800"}}', rb'{"a":\ud800}', rb"\ud800", b"", b'{"a":"\\ud800" "\\u0000d800"}', rb'{"a":"\ud800\x"}',
)  # fmt: skip


@each_case(("text", "read"), itertools.product(NO_JSON, READERS))
def test_bytes_that_are_no_json_are_refused(text: bytes, read: Callable[[bytes], Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever the decoder says
        read(text)


def test_a_value_of_another_type_is_refused_by_the_decoder_itself() -> None:
    with pytest.raises(msgspec.ValidationError):
        MEMBERS(rb'["\ud800"]')


def test_a_text_with_nul_is_paired_up_to_there() -> None:
    assert utf8.paired('"\\ud800"\0"\\\\\\ud800"') == '"\\ufffd"\0"\\\\\\ud800"'
