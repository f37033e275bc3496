"""The form in which objects are compared: the JSON that Go makes of the typed one."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings

from apiserver.codecs.json import rawjson
from apiserver.codecs.objects import canonical, decoding, defaults
from apiserver.fieldmanager import typedform
from apiserver.fieldmanager.typedefs import type_of
from apiserver.schema.resource import Object, Resource
from apiserver.schema.types import Struct
from structuredmerge import paths
from structuredmerge.comparison import compare
from tests.unit.fieldmanager.objects import SEEDS, sent
from tests.unit.fieldmanager.written import NOW, resource_of

MANY = settings(max_examples=100)
ZERO: dict[str, Object] = {
    "ResourceSlice": {
        "metadata": {},
        "spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}},
    },
    "ResourceClaim": {"metadata": {}, "spec": {"devices": {"requests": None}}, "status": {}},
    "ResourceClaimTemplate": {"metadata": {}, "spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}},
    "DeviceClass": {"metadata": {}, "spec": {}},
}


@pytest.mark.parametrize("kind", sorted(ZERO))
def test_the_object_of_which_nothing_is_set_has_its_required_members(kind: str) -> None:
    head = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    assert typedform.zero(resource_of(kind)) == {**head, **ZERO[kind]}


@pytest.mark.parametrize("kind", sorted(ZERO))
@MANY
@given(seed=SEEDS)
def test_two_forms_made_at_once_differ_where_the_forms_of_each_do(kind: str, seed: int) -> None:
    resource, rng = resource_of(kind), random.Random(seed)
    shape, type_ = resource.shape, type_of(resource)
    stored = canonical.decode(shape, canonical.encode(shape, decoded(resource, sent(rng, shape))))
    new = canonical.decode(shape, canonical.encode(shape, decoded(resource, changed(rng, shape, stored))))
    before, after = typedform.both(shape, stored, new)
    apart = typedform.of_stored(resource, stored), typedform.form(resource, new)
    assert compare(before, after, type_) == compare(*apart, type_)


@pytest.mark.parametrize("kind", sorted(ZERO))
@MANY
@given(seed=SEEDS)
def test_stored_object_has_its_typed_form_already(kind: str, seed: int) -> None:
    resource, rng = resource_of(kind), random.Random(seed)
    obj = decoded(resource, sent(rng, resource.shape))
    stored = canonical.decode(resource.shape, canonical.encode(resource.shape, obj))
    assert typedform.of_stored(resource, stored) == typedform.form(resource, stored)


def changed(rng: random.Random, shape: Struct, obj: Object) -> Object:
    """The object, or with some of its members as they are in another."""
    if rng.random() < 0.3:
        return obj
    other = sent(rng, shape)
    return {name: rng.choice((obj, other)).get(name) for name in {**obj, **other}}


def decoded(resource: Resource, value: Any) -> Object:
    obj = decoding.decode(resource.shape, value).object
    obj["metadata"].pop("managedFields", None)
    obj["metadata"].pop("resourceVersion", None)
    defaults.apply(resource.shape, obj, now=NOW)
    return obj


@pytest.mark.parametrize(
    ("device", "other", "same"),
    [
        ({"name": "x"}, {"name": "x"}, True),
        ({"name": "x"}, {"name": "y"}, False),
        ({"name": "x"}, {"name": "x", "attributes": {}}, False),
        ({"name": "x"}, {"name": "x", "taints": []}, False),
        ({"name": "x"}, {"name": "x", "allNodes": False}, False),
        ({"name": "x", "taints": [{"key": "", "effect": ""}]}, {"name": "x", "taints": [{"value": ""}]}, True),
        ({"name": "x", "capacity": {"a": {"value": "0"}}}, {"name": "x", "capacity": {"a": {}}}, True),
        ({"name": "x", "capacity": {"a": {"value": "0"}}}, {"name": "x", "capacity": {"b": {}}}, False),
        ({"name": "x", "nodeSelector": {"nodeSelectorTerms": None}}, {"name": "x", "nodeSelector": {}}, True),
    ],
)
def test_below_an_atomic_list_an_empty_part_is_not_an_absent_one(device: Object, other: Object, same: bool) -> None:
    """As upstream, which compares the Go values of such lists."""
    shape = resource_of("ResourceSlice").shape
    stored = {"metadata": {}, "spec": {"driver": "d", "devices": [device]}}
    before, after = typedform.both(shape, stored, {"metadata": {}, "spec": {"driver": "e", "devices": [other]}})
    assert (before["spec"]["devices"] is after["spec"]["devices"]) == same


def test_raw_json_compares_by_text_in_atomic_lists_and_by_value_elsewhere() -> None:
    shape = resource_of("ResourceClaim").shape

    def claim(text: bytes) -> Object:
        config = [{"opaque": {"driver": "d", "parameters": rawjson.of(text)}}]
        devices = [{"driver": "d", "pool": "p", "device": "x", "conditions": None, "data": rawjson.of(text)}]
        spec = {"devices": {"requests": None, "config": config}}
        return {"metadata": {}, "spec": spec, "status": {"devices": devices}}

    found = compare(
        *typedform.both(shape, claim(b'{"a":1,"b":2}'), claim(b'{"b":2,"a":1.0}')),
        type_of(resource_of("ResourceClaim")),
    )
    assert list(map(paths.text, found.modified.paths())) == [".spec.devices.config"]
    assert not found.added
    assert not found.removed


@pytest.mark.parametrize(
    ("sent", "same"),
    [("500m", True), ("0.5", False), ("500000u", False), (0.5, False), (" 500m ", True)],
)
@pytest.mark.parametrize("strange", [{}, {"nope": 1}], ids=["regular", "with an unknown member"])
def test_an_amount_counts_by_its_spelling_below_an_atomic_list(sent: str | float, same: bool, strange: Object) -> None:
    """As upstream, where the text that was parsed is a part of the value; what is stored is the same."""
    shape = resource_of("ResourceSlice").shape

    def slice_(amount: str | float) -> Object:
        devices = [{"name": "x", "capacity": {"memory": {"value": amount}}}]
        obj: Object = {"metadata": {}, "spec": {"driver": "d", "devices": devices, **strange}}
        return decoding.decode(shape, obj, raw=json.dumps(obj).encode()).object

    stored, new = canonical.decode(shape, canonical.encode(shape, slice_("500m"))), slice_(sent)
    before, after = typedform.both(shape, stored, new)
    assert (before["spec"]["devices"] is after["spec"]["devices"]) == same
    assert canonical.encode(shape, new) == canonical.encode(shape, stored)


def test_parts_that_stay_are_shared_and_managers_are_no_part() -> None:
    shape = resource_of("ResourceSlice").shape
    stored = {"metadata": {"name": "a", "managedFields": [{}]}, "spec": {"driver": "d", "devices": [{"name": "x"}]}}
    new = {
        "metadata": {"name": "a", "labels": {}},
        "spec": {"driver": "e", "devices": [{"name": "x"}]},
    }
    before, after = typedform.both(shape, stored, new)
    assert before["metadata"] == {"name": "a"}
    assert after["metadata"] is before["metadata"]
    assert after["spec"]["devices"] is stored["spec"]["devices"]
    assert after["spec"]["driver"] == "e"
