from __future__ import annotations

import copy
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, decoding, times
from apiserver.schema import shapes
from apiserver.schema.resource import Object
from apiserver.schema.shapes import CUSTOM
from apiserver.schema.types import Field, ListOf, MapOf, RawJSON, Struct
from tests.unit.schema import shapes_and_values
from tests.unit.schema.gadget import GADGET, PART, SPEC
from tests.unit.schema.shapes_and_values import Sample

KINDS = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES)}


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (
            "ResourceSlice",
            '{"metadata":{},"spec":{"driver":"","pool":{"name":"","generation":0,"resourceSliceCount":0}}}',
        ),
        ("DeviceClass", '{"metadata":{},"spec":{}}'),
        ("ResourceClaim", '{"metadata":{},"spec":{"devices":{"requests":null}},"status":{}}'),
        (
            "ResourceClaimTemplate",
            '{"metadata":{},"spec":{"metadata":{},"spec":{"devices":{"requests":null}}}}',
        ),
    ],
)
def test_the_zero_object_of_a_kind_is_what_bookmarks_carry(kind: str, stored: str) -> None:
    assert canonical.encode(KINDS[kind], {}).decode() == stored
    assert json.dumps(canonical.zero(KINDS[kind]), separators=(",", ":")) == stored


def test_zero_objects_are_not_shared() -> None:
    canonical.zero(GADGET)["spec"]["pool"]["rank"] = 5
    assert canonical.zero(GADGET)["spec"]["pool"] == {"rank": 0}


def test_kind_and_versions_are_not_stored_and_managed_fields_are() -> None:
    metadata = {"managedFields": [{"manager": "m"}], "resourceVersion": "7", "name": "n", "uid": "u"}
    stored = canonical.encode(GADGET, {"kind": "Gadget", "apiVersion": "v1", "metadata": metadata, "spec": {}})
    assert json.loads(stored)["metadata"] == {"name": "n", "uid": "u", "managedFields": [{"manager": "m"}]}
    assert b"kind" not in stored
    assert b"apiVersion" not in stored


def test_the_object_is_not_changed() -> None:
    obj: Object = {
        "spec": {"labels": {"b": "", "a": ""}, "parts": [], "node": None},
        "metadata": {"resourceVersion": "7"},
    }
    before = copy.deepcopy(obj)
    canonical.encode(GADGET, obj)
    assert obj == before
    assert list(obj["spec"]["labels"]) == ["b", "a"]


def stored_spec(spec: dict[str, Any]) -> Any:
    return json.loads(canonical.encode(GADGET, {"spec": spec}))["spec"]


EMPTY = rawjson.of(b"{}")
NOTHING = {"owner": "", "pool": {"rank": 0}, "raw": None, "extra": None}


def test_members_are_written_as_their_presence_says() -> None:
    assert stored_spec({}) == NOTHING
    empty = {"node": "", "solid": False, "mode": "", "parts": [], "limits": {}, "grams": 0, "extra": [], "raw": EMPTY}
    assert stored_spec(empty) == NOTHING | {"node": "", "solid": False, "raw": {}}
    assert stored_spec({"parts": [{}]})["parts"] == [{"name": "", "size": "0", "least": None}]


def test_a_zero_time_is_absent_or_null() -> None:
    obj = {"metadata": {"creationTimestamp": times.ZERO, "deletionTimestamp": times.ZERO, "name": times.ZERO}}
    assert json.loads(canonical.encode(GADGET, obj))["metadata"] == {"name": times.ZERO, "deletionTimestamp": None}
    condition = {"type": "t", "lastTransitionTime": times.ZERO}
    stored = json.loads(canonical.encode(GADGET, {"status": {"conditions": [condition, {}]}}))
    assert [c["lastTransitionTime"] for c in stored["status"]["conditions"]] == [None, None]


def test_a_struct_that_may_be_left_out_goes_when_it_has_nothing_to_say() -> None:
    assert canonical.encode(GADGET, {"status": {"conditions": []}}).endswith(b"}}")
    assert b"status" not in canonical.encode(GADGET, {"status": {"conditions": []}})


def test_maps_are_sorted_and_raw_json_is_not() -> None:
    spec = {"labels": {"b": "", "\U0001f600": "", "\uffff": "", "B": "", "": ""}, "raw": rawjson.of(b'{"b":1,"a":2}')}
    assert list(stored_spec(spec)["labels"]) == ["", "B", "b", "\uffff", "\U0001f600"]
    assert list(stored_spec(spec)["raw"]) == ["b", "a"]


