"""The server silently drops written members behind a feature gate that is off by default."""

from __future__ import annotations

from apiserver.apimachinery.releases import V1_36, V1_37, Release
from tests.promises.api.client import Client, Object, resource_slice

GATED: dict[Release, Object] = {
    V1_36: {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}},
    V1_37: {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}},
}


def mapped(obj: Object, release: Release) -> Object:
    """With a member of its device that needs DRANodeAllocatableResources."""
    spec = obj["spec"]
    return {**obj, "spec": {**spec, "devices": [{**spec["devices"][0], **GATED[release]}]}}


def test_field_with_a_disabled_gate_is_dropped_silently(api: Client, mine: str, release: Release) -> None:
    sent = resource_slice(f"{mine}-s", mine)
    reply = api.ask("POST", api.slices, mapped(sent, release))
    assert reply.status == 201, reply.text
    assert "Warning" not in reply.headers
    assert reply.json["spec"] == sent["spec"]


def test_dropped_fields_of_a_slice_count_as_a_change(api: Client, mine: str, release: Release) -> None:
    path = f"{api.slices}/{mine}-s"
    stored = api.create(api.slices, resource_slice(f"{mine}-s", mine))
    again = api.put(path, mapped(stored, release))
    assert again["spec"] == stored["spec"]
    assert (stored["metadata"]["generation"], again["metadata"]["generation"]) == (1, 2)
    patch = {"spec": {"devices": mapped(stored, release)["spec"]["devices"]}}
    assert api.patch(path, patch)["metadata"]["generation"] == 3


def test_rest_of_a_dropped_value_has_to_be_valid_by_itself(api: Client, mine: str) -> None:
    """An attribute has one value; a list is no value while DRAListTypeAttributes is off."""
    sent = resource_slice(f"{mine}-s", mine)
    sent["spec"]["devices"][0]["attributes"] = {"links": {"ints": [1, 2]}}
    refusal = api.refusal("POST", api.slices, sent)
    assert (refusal.code, refusal.reason) == (422, "Invalid")
    assert [field for field, _ in refusal.causes] == ["spec.devices[0].attributes[links]"]


def test_a_condition_may_not_use_what_a_gate_hides(api: Client, mine: str) -> None:
    condition = {"cel": {"expression": "device.attributes['gpu.example.com'].links.includes(1)"}}
    refusal = api.refusal("POST", api.classes, {"metadata": {"name": mine}, "spec": {"selectors": [condition]}})
    assert refusal.code == 422
    assert "undeclared reference to 'includes'" in refusal.message
