from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiserver.schema import shapes, types
from apiserver.schema.types import ListOf, MapOf, Presence, Struct, Type

SHAPES = [value for value in vars(shapes).values() if isinstance(value, Struct)]


def structs_below(type_: Type) -> Iterator[Struct]:
    match type_:
        case Struct():
            yield type_
            for field in type_.fields:
                yield from structs_below(field.type)
        case ListOf():
            yield from structs_below(type_.item)
        case MapOf():
            yield from structs_below(type_.value)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: s.name)
def test_every_shared_shape_is_complete(shape: Struct) -> None:
    numbers = [field.number for field in shape.fields]
    assert len(set(numbers)) == len(numbers)
    assert all(number > 0 for number in numbers)
    assert shape.open or shape.model.startswith("io.k8s."), "only open structs are in no document of OpenAPI"
    assert shape.doc
    assert all(field.doc.endswith(".") for field in shape.fields), "descriptions are sentences"


def test_object_meta_has_the_protobuf_numbers_of_upstream() -> None:
    assert {f.name: f.number for f in shapes.OBJECT_META.fields} == {
        "name": 1,
        "generateName": 2,
        "namespace": 3,
        "selfLink": 4,
        "uid": 5,
        "resourceVersion": 6,
        "generation": 7,
        "creationTimestamp": 8,
        "deletionTimestamp": 9,
        "deletionGracePeriodSeconds": 10,
        "labels": 11,
        "annotations": 12,
        "ownerReferences": 13,
        "finalizers": 14,
        "managedFields": 17,
    }


def test_only_pointers_of_object_meta_distinguish_absent_from_zero() -> None:
    pointers = {f.name for f in shapes.OBJECT_META.fields if types.is_pointer(f)}
    assert pointers == {"deletionTimestamp", "deletionGracePeriodSeconds"}
    assert all(f.presence in (Presence.POINTER, Presence.OMIT_EMPTY) for f in shapes.OBJECT_META.fields)
