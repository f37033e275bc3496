from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apiserver.codecs.yaml import as_yaml
from apiserver.codecs.yaml.as_yaml import YAMLProblem
from tests.fixtures.cases import each_case
from tests.unit.wire import recorded

CASES = recorded.cases("go_yaml.jsonl")
READ = [c for c in CASES if not c["error"]]


@each_case("case", CASES, ids=lambda c: c["raw"][:60])
def test_yaml_becomes_json_or_fails_as_upstream_has_it(case: dict[str, Any]) -> None:
    if case["error"]:
        with pytest.raises(YAMLProblem) as refused:
            as_yaml.read(recorded.raw(case))
        assert str(refused.value) == case["error"]
        return
    found = as_yaml.read(recorded.raw(case))
    assert found.value == json.loads(case["json"])
    assert found.repeats == case["repeats"]
    if isinstance(found.value, dict):
        assert list(found.value) == list(json.loads(case["json"]))


@each_case("case", READ, ids=lambda c: c["raw"][:60])
def test_yaml_is_written_as_upstream_writes_it(case: dict[str, Any]) -> None:
    assert as_yaml.dumps(as_yaml.read(recorded.raw(case)).value).decode() == case["yaml"]


TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff", exclude_categories=("Cc", "Cs", "Cn"))
)
KEYS = TEXT.filter(lambda text: text != "<<")
"""Upstream too writes that key without quotation marks, and reads a merge."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_written_document_reads_the_same(value: Any) -> None:
    assert as_yaml.read(as_yaml.dumps(value)).value == value


def test_the_end_of_the_document_is_not_marked() -> None:
    assert as_yaml.dumps({"a": "x..."}) == b"a: x...\n"
    assert as_yaml.dumps({"a": "\n"}) == b"a: |2+\n\n"
    assert as_yaml.dumps({}) == b"{}\n"


def test_names_are_sorted_naturally_and_letters_come_last() -> None:
    assert as_yaml.in_order(dict.fromkeys(["k10", "k9", "kb", "k-", "k", "k09", "K", "z"])) == [
        "K",
        "k",
        "k-",
        "k9",
        "k09",
        "k10",
        "kb",
        "z",
    ]


def test_repeated_keys_are_listed_with_the_lines_of_their_values() -> None:
    found = as_yaml.read(b"kind: x\nmetadata:\n  name: a\n  name: b\nspec: {}\nspec: {}\n")
    assert found.value == {"kind": "x", "metadata": {"name": "b"}, "spec": {}}
    assert found.repeats == (
        'yaml: unmarshal errors:\n  line 4: key "name" already set in map\n  line 6: key "spec" already set in map'
    )


@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b'"\\/": 1', ""),
        (b'a: 1\nb:\n  c: "x\n   y\\\\\\/"\n', "line 4: "),
        ('\ufeffa: é\nb: "\U0001f389\\/"'.encode(), "line 2: "),
        (b'a: "\\/"\nb: [', ""),
    ],
)
def test_an_escaped_slash_is_no_escape(raw: bytes, line: str) -> None:
    """JSON and newer YAML have it, go-yaml has not."""
    with pytest.raises(as_yaml.YAMLProblem, match=f"^yaml: {line}found unknown escape character$"):
        as_yaml.read(raw)


def test_escaped_slash_is_read_where_no_escape_is_meant() -> None:
    raw = b'a: x\\/y\nb: \'x\\/y\'\nc: "\\\\/"\nd: |\n  "\\/"\n# "\\/"\n'
    assert as_yaml.read(raw).value == {"a": "x\\/y", "b": "x\\/y", "c": "\\/", "d": '"\\/"\n'}
    assert as_yaml.read(b'a: 1\n---\n"\\/"').value == {"a": 1}


def test_only_the_first_document_is_read() -> None:
    assert as_yaml.read(b"a: 1\n---\n{not yaml").value == {"a": 1}


def test_a_document_may_say_that_it_is_yaml_1_1_and_nothing_else() -> None:
    assert as_yaml.read(b"%YAML 1.1\n---\na: 1\n").value == {"a": 1}
    assert as_yaml.read(b"a: 1\n...\n%YAML 1.2\n---\na: 2\n").value == {"a": 1}
    for lines in (0, 2):
        for version in ("1.2", "1.0", "2.0"):
            with pytest.raises(YAMLProblem) as told:
                as_yaml.read(
                    f"{'# note' + chr(10) if lines else ''}{chr(10) if lines else ''}%YAML {version}\n---\na: 1\n".encode()
                )
            where = f"line {lines}: " if lines else ""
            assert str(told.value) == f"yaml: {where}found incompatible YAML document"


def bomb(levels: int) -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, levels)]
    return "\n".join(lines).encode()


def test_a_bomb_of_aliases_does_not_go_off() -> None:
    with pytest.raises(YAMLProblem, match="yaml: document contains excessive aliasing"):
        as_yaml.read(bomb(9))
    assert len(as_yaml.read(bomb(2)).value) == 2


def test_few_aliases_of_a_large_text_are_bounded_too() -> None:
    raw = b"a: &a " + b"x" * (1 << 20) + b"\nb: [" + b", ".join([b"*a"] * 60) + b"]\n"
    with pytest.raises(YAMLProblem, match="yaml: document contains excessive aliasing"):
        as_yaml.read(raw)


@pytest.mark.parametrize("raw", [b"[" * 10_001, b"{a: " * 10_001, b"- " * 10_001 + b"x"])
def test_depth_is_refused_and_does_not_fail(raw: bytes) -> None:
    with pytest.raises(YAMLProblem, match="exceeded max depth of 10000"):
        as_yaml.read(raw)


def test_a_thousand_levels_are_read() -> None:
    value = as_yaml.read(b"[" * 1000 + b"]" * 1000).value
    assert isinstance(value, list)


def test_no_tag_makes_anything_but_plain_values() -> None:
    assert as_yaml.read(b"a: !!python/object/apply:os.system [ls]\nb: !!python/name:os.system ''\n").value == {
        "a": ["ls"],
        "b": "",
    }


def test_a_list_of_kubernetes_objects_reads_back_with_another_parser() -> None:
    value = {"items": [{"metadata": {"name": "x", "labels": {"on": "yes", "n": "1", "e": ""}}, "b": True, "z": None}]}
    assert yaml.safe_load(as_yaml.dumps(value)) == value
