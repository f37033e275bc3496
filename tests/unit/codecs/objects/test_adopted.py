"""Values that servers of other releases stored, read as this release would have stored them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from apiserver.apimachinery.releases import V1_36, V1_37, Release, at
from apiserver.codecs.objects import adopted, canonical
from apiserver.schema.types import Field, String, Struct
from tests.fixtures.varying_kind import LAMP

SHAPES = {release: at(release, LAMP).shape for release in (V1_36, V1_37)}
METADATA = {"name": "a", "uid": "u", "annotations": {"note": '"colour":'}}


def adopt(release: Release) -> adopted.Adopt:
    found = adopted.adopter(SHAPES[release], [shape for other, shape in SHAPES.items() if other != release])
    assert found is not None
    return found


def stored(release: Release, **spec: Any) -> bytes:
    return canonical.encode(SHAPES[release], {"metadata": METADATA, "spec": spec})


NEW = {"place": "hall", "colour": "red", "bulbs": [{"socket": "E27", "watts": 5}], "spare": {"a": {"watts": 1}}}
KEPT = {"place": "hall", "bulbs": [{"socket": "E27"}], "spare": {"a": {}}}


def test_members_of_a_later_release_are_left_out() -> None:
    assert adopt(V1_36)(stored(V1_37, **NEW)) == stored(V1_36, **KEPT)


def test_members_of_an_earlier_release_are_left_out() -> None:
    assert adopt(V1_37)(stored(V1_36, place="hall", wick="flat")) == stored(V1_37, place="hall")


@pytest.mark.parametrize("release", [V1_36, V1_37])
def test_a_value_of_the_own_release_is_returned_as_it_is(release: Release) -> None:
    value = stored(release, place='a "watts": 5', options=msgspec.Raw(b'{"shade": 1, "wick": 2}'))
    assert adopt(release)(value) is value


def test_raw_json_keeps_its_spelling_beside_raw_json_that_is_left_out() -> None:
    shade, options = msgspec.Raw(b'{"b": 1}'), msgspec.Raw(b'{"a": 2}')
    found = adopt(V1_36)(stored(V1_37, shade=shade, options=options))
    assert found == stored(V1_36, options=options)
    assert bytes(canonical.decode(SHAPES[V1_36], found)["spec"]["options"]) == b'{"a": 2}'


def test_texts_that_no_known_release_wrote_are_dropped() -> None:
    unknown = stored(V1_37, colour="red", options=msgspec.Raw(b'{"a": 2}')).replace(b'"colour":', b'"glow":1,"colour":')
    with_more = unknown.replace(b"\n[", b"\n[null,")
    found = adopt(V1_36)(with_more)
    assert canonical.decode(SHAPES[V1_36], found)["spec"]["options"] == msgspec.Raw(b'{"a":2}')


def test_bytes_that_are_no_object_raise_an_error() -> None:
    with pytest.raises(ValueError, match=r"malformed|truncated|JSON"):
        adopt(V1_36)(b'{"metadata":{"name":"a"},"spec":{"colour":')


def test_shapes_with_the_same_members_need_no_reader() -> None:
    shape = Struct(name="Thing", fields=[Field(name="text", number=1, type=String())])
    again = Struct(name="Thing", fields=[Field(name="text", number=1, type=String(max_bytes=5))])
    assert adopted.adopter(shape, [again]) is None