@pytest.mark.parametrize("shape", [GADGET, KINDS["ResourceSlice"]], ids=["with raw json", "without"])
def test_text_is_escaped_as_go_does(shape: Any) -> None:
    text = '<&>\u2028\u2029\u00e4\U0001f600"\\/\b\f\n\r\t\x00\x1f\x7f'
    stored = canonical.encode(shape, {"metadata": {"annotations": {text: text}}})
    escaped = '"\\u003c\\u0026\\u003e\\u2028\\u2029ä😀\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\x7f"'
    assert f'{{"metadata":{{"annotations":{{{escaped}:{escaped}}}}}'.encode() in stored


@pytest.mark.parametrize("shape", [GADGET, KINDS["ResourceSlice"]], ids=["with raw json", "without"])
def test_half_characters_are_written_as_replacement_characters(shape: Any) -> None:
    stored = canonical.encode(shape, {"metadata": {"name": "a\ud800b"}})
    assert json.loads(stored)["metadata"]["name"] == "a\ufffdb"


def test_raw_json_may_be_deep_and_hold_huge_integers() -> None:
    deep: list[Any] = [10**40]
    for _ in range(300):
        deep = [deep]
    assert stored_spec({"raw": rawjson.of(json.dumps(deep).encode())})["raw"] == deep


@given(shapes_and_values.samples(), st.randoms(use_true_random=False))
def test_encoding_is_idempotent_and_the_order_of_members_does_not_matter(sample: Sample, order: random.Random) -> None:
    stored = canonical.encode(sample.shape, sample.value)
    assert canonical.encode(sample.shape, canonical.decode(sample.shape, stored)) == stored
    assert canonical.encode(sample.shape, shapes_and_values.shuffled(sample.value, order)) == stored


@given(shapes_and_values.samples())
def test_both_ways_of_writing_give_the_same_bytes(sample: Sample) -> None:
    slow = rawjson.shown(canonical._struct_writer(sample.shape)(sample.value))
    assert canonical.encode(sample.shape, sample.value).partition(b"\n")[0] == rawjson.escaped(slow)


@given(shapes_and_values.samples())
def test_raw_json_comes_back_as_it_was_sent_and_is_shown_compact(sample: Sample) -> None:
    stored = canonical.encode(sample.shape, sample.value)
    assert canonical.equal(sample.shape, canonical.decode(sample.shape, stored), sample.value)
    line, _, texts = stored.partition(b"\n")
    assert msgspec.json.format(line, indent=-1) == line
    shown = canonical.decode(sample.shape, line)
    assert canonical.encode(sample.shape, shown) == line
    assert canonical.equal(sample.shape, shown, sample.value) is not bool(texts)


def test_texts_stand_behind_the_object_in_the_order_of_its_raw_json() -> None:
    part = Struct(name="P", fields=(Field(name="raws", number=1, type=MapOf(RawJSON())),))
    shape = Struct(name="S", fields=(Field(name="parts", number=1, type=ListOf(part)),))
    half = chr(0xD800)
    loose, compact = rawjson.of(b"[ 1,\n2]"), rawjson.of(b"[1]")
    obj: Object = {
        "parts": [{"raws": {half: loose, "a": compact, "\ufffd": compact, "b": None}}, {"raws": {"a": loose}}]
    }
    stored = canonical.encode(shape, obj)
    assert stored.decode() == (
        '{"parts":[{"raws":{"a":[1],"b":null,"\ufffd":[1]}},{"raws":{"a":[1,2]}}]}\n[null,null,"[ 1,\\n2]"]'
    )
    assert canonical.decode(shape, stored)["parts"][1] == {"raws": {"a": loose}}
    for wrong in (b"\n", b"\n{}", b"\n[]", b"\n[null,null]", b"\n[null,null,null,null]", b"\n[1,2,3]"):
        with pytest.raises(ValueError, match=r"text|Expected|JSON|truncated"):
            canonical.decode(shape, stored.partition(b"\n")[0] + wrong)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({}, {"parts": [], "limits": {}, "labels": None, "mode": "", "grams": 0, "pool": {"rank": 0}}, True),
        ({"node": ""}, {}, False),
        ({"node": ""}, {"node": ""}, True),
        ({"solid": False}, {}, False),
        ({"parts": [{"size": "1Gi"}]}, {"parts": [{"size": "1048576Ki"}]}, True),
        ({"parts": [{"size": "1e3"}]}, {"parts": [{"size": "1k"}]}, True),
        ({"parts": [{"size": "0"}]}, {"parts": [{}]}, True),
        ({"parts": [{"factor": "0"}]}, {"parts": [{}]}, False),
        ({"parts": [{"least": "0"}]}, {"parts": [{}]}, False),
        ({"parts": [{}]}, {"parts": [{}, {}]}, False),
        ({"limits": {"a": {"top": "1"}}}, {"limits": {"a": {"top": "1000m"}}}, True),
        ({"limits": {"a": {}}}, {"limits": {"b": {}}}, False),
        ({"raw": rawjson.of(b'{"a":1}')}, {"raw": rawjson.of(b'{"a":1}')}, True),
        ({"raw": rawjson.of(b'{"a":1,"b":2}')}, {"raw": rawjson.of(b'{"b":2,"a":1}')}, False),
        ({"raw": rawjson.of(b'{"a":1}')}, {"raw": rawjson.of(b'{"a":1.0}')}, False),
        ({"raw": rawjson.of(b'{"a":1}')}, {"raw": rawjson.of(b'{"a":1,"a":1}')}, False),
        ({"raw": rawjson.of(b"0")}, {}, False),
        ({"owner": "a"}, {"owner": "b"}, False),
    ],
)
def test_equality_is_about_meaning(a: dict[str, Any], b: dict[str, Any], same: bool) -> None:
    assert canonical.equal(SPEC, a, b) is same
    assert canonical.equal(SPEC, b, a) is same


