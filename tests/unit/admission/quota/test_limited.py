"""How the plugin is configured, in the words of a live kube-apiserver."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.admission.quota import limited
from apiserver.admission.quota.limited import Limited
from apiserver.apimachinery.errors import GroupResource

GO = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'


def document(**members: Any) -> Any:
    return {"kind": "ResourceQuotaConfiguration", "apiVersion": "apiserver.config.k8s.io/v1", **members}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"kind": "Unknown", "apiVersion": "v1"},
            'no kind "Unknown" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        (
            {"kind": "Configuration", "apiVersion": "resourcequota.admission.k8s.io/v1"},
            'no kind "Configuration" is registered for version "resourcequota.admission.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"',
        ),
        ({}, "Object 'Kind' is missing in '{}'"),
        ({"kind": "x"}, "Object 'apiVersion' is missing in '{\"kind\":\"x\"}'"),
        (
            [1],
            f"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type {GO}",
        ),
        ("x", f"couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type {GO}"),
        (document(foo=1), 'strict decoding error: unknown field "foo"'),
        (
            document(limitedResources=[{"foo": "bar", "resource": "pods"}]),
            'strict decoding error: unknown field "limitedResources[0].foo"',
        ),
        (
            document(limitedResources=[{"apiGroup": "g"}, {"apiGroup": "h"}]),
            "[limitedResources[0].resource: Required value, limitedResources[1].resource: Required value]",
        ),
        (document(limitedResources=[{}]), "limitedResources[0].resource: Required value"),
        (
            document(limitedResources={}),
            "json: cannot unmarshal object into Go struct field Configuration.limitedResources of type []v1.LimitedResource",
        ),
        (
            document(limitedResources=["a"]),
            "json: cannot unmarshal string into Go struct field Configuration.limitedResources of type v1.LimitedResource",
        ),
        (
            document(limitedResources=[{"resource": 3}]),
            "json: cannot unmarshal number into Go struct field LimitedResource.limitedResources.resource of type string",
        ),
        (
            document(limitedResources=[{"resource": "a", "matchContains": "x"}]),
            "json: cannot unmarshal string into Go struct field LimitedResource.limitedResources.matchContains of type []string",
        ),
        (
            document(limitedResources=[{"resource": "a", "matchContains": [True]}]),
            "json: cannot unmarshal bool into Go struct field LimitedResource.limitedResources.matchContains of type string",
        ),
    ],
)
def test_malformed_configuration_is_reported(given: Any, told: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared whole
        limited.read(given)
    assert str(caught.value) == told


def test_a_configuration_says_what_needs_a_quota() -> None:
    assert limited.read(None) == limited.read(document()) == limited.read(document(limitedResources=None)) == []
    item = {"apiGroup": "g", "resource": "r", "matchContains": ["a", "b"], "matchScopes": [{"scopeName": "x"}]}
    older = {"kind": "Configuration", "apiVersion": "resourcequota.admission.k8s.io/v1beta1"}
    for given in (document(), older):
        found = limited.read({**given, "limitedResources": [item, {"resource": "core"}]})
        assert found == [Limited(GroupResource("g", "r"), ("a", "b")), Limited(GroupResource("", "core"))]
