from __future__ import annotations

from typing import Any

from apiserver.codecs.objects import canonical
from tests.unit.resources import samples
from tests.unit.resources.samples import CLAIM, created, served, updated

KIND = samples.KINDS["ResourceClaimTemplate"]


def template(metadata: dict[str, Any] | None = None, spec: dict[str, Any] | None = None) -> dict[str, Any]:
    inner: dict[str, Any] = {"spec": CLAIM["spec"] if spec is None else spec}
    if metadata is not None:
        inner["metadata"] = metadata
    return {"metadata": {"name": "t", "namespace": "team-a"}, "spec": inner}


def test_the_zero_object_is_the_bookmark_of_upstream() -> None:
    zero = {"metadata": {}, "spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}}
    assert canonical.zero(KIND.shape) == zero


def test_the_inner_metadata_is_always_there_and_defaults_reach_inside() -> None:
    obj, errors = created(KIND, template())
    assert errors == []
    assert served(KIND, obj) == (
        '{"metadata":{"name":"t","namespace":"team-a"},"spec":{"metadata":{},"spec":{"devices":{"requests":[{"name":"main",'
        '"exactly":{"deviceClassName":"gpu.example.com","allocationMode":"ExactCount","count":1}}]}}}}'
    )


def test_claims_inherit_labels_and_annotations_and_nothing_else() -> None:
    assert created(KIND, template({"labels": {"a": "b"}, "annotations": {"Example.COM/x": "y"}}))[1] == []
    metadata = {"name": "n", "uid": "u", "labels": {"a b": "c"}, "annotations": {"x y": ""}, "generation": 4}
    errors = created(KIND, template(metadata))[1]
    assert [e.split(", and must")[0] for e in errors] == [
        "spec.metadata.annotations: Invalid value: \"x y\": name part must consist of alphanumeric characters, '-', '_' or '.'",
        "spec.metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.'",
        "spec.metadata.name: Forbidden: cannot be set",
        "spec.metadata.uID: Forbidden: cannot be set",
        "spec.metadata.generation: Forbidden: cannot be set",
    ]


def test_annotations_of_claims_are_limited_like_all_others() -> None:
    errors = created(KIND, template({"annotations": {"a": "x" * 262144}}))[1]
    assert errors == ["spec.metadata.annotations: Too long: may not be more than 262144 bytes"]


def test_the_inner_spec_is_validated_like_a_claims() -> None:
    bad = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": ""}}]}}
    errors = created(KIND, template(spec=bad))[1]
    assert errors == ["spec.spec.devices.requests[0].exactly.deviceClassName: Required value"]


def test_an_update_validates_and_refuses_any_change_of_the_spec() -> None:
    assert updated(KIND, template(), template())[1] == []
    assert updated(KIND, template(spec={}), template())[1] == [
        'spec: Invalid value: {"Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":null}}}: field is immutable'
    ]
    errors = updated(KIND, template({"labels": {"a": "b"}}, spec={"devices": {"config": [{}]}}), template())[1]
    shown = '{"labels":{"a":"b"},"Spec":{"Devices":{"Requests":null,"Constraints":null,"Config":[{"Requests":null,"Opaque":null}]}}}'
    assert errors == [
        "spec.spec.devices.config[0].opaque: Required value",
        f"spec: Invalid value: {shown}: field is immutable",
    ]


def test_metadata_that_is_given_is_refused_even_if_it_is_empty() -> None:
    metadata = {"finalizers": [], "deletionGracePeriodSeconds": 0, "creationTimestamp": "0001-01-01T00:00:00Z"}
    assert created(KIND, template({**metadata, "name": "", "generation": 0, "ownerReferences": None}))[1] == [
        "spec.metadata.creationTimestamp: Forbidden: cannot be set",
        "spec.metadata.deletionGracePeriodSeconds: Forbidden: cannot be set",
        "spec.metadata.finalizers: Forbidden: cannot be set",
    ]


def test_a_refused_change_shows_the_metadata_in_canonical_form() -> None:
    new = template({"labels": {"b": "", "a": ""}, "name": "", "annotations": {}}, {"devices": {}})
    [error] = updated(KIND, new, template())[1]
    assert error.startswith('spec: Invalid value: {"labels":{"a":"","b":""},"Spec":{"Devices":{"Requests":null,')
