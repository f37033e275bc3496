from __future__ import annotations

import copy
import json
import pathlib
import random
import re
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver import resources
from apiserver.apimachinery.releases import V1_36, at
from apiserver.codecs.json import as_written, rawjson
from apiserver.codecs.objects import canonical, decoding, typed
from apiserver.wire import as_json
from kubetext.quoting import go_quote
from tests.fixtures.cases import each_case
from tests.unit.schema import shapes_and_values
from tests.unit.schema.gadget import GADGET, SPEC
from tests.unit.schema.shapes_and_values import Sample

HERE = pathlib.Path(__file__).resolve().parent
KINDS = {resource.kind: resource.shape for resource in at(V1_36, resources.RESOURCES)}


def recorded(name: str) -> list[dict[str, Any]]:
    """Results of Go's decoder of v1.36 (sigs.k8s.io/json into the types of k8s.io/api)."""
    return [json.loads(line) for line in (HERE / name).read_text().splitlines()]


@each_case("case", recorded("go_refuses.jsonl"), ids=lambda c: c["json"])
def test_a_wrong_type_is_refused_in_the_words_of_go(case: dict[str, str]) -> None:
    with pytest.raises(decoding.DecodeError) as refused:
        decoding.decode(KINDS[case["kind"]], json.loads(case["json"]), raw=case["json"].encode())
    assert str(refused.value) == case["error"]


@each_case("case", recorded("go_stores.jsonl"), ids=lambda c: str(zlib.crc32(c["json"].encode())))
def test_values_that_go_accepts_are_stored_as_go_writes_them(case: dict[str, Any]) -> None:
    """Without the empty lists, which storage loses: it is protobuf."""
    shape = KINDS[case["kind"]]
    raw = case["json"].encode()
    found = decoding.decode(shape, json.loads(raw), raw=raw)
    assert [f"unknown field {go_quote(path)}" for path in found.unknown] == case["strict"]
    decoded = decoding.decode(shape, typed.parser(shape)(raw), raw=raw)
    assert canonical.encode(shape, decoded.object).decode() == re.sub(
        r'"(requests|nodeSelectorTerms|conditions)":\[\]', r'"\1":null', case["stored"]
    )


def spec(value: Any, raw: bytes = b"") -> dict[str, Any]:
    return decoding.decode(SPEC, value, raw=raw).object


def test_members_stand_in_the_order_of_the_shape() -> None:
    found = decoding.decode(GADGET, {"spec": {"labels": {}, "node": "n", "owner": "o"}, "metadata": {}}).object
    assert list(found) == ["metadata", "spec", "status"]
    assert list(found["spec"]) == ["owner", "node", "pool", "labels"]


def test_null_is_an_empty_object_and_a_null_member_is_absent() -> None:
    assert decoding.decode(GADGET, None).object == {"metadata": {}, "spec": {"pool": {}}, "status": {}}
    assert spec({"owner": None, "parts": None, "limits": None, "pool": None, "raw": None}) == {"pool": {}}


def test_null_elements_are_zero_values() -> None:
    found = spec({"parts": [None], "extra": [None], "labels": {"a": None}, "limits": {"b": None}})
    assert found == {"pool": {}, "parts": [{}], "extra": [""], "labels": {"a": ""}, "limits": {"b": {}}}


def test_empty_lists_maps_texts_and_numbers_stay() -> None:
    value = {"owner": "", "parts": [], "limits": {}, "grams": 0, "labels": {}, "extra": []}
    assert spec(dict(value)) == {**value, "pool": {}}


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("1024Mi", "1Gi"), ("0.5", "500m"), (" 5 ", "5"), (5, "5"), (10**19, "10E"), (1.5, "1500m"), (None, None)],
)
def test_quantities_are_canonical(sent: Any, kept: str | None) -> None:
    found = spec({"parts": [{"size": sent}]})["parts"][0]
    assert found.get("size") == kept


@pytest.mark.parametrize(("text", "kept"), [("1e3", "1e3"), ("1000.0", "1k"), ("1E6", "1E6"), ("0.10", "100m")])
def test_a_quantity_sent_as_a_number_is_read_as_it_was_written(text: str, kept: str) -> None:
    raw = f'{{"parts":[{{"size":{text}}}],"raw":{{"a":{text}}}}}'
    found = spec(json.loads(raw), raw.encode())
    assert found["parts"][0]["size"] == kept
    assert rawjson.parsed(found["raw"]) == {"a": float(text)}


