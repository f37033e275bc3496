from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver import resources
from apiserver.apimachinery.releases import V1_36, at
from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, decoding
from apiserver.codecs.protobuf import envelope as as_protobuf
from apiserver.codecs.protobuf import messages
from apiserver.schema import machinery
from apiserver.schema.types import Field, Integer, ListOf, MapOf, Presence, RawJSON, String, Struct
from tests.fixtures.cases import each_case
from tests.unit.schema import shapes_and_values
from tests.unit.schema.shapes_and_values import Sample

KINDS = {resource.kind: resource.shape for resource in at(V1_36, resources.RESOURCES)}
MESSAGES = KINDS | {
    shape.name: shape
    for shape in (
        machinery.STATUS,
        machinery.DELETE_OPTIONS,
        machinery.PARTIAL_OBJECT_METADATA,
        machinery.PARTIAL_OBJECT_METADATA_LIST,
        machinery.API_RESOURCE_LIST,
        machinery.API_GROUP,
    )
}


def recorded(name: str) -> list[dict[str, Any]]:
    """Results of the generated code of v1.36 (k8s.io/api, k8s.io/apimachinery)."""
    return [json.loads(line) for line in (Path(__file__).parent / name).read_text().splitlines()]


@pytest.mark.parametrize("case", recorded("go_protobuf_published.jsonl"), ids=lambda case: case["kind"])
def test_an_object_with_every_field_has_the_bytes_of_the_published_one(case: dict[str, Any]) -> None:
    shape, published = KINDS[case["kind"]], base64.b64decode(case["protobuf"])
    members = {name: x for name, x in case["json"].items() if name not in ("kind", "apiVersion")}
    obj = decoding.decode(shape, members).object
    assert as_protobuf.envelope("resource.k8s.io/v1", case["kind"], messages.encode(shape, obj)) == published
    envelope = as_protobuf.opened(published)
    assert (envelope.api_version, envelope.kind) == ("resource.k8s.io/v1", case["kind"])
    assert messages.decode(shape, envelope.raw) == obj


@each_case("case", recorded("go_protobuf_writes.jsonl"), ids=lambda case: case["kind"])
def test_any_object_has_the_bytes_that_go_writes(case: dict[str, Any]) -> None:
    shape = MESSAGES[case["kind"]]
    obj = decoding.decode(shape, case["json"]).object
    assert messages.encode(shape, obj) == base64.b64decode(case["protobuf"])


@each_case("case", recorded("go_protobuf_reads.jsonl"), ids=lambda case: case["protobuf"][:40])
def test_any_bytes_are_read_or_refused_as_go_does(case: dict[str, str]) -> None:
    shape, data = MESSAGES[case["kind"]], bytes.fromhex(case["protobuf"])
    if "error" in case:
        with pytest.raises(messages.DecodeError) as refused:
            messages.decode(shape, data)
        assert str(refused.value) == case["error"]
    else:
        obj = messages.decode(shape, data)
        line = canonical.encode_served(shape, obj).partition(b"\n")[0]
        assert line.decode() == case["json"].replace("\\ufffd", "\ufffd")


@given(sample=shapes_and_values.samples())
def test_written_message_is_read_back(sample: Sample) -> None:
    message = messages.encode(sample.shape, sample.value)
    again = messages.decode(sample.shape, message)
    assert canonical.equal(sample.shape, again, sample.value)
    assert messages.encode(sample.shape, again) == message


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(data=st.data())
def test_objects_of_the_kinds_go_to_protobuf_and_back(kind: str, data: st.DataObject) -> None:
    obj = data.draw(shapes_and_values.struct_values(KINDS[kind]))
    message = messages.encode(KINDS[kind], obj)
    again = messages.decode(KINDS[kind], message)
    assert canonical.equal(KINDS[kind], again, obj)
    stored = canonical.decode(KINDS[kind], canonical.encode_served(KINDS[kind], again))
    assert messages.encode(KINDS[kind], stored) == message


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_a_stored_value_has_the_message_of_its_object(kind: str, data: st.DataObject) -> None:
    stored = canonical.encode(KINDS[kind], data.draw(shapes_and_values.struct_values(KINDS[kind])))
    assert messages.of_stored(KINDS[kind], stored) == messages.encode(
        KINDS[kind], canonical.decode(KINDS[kind], stored)
    )


@given(sample=shapes_and_values.samples())
def test_a_value_of_any_shape_has_the_message_of_its_object(sample: Sample) -> None:
    text = canonical.encode_served(sample.shape, sample.value)
    assert messages.of_stored(sample.shape, text) == messages.encode(sample.shape, canonical.decode(sample.shape, text))


MARKS = ("},", '"},"', '":{"', '\\"},\\"b\\":{\\"string\\":\\"', "\\", '"', "}}", "<&>", "é", "\u2028", "\ud800", "")


