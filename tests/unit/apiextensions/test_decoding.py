"""Definitions as Go decodes them."""

from __future__ import annotations

from typing import Any

import pytest

from apiserver.apiextensions import decoding, defaults
from tests.unit.apiextensions.definitions import definition

PREFIX = "JSONSchemaProps.spec.versions.schema.openAPIV3Schema.properties"


def test_unknown_members_are_dropped_and_named() -> None:
    source = definition({"a": {"type": "string", "foo": 1}}, spec={"zz": 1}, metadata={"nope": 1})
    found = decoding.decode(source)
    assert found.unknown == [
        "metadata.nope",
        "spec.versions[0].schema.openAPIV3Schema.properties.a.foo",
        "spec.zz",
    ]
    assert "zz" not in found.object["spec"]


def test_unknown_members_below_items_are_dropped_without_a_word() -> None:
    found = decoding.decode(definition({"a": {"type": "array", "items": {"type": "string", "foo": 1}}}))
    assert found.unknown == []
    schema = found.object["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert schema["properties"]["a"] == {"type": "array", "items": {"type": "string"}}


@pytest.mark.parametrize(
    ("member", "text"),
    [
        ({"nullable": "x"}, f"json: cannot unmarshal string into Go struct field {PREFIX}.nullable of type bool"),
        (
            {"items": {"type": 3}},
            f"json: cannot unmarshal number into Go struct field {PREFIX}.items.type of type string",
        ),
        ({"additionalProperties": []}, "boolean or JSON schema expected"),
        ({"maximum": "1"}, f"json: cannot unmarshal string into Go struct field {PREFIX}.maximum of type float64"),
        (
            {"maxLength": 1.5},
            f"json: cannot unmarshal number 1.5 into Go struct field {PREFIX}.maxLength of type int64",
        ),
        (
            {"maxLength": 10**20},
            f"json: cannot unmarshal number {10**20} into Go struct field {PREFIX}.maxLength of type int64",
        ),
        ({"enum": "a"}, f"json: cannot unmarshal string into Go struct field {PREFIX}.enum of type []v1.JSON"),
        ([], f"json: cannot unmarshal array into Go struct field {PREFIX} of type v1.JSONSchemaProps"),
        (
            {"type": [], "items": {"type": 3}},
            f"json: cannot unmarshal number into Go struct field {PREFIX}.items.type of type string",
        ),
    ],
)
def test_wrong_type_is_an_error_in_the_words_of_go(member: Any, text: str) -> None:
    with pytest.raises(decoding.DecodeError) as caught:
        decoding.decode(definition({"a": member}))
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("!!", 0),
        ("array", 4),
        ("string", 4),
        ("integer", 4),
        ("aGk", 0),
        ("aGk=x", 4),
        ("a=", 1),
        ("aG=", 3),
        ("aG=x", 2),
    ],
)
def test_error_of_a_ca_bundle_names_the_byte(text: str, at: int) -> None:
    webhook = {"clientConfig": {"caBundle": text}}
    with pytest.raises(decoding.DecodeError, match=f"illegal base64 data at input byte {at}$"):
        decoding.decode(definition(spec={"conversion": {"webhook": webhook}}))


@pytest.mark.parametrize("text", ["", "aGk=", "aG\nk=\n", "YQ==", "YWJj"])
def test_base64_is_a_ca_bundle(text: str) -> None:
    decoding.decode(definition(spec={"conversion": {"webhook": {"clientConfig": {"caBundle": text}}}}))


def test_numbers_are_as_they_come_back_from_storage() -> None:
    member = {
        "type": "number",
        "maximum": 2.0,
        "minimum": 0.5,
        "default": 1.0,
        "enum": [1.0, {"b": 1e20, "a": 1.5}, 2**63],
    }
    found = decoding.decode(definition({"a": member})).object
    schema = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"]
    assert repr(schema["maximum"]) == "2"
    assert repr(schema["default"]) == "1"
    assert repr(schema["enum"]) == "[1, {'a': 1.5, 'b': 1e+20}, 9.223372036854775808e+18]".replace(
        "9.223372036854775808", "9.223372036854776"
    )


def test_defaults_are_those_of_kube_apiserver() -> None:
    client = {"service": {"name": "a", "namespace": "b"}}
    source = definition(spec={"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": client}}})
    found = decoding.decode(source).object
    defaults.fill(found)
    assert found["spec"]["names"] == {"plural": "as", "kind": "A", "singular": "a", "listKind": "AList"}
    assert found["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"] == 443
    plain = decoding.decode(definition()).object
    defaults.fill(plain)
    assert plain["spec"]["conversion"] == {"strategy": "None"}


def test_empty_lists_and_nulls_are_left_out_of_a_compact_definition() -> None:
    member: dict[str, Any] = {
        "type": "string",
        "enum": [],
        "required": [],
        "allOf": [],
        "default": None,
        "nullable": False,
    }
    found = decoding.compact(decoding.decode(definition({"a": member})).object)
    assert found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] == {"a": {"type": "string"}}
