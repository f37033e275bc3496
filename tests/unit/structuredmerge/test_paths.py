from __future__ import annotations

import pytest
from hypothesis import given

from structuredmerge import paths
from structuredmerge.paths import Element, Path, PathError, field, index, item, keyed
from tests.unit.structuredmerge.fields import ANY_ELEMENTS

DEVICE = keyed({"pool": "p", "driver": "d.io", "device": "x"})


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            (field("status"), field("devices"), DEVICE, field("data")),
            '.status.devices[device="x",driver="d.io",pool="p"].data',
        ),
        ((field("metadata"), field("finalizers"), item("a.io/x")), '.metadata.finalizers[="a.io/x"]'),
        (
            (field("metadata"), field("labels"), field("app.kubernetes.io/name")),
            ".metadata.labels.app.kubernetes.io/name",
        ),
        ((field("a"), index(3)), ".a[3]"),
        ((), ""),
        ((keyed({"n": 1, "b": True, "z": None}),), "[b=true,n=1,z=null]"),
        ((keyed({"l": [1, "a"], "m": {"k": False}}),), '[l=[1,"a"],m=k=false]'),
        ((item('say "ü"\n'),), '[="say \\"ü\\"\\n"]'),
        ((item(1000000),), "[=1000000]"),
        ((item(1000000.0),), "[=1e+06]"),
        ((item(123456.0),), "[=123456]"),
        ((item(12345678.5),), "[=1.23456785e+07]"),
        ((item(0.0001),), "[=0.0001]"),
        ((item(0.00001),), "[=1e-05]"),
        ((item(-2.5e-300),), "[=-2.5e-300]"),
    ],
)
def test_a_path_in_a_message_reads_as_upstream_prints_it(path: Path, text: str) -> None:
    assert paths.text(path) == text


@pytest.mark.parametrize(
    ("element", "wire"),
    [
        (field("a.b/c"), "f:a.b/c"),
        (field('<"\n'), 'f:<"\n'),
        (DEVICE, 'k:{"device":"x","driver":"d.io","pool":"p"}'),
        (keyed({"n": 1, "b": True, "z": None, "a": []}), 'k:{"a":[],"b":true,"n":1,"z":null}'),
        (keyed({"<": {"<": "<"}}), 'k:{"<":{"\\u003c":"\\u003c"}}'),
        (item('<a&b>\u2028\b\f\t\x7f"'), 'v:"\\u003ca\\u0026b\\u003e\\u2028\\u0008\\u000c\\t\x7f\\""'),
        (item("ü😀"), 'v:"ü😀"'),
        (item(2.0), "v:2"),
        (item(1e20), "v:100000000000000000000"),
        (item(1e21), "v:1e+21"),
        (item(1.25e-7), "v:1.25e-07"),
        (item(0.000001), "v:0.000001"),
        (item(-0.5), "v:-0.5"),
        (index(12), "i:12"),
    ],
)
def test_an_element_is_written_as_gos_json(element: Element, wire: str) -> None:
    assert paths.wire(element) == wire
    assert paths.read(wire) == element


@given(ANY_ELEMENTS)
def test_an_element_is_read_as_it_was_written(element: Element) -> None:
    assert paths.read(paths.wire(element)) == element


@given(ANY_ELEMENTS, ANY_ELEMENTS)
def test_two_elements_are_ordered_or_equal(one: Element, other: Element) -> None:
    assert [one < other, one == other, one > other].count(True) == 1
    assert one < other or one[0] >= other[0]


@pytest.mark.parametrize(
    ("wire", "element"),
    [
        ("k:null", keyed({})),
        ("k: { } ", keyed({})),
        ('k:{"b":1,"a":2}', keyed({"a": 2, "b": 1})),
        ("v:  1", item(1)),
        ("v:1 and the rest", item(1)),
        ('v:"\\ud800"', item("\ufffd")),
        ('v:"\\ud83d\\ude00"', item("😀")),
        ("i:+7", index(7)),
        ("i:-007", index(-7)),
        ("x:anything", None),
        (".:", None),
    ],
)
def test_keys_are_read_as_leniently_as_upstream_reads_them(wire: str, element: Element | None) -> None:
    assert paths.read(wire) == element


@pytest.mark.parametrize(
    ("wire", "error"),
    [
        ("", "key must be 2 characters long:"),
        ("f", "key must be 2 characters long:"),
        ("name", "missing colon: name"),
        ("ü", "missing colon: ü"),
        ("i:x", 'strconv.Atoi: parsing "x": invalid syntax'),
        ("i:9223372036854775808", 'strconv.Atoi: parsing "9223372036854775808": value out of range'),
        ("v:1e999", 'strconv.ParseFloat: parsing "1e999": value out of range'),
        ("v:", "Read: unexpected value type: 0, error found in #0 byte of ...||..., bigger context ...||..."),
        (
            "v: abc",
            "Read: unexpected value type: 0, error found in #1 byte of ...| abc|..., bigger context ...| abc|...",
        ),
        (
            "k:[]",
            "ReadObjectCB: expect { or n, but found [, error found in #1 byte of ...|[]|..., bigger context ...|[]|...",
        ),
        (
            "k:",
            "ReadObjectCB: expect { or n, but found \0, error found in #0 byte of ...||..., bigger context ...||...",
        ),
    ],
)
def test_key_that_selects_nothing_gets_upstreams_message(wire: str, error: str) -> None:
    with pytest.raises(PathError) as raised:
        paths.read(wire)
    assert str(raised.value) == error


DEEP = ["v:" + "[" * levels + "]" * levels for levels in (101, 300, 600, 900)]
DEEP += ['k:{"a":' + '{"b":' * levels + "1" + "}" * levels + "}" for levels in (101, 300, 600, 900)]


@pytest.mark.parametrize(
    "wire", ["v:NaN", "v:-Infinity", "v:[1", 'v:"a', 'k:{"a"', "k:{1:2}", "v:" + "[" * 100_000, *DEEP]
)
def test_a_key_that_is_no_json_or_too_deep_is_refused(wire: str) -> None:
    with pytest.raises(PathError):
        paths.read(wire)


def test_an_element_of_a_hundred_levels_is_read_compared_and_printed() -> None:
    wire = "v:" + "[" * 100 + "]" * 100
    element = paths.read(wire)
    assert element is not None
    assert element == paths.read(wire)
    assert paths.wire(element) == wire
    assert paths.text((element,)) == f"[={wire[2:]}]"