@given(
    attributes=st.dictionaries(
        st.lists(st.sampled_from((*MARKS, "a", "b")), max_size=3).map("".join),
        st.one_of(
            st.lists(st.sampled_from((*MARKS, "x")), max_size=4).map(lambda parts: {"string": "".join(parts)}),
            st.integers(-(1 << 63), (1 << 63) - 1).map(lambda number: {"int": number}),
            st.booleans().map(lambda truth: {"bool": truth}),
            st.lists(st.sampled_from(MARKS), max_size=2).map(lambda texts: {"strings": texts}),
            st.just({}),
            st.just({"string": "a", "bool": True}),
        ),
        max_size=4,
    )
)
def test_texts_that_look_like_json_are_no_entries_of_a_stored_map(attributes: dict[str, Any]) -> None:
    shape = KINDS["ResourceSlice"]
    stored = canonical.encode(shape, {"spec": {"devices": [{"name": "d", "attributes": attributes}]}})
    assert messages.of_stored(shape, stored) == messages.encode(shape, canonical.decode(shape, stored))


def test_malformed_stored_value_is_refused() -> None:
    for text in (
        b"",
        b"[]",
        b'{"spec":',
        b'{"spec":{"devices":[{"attributes":{"a":{"int":1}}',
        b'{"metadata":{"name":1}}',
    ):
        with pytest.raises((ValueError, AttributeError)):
            messages.of_stored(KINDS["ResourceSlice"], text)


def test_a_list_that_is_a_go_type_of_its_own_is_a_message() -> None:
    message = messages.encode(machinery.API_RESOURCE, {"name": "n", "verbs": ["get", "list"]})
    assert message == bytes.fromhex("0a016e 1000 1a00 220b 0a03676574 0a046c697374 3200 4200 4a00 5200")
    assert messages.decode(machinery.API_RESOURCE, message)["verbs"] == ["get", "list"]


def test_a_list_in_a_map_is_a_message() -> None:
    shape = Struct(name="S", fields=(Field(name="m", number=1, type=MapOf(ListOf(String()))),))
    message = messages.encode(shape, {"m": {"b": [], "a": ["x"]}})
    assert message == bytes.fromhex("0a08 0a0161 1203 0a0178 0a05 0a0162 1200")
    assert messages.decode(shape, message) == {"m": {"a": ["x"], "b": []}}


def test_objects_share_nothing_that_can_be_changed() -> None:
    counters = {"name": "s", "counters": {"c": {"value": "1"}}}
    devices = [{"name": "d", "attributes": {"a": {"int": 1}, "b": {"ints": [1]}}}]
    message = messages.encode(KINDS["ResourceSlice"], {"spec": {"devices": devices, "sharedCounters": [counters]}})
    first, second = (messages.decode(KINDS["ResourceSlice"], message)["spec"] for _ in range(2))
    first["devices"][0]["attributes"]["a"]["int"] = 2
    first["devices"][0]["attributes"]["b"]["ints"].append(2)
    first["sharedCounters"][0]["counters"]["c"].clear()
    assert (second["devices"], second["sharedCounters"]) == (devices, [counters])


def test_raw_json_in_a_map_is_written_as_it_is_each_time() -> None:
    part = Struct(name="P", fields=(Field(name="x", number=1, type=RawJSON()),))
    shape = Struct(name="S", fields=(Field(name="m", number=1, type=MapOf(part)),))
    written = [messages.encode(shape, {"m": {"k": {"x": rawjson.of(x)}}}) for x in (b"true", b"1", b"1.0", b"true")]
    # Beside the value there are three keys and lengths, and the name.
    assert [message[11:] for message in written] == [b"true", b"1", b"1.0", b"true"]


def test_half_characters_become_what_go_makes_of_them() -> None:
    shape = Struct(name="S", fields=(Field(name="t", number=1, type=String()),))
    assert messages.encode(shape, {"t": "a\ud800"}) == b"\x0a\x04a\xef\xbf\xbd"
    assert messages.decode(shape, b"\x0a\x03a\xe2\x82") == {"t": "a\ufffd\ufffd"}


def test_a_message_of_very_many_small_values_is_refused() -> None:
    shape = Struct(name="S", fields=(Field(name="n", number=1, type=ListOf(Integer())),))
    with pytest.raises(messages.TooManyValues):
        messages.decode(shape, b"\x08\0" * (messages.MOST_VALUES + 1))


@pytest.mark.parametrize("presence", [Presence.POINTER, Presence.NULLABLE])
def test_a_pointer_is_written_when_it_is_there(presence: Presence) -> None:
    shape = Struct(name="S", fields=(Field(name="t", number=1, type=String(), presence=presence),))
    assert messages.encode(shape, {}) == b""
    assert messages.encode(shape, {"t": ""}) == b"\x0a\0"
    assert messages.decode(shape, b"\x0a\0") == {"t": ""}
