from __future__ import annotations

import json
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.codecs.json import json_strings
from tests.fixtures import steps
from tests.fixtures.calls import Longest

MIB = 1 << 20
TEXTS = st.lists(st.sampled_from(['"', "\\", "\n", "a", "é", "[,", "\u2028"]), max_size=30).map("".join)


@given(st.lists(TEXTS, max_size=5), st.integers(1, 7))
def test_strings_end_where_the_standard_library_ends_them(texts: list[str], step: int) -> None:
    written = [json.dumps(text, ensure_ascii=False) for text in texts]
    raw = ", ".join(written).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_strings, "_AT_ONCE", step)
        plain = json_strings.without_escaped_quotes(raw)
    assert len(plain) == len(raw)
    assert [raw[found.start() : found.end()].decode() for found in re.finditer(json_strings.STRING, plain)] == written


@given(TEXTS, st.sampled_from(["", " ", '"', '"a"']))
def test_the_end_of_a_string_is_behind_its_quotation_mark(text: str, behind: str) -> None:
    written = json.dumps(text, ensure_ascii=False)
    assert json_strings.end(f"[{written}{behind}", 1) == 1 + len(written)


@pytest.mark.parametrize("escapes", [999, 1000, 1001, 5000])
@pytest.mark.parametrize("escape", ["\\n", '\\"', "\\\\", "\\u00e9"])
def test_a_string_may_have_any_number_of_escapes(escape: str, escapes: int) -> None:
    text = f'"{escape * escapes}"'
    assert json_strings.end(text + ",1]", 0) == len(text)


@pytest.mark.parametrize("text", ['"', '"a', '"\\', '"\\"', '"' + "\\n" * 5000])
def test_a_string_without_an_end_takes_the_rest(text: str) -> None:
    assert json_strings.end(text, 0) == len(text)


@pytest.mark.parametrize("escape", [b"\\n", b'\\"', b"\\\\", b"\\u00e9", b'\\\\\\"'])
def test_escapes_take_little_memory_and_no_long_call(escape: bytes) -> None:
    raw = b'["' + escape * (3 * MIB // len(escape)) + b'"]'
    text = raw.decode()
    with Longest() as held:
        plain = json_strings.without_escaped_quotes(raw)
        json_strings.end(text, 1)
    assert held.seconds < 0.01 * steps.slowness(), held.where
    assert re.findall(json_strings.STRING, plain) == [plain[1:-1]]

    tracemalloc.start()
    try:
        json_strings.end(text, 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_a_linear_pattern_matches_bytes() -> None:
    pattern = json_strings.linear(rb"(?:\xff|\\.)*")
    assert pattern.match(b"\xff\\a\xffb").span() == (0, 4)
