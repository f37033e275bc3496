"""The outcomes were seen on kube-apiserver 1.36.3."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.schema.structural import of
from apiserver.structural.embedded import coercer

RESOURCE = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
SCHEMA = of(
    {"type": "object", "properties": {"e": RESOURCE, "m": {"type": "object", "additionalProperties": RESOURCE}}}
)


@pytest.mark.parametrize(
    ("resource", "error"),
    [
        ({"apiVersion": 1}, "e.apiVersion: Invalid value: 1: must be a string"),
        ({"apiVersion": 1e21}, "e.apiVersion: Invalid value: 1e+21: must be a string"),
        ({"kind": None}, "e.kind: Invalid value: null: must be a string"),
        (
            {"metadata": {"name": 1, "b": {"c": 2.0}}},
            (
                'e.metadata: Invalid value: {"b":{"c":2},"name":1}: '
                "json: cannot unmarshal number into Go struct field ObjectMeta.name of type string"
            ),
        ),
        (
            {"metadata": [1.0, 2e30]},
            "e.metadata: Invalid value: [1,2e+30]: json: cannot unmarshal array into Go value of type v1.ObjectMeta",
        ),
    ],
)
def test_wrong_types_get_upstreams_messages(resource: Any, error: str) -> None:
    assert coercer(SCHEMA)({"e": resource}, None) == error


@pytest.mark.parametrize(
    ("metadata", "regular"),
    [
        (None, {}),
        ({"creationTimestamp": None, "name": "n"}, {"name": "n"}),
        ({"labels": {}, "generation": 2.0}, {"generation": 2}),
        ({"creationTimestamp": "2020-01-01T00:00:00+02:00"}, {"creationTimestamp": "2019-12-31T22:00:00Z"}),
        ({"managedFields": [{"fieldsV1": {"f:b": {}}}]}, {"managedFields": [{"fieldsV1": {"f:b": {}}}]}),
    ],
)
def test_metadata_becomes_what_object_meta_holds(metadata: Any, regular: Any) -> None:
    obj = {"e": {"metadata": metadata}}
    assert coercer(SCHEMA)(obj, None) == ""
    assert obj == {"e": {"metadata": regular}}


def test_unknown_members_of_metadata_are_named_with_bracketed_keys() -> None:
    obj = {"m": {"j": {"metadata": {"x": 1, "name": "n"}}}, "e": {"metadata": {"y": 1}}}
    unknown: list[str] = []
    assert coercer(SCHEMA)(obj, unknown) == ""
    assert unknown == ["e.metadata.y", "m[j].metadata.x"]
    assert obj == {"m": {"j": {"metadata": {"name": "n"}}}, "e": {"metadata": {}}}


def test_invalid_stored_metadata_is_dropped() -> None:
    obj = {"e": {"kind": 1, "apiVersion": "v1", "metadata": {"name": 1, "labels": {"a": "b"}}}}
    assert coercer(SCHEMA, drops=True)(obj, None) == ""
    assert obj == {"e": {"apiVersion": "v1", "metadata": {"labels": {"a": "b"}}}}
