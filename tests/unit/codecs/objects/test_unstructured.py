from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.objects import canonical, decoding, unstructured
from apiserver.codecs.objects.decoding import DecodeError
from apiserver.patching import strategic
from apiserver.schema.types import Struct
from tests.fixtures.cases import each_case

KINDS = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES) if resource.version == "v1"}
RECORDED = pathlib.Path(__file__).with_name("go_unstructured.jsonl")
CASES = [case for line in RECORDED.read_text().splitlines() if "error" not in (case := json.loads(line))]


def merged(case: dict[str, Any]) -> tuple[Struct, Any]:
    shape = KINDS[case["kind"]]
    live = {name: x for name, x in case["live"].items() if name not in unstructured.TYPE_META}
    decoded = decoding.decode(shape, live).object
    served = canonical.decode(shape, canonical.encode_served(shape, decoded))
    stated = {name: case["live"][name] for name in unstructured.TYPE_META}
    return shape, strategic.apply(case["patch"], stated | served, shape)


@each_case("case", CASES, ids=lambda c: json.dumps(c["patch"])[:80])
def test_merged_values_become_the_object_that_upstream_makes_of_them(case: dict[str, Any]) -> None:
    shape, value = merged(case)
    if "refused" in case:
        with pytest.raises(DecodeError) as refusal:
            unstructured.decode(shape, value)
        assert str(refusal.value) == case["refused"]
        return
    found = unstructured.decode(shape, value)
    assert found.unknown == case["unknown"]
    assert canonical.encode_served(shape, found.object).decode() == case["typed"]


@pytest.mark.parametrize(
    ("member", "value", "told"),
    [
        ("kind", 5, "cannot convert int64 to string"),
        ("apiVersion", {}, "unrecognized type: string"),
        ("metadata", [], "cannot restore struct from: slice"),
        ("spec", {"devices": {"requests": {}}}, "cannot restore slice from map"),
    ],
)
def test_misfits_get_the_message_of_the_converter(member: str, value: Any, told: str) -> None:
    with pytest.raises(DecodeError, match=f"^{re.escape(told)}$"):
        unstructured.decode(KINDS["ResourceClaim"], {"metadata": {"name": "a"}, member: value})


def test_paths_of_unknown_members_are_sorted_and_name_no_keys_of_maps() -> None:
    value = {
        "zz": 1,
        "metadata": {"name": "a", "labels": {"x": "y"}, "b": {}},
        "spec": {"devices": [{"capacity": {"k": {"v": 1}}, "x": 1}]},
    }
    found = unstructured.decode(KINDS["ResourceSlice"], value)
    assert found.unknown == ["metadata.b", "spec.devices[0].capacity.v", "spec.devices[0].x", "zz"]
    assert found.object["metadata"] == {"name": "a", "labels": {"x": "y"}}


@pytest.mark.parametrize(("value", "shown"), [(float("nan"), "NaN"), (float("inf"), "+Inf"), (float("-inf"), "-Inf")])
def test_number_beyond_json_is_reported_where_an_object_reads_itself(value: float, shown: str) -> None:
    device = {"driver": "d.example.com", "pool": "p", "device": "d", "data": value}
    for obj, go in (
        ({"metadata": {"creationTimestamp": value}}, "v1.Time"),
        ({"status": {"devices": [device]}}, "runtime.RawExtension"),
    ):
        with pytest.raises(DecodeError) as refused:
            unstructured.decode(KINDS["ResourceClaim"], obj)
        assert str(refused.value) == f"error encoding {go} to json: json: unsupported value: {shown}"