def test_times_are_canonical() -> None:
    found = decoding.decode(GADGET, {
        "metadata": {"creationTimestamp": "2024-02-29T07:08:09.5+01:00"},
        "status": {"seen": "2024-02-29T07:08:09.500000+01:00"},
    }).object  # fmt: skip
    assert found["metadata"]["creationTimestamp"] == "2024-02-29T06:08:09Z"
    assert found["status"]["seen"] == "2024-02-29T06:08:09.500000Z"


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("9999-12-31T23:59:59-23:59", "10000-01-01T23:58:59Z"),
        ("0000-01-01T00:00:00+23:00", "-0001-12-31T01:00:00Z"),
    ],
)
def test_time_beyond_four_digits_is_read_once_beside_any_other_value(sent: str, expected: str) -> None:
    for beside in ({}, {"unknown": 1}):
        value = {"metadata": {"creationTimestamp": sent, **beside}}
        assert decoding.decode(GADGET, value).object["metadata"]["creationTimestamp"] == expected
    with pytest.raises(decoding.DecodeError, match="parsing time"):
        decoding.decode(GADGET, {"metadata": {"creationTimestamp": expected}})


def test_raw_json_is_kept_as_it_is() -> None:
    raw = b'{"z": [null, 1, 1e3, {"b":null, "a":true}], "a":"<", "a":""}'
    found = spec(typed.parser(SPEC)(b'{"raw": %b }' % raw))["raw"]
    assert rawjson.text(found) == raw
    assert rawjson.text(rawjson.compact(found)) == raw.replace(b" ", b"").replace(b"<", b"\\u003c")
    assert rawjson.text(spec(typed.parser(SPEC)(b'{"raw": "\xff < \xc3\xbc" }'))["raw"]) == '"\ufffd < ü"'.encode()


AMOUNTS = (r'"1\u0047i"', r'"1e\u002B3"', r'"\t1"', r'"\u00a01"', r'"1\/"', r'"\u0031"')


@pytest.mark.parametrize("amount", AMOUNTS)
@pytest.mark.parametrize("before", ["", '"metadata":{"generation":-1.0},'])
@pytest.mark.parametrize("beside", ["", ',"unknown":1', ',"attributes":{"a":{"string":"\\u0031"}}'])
def test_an_amount_has_no_escapes(amount: str, beside: str, before: str) -> None:
    """Go reads it from the JSON text itself. Other texts have them, also if they look like amounts."""
    shape = KINDS["ResourceSlice"]
    text = f'{{{before}"spec":{{"devices":[{{"name":"\\u0031","capacity":{{"m":{{"value":{amount}}}}}{beside}}}]}}}}'.encode()
    with pytest.raises(decoding.DecodeError, match=r"^quantities must match the regular expression"):
        decoding.decode(shape, as_json.loads(text, shape), raw=text)
    fine = text.replace(amount.encode(), b'"1"').replace(before.encode(), b"")
    [device] = decoding.decode(shape, as_json.loads(fine, shape), raw=fine).object["spec"]["devices"]
    assert (device["name"], device["capacity"]) == ("1", {"m": {"value": "1"}})


@pytest.mark.parametrize(
    "misfit", ['"driver":1', '"pool":[]', '"perDeviceNodeSelection":"x"', '"sharedCounters":[false,{"name":2}]']
)
@pytest.mark.parametrize("amount", AMOUNTS)
def test_an_amount_with_escapes_is_reported_before_members_of_other_types(amount: str, misfit: str) -> None:
    """An amount reads itself, and its error ends Go's decoder. It is found wherever it stands, also in values of another structure."""
    shape = KINDS["ResourceSlice"]
    devices = f'"devices":[5,{{"name":1,"capacity":{{"m":{{"value":{amount}}}}}}}]'
    for members in (f"{misfit},{devices}", f"{devices},{misfit}"):
        text = f'{{"spec":{{{members}}}}}'.encode()
        with pytest.raises(decoding.DecodeError, match=r"^quantities must match the regular expression"):
            decoding.decode(shape, as_json.loads(text, shape), raw=text)
        fine = text.replace(amount.encode(), b'"1"')
        with pytest.raises(decoding.DecodeError, match=r"^json: cannot unmarshal"):
            decoding.decode(shape, as_json.loads(fine, shape), raw=fine)


