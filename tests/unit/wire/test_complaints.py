from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver.wire import complaints
from tests.unit.wire import recorded
from tests.unit.wire.served import CLASSES, SLICES

CASES = [c for c in recorded.cases("go_json.jsonl") if not c["error"]]


def of_shape(raw: bytes, resource: Any = CLASSES) -> list[str]:
    return complaints.find(raw, complaints.shaped(resource.shape, extra=("kind", "apiVersion")))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c["raw"])
def test_repeated_members_are_listed_as_go_lists_them(case: dict[str, Any]) -> None:
    assert complaints.find(recorded.raw(case), complaints.anything) == case["strict"]


def test_unknown_and_repeated_members_come_in_document_order() -> None:
    raw = b'{"kind":"x","metadata":{"name":"a","name":"b","foo":1},"spec":{"bar":{"x":1}},"spec":{},"top":[]}'
    assert of_shape(raw) == [
        'duplicate field "metadata.name"',
        'unknown field "metadata.foo"',
        'unknown field "spec.bar"',
        'duplicate field "spec"',
        'unknown field "top"',
    ]


def test_paths_run_through_lists_and_maps() -> None:
    raw = b'{"spec":{"devices":[{"name":"d"},{"name":"e","name":"f","attributes":{"a":{"bar":1},"a":{"int":1}}}]}}'
    assert of_shape(raw, SLICES) == [
        'duplicate field "spec.devices[1].name"',
        'unknown field "spec.devices[1].attributes.a.bar"',
        'duplicate field "spec.devices[1].attributes.a"',
    ]


def test_unknown_members_and_raw_json_are_not_looked_into() -> None:
    raw = (
        b'{"u":{"a":1,"a":[{"b":1,"b":2}]},"u":1,'
        b'"spec":{"config":[{"opaque":{"driver":"d","parameters":{"p":1,"p":{"q":[]}}}}],"selectors":[],"selectors":[]}}'
    )
    assert of_shape(raw) == ['unknown field "u"', 'duplicate field "spec.selectors"']


def test_names_are_quoted_as_go_quotes_them() -> None:
    assert of_shape(b'{"a\\"b\\\\c":1,"tab\\there":1,"\xc3\xbc":2}') == [
        r'unknown field "a\"b\\c"',
        r'unknown field "tab\there"',
        'unknown field "ü"',
    ]


def test_one_place_is_complained_about_once_and_a_hundred_places_at_most() -> None:
    assert of_shape(b'{"x":1,"x":2,"x":3,"kind":"a","kind":"b","kind":"c"}') == [
        'unknown field "x"',
        'duplicate field "kind"',
    ]
    many = b"{" + b",".join(b'"u%03d":1' % i for i in range(120)) + b"}"
    assert of_shape(many) == [f'unknown field "u{i:03}"' for i in range(100)]


def test_hundred_errors_below_a_huge_name_cost_no_more_than_their_text() -> None:
    name = b"k" * 100_000
    devices = b",".join(b'{"x":1}' for _ in range(20_000))
    found = of_shape(b'{"spec":{"devices":[{"attributes":{"%b":{"a":1,"b":2}}},%b]}}' % (name, devices), SLICES)
    assert len(found) == 100


@pytest.mark.parametrize(
    "document",
    [
        {"x": 1, "spec": {"y": [{"z": 1}], "devices": {"requests": [{"w": {}}, [{"v": 1}]]}}},
        {f"k{n}": {} for n in range(300)},
        {"metadata": {"labels": {"a": "b"}, "no": {"deep": [[[1]]]}}},
    ],
)
def test_value_in_which_nothing_is_repeated_has_the_complaints_of_its_text(document: object) -> None:
    rule = complaints.shaped(CLASSES.shape, extra=("kind", "apiVersion"))
    assert complaints.find_in(document, rule) == complaints.find(json.dumps(document).encode(), rule)
    assert complaints.find_in(document, rule)
