"""Facts about a document that need no decoded object."""

from __future__ import annotations

import tracemalloc

import msgspec
import pytest

from apiserver.codecs.objects import decoding, typed
from apiserver.schema.resource import Resource
from tests.unit.admission.changes import GROUP, KINDS


def claims() -> Resource:
    found = KINDS.at(GROUP, "v1", "resourceclaims")
    assert found is not None
    return found


KNOWN = [
    b"{}",
    b'{"kind":"K","apiVersion":1,"metadata":null}',
    b'{"metadata":{"name":"c","labels":{"any":"x"},"managedFields":[{"fieldsV1":{"f:any":{}}},null]},"spec":{"devices":{"requests":[]}}}',
    b'{"spec":{"devices":{"config":[{"opaque":{"driver":"d","parameters":{"any":[1]}}}],"requests":[{"exactly":{"count":1}}]}}}',
]
OTHER = [
    b'{"any":1}',
    b'{"metadata":{"any":1}}',
    b'{"metadata":{"ownerReferences":[{"uid":"u"},{"UID":"v"}]}}',
    b'{"spec":{"devices":{"config":[{"opaque":{"any":{}}}]}}}',
]


@pytest.mark.parametrize("document", KNOWN)
def test_a_document_with_members_that_the_shape_has_has_no_others(document: bytes) -> None:
    assert typed.has_no_others(claims().shape, document)


@pytest.mark.parametrize("document", OTHER)
def test_a_member_that_the_shape_does_not_have_is_found_wherever_it_stands(document: bytes) -> None:
    assert not typed.has_no_others(claims().shape, document)


@pytest.mark.parametrize("document", [document for document in KNOWN + OTHER if b"kind" not in document])
def test_document_without_unknown_members_has_none_for_the_decoder_either(document: bytes) -> None:
    found = decoding.decode(claims().shape, msgspec.json.decode(document))
    assert typed.has_no_others(claims().shape, document) is not bool(found.unknown)


@pytest.mark.parametrize(
    "document", [b"[]", b'{"metadata":[]}', b'{"spec":{"devices":' + b"[" * 5000 + b"]" * 5000 + b"}}"]
)
def test_document_that_does_not_fit_the_shape_has_no_verdict(document: bytes) -> None:
    assert not typed.has_no_others(claims().shape, document)


def test_long_maps_and_lists_and_raw_json_take_no_memory_to_look_at() -> None:
    labels = b",".join(b'"label%d":"v"' % at for at in range(40_000))
    fields = b",".join(b'"f:label%d":{}' % at for at in range(40_000))
    document = b'{"metadata":{"labels":{%s},"finalizers":[%s],"managedFields":[{"fieldsV1":{%s}}]}}' % (
        labels,
        b",".join([b'"a/b"'] * 40_000),
        fields,
    )
    assert typed.has_no_others(claims().shape, document)
    tracemalloc.start()
    try:
        typed.has_no_others(claims().shape, document)
        assert tracemalloc.get_traced_memory()[1] < 64 << 10
    finally:
        tracemalloc.stop()
