"""How a change looks in other versions and forms, and what comes back from there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.admission.core import views
from apiserver.admission.core.attributes import Attributes
from apiserver.admission.core.views import Views, taken_back
from apiserver.codecs.objects import canonical, decoding, typed
from apiserver.runtime.offload import CHANGE
from apiserver.schema.resource import Object, Resource
from tests.unit.admission.changes import GROUP, KINDS, change

MANAGER = b'{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}}}'
CLAIM = (
    b'{"metadata":{"name":"c","namespace":"ns","managedFields":[' + MANAGER + b"]},"
    b'"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"d","allocationMode":"ExactCount","count":1}}],'
    b'"config":[{"opaque":{"driver":"x","parameters":{"b":1.0,"a":[1,123456789012345678901]}}}]}},"status":{}}'
)


def resource(version: str) -> Resource:
    found = KINDS.at(GROUP, version, "resourceclaims")
    assert found is not None
    return found


def claim() -> Attributes:
    return change(new=canonical.decode(resource("v1").shape, CLAIM))


def test_the_text_is_the_stored_one_with_kind_and_api_version_first() -> None:
    attributes = claim()
    assert attributes.object is not None
    head = f'{{"kind":"ResourceClaim","apiVersion":"{GROUP}/v1",'.encode()
    assert attributes.views.text(attributes.object, resource("v1")) == head + CLAIM[1:]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_raw_json_that_was_sent_with_blanks_is_shown_compact(version: str) -> None:
    attributes = claim()
    loose = decoding.decode(
        resource("v1").shape, typed.parser(resource("v1").shape)(CLAIM.replace(b'{"b":1.0,', b'{ "b": 1.0,\n'))
    )
    shown = attributes.views
    assert attributes.object is not None
    assert shown.text(loose.object, resource(version)) == shown.text(attributes.object, resource(version))
    assert shown.plain(loose.object, resource(version)) == shown.plain(attributes.object, resource(version))


def test_another_version_shows_the_converted_object_and_keeps_the_object() -> None:
    attributes = claim()
    obj = attributes.object
    assert obj is not None
    shown = json.loads(attributes.views.text(obj, resource("v1beta1")))
    assert shown["apiVersion"] == f"{GROUP}/v1beta1"
    assert shown["spec"]["devices"]["requests"][0]["deviceClassName"] == "d"
    assert "exactly" in obj["spec"]["devices"]["requests"][0]


def test_plain_values_are_what_the_json_means_raw_json_included() -> None:
    attributes = claim()
    assert attributes.object is not None
    plain = attributes.views.plain(attributes.object, resource("v1"))
    parameters = plain["spec"]["devices"]["config"][0]["opaque"]["parameters"]
    assert repr(parameters) == "{'b': 1.0, 'a': [1, 1.2345678901234568e+20]}"
    assert plain["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {}}
    assert plain["kind"] == "ResourceClaim"


@pytest.mark.parametrize("size", [0, CHANGE.limit + 1])
async def test_view_of_an_object_is_made_once_also_in_a_thread(size: int) -> None:
    obj, shown = claim().object, Views(size=size)
    assert obj is not None
    text, plain = await shown.atext(obj, resource("v1")), await shown.aplain(obj, resource("v1"))
    assert await shown.atext(obj, resource("v1")) is text
    assert shown.plain(obj, resource("v1")) is plain
    assert shown.large is (size > 0)


def test_only_the_last_objects_are_remembered() -> None:
    shown, objects = Views(), [claim().object for _ in range(views.REMEMBERED + 1)]
    texts = [shown.text(obj, resource("v1")) for obj in objects if obj is not None]
    first, last = objects[0], objects[-1]
    assert first is not None
    assert last is not None
    assert shown.text(last, resource("v1")) is texts[-1]
    assert shown.text(first, resource("v1")) is not texts[0]


def test_only_the_last_two_large_objects_are_cached() -> None:
    shown = Views(size=CHANGE.limit + 1)
    old, first, last = (change(new=canonical.decode(resource("v1").shape, CLAIM)).object or {} for _ in range(3))
    plain = [shown.plain(obj, resource("v1")) for obj in (old, first)]
    assert shown.plain(old, resource("v1")) is plain[0]
    shown.plain(last, resource("v1"))
    assert shown.plain(old, resource("v1")) is plain[0]
    assert shown.plain(first, resource("v1")) is not plain[1]


@pytest.mark.parametrize(("size", "times"), [(0, 1), (CHANGE.limit + 1, 2)])
def test_source_text_of_a_large_object_is_not_kept(size: int, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    obj, shown = claim().object, Views(size=size)
    assert obj is not None
    write = views.written
    made: list[bytes] = []

    def written(obj: Object, resource: Resource) -> bytes:
        made.append(write(obj, resource))
        return made[-1]

    monkeypatch.setattr(views, "written", written)
    plain, text = shown.plain(obj, resource("v1")), shown.text(obj, resource("v1"))
    assert json.loads(text)["metadata"] == plain["metadata"]
    assert made == [text] * times
    assert shown.text(obj, resource("v1")) is text


@pytest.mark.parametrize("size", [0, CHANGE.limit + 1])
def test_nothing_is_cached_of_a_large_object_that_was_replaced(size: int) -> None:
    attributes = change(new=canonical.decode(resource("v1").shape, CLAIM), views=Views(size=size))
    before = attributes.object
    assert before is not None
    plain = attributes.views.plain(before, resource("v1"))
    attributes.become(before)
    assert attributes.views.plain(before, resource("v1")) is plain
    attributes.become({**before})
    assert (attributes.views.plain(before, resource("v1")) is plain) is (size == 0)


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
@pytest.mark.parametrize("as_text", [True, False])
def test_shown_object_comes_back_unchanged(version: str, as_text: bool) -> None:
    attributes = claim()
    obj = attributes.object
    assert obj is not None
    data: Any = attributes.views.text(obj, resource(version))
    back = taken_back(resource(version), data if as_text else json.loads(data), attributes)
    assert canonical.equal(resource("v1").shape, back, obj) or not as_text
    assert (back["kind"], back["apiVersion"]) == ("ResourceClaim", f"{GROUP}/v1")


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_lone_surrogates_come_back_from_text_and_are_replaced_in_values(version: str) -> None:
    attributes = change(new=canonical.decode(resource("v1").shape, CLAIM.replace(b'"b":1.0', rb'"b\udc00":"\ud800"')))
    obj = attributes.object
    assert obj is not None
    text = attributes.views.text(obj, resource(version))
    assert rb'"parameters":{"b\udc00":"\ud800","a"' in text
    assert canonical.equal(resource("v1").shape, taken_back(resource(version), text, attributes), obj)
    [config] = attributes.views.plain(obj, resource(version))["spec"]["devices"]["config"]
    assert config["opaque"]["parameters"] == {"b\ufffd": "\ufffd", "a": [1, 123456789012345678901.0]}


def test_returned_object_is_defaulted_and_loses_unknown_members() -> None:
    data = {
        "metadata": {"name": "c", "x": 1},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {}}]}, "y": 2},
    }
    unknown: list[str] = []
    back = taken_back(resource("v1"), data, claim(), unknown=unknown)
    assert back["spec"]["devices"]["requests"][0]["exactly"]["allocationMode"] == "ExactCount"
    assert unknown == ["metadata.x", "spec.y"]


def test_misfits_get_the_message_of_the_decoder() -> None:
    with pytest.raises(ValueError, match=r"cannot unmarshal string into Go struct field ResourceClaim\.spec of type"):
        taken_back(resource("v1"), b'{"metadata":{},"spec":"x"}', claim())