def test_zero_and_absent_times_are_equal_unless_they_are_pointers() -> None:
    assert canonical.equal(shapes.CONDITION, {"lastTransitionTime": times.ZERO}, {})
    assert not canonical.equal(PART, {"since": times.ZERO}, {})


@given(shapes_and_values.samples())
def test_object_equals_its_stored_form(sample: Sample) -> None:
    stored = decoding.decode(
        sample.shape, canonical.decode(sample.shape, canonical.encode(sample.shape, sample.value))
    ).object
    assert canonical.equal(sample.shape, sample.value, stored)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({"spec": {"raw": rawjson.of(b'{"a":1e3}')}}, {"spec": {"raw": rawjson.of(b'{"a":1e3}')}}, True),
        ({"metadata": {"name": "a", "uid": "u"}}, {"metadata": {"uid": "u", "name": "a"}}, True),
        ({"spec": {"labels": {"b": "1", "a": "2"}}}, {"spec": {"labels": {"a": "2", "b": "1"}}}, True),
        ({"spec": {"raw": rawjson.of(b'{"a":1}')}}, {"spec": {"raw": rawjson.of(b'{"a":1.0}')}}, False),
        ({"spec": {"raw": rawjson.of(b'{"a":1,"b":2}')}}, {"spec": {"raw": rawjson.of(b'{"b":2,"a":1}')}}, False),
        ({"spec": {}}, {"spec": {"own": 1}}, False),
    ],
)  # fmt: skip
def test_certainly_equal_values_are_recognised_without_encoding(a: Object, b: Object, same: bool) -> None:
    assert canonical.same(GADGET, a, b) is same
    if same:
        assert canonical.encode(GADGET, a) == canonical.encode(GADGET, b)


@pytest.mark.parametrize(
    "raw",
    [b"1e400", b"[1.0,-0,1e3]", b"1" + b"0" * 5000, b'{"a":1,"a":2}', b'"\\u0041\\/"', rb'{"\udc00":"\ud800\\\u0000"}'],
)
def test_raw_json_survives_decoding_and_encoding_as_it_is_spelled(raw: bytes) -> None:
    found = canonical.decode(GADGET, b'{"metadata":{"name":"a"},"spec":{"raw":%b}}' % raw)
    assert rawjson.text(found["spec"]["raw"]) == raw
    assert b'"raw":%b' % raw in canonical.encode(GADGET, found)


def test_texts_of_raw_json_keep_lone_surrogates() -> None:
    sent = rawjson.of(rb'{ "a" : "\uD800<" }')
    stored = canonical.encode(GADGET, {"metadata": {"name": "a"}, "spec": {"raw": sent}})
    assert rb'"raw":{"a":"\uD800\u003c"}' in stored.partition(b"\n")[0]
    assert canonical.decode(GADGET, stored)["spec"]["raw"] == sent


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b'{"metadata":"\xff"}'])
def test_bytes_that_are_no_object_are_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        canonical.decode(GADGET, data)


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0), ([{"a": 1}], [{"a": True}])])
def test_values_that_python_takes_for_equal_are_changes_of_a_custom_resource(before: Any, after: Any) -> None:
    old, new = ({"metadata": {"name": "x"}, "spec": {"v": value}} for value in (before, after))
    assert old == new
    assert not canonical.same(CUSTOM, new, old)
    assert not canonical.equal(CUSTOM, new, old)
    assert canonical.same(CUSTOM, old, old)


def test_large_float_of_custom_resource_stays_a_float_when_it_is_read() -> None:
    stored = canonical.encode(
        CUSTOM, {"metadata": {"name": "a"}, "spec": {"n": 1e20, "m": [{"k": 2.0**63}], "t": "1" * 30}}
    )
    found = canonical.decode(CUSTOM, stored)["spec"]
    assert (found["n"], found["m"][0]["k"], found["t"]) == (1e20, 2.0**63, "1" * 30)
    assert isinstance(found["n"], float)
    assert isinstance(found["m"][0]["k"], float)
