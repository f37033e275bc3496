"""Members that a merge patch does not touch bypass it: the result is the same as if the whole object had been encoded and read again."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.objects import canonical, decoding
from apiserver.fieldmanager.writer import Writer
from apiserver.kinds.served import Kinds
from apiserver.resources import RESOURCES
from apiserver.schema.resource import Resource
from apiserver.verbs import patch
from apiserver.watchcache.entry import Entry, Key, Revision, splice, split
from apiserver.wire.body import Terms
from tests.unit.resources.odd import CONFIG, WHOLE, odd
from tests.unit.resources.samples import CLAIM, NOW, RESULT, decoded

KINDS = Kinds(RESOURCES, group="resource.k8s.io")
SYSTEM = {"uid": "0b6d53b0-0000-4000-8000-000000000001", "creationTimestamp": NOW, "generation": 1}
MANAGED = {
    "manager": "m",
    "operation": "Update",
    "apiVersion": "resource.k8s.io/v1",
    "time": NOW,
    "fieldsType": "FieldsV1",
}
PATCHES: list[Any] = [
    {},
    {"metadata": {"labels": {"a": "b<"}, "annotations": None}},
    {"metadata": {"finalizers": ["x/y"], "managedFields": [], "unknown": 1}},
    {"metadata": {"labels": {"a": 1}}},
    {"metadata": None},
    {"status": {"devices": []}},
    {"status": None, "unknown": {"a": None}},
    {"Spec": {"driver": "x"}},
    {"spec": {"driver": "d.io", "devices": None}, "metadata": {"name": "other"}},
    {"spec": 1},
    {"apiVersion": None, "metadata": {"labels": {"a": "b"}}},
    {"apiVersion": "resource.k8s.io/v1beta2", "metadata": {"labels": {"a": "b"}}},
    {"kind": "Other"},
    [],
]
WHOLE_OBJECT = dataclasses.replace(patch.MERGE_PATCH, touches=lambda _: None)


def stored(resource: Resource, whole: dict[str, Any]) -> Entry:
    metadata = whole["metadata"] | SYSTEM | {"managedFields": [MANAGED | {"fieldsV1": {"f:spec": {"f:driver": {}}}}]}
    value = splice(canonical.encode(resource.shape, decoded(resource, whole | {"metadata": metadata})), 7)
    text, verbatim = split(value)
    return Entry(Key("k"), Revision(7), text, {}, (), verbatim=verbatim)


def outcome(kind: Any, sent: Any, live: Entry, resource: Resource, validation: str) -> Any:
    """The stored result, and the messages."""
    warnings = Warnings()
    terms = Terms(resource=resource, kinds=KINDS, now=NOW, validation=validation, warnings=warnings)
    writer = Writer(manager="m", resource=resource, subresource="", now=NOW, force=False)
    try:
        made = patch.patched(kind, json.dumps(sent).encode(), live, writer=writer, terms=terms)
    except StatusError as e:
        return e.status(), warnings.headers()
    return canonical.encode(resource.shape, made), warnings.headers()


STATUS: dict[str, Any] = {
    "allocation": {"devices": {"results": [RESULT], "config": [{"source": "FromClaim", "opaque": CONFIG["opaque"]}]}},
    "devices": [
        {
            "driver": "gpu.example.com",
            "pool": "n1",
            "device": "gpu-0",
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": NOW}
            ],
            "data": {"b": 1, "a": [None]},
        }
    ],
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
}


def objects(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for member in whole.keys() & {"spec", "status"}:
        for value in odd(whole[member]):
            yield {**whole, member: value}


@pytest.mark.parametrize(("kind", "whole"), [*WHOLE, ("ResourceClaim", CLAIM | {"status": STATUS})])
def test_the_same_comes_of_a_patch(kind: str, whole: dict[str, Any]) -> None:
    compared = 0
    for version, objs in (("v1", [whole, *objects(whole)]), ("v1beta1", [whole])):
        resource = KINDS.named("resource.k8s.io", version, kind)
        assert resource is not None
        for obj in objs:
            try:
                live = stored(resource.stored, obj)
            except decoding.DecodeError:
                continue
            for sent, validation in itertools.product(PATCHES, ("Strict", "Ignore")):
                found = outcome(patch.MERGE_PATCH, sent, live, resource, validation)
                assert found == outcome(WHOLE_OBJECT, sent, live, resource, validation), (sent, validation, live.body)
                compared += 1
    assert compared > 100


def test_untouched_members_are_not_encoded() -> None:
    seen: list[set[str]] = []

    def apply(text: bytes, live: dict[str, Any], writer: Writer) -> Any:
        seen.append(live.keys() - {"kind", "apiVersion"})
        return patch.MERGE_PATCH.apply(text, live, writer)

    kind, whole = WHOLE[0]
    resource = KINDS.named("resource.k8s.io", "v1", kind)
    assert resource is not None
    watched = dataclasses.replace(patch.MERGE_PATCH, apply=apply)
    outcome(watched, {"metadata": {"labels": {"a": "b"}}}, stored(resource, whole), resource, "Strict")
    assert seen == [{"metadata"}]
    outcome(watched, {"metadata": {"labels": {"a": 1}}}, stored(resource, whole), resource, "Strict")
    assert seen[1:] == [{"metadata"}, {"metadata", "spec"}], "an error shows all of it"


@pytest.mark.parametrize(("size", "times"), [(10, 2), (100_000, 1)])
def test_refused_patch_that_is_larger_than_the_object_is_applied_once(size: int, times: int) -> None:
    kind, whole = next(iter(WHOLE))
    resource = KINDS.named("resource.k8s.io", "v1", kind)
    assert resource is not None
    applied: list[bytes] = []

    def apply(sent: bytes, live: dict[str, Any], writer: Writer) -> Any:
        applied.append(sent)
        return patch.MERGE_PATCH.apply(sent, live, writer)

    counted = dataclasses.replace(patch.MERGE_PATCH, apply=apply)
    sent = {"metadata": {"labels": {"a": 1}}, "unknown": "x" * size}
    found = outcome(counted, sent, stored(resource.stored, whole), resource, "Strict")
    assert found[0]["code"] == 422
    assert len(applied) == times