@pytest.mark.parametrize("amount", AMOUNTS)
def test_an_amount_with_escapes_is_refused_if_a_later_one_replaces_it(amount: str) -> None:
    shape = KINDS["ResourceSlice"]
    text = f'{{"spec":{{"devices":[{{"capacity":{{"m":{{"value":{amount}}},"m":{{"value":"1"}}}}}}]}}}}'
    with pytest.raises(decoding.DecodeError, match=r"^quantities must match the regular expression"):
        decoding.decode_written(shape, as_written.read(shape, text))
    fine = as_written.read(shape, text.replace(amount, '"2"').replace("devices", "dev\\u0069ces"))
    [device] = decoding.decode_written(shape, fine).object["spec"]["devices"]
    assert device["capacity"] == {"m": {"value": "1"}}


def test_raw_json_with_escapes_that_looks_like_an_amount_is_kept() -> None:
    shape = KINDS["DeviceClass"]
    text = rb'{"spec":{"config":[{"opaque":{"driver":"d","parameters":{"a":"1\u0047i"}}}]}}'
    [config] = decoding.decode(shape, as_json.loads(text, shape), raw=text).object["spec"]["config"]
    assert rawjson.text(config["opaque"]["parameters"]) == rb'{"a":"1\u0047i"}'


def test_number_is_quoted_as_written_beside_other_errors() -> None:
    raw = b'{"spec": {"grams": 1000e-3, "parts": {"a": {}}}}'
    with pytest.raises(decoding.DecodeError, match="cannot unmarshal number 1000e-3 into Go struct field"):
        decoding.decode(GADGET, json.loads(raw), raw=raw)


def test_raw_json_of_another_form_is_spelled_as_go_does() -> None:
    found = spec({"raw": {"z": [None, 1, 1000.0, 1e21, 1e-7, 2**63, 2**64], "a": "<"}})["raw"]
    assert rawjson.text(found) == (
        b'{"a":"\\u003c","z":[null,1,1000,1e+21,1e-7,9223372036854775808,18446744073709552000]}'
    )


@pytest.mark.parametrize(("bits", "low", "high"), [("grams", -(2**31), 2**31 - 1), ("rank", -(2**63), 2**63 - 1)])
def test_integers_have_a_range(bits: str, low: int, high: int) -> None:
    def decode(number: Any) -> dict[str, Any]:
        return spec({"grams": number} if bits == "grams" else {"pool": {"rank": number}})

    for number in (low, high):
        decode(number)
    for wrong, text in ((low - 1, str(low - 1)), (high + 1, str(high + 1)), (1e30, r"1e\+30"), (0.5, "0.5")):
        with pytest.raises(decoding.DecodeError, match=f"cannot unmarshal number {text} into Go struct field"):
            decode(wrong)


def test_the_first_wrong_type_in_the_text_is_reported() -> None:
    with pytest.raises(decoding.DecodeError, match=r"GadgetSpec\.node of type string"):
        decoding.decode(SPEC, {"node": 1, "owner": 2})


def test_a_wrong_quantity_or_time_hides_wrong_types_before_it() -> None:
    with pytest.raises(decoding.DecodeError, match=r"^quantities must match"):
        decoding.decode(SPEC, {"node": 1, "parts": [{"size": "x"}]})
    with pytest.raises(decoding.DecodeError, match=r"^parsing time"):
        decoding.decode(SPEC, {"parts": [{"since": "x", "size": "y"}]})


def test_inline_structs_are_named_in_errors_but_not_in_paths() -> None:
    with pytest.raises(decoding.DecodeError, match=r"field GadgetSpec\.spec\.Settings\.grams of type int32"):
        decoding.decode(GADGET, {"spec": {"grams": "x"}})
    assert decoding.decode(GADGET, {"spec": {"raw": 1, "Raw": 1}}).unknown == ["spec.Raw"]


def test_the_outermost_struct_can_be_named() -> None:
    with pytest.raises(decoding.DecodeError, match=r"field Special\.spec of type v1\.GadgetSpec"):
        decoding.decode(GADGET, {"spec": []}, root="Special")
    with pytest.raises(decoding.DecodeError, match=r"^json: cannot unmarshal array into Go value of type v1\.Gadget$"):
        decoding.decode(GADGET, [])


def test_member_names_are_case_sensitive() -> None:
    decoded = decoding.decode(GADGET, {"Spec": {}, "METADATA": {"name": "x"}, "spec": {"Owner": "o"}})
    assert decoded.unknown == ["Spec", "METADATA", "spec.Owner"]
    assert decoded.object["metadata"] == {}


