from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver import resources
from apiserver.apimachinery.releases import NEWEST, at
from apiserver.codecs.objects import canonical
from apiserver.codecs.protobuf import messages as protobuf
from apiserver.codecs.protobuf import templates
from apiserver.codecs.protobuf.templates import Templates
from apiserver.schema import machinery
from apiserver.schema.types import Struct
from tests.unit.schema import shapes_and_values

KINDS = {resource.kind: resource.shape for resource in at(NEWEST, resources.RESOURCES)}
SLICE, CLAIM = KINDS["ResourceSlice"], KINDS["ResourceClaim"]
MARKS = ("a", "Z", "0", "é", "\\", '"', "\u2028", "<", "{", "},", "null", ":", " ", "\x7f", "\ud800")
TIMES = (
    "2026-06-01T12:00:00Z",
    "2026-06-02T23:59:59Z",
    "1969-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)


class Counted:
    """Makes messages the long way, and knows of how many texts."""

    def __init__(self, shape: Struct) -> None:
        self.shape = shape
        self.count = 0

    def __call__(self, text: bytes) -> bytes:
        self.count += 1
        return protobuf.encode(self.shape, canonical.decode(self.shape, text))


def slice_of(number: int, **other: Any) -> dict[str, Any]:
    """One of a fleet, with a name, an identity and devices of its own."""
    metadata = {
        "name": f"slice-{number:05}",
        "uid": f"5f3c1f1e-0000-4000-8000-{number:012}",
        "resourceVersion": str((1 << 40) + number * 7),
        "generation": 1 + number % 9,
        "creationTimestamp": f"2026-06-{1 + number % 28:02}T12:00:{number % 60:02}Z",
        "managedFields": [
            {"manager": "driver", "operation": "Update", "apiVersion": "resource.k8s.io/v1", "fieldsType": "FieldsV1",
             "fieldsV1": {"f:spec": {}}, "time": f"2026-06-01T12:00:{number % 60:02}Z"}
        ],
    }  # fmt: skip
    devices = [
        {"name": f"gpu-{i}", "attributes": {"uuid": {"string": f"GPU-{number:06}-{i}"}, "numa": {"int": number % 10}}}
        for i in range(4)
    ]
    spec = {
        "driver": "a.example",
        "pool": {"name": "p", "generation": 300 + number, "resourceSliceCount": 1},
        "devices": devices,
    }
    return {"metadata": metadata | other, "spec": spec}


def texts(shape: Struct, objects: list[dict[str, Any]]) -> list[bytes]:
    return [canonical.encode_served(shape, obj) for obj in objects]


def test_objects_of_a_fleet_are_made_by_copy_and_patch() -> None:
    fleet, slowly = texts(SLICE, [slice_of(n) for n in range(400)]), Counted(SLICE)
    made = Templates(slowly)
    messages = [made(text) for text in fleet]
    assert slowly.count < 60
    assert messages == [Counted(SLICE)(text) for text in fleet]


def test_objects_with_names_of_several_lengths_have_a_template_each() -> None:
    fleet = texts(SLICE, [slice_of(n, name=f"s{10 ** (n % 4)}-{n}") for n in range(2000)])
    slowly = Counted(SLICE)
    made = Templates(slowly)
    assert [made(text) for text in fleet] == [Counted(SLICE)(text) for text in fleet]
    assert slowly.count < 150


def test_a_text_of_another_length_is_learned_of_alone() -> None:
    slowly = Counted(SLICE)
    made = Templates(slowly)
    for text in texts(SLICE, [slice_of(number) for number in range(64)]):
        made(text)
    before = slowly.count
    longer = texts(SLICE, [slice_of(number, name=f"a-longer-slice-{number:05}") for number in range(64)])
    assert [made(text) for text in longer] == [Counted(SLICE)(text) for text in longer]
    assert slowly.count <= before + 2


@pytest.mark.parametrize(
    "more",
    [
        {"creationTimestamp": "0001-01-01T00:00:00Z"},
        {"creationTimestamp": "2026-06-31T00:00:00Z"},
        {"generation": 1 << 62},
        {"generation": -1},
        {"uid": "é"},
        {"uid": 'quoted "name"'},
        {"uid": ""},
    ],
    ids=str,
)
def test_non_variable_values_are_learned_in_no_other_length_either(more: dict[str, Any]) -> None:
    made = Templates(Counted(SLICE))
    for text in texts(SLICE, [slice_of(number) for number in range(64)]):
        made(text)
    for number in range(64, 80):
        (text,) = texts(SLICE, [slice_of(number, name=f"longer-{number}", **more)])
        try:
            expected = Counted(SLICE)(text)
        except ValueError:
            with pytest.raises(ValueError, match="day"):
                made(text)
        else:
            assert made(text) == expected


@pytest.mark.parametrize(
    ("more", "seldom"),
    [
        (lambda time: {"creationTimestamp": time}, 0),
        (lambda time: {"annotations": {TIMES[1]: "x"}}, 0),
        (lambda time: {"annotations": {"at": time}}, templates.SELDOM),
        (lambda time: {"creationTimestamp": time, "annotations": {"at": f"since {time}"}}, templates.SELDOM),
    ],
    ids=["a time", "a key", "a text", "both"],
)
def test_times_are_variable_before_two_of_them_differ(more: Callable[[str], dict[str, Any]], seldom: int) -> None:
    """A text that looks like one is so when it does."""
    slowly = Counted(SLICE)
    made = Templates(slowly)
    alike, others = (
        [slice_of(n, **more(TIMES[0])) for n in (1, 2)],
        [slice_of(n, **more(TIMES[1])) for n in range(3, 40)],
    )
    fleet = texts(SLICE, [*alike, *others])
    assert [made(text) for text in fleet] == [Counted(SLICE)(text) for text in fleet]
    assert slowly.count <= 5 + seldom


VALUES = st.lists(st.sampled_from(MARKS), min_size=1, max_size=4).map("".join)


@settings(max_examples=60)
@given(data=st.data())
def test_message_is_that_of_the_object_wherever_values_vary(data: st.DataObject) -> None:
    """Few lengths and few keys, so that texts are of one length although they differ in more than values."""
    made, slowly = Templates(Counted(SLICE)), Counted(SLICE)
    for number in range(12):
        more = {
            "labels": data.draw(st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=2)),
            "annotations": {"at": data.draw(st.sampled_from(TIMES)), "n": data.draw(st.sampled_from("123456789"))},
            "creationTimestamp": data.draw(st.sampled_from(TIMES)),
            "generation": data.draw(st.sampled_from([0, 1, 5, 99, 127, 128, 999, 1 << 62, -1])),
            "finalizers": data.draw(st.lists(VALUES, max_size=2)),
        }
        obj = slice_of(number if data.draw(st.booleans()) else 7, **more)
        text = canonical.encode_served(SLICE, obj)
        for _ in range(2):
            assert made(text) == slowly(text)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_objects_that_differ_in_one_place_have_their_own_messages(kind: str, data: st.DataObject) -> None:
    """Each text of an object with other letters and digits in it, as many of them."""
    shape = KINDS[kind]
    made, slowly = Templates(Counted(shape)), Counted(shape)
    text = canonical.encode_served(shape, data.draw(shapes_and_values.struct_values(shape)))
    for _ in range(6):
        changed = bytearray(text)
        for place in data.draw(st.lists(st.integers(0, max(len(text) - 1, 0)), max_size=3)):
            if chr(changed[place]).isalnum():
                changed[place] = data.draw(st.sampled_from(b"abc189"))
        try:
            expected = slowly(bytes(changed))
        except (ValueError, TypeError, LookupError, AttributeError):
            continue
        assert made(bytes(changed)) == expected


