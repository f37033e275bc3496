from __future__ import annotations

from typing import Any

import pytest

from apiserver.apimachinery.fieldpath import ROOT
from apiserver.codecs.json import rawjson
from apiserver.resources._rules import _formats
from apiserver.schema.types import Check
from kubetext import quoting

AT = ROOT.child("f")
CIDR = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


def bodies(check: Check, value: Any) -> list[str]:
    return [e.body for e in check(value, AT)]


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.7/24",
        "0.0.0.0/0",
        "2001:db8::7/64",
        "::/0",
        "::1/128",
        "2001:db8:0:1::/64",
        "1.2.3.4/32",
        "::102:304/96",
    ],
)
def test_canonical_addresses_pass(address: str) -> None:
    assert bodies(_formats.interface_address, address) == []


@pytest.mark.parametrize(
    ("address", "canonical"),
    [
        ("2001:DB8::7/64", "2001:db8::7/64"),
        ("2001:db8:0:0::7/64", "2001:db8::7/64"),
        ("192.000.002.007/024", "192.0.2.7/24"),
        ("::ffff:192.168.0.1/120", "192.168.0.1/24"),
        ("::ffff:c0a8:1/32", "192.168.0.1/32"),
        ("::1.2.3.4/96", "::102:304/96"),
        ("0001:0:0::1/64", "1::1/64"),
        (f"10.0.0.{'0' * 4500}1/24", "10.0.0.1/24"),
        (f"10.0.0.1/{'0' * 4500}24", "10.0.0.1/24"),
    ],
)
def test_other_spellings_get_the_canonical_one_in_the_message(address: str, canonical: str) -> None:
    shown = quoting.go_quote(address)
    assert bodies(_formats.interface_address, address) == [
        f'Invalid value: {shown}: must be in canonical form ("{canonical}")'
    ]


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.7",
        "",
        "/24",
        "1.2.3/24",
        "1.2.3.256/24",
        "1.2.3.4/33",
        "::1/129",
        "::1/",
        "::1/-1",
        "::1/٤",
        "fe80::1%eth0/64",
        "x/1",
        f"10.0.0.{'9' * 5000}/24",
        f"10.0.0.1/{'9' * 5000}",
    ],
)
def test_address_without_a_prefix_is_refused(address: str) -> None:
    assert bodies(_formats.interface_address, address) == [f"Invalid value: {quoting.go_quote(address)}: {CIDR}"]


GOOD_UID = "3f0f7b0e-6d0c-4f53-9a3e-1f6f0c1d2a02"


@pytest.mark.parametrize(
    ("uid", "detail"),
    [
        ("abc", "error validating uid: invalid UUID length: 3"),
        ("", "error validating uid: invalid UUID length: 0"),
        ("g" * 36, "error validating uid: invalid UUID format"),
        (GOOD_UID.replace("-", "_"), "error validating uid: invalid UUID format"),
        ("z" * 32, "error validating uid: invalid UUID format"),
        ("x" * 45, 'error validating uid: invalid urn prefix: "xxxxxxxxx"'),
        ("x" * 38, "error validating uid: invalid bracketed UUID format"),
        ("é" * 19, "error validating uid: invalid bracketed UUID format"),
        (f"{'é' * 22}x", r'error validating uid: invalid urn prefix: "éééé\xc3"'),
        (f"{{{'é' * 18}}}", "error validating uid: invalid UUID format"),
        (f"urn:uuid:{'é' * 18}", "error validating uid: invalid UUID format"),
    ],
)
def test_text_that_cannot_be_read_as_a_uid_is_refused(uid: str, detail: str) -> None:
    assert bodies(_formats.uid, uid) == [f'Invalid value: "{uid}": {detail}']


@pytest.mark.parametrize(
    "uid",
    [GOOD_UID.upper(), f"{{{GOOD_UID}}}", f"urn:uuid:{GOOD_UID}", f"URN:UUID:{GOOD_UID}", GOOD_UID.replace("-", "")],
)
def test_a_uid_has_one_normal_form(uid: str) -> None:
    assert len(bodies(_formats.uid, uid)) == 1
    assert "uid must be in RFC 4122 normalized form" in bodies(_formats.uid, uid)[0]
    assert bodies(_formats.uid, GOOD_UID) == []


@pytest.mark.parametrize("version", ["0.0.0", "1.2.3-rc.1+b7", "1.0.0--", "1.0.0-0a", "1.0.0+001"])
def test_semantic_versions_pass(version: str) -> None:
    assert bodies(_formats.semantic_version, version) == []


@pytest.mark.parametrize(
    "version", ["", "1", "1.2", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "v1.2.3", "1.2.3\n", "1.2.٣"]
)
def test_other_versions_do_not(version: str) -> None:
    assert len(bodies(_formats.semantic_version, version)) == 1


def test_a_long_version_is_wrong_twice_when_it_is_no_version() -> None:
    assert bodies(_formats.semantic_version, f"1.0.0-{'a' * 59}") == ["Too long: may not be more than 64 bytes"]
    assert len(bodies(_formats.semantic_version, "a" * 65)) == 2


def test_qualified_names() -> None:
    assert bodies(_formats.qualified_name, "example.com/name") == []
    assert bodies(_formats.qualified_name, "a/b/c") == []
    assert bodies(_formats.qualified_name, "x" * 33) == ["Too long: may not be more than 32 bytes"]
    assert bodies(_formats.qualified_name, "/") == [
        'Invalid value: "": the domain must not be empty',
        'Invalid value: "": the name must not be empty',
    ]


def test_a_driver_is_judged_in_lower_case_as_go_writes_it() -> None:
    """The I with a dot is one character there."""
    for driver in ("GPU.example.com", "\u0130.example.com", "\u212a.example.com"):
        assert bodies(_formats.driver_name, driver) == []
    assert len(bodies(_formats.driver_name, "É.example.com")) == 1


def test_a_pool_name_is_judged_part_by_part() -> None:
    errors = list(_formats.pool_name("a/B/c_", AT))
    assert [(e.field, e.body.split(": ")[1]) for e in errors] == [("f", '"B"'), ("f", '"c_"')]


def requirement(**members: Any) -> dict[str, Any]:
    return {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"], **members}]}]
    }


def test_fields_of_nodes_are_selected_by_name_only() -> None:
    assert bodies(_formats.node_selector, requirement()) == []
    at = "f.nodeSelectorTerms[0].matchFields[0]"
    assert [str(e) for e in _formats.node_selector(requirement(key="spec.x", operator="Gt"), AT)] == [
        f'{at}.operator: Invalid value: "Gt": not a valid selector operator',
        f'{at}.key: Invalid value: "spec.x": not a valid field selector key',
    ]


def test_binding_conditions_show_what_is_absent_as_null() -> None:
    assert [str(e) for e in _formats.binding_conditions({"bindingConditions": ["a"]}, AT)] == [
        "f.bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions"
    ]


@pytest.mark.parametrize("time", [{}, {"lastTransitionTime": "0001-01-01T00:00:00Z"}])
def test_a_condition_needs_the_time_of_its_last_transition(time: dict[str, str]) -> None:
    condition = {"type": "A", "status": "True", "reason": "R", "message": "", **time}
    assert [str(e) for e in _formats.conditions([condition], AT)] == ["f[0].lastTransitionTime: Required value"]


def test_a_deeply_nested_value_has_a_length_too() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"a": deep}
    assert bodies(_formats.opaque, rawjson.made(deep)) == []
