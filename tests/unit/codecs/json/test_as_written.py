from __future__ import annotations

import json
import pathlib
from typing import Any

import msgspec
import pytest

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.json import as_written, json_syntax
from apiserver.codecs.json.as_written import Literal
from apiserver.codecs.objects import canonical, decoding
from apiserver.kinds import type_meta
from apiserver.schema import machinery
from tests.fixtures.cases import each_case
from tests.unit.schema.gadget import GADGET, SPEC

HERE = pathlib.Path(__file__).resolve().parent
SHAPES = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES)} | {
    "DeleteOptions": machinery.DELETE_OPTIONS
}
CASES = [json.loads(line) for line in (HERE / "go_written.jsonl").read_text().splitlines()]
"""Results of Go's decoder of v1.36 for repeated members and numbers of any size (sigs.k8s.io/json into the types of k8s.io/api
and k8s.io/apimachinery), written as protobuf and read again."""


@each_case("case", CASES, ids=lambda c: c["json"][:70])
def test_repeated_members_are_merged_as_go_decodes_them(case: dict[str, Any]) -> None:
    shape = SHAPES[case["kind"]]
    value = as_written.read(shape, json_syntax.mended(case["json"].encode()))
    error, stored = "", None
    try:
        found = decoding.decode_written(shape, value)
        stored = json.loads(canonical.encode(shape, found.object).partition(b"\n")[0])
    except decoding.DecodeError as e:
        error = str(e)
    assert (error, stored) == (case["error"], case["stored"])


def test_repeated_members_are_reported_each_time() -> None:
    value = as_written.read(GADGET, ' { "kind" : "a", "spec":{"owner":"x"} ,"kind":null, "\\u006bind": "b"\n} ')
    assert value == {"kind": "b", "spec": {"owner": "x"}}
    assert [*as_written.members(value)] == [("kind", "a"), ("spec", {"owner": "x"}), ("kind", None), ("kind", "b")]
    assert [*as_written.members(value["spec"])] == [("owner", "x")]
    assert [*as_written.members(as_written.without(value, ["spec"]))] == [("kind", "a"), ("kind", None), ("kind", "b")]
    assert as_written.without(value, type_meta.MEMBERS) == {"spec": {"owner": "x"}}


def test_last_kind_and_version_that_are_not_null_count() -> None:
    value = as_written.read(GADGET, '{"Kind":"A","kind":"B","kind":null,"apiVersion":"v1","APIVERSION":"g/v2"}')
    assert type_meta.read(value) == ("g", "v2", "B")
    with pytest.raises(type_meta.Unreadable, match=r"number into Go struct field \.kind"):
        type_meta.read(as_written.read(GADGET, '{"kind":1e999,"kind":"B"}'))


@pytest.mark.parametrize("value", ['{"a":[{"b":"]}"}]}', "[[[]],{}]", '"\\"}"', "-1.5e+3", "true", "{ }"])
def test_unknown_members_are_skipped_and_raw_json_is_kept_as_sent(value: str) -> None:
    read = as_written.read(SPEC, f'{{"x": {value} ,"raw":{value} , "owner": "o"}}')
    assert bytes(read["raw"]) == value.encode()
    assert read["owner"] == "o"
    assert read["x"] in ({}, [], '"}', -1500.0, True)


def test_raw_json_that_is_null_is_nothing() -> None:
    assert as_written.read(SPEC, '{"raw":null}') == {"raw": None}


@pytest.mark.parametrize("depth", [1_000, 200_000])
def test_no_depth_is_too_much_to_be_skipped(depth: int) -> None:
    assert as_written.read(SPEC, f'{{"x":{"[" * depth}{"]" * depth},"owner":"o"}}') == {"x": [], "owner": "o"}


def test_numbers_remember_how_they_were_written() -> None:
    read = as_written.read(SPEC, '{"a":1,"b":-9223372036854775808,"c":1E400,"d":5e0,"e":123456789012345678901}')
    assert [read["a"], read["b"]] == [1, -(1 << 63)]
    literals = [read[name] for name in "cde"]
    assert all(isinstance(x, Literal) for x in literals)
    assert [str(x) for x in literals] == [f"{x}" for x in literals] == ["1E400", "5e0", "123456789012345678901"]


def test_kept_document_equals_what_its_decoder_returns() -> None:
    text = '{"metadata":{"name":"ä\\n","labels":{"b":"","a":"x"}},"spec":{"owner":"o","parts":[],"extra":["\\u00e4"]}}'
    assert as_written.read(GADGET, text) == msgspec.json.decode(text)
