"""Shard selectors as upstream reads them; texts as recorded from k8s.io/apiserver v0.36.3 `pkg/sharding` Parse."""

from __future__ import annotations

import json
import pathlib
import zlib
from typing import Any

import pytest

from apiserver.runtime import offload
from apiserver.verbs import shard_selector
from tests.fixtures.cases import each_case
from tests.fixtures.cpu import Spent

RECORDED = pathlib.Path(__file__).with_name("go_shard_selectors.jsonl")
CASES = [json.loads(line) for line in RECORDED.read_text().splitlines()]
ONE = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"


@each_case("case", CASES, ids=lambda c: str(zlib.crc32(c["text"].encode())))
def test_text_is_the_selector_of_upstream_or_gets_its_message(case: dict[str, Any]) -> None:
    try:
        found = {"selector": str(shard_selector.parse(case["text"]))}
    except shard_selector.Malformed as e:
        found = {"error": str(e)}
    assert {"text": case["text"], **found} == case


def test_selector_that_a_list_repeats_parses_to_itself() -> None:
    for case in CASES:
        if "selector" in case:
            assert str(shard_selector.parse(case["selector"])) == case["selector"]


def test_leftmost_of_several_errors_is_reported() -> None:
    terms = [ONE] * 40
    terms[7], terms[30] = "shardRange()", "a"
    with pytest.raises(shard_selector.Malformed, match=r"requires exactly 3 arguments, got 0$"):
        shard_selector.parse("||".join(terms))


@pytest.mark.parametrize("text", ["a+", "(", "[", "{a:", "a(", "a||", "a?b:", "has(", "a[", "!", "-", ")", "'", "\\"])
def test_parsing_on_the_event_loop_takes_milliseconds_for_any_text(text: str) -> None:
    text = text * (offload.SHARD_SELECTOR.limit // len(text))
    with Spent() as spent, pytest.raises(shard_selector.Malformed):
        shard_selector.parse(text)
    assert spent.below(0.02)


@pytest.mark.parametrize("text", ["a+", "a.?b", "f(a)||", f"({ONE})||", "(", "a&&"])
def test_long_malformed_selector_is_refused_without_a_reason(text: str) -> None:
    text = text * (99_000 // len(text))
    with Spent() as spent, pytest.raises(shard_selector.Malformed, match="more than 8192 characters, and wrong or"):
        shard_selector.parse(text)
    assert spent.below(1)


def test_long_valid_selector_is_read() -> None:
    assert str(shard_selector.parse(f"({ONE})||" * 1200 + ONE)) == " || ".join([ONE] * 1201)


def test_a_text_of_a_mebibyte_is_refused_without_being_read() -> None:
    with (
        Spent() as spent,
        pytest.raises(shard_selector.Malformed, match="size exceeds limit: size: 1048576, limit 100000"),
    ):
        shard_selector.parse("(" * (1 << 20))
    assert spent.below(0.02)
