"""Raw JSON is kept as it was sent, as deep as this server goes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.codecs.json import rawjson
from apiserver.codecs.json.rawjson import LEVELS

BESIDE = st.lists(st.text(alphabet='{}[]"\\ué,:'), max_size=20).map(lambda texts: [[], {}, *texts])


def nested(levels: int, beside: list[object], *, padding: int = 0) -> bytes:
    """A list that nests so deep, with more text before its deepest one."""
    before, after = json.dumps(beside, ensure_ascii=False)[1:-1], json.dumps("]" * padding)
    return ("[" * (levels - 1) + f"{before},{after},[]" + "]" * (levels - 1)).encode()


@given(BESIDE)
def test_brackets_in_texts_are_no_levels(beside: list[object]) -> None:
    assert rawjson.text(rawjson.of(nested(LEVELS, beside))) == nested(LEVELS, beside)
    with pytest.raises(rawjson.TooDeep):
        rawjson.of(nested(LEVELS + 1, beside))


@pytest.mark.parametrize("padding", [0, 1, 30_000, 32 << 10, 100_000])
@pytest.mark.parametrize("beside", [[{}] * 20_000, ['"\\{'] * 20_000, ["[["] * 33_333 + [{"a": "}"}]])
def test_levels_are_counted_in_texts_of_any_length(padding: int, beside: list[object]) -> None:
    rawjson.of(nested(LEVELS, beside, padding=padding))
    with pytest.raises(rawjson.TooDeep):
        rawjson.of(nested(LEVELS + 1, beside, padding=padding))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1.0, "a": [1e21, 1.5, True, None]}, b'{"a":[1e+21,1.5,true,null],"b":1}'),
        ({"a": -0.0, "b": 1e-7}, b'{"a":0,"b":1e-7}'),
        ({"z": {"b": "1.0,", "a": 2**53}}, b'{"z":{"a":9007199254740992,"b":"1.0,"}}'),
        ({"lone": "\ud800"}, b'{"lone":"\xef\xbf\xbd"}'),
    ],
)  # fmt: skip
def test_unstructured_values_are_written_as_go_writes_them(value: Any, text: bytes) -> None:
    assert rawjson.sorted_json(value) == text
