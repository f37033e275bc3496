"""v1beta1 and v1beta2: what the four kinds look like in them, and that nothing is lost on the way to the stored form and back, but for
what upstream loses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from apiserver import resources
from apiserver.codecs.objects import canonical, conversion, decoding, defaults
from apiserver.codecs.objects.decoding import DecodeError
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Object, Resource
from tests.unit.resources.samples import NOW
from tests.unit.resources.test_any_object import sent

GROUP = "resource.k8s.io"
KINDS = Kinds(resources.RESOURCES, group=GROUP)
CONVERTED = [resource for resource in KINDS if resource.conversion is not None]
PLURALS = sorted(resource.plural for resource in CONVERTED)
FEW = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def at(version: str, plural: str) -> Resource:
    found = KINDS.at(GROUP, version, plural)
    assert found is not None
    return found


def read(resource: Resource, value: Any) -> Object:
    """As a body of this version is read, up to its stored form."""
    found = decoding.decode(resource.shape, value).object
    defaults.apply(resource.shape, found, now=NOW)
    return found


def written(resource: Resource, obj: Object) -> Any:
    return json.loads(canonical.encode(resource.shape, obj))


def stored(version: str, plural: str, value: Any) -> Any:
    """The stored form of a body that is sent in this version."""
    sent_to = at(version, plural)
    return written(sent_to.stored, conversion.stored(sent_to, read(sent_to, value)))


def served(version: str, plural: str, value: Any) -> Any:
    """How a stored object looks in this version."""
    asked = at(version, plural)
    body = canonical.encode(asked.stored.shape, read(asked.stored, value))
    return json.loads(conversion.value(asked, body))


def test_only_what_looks_different_is_converted() -> None:
    assert PLURALS == ["resourceclaims", "resourceclaimtemplates", "resourceslices"]
    assert {resource.version for resource in CONVERTED} == {"v1beta1"}


@pytest.mark.parametrize("plural", PLURALS)
@FEW
@given(data=st.data())
def test_a_stored_object_survives_v1beta1(plural: str, data: st.DataObject) -> None:
    beta = at("v1beta1", plural)
    obj = stored_once(beta.stored, data.draw(sent(beta.stored.shape)))
    before = written(beta.stored, obj)
    there = written(beta, conversion.served(beta, obj))
    again = conversion.stored(beta, read(beta, there))
    assert written(beta.stored, again) == without_unset_nodes(plural, before)


@pytest.mark.parametrize("plural", PLURALS)
@FEW
@given(data=st.data())
def test_an_object_of_v1beta1_survives_being_stored(plural: str, data: st.DataObject) -> None:
    beta = at("v1beta1", plural)
    obj = stored_once(beta, data.draw(sent(beta.shape)))
    before = written(beta, obj)
    inside = canonical.encode(beta.stored.shape, conversion.stored(beta, obj))
    assert json.loads(conversion.value(beta, inside)) == with_content(plural, before)


def stored_once(resource: Resource, value: Any) -> Object:
    """As it is when it was written once: Go's zero time is null then, which is nothing."""
    return read(resource, written(resource, read(resource, value)))


def without_unset_nodes(plural: str, obj: Any) -> Any:
    """v1beta1 has no pointers there: an empty name and false are not told from nothing."""
    if plural == "resourceslices":
        for name in ("nodeName", "allNodes"):
            if not obj["spec"].get(name):
                obj["spec"].pop(name, None)
    return obj


def with_content(plural: str, obj: Any) -> Any:
    """A device without content is stored as one of which nothing is set."""
    if plural == "resourceslices":
        for device in obj["spec"].get("devices") or ():
            device.setdefault("basic", {})
    return obj


SLICE = {"driver": "d.example.com", "pool": {"name": "p", "generation": 0, "resourceSliceCount": 1}}


def test_a_device_has_its_content_in_basic() -> None:
    device = {"name": "gpu", "attributes": {"a": {"int": 1}}, "bindingConditions": ["x"], "allNodes": False}
    spec = served("v1beta1", "resourceslices", {"spec": {**SLICE, "devices": [device, {"name": "bare"}]}})["spec"]
    content = {name: value for name, value in device.items() if name != "name"}
    assert spec["devices"] == [{"name": "gpu", "basic": content}, {"name": "bare", "basic": {}}]
    assert stored("v1beta1", "resourceslices", {"spec": {**SLICE, "devices": [{"name": "bare"}]}})["spec"][
        "devices"
    ] == [{"name": "bare"}]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({"nodeName": "", "allNodes": False}, {}),
        ({"nodeName": "n", "allNodes": True}, {"nodeName": "n", "allNodes": True}),
        ({"perDeviceNodeSelection": False}, {"perDeviceNodeSelection": False}),
    ],
)
def test_in_v1beta1_an_empty_node_name_and_false_are_unset(sent: Any, kept: Any) -> None:
    assert stored("v1beta1", "resourceslices", {"spec": SLICE | sent})["spec"] == SLICE | kept
    assert stored("v1beta2", "resourceslices", {"spec": SLICE | sent})["spec"] == SLICE | sent