def test_maps_stay_in_the_order_of_their_keys() -> None:
    made = Templates(Counted(CLAIM))
    for keys in ("ax", "cx", "zx", "by", "xa"):
        text = canonical.encode_served(CLAIM, {"metadata": {"name": "c", "labels": dict.fromkeys(keys, "v")}})
        for _ in range(3):
            assert made(text) == Counted(CLAIM)(text)


def test_unlike_objects_are_learned_seldom_and_kept_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(templates, "KEPT", 20_000)
    slowly = Counted(SLICE)
    made = Templates(slowly)
    for number in range(600):
        labels = {f"k{number}": "v" * (number % 50), f"l{number * 7919 % 1000}": "w"}
        made(canonical.encode_served(SLICE, slice_of(3, labels=labels)))
        assert made._size <= 20_000
    assert slowly.count <= 600 * (1 + 1 / templates.SELDOM) + templates.FEW


def test_long_texts_are_not_learned_of() -> None:
    slowly = Counted(machinery.PARTIAL_OBJECT_METADATA)
    made = Templates(slowly)
    for letter in "abc" * 20:
        metadata = {"name": letter, "annotations": {"long": "x" * templates.LONGEST}}
        made(canonical.encode_served(slowly.shape, {"metadata": metadata}))
    assert slowly.count == 60
    assert not made._known


def test_a_text_that_is_refused_is_refused_each_time() -> None:
    made = Templates(Counted(SLICE))
    for _ in range(3):
        with pytest.raises(msgspec.DecodeError):
            made(b'{"metadata":')


def test_time_that_means_null_is_not_variable() -> None:
    made = Templates(Counted(SLICE))
    for time in TIMES * 3:
        text = canonical.encode_served(SLICE, slice_of(1, creationTimestamp=time))
        assert made(text) == Counted(SLICE)(text)
        text = canonical.encode_served(SLICE, slice_of(1, namespace=time))
        assert made(text) == Counted(SLICE)(text)
