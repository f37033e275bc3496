from __future__ import annotations

import dataclasses

import msgspec
import pytest

from apiserver.codecs.objects import canonical, indexed
from apiserver.schema.resource import Resource
from apiserver.schema.types import Field, Integer, Presence, String, Struct
from tests.unit.schema.gadget import GADGET

RESOURCE = Resource(
    kind="Gadget",
    plural="gadgets",
    singular="gadget",
    namespaced=False,
    shape=GADGET,
    selectable={"spec.node": "spec.node", "spec.owner": "spec.owner"},
)
FULL = {
    "metadata": {"name": "a", "labels": {"t": "1", "<": "ü"}},
    "spec": {"owner": "o<x>", "node": "n1", "parts": [{"name": "p"}], "raw": {"spec": {"node": "wrong"}}},
}


def test_labels_and_fields_come_in_declared_order() -> None:
    read = indexed.reader(RESOURCE)
    assert read(canonical.encode(GADGET, FULL)) == ({"t": "1", "<": "ü"}, ("n1", "o<x>"))


@pytest.mark.parametrize("sent", [r"\ud800", r"\uDFFF\\", r"\\\udc00"])
def test_lone_surrogates_in_raw_json_are_skipped(sent: str) -> None:
    spec = {"owner": "\\ud800", "node": "n1", "raw": msgspec.Raw(b'"%b"' % sent.encode())}
    stored = canonical.encode(GADGET, {"metadata": FULL["metadata"], "spec": spec})
    assert sent.encode() in stored
    assert indexed.reader(RESOURCE)(stored) == ({"t": "1", "<": "ü"}, ("n1", "\\ud800"))


def test_absent_values_are_empty_and_absent_labels_are_shared() -> None:
    read = indexed.reader(RESOURCE)
    labels, fields = read(canonical.encode(GADGET, {}))
    assert fields == ("", "")
    assert labels is indexed.NO_LABELS
    assert read(b"{}") == ({}, ("", ""))


def test_repeated_values_are_one_object_in_memory() -> None:
    read = indexed.reader(RESOURCE)
    first, second = (read(canonical.encode(GADGET, FULL))[1] for _ in range(2))
    assert first[0] is second[0]
    assert first[1] is second[1]


def test_a_kind_without_selectable_fields_has_labels_only() -> None:
    read = indexed.reader(dataclasses.replace(RESOURCE, selectable={}))
    assert read(canonical.encode(GADGET, FULL)) == ({"t": "1", "<": "ü"}, ())


def test_one_selectable_field_is_a_tuple_of_one() -> None:
    read = indexed.reader(dataclasses.replace(RESOURCE, selectable={"owner": "spec.owner"}))
    assert read(canonical.encode(GADGET, FULL))[1] == ("o<x>",)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"solid": True, "pool": {"rank": 7}, "class": "c"}, ("true", "7", "c")),
        ({"solid": False, "pool": {}, "class": ""}, ("false", "0", "")),
        ({"solid": None, "pool": {"rank": -1}}, ("", "-1", "")),
    ],
)
def test_booleans_and_numbers_are_spelled_as_selectors_spell_them(
    spec: dict[str, object], expected: tuple[str, ...]
) -> None:
    class_ = Field(name="class", number=20, type=String(), presence=Presence.ALWAYS)
    inner = next(f for f in GADGET.fields if f.name == "spec")
    assert isinstance(inner.type, Struct)
    changed = dataclasses.replace(inner, type=dataclasses.replace(inner.type, fields=[*inner.type.fields, class_]))
    shape = dataclasses.replace(GADGET, fields=[GADGET.fields[0], changed])
    read = indexed.reader(
        dataclasses.replace(
            RESOURCE, shape=shape, selectable={"solid": "spec.solid", "rank": "spec.pool.rank", "class": "spec.class"}
        )
    )
    assert read(canonical.encode(shape, {"spec": spec}))[1] == expected


def test_bytes_that_are_no_object_are_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        indexed.reader(RESOURCE)(b'{"spec":{"node":5}}')
    assert Integer().bits == 64
