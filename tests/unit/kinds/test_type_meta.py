from __future__ import annotations

import pytest

from apiserver.kinds import type_meta
from apiserver.kinds.type_meta import TypeMeta, Unreadable
from tests.unit.wire.served import CLASSES


@pytest.mark.parametrize(
    ("value", "meta"),
    [
        (None, TypeMeta("", "", "")),
        ({}, TypeMeta("", "", "")),
        ({"kind": "K", "apiVersion": "g/v1"}, TypeMeta("g", "v1", "K")),
        ({"KIND": "K", "APIVersion": "v1"}, TypeMeta("", "v1", "K")),
        ({"kind": None, "apiVersion": "g/"}, TypeMeta("g", "", "")),
        ({"apiVersion": "/"}, TypeMeta("", "", "")),
    ],
)
def test_a_document_says_what_it_is(value: object, meta: TypeMeta) -> None:
    assert type_meta.read(value) == meta


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"kind": 5}, "cannot unmarshal number into Go struct field .kind of type string"),
        ({"apiVersion": True, "kind": 5}, "cannot unmarshal bool into Go struct field .apiVersion of type string"),
        ({"apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
        (
            "x",
            r'cannot unmarshal string into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; ',
        ),
    ],
)
def test_unreadable_type_is_refused(value: object, text: str) -> None:
    with pytest.raises(Unreadable) as refused:
        type_meta.read(value)
    assert text in str(refused.value)


def test_missing_kind_and_version_come_from_the_endpoint() -> None:
    own = TypeMeta("resource.k8s.io", "v1", "DeviceClass")
    assert TypeMeta("", "", "").completed(CLASSES) == own
    assert TypeMeta("resource.k8s.io", "", "").completed(CLASSES) == own
    assert TypeMeta("", "v1", "").completed(CLASSES) == TypeMeta("", "v1", "DeviceClass")
    assert TypeMeta("foo", "", "Foo").completed(CLASSES) == TypeMeta("foo", "", "Foo")
