"""Results of expressions as plain values: bounded, and with Go's message for a malformed one."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.admission.policies import mutations, objects
from apiserver.admission.policies.mutations import Refused
from apiserver.admission.policies.objects import Unfit
from kubecel.values.mutation import ObjectValue, PatchValue
from kubecel.values.times import Duration, Timestamp
from kubecel.values.types import struct
from kubecel.values.values import NONE, Optional, UInt
from structuredmerge.validation import Foreign
from tests.unit.admission.changes import GROUP, KINDS

MARSHAL = "json: error calling MarshalJSON for type *structpb.Value: proto: "
CLAIM = KINDS.at(GROUP, "v1", "resourceclaims")


def made(**fields: Any) -> ObjectValue:
    return ObjectValue(struct("Object"), fields)


def test_objects_are_plain_and_what_no_object_has_is_foreign() -> None:
    found = objects.configuration(made(a=1, b=[made(c="x")], d={"e": True}, f=Optional(1.5), g=None, h=UInt(1), i=b"x"))
    assert [found[name] for name in "abdf"] == [1, [{"c": "x"}], {"e": True}, 1.5]
    foreign = [found[name] for name in "ghi"]
    assert all(isinstance(each, Foreign) for each in foreign)
    assert [each.name for each in foreign] == ["structpb.NullValue", "uint64", "[]uint8"]


@pytest.mark.parametrize(
    ("value", "json"),
    [
        (2**53 - 1, 2**53 - 1),
        (2**53, "9007199254740992"),
        (2.0, 2),
        (1.5, 1.5),
        (None, None),
        (b"x", "eA=="),
        (Duration(90 * 10**9), "90s"),
        (Timestamp(0), "1970-01-01T00:00:00Z"),
        (Optional("x"), "x"),
        ([1, {"a": [UInt(2)]}], [1, {"a": [2]}]),
        (made(a=2**53, b=[made(c=1)]), {"a": 2**53, "b": [{"c": 1}]}),
    ],
)
def test_values_of_patches_are_json(value: Any, json: Any) -> None:
    found = objects.json_value(value)
    assert found == json
    assert type(found) is type(json)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (struct("x"), "type conversion not supported for 'type'"),
        (NONE, "optional.none() dereference"),
        ({1: 2}, "unsupported type conversion from 'int' to string"),
        (float("nan"), f"{MARSHAL}google.protobuf.Value.number_value: invalid NaN value"),
        (made(a=None), "proto: invalid type: structpb.NullValue"),
        (made(a=Duration(1)), "proto: invalid type: time.Duration"),
    ],
)  # fmt: skip
def test_value_that_is_no_json_is_reported(value: Any, said: str) -> None:
    with pytest.raises(Unfit) as caught:
        objects.json_value(value)
    assert str(caught.value) == said


def test_value_much_larger_than_its_text_is_refused() -> None:
    value: Any = ["x"]
    for _ in range(40):
        value = [value, value]
    deep: Any = "x"
    for _ in range(250):
        deep = [deep]
    assert objects.is_large(value)
    assert not objects.is_large(made(a=1))
    for convert in (objects.json_value, lambda x: objects.configuration(made(a=x))):
        with pytest.raises(Unfit, match="more than 131072 values"):
            convert(value)
        with pytest.raises(Unfit, match="exceeded max depth"):
            convert(deep)


def test_a_configuration_is_merged_and_neither_side_is_changed() -> None:
    assert CLAIM is not None
    live = {"apiVersion": CLAIM.api_version, "kind": "ResourceClaim", "metadata": {"name": "c", "finalizers": ["a/b"]}}
    added = ObjectValue(struct("Object.metadata"), {"finalizers": ["c/d"]})
    found = mutations.configured(CLAIM, live, made(metadata=added))
    assert found["metadata"]["finalizers"] == ["a/b", "c/d"]
    assert live["metadata"] == {"name": "c", "finalizers": ["a/b"]}


def test_a_patch_that_tests_what_is_not_so_is_left_out() -> None:
    live = b'{"a":1}'
    assert mutations.json_patched(live, [PatchValue("add", "/b", value=2)]) == b'{"a":1,"b":2}'
    assert mutations.json_patched(live, [PatchValue("add", "/b", value=2), PatchValue("test", "/a", value=2)]) is None
    with pytest.raises(Refused, match="JSON Patch: Unexpected kind: x"):
        mutations.json_patched(live, [PatchValue("x")])


def test_null_of_a_patch_is_a_value_and_numbers_are_spelled_as_in_go() -> None:
    live = b'{"a":1}'
    null = PatchValue("test", "/b", value=None)
    assert mutations.json_patched(live, [null]) is None
    assert mutations.json_patched(live, [PatchValue("add", "/b", value=None), null]) == b'{"a":1,"b":null}'
    assert mutations.json_patched(live, [PatchValue("add", "/b", value=[1e21, 1e-7])]) == b'{"a":1,"b":[1e+21,1e-7]}'