def test_self_link_is_known_and_cluster_name_is_not() -> None:
    decoded = decoding.decode(GADGET, {"metadata": {"selfLink": "x", "clusterName": "y"}})
    assert decoded.unknown == ["metadata.clusterName"]
    assert decoded.object["metadata"] == {"selfLink": "x"}


def test_unknown_paths_come_once_in_order_and_a_hundred_at_most() -> None:
    value = {"parts": [{"u": 1}, {"v": 1}], "a": 1, "limits": {"k.l": {"w": 1}}}
    assert decoding.decode(SPEC, value).unknown == ["parts[0].u", "parts[1].v", "a", "limits.k.l.w"]
    many = decoding.decode(SPEC, {f"u{i}": i for i in range(120)})
    assert many.unknown == [f"u{i}" for i in range(100)]
    twice = decoding.decode(SPEC, {"limits": {"a": {"b.c": 1}, "a.b": {"c": 1}}})
    assert twice.unknown == ["limits.a.b.c"]


def test_nothing_is_unknown_inside_raw_json() -> None:
    assert decoding.decode(SPEC, {"raw": {"anything": {"goes": 1}}}).unknown == []


def test_managed_fields_are_checked() -> None:
    entry = {"manager": "m", "operation": "Update", "time": "2024-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    kept = decoding.decode(GADGET, {"metadata": {"name": "n", "managedFields": [entry]}})
    fields = rawjson.of(b'{"f:spec":{}}')
    assert kept.object["metadata"] == {"name": "n", "managedFields": [{**entry, "fieldsV1": fields}]}
    for wrong in ({**entry, "manager": 1}, {**entry, "time": ""}):
        with pytest.raises(decoding.DecodeError):
            decoding.decode(GADGET, {"metadata": {"managedFields": [wrong]}})
    assert decoding.decode(GADGET, {"metadata": {"managedFields": [{"x": 1}]}}).unknown == [
        "metadata.managedFields[0].x"
    ]


def test_decoding_leaves_the_sent_value_unchanged() -> None:
    sent = {"spec": {"parts": [{"size": "1024Mi"}], "labels": {"a": "b"}, "extra": ["x"], "zzz": 1}, "metadata": None}
    before = json.dumps(sent)
    found = decoding.decode(GADGET, sent).object
    found["spec"]["labels"]["a"] = found["spec"]["extra"][0] = "changed"
    assert json.dumps(sent) == before


def test_nesting_that_python_cannot_follow_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(20_000):
        deep = [deep]
    with pytest.raises(decoding.DecodeError, match="exceeded max depth"):
        decoding.decode(SPEC, {"raw": deep})


def test_half_characters_do_not_disturb() -> None:
    decoded = decoding.decode(SPEC, {"owner": "\ud800", "\udfff": 1})
    assert decoded.object["owner"] == "\ud800"
    assert decoded.unknown == ["\udfff"]


@given(shapes_and_values.samples(), st.data())
def test_unknown_members_are_always_reported_and_never_kept(sample: Sample, data: st.DataObject) -> None:
    places = list(shapes_and_values.structs_in(sample.shape, sample.value))
    chosen = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4, unique_by=lambda place: place[0]))
    clean = decoding.decode(sample.shape, copy.deepcopy(sample.value)).object
    names = st.sampled_from(["zz", "", "Metadata", 'q"', "a.b"])
    expected = set()
    for path, struct in chosen:
        name = data.draw(names)
        struct[name] = data.draw(shapes_and_values.JSON)
        expected.add(f"{path}.{name}" if path else name)
    decoded = decoding.decode(sample.shape, shapes_and_values.shuffled(sample.value, random.Random(1)))
    assert set(decoded.unknown) == expected
    assert decoded.object == clean


@given(shapes_and_values.samples(), st.randoms(use_true_random=False))
def test_the_order_of_members_in_the_text_does_not_matter(sample: Sample, order: random.Random) -> None:
    decoded = decoding.decode(sample.shape, shapes_and_values.shuffled(sample.value, order))
    assert decoded == decoding.Decoded(sample.value, [])


@given(shapes_and_values.samples())
def test_decoding_what_was_stored_gives_the_object(sample: Sample) -> None:
    stored = canonical.encode(sample.shape, sample.value)
    assert decoding.decode(sample.shape, canonical.decode(sample.shape, stored)).object == sample.value