REQUESTS: list[tuple[Any, Any]] = [
    ({"deviceClassName": "c"}, {"exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 1}}),
    (
        {"deviceClassName": "c", "allocationMode": "All"},
        {"exactly": {"deviceClassName": "c", "allocationMode": "All"}},
    ),
    ({"selectors": []}, {"exactly": {"deviceClassName": ""}}),
    ({"tolerations": []}, {"exactly": {"deviceClassName": ""}}),
    ({"capacity": {}}, {"exactly": {"deviceClassName": "", "capacity": {}}}),
    ({"adminAccess": False}, {"exactly": {"deviceClassName": "", "adminAccess": False}}),
    ({"allocationMode": "ExactCount"}, {"exactly": {"deviceClassName": "", "allocationMode": "ExactCount"}}),
    ({"count": 2}, {"exactly": {"deviceClassName": "", "count": 2}}),
    ({"deviceClassName": "", "count": 0, "allocationMode": "", "selectors": None, "adminAccess": None}, {}),
    (
        {"tolerations": [{"key": "k"}], "count": 2},
        {"exactly": {"deviceClassName": "", "count": 2, "tolerations": [{"key": "k", "operator": "Equal"}]}},
    ),
    (
        {"firstAvailable": [{"name": "s", "deviceClassName": "c"}]},
        {
            "firstAvailable": [
                {"name": "s", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 1},
            ]
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sent", "kept"), REQUESTS)
def test_request_in_v1beta1_keeps_exactly_what_it_says(sent: Any, kept: Any) -> None:
    """With defaults of that version: mode and count follow from a class alone."""
    spec = {"devices": {"requests": [{"name": "r", **sent}]}}
    expected = {"devices": {"requests": [{"name": "r", **kept}]}}
    assert stored("v1beta1", "resourceclaims", {"spec": spec})["spec"] == expected
    assert stored("v1beta1", "resourceclaimtemplates", {"spec": {"spec": spec}})["spec"]["spec"] == expected


def test_a_request_of_v1beta1_names_a_class_even_where_its_alternatives_do() -> None:
    """As it is written: a patch finds the member, and can test it, replace it or take it away."""
    alternatives = [{"name": "s", "deviceClassName": "c"}]
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}, {"name": "bare"}]}}
    for plural, obj in {"resourceclaims": {"spec": spec}, "resourceclaimtemplates": {"spec": {"spec": spec}}}.items():
        found = conversion.served(at("v1beta1", plural), conversion.copied(obj))["spec"]
        requests = (found if plural == "resourceclaims" else found["spec"])["devices"]["requests"]
        assert list(requests[0].items()) == [
            ("name", "r"),
            ("deviceClassName", ""),
            ("firstAvailable", alternatives),
        ]
        assert requests[1] == {"name": "bare", "deviceClassName": ""}


@pytest.mark.parametrize(
    ("version", "plural", "value", "text"),
    [
        ("v1beta1", "resourceslices", {"spec": {"devices": [{"basic": {"attributes": []}}]}},
         ("json: cannot unmarshal array into Go struct field BasicDevice.spec.devices.basic.attributes of type "
         "map[v1beta1.QualifiedName]v1beta1.DeviceAttribute")),
        ("v1beta1", "resourceslices", {"spec": {"devices": [{"basic": 1}]}},
         "json: cannot unmarshal number into Go struct field Device.spec.devices.basic of type v1beta1.BasicDevice"),
        ("v1beta1", "resourceslices", {"spec": {"allNodes": "yes"}},
         "json: cannot unmarshal string into Go struct field ResourceSliceSpec.spec.allNodes of type bool"),
        ("v1beta1", "resourceclaims", {"spec": {"devices": {"requests": [{"allocationMode": 1}]}}},
         ("json: cannot unmarshal number into Go struct field DeviceRequest.spec.devices.requests.allocationMode of type "
         "v1beta1.DeviceAllocationMode")),
        ("v1beta2", "resourceclaims", {"spec": {"devices": {"requests": [{"exactly": {"allocationMode": 1}}]}}},
         ("json: cannot unmarshal number into Go struct field ExactDeviceRequest.spec.devices.requests.exactly.allocationMode "
         "of type v1beta2.DeviceAllocationMode")),
        ("v1beta2", "resourceslices", {"spec": {"devices": [{"nodeAllocatableResources": 1}]}},
         ("json: cannot unmarshal number into Go struct field Device.spec.devices.nodeAllocatableResources of type "
         "map[v1.ResourceName]v1beta2.NodeAllocatableResource")),
        ("v1beta2", "resourceslices", {"spec": {"nodeSelector": {"nodeSelectorTerms": 1}}},
         ("json: cannot unmarshal number into Go struct field NodeSelector.spec.nodeSelector.nodeSelectorTerms of type "
         "[]v1.NodeSelectorTerm")),
    ],
)  # fmt: skip
def test_decoding_errors_name_the_types_of_the_version(version: str, plural: str, value: Any, text: str) -> None:
    with pytest.raises(DecodeError) as refused:
        read(at(version, plural), value)
    assert str(refused.value) == text


def test_unknown_members_are_those_of_the_version() -> None:
    device = {"name": "d", "basic": {"x": 1}, "attributes": {}}
    found = decoding.decode(at("v1beta1", "resourceslices").shape, {"spec": {"devices": [device]}})
    assert found.unknown == ["spec.devices[0].basic.x", "spec.devices[0].attributes"]
    request = {"name": "r", "exactly": {}}
    found = decoding.decode(at("v1beta1", "resourceclaims").shape, {"spec": {"devices": {"requests": [request]}}})
    assert found.unknown == ["spec.devices.requests[0].exactly"]
