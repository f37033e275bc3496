"""The outcomes were seen on kube-apiserver 1.36.3."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from apiserver.apiextensions import kinds, making
from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.kinds.served import Kinds
from apiserver.schema.resource import Object
from apiserver.wire import body
from apiserver.wire.patches import Document

NOW = "2025-01-02T03:04:05Z"
JSON, YAML = "application/json", "application/yaml"
STRING = {"type": "string"}
SPEC = {
    "type": "object",
    "properties": {
        "a": STRING,
        "d": {"type": "string", "default": "x"},
        "f": {"type": "number"},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "e": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    },
}
DEFINITION = making.definition(
    {
        "metadata": {"name": "tests.g"},
        "spec": {
            "group": "g",
            "scope": "Namespaced",
            "names": {"kind": "Test", "listKind": "TestList", "plural": "tests", "singular": "test"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
                }
            ],
        },
    }
)
TESTS = kinds.resources(DEFINITION)[0]
KINDS = Kinds([TESTS])
HEAD = '"apiVersion":"g/v1","kind":"Test","metadata":{"name":"x"}'
NO_TYPE = "couldn't get version/kind; json parse error: json: cannot unmarshal "
DEEP = "[" * 5000 + "]" * 5000
FAILS = 'Test in version "v1" cannot be handled as a Test: '


def decode(text: str, *, media: str = JSON, validation: str = "Warn") -> tuple[Object, list[str]]:
    warnings = Warnings()
    found = asyncio.run(
        body.decode_object(TESTS, media, text.encode(), kinds=KINDS, now=NOW, validation=validation, warnings=warnings)
    )
    return found, [*warnings._texts]


def refusal(text: str, **how: Any) -> str:
    with pytest.raises(StatusError) as refused:
        decode(text, **how)
    return refused.value.message


def patched(value: Any, *, validation: str = "Warn") -> Object:
    terms = body.Terms(resource=TESTS, kinds=KINDS, now=NOW, validation=validation, warnings=Warnings())
    return body.decode_patched(terms, value, Document(None))


def test_a_body_is_pruned_completed_and_warned_about() -> None:
    found, warned = decode(f'{{{HEAD},"spec":{{"a":"1","a":"2","b":1,"e":{{"metadata":{{"zz":1}}}}}},"zz":1}}')
    assert found == {"metadata": {"name": "x"}, "spec": {"a": "2", "d": "x", "e": {"metadata": {}}}}
    assert warned == [
        'duplicate field "spec.a"',
        'unknown field "spec.b"',
        'unknown field "zz"',
        'unknown field "spec.e.metadata.zz"',
    ]


def test_yaml_is_decoded_as_json_is() -> None:
    text = "apiVersion: g/v1\nkind: Test\nmetadata: {name: x}\nspec:\n  a: p\n  a: q\n  f: 1.0\n  d: ~\n"
    found, warned = decode(text, media=YAML)
    assert found["spec"] == {"a": "q", "f": 1, "d": "x"}
    assert warned == ['line 6: key "a" already set in map']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", f"{NO_TYPE}array"),
        (
            '{"metadata":{"name":"x"}}',
            (
                "the object provided is unrecognized (must be of type Test): Object 'Kind' is missing in "
                '\'{"metadata":{"name":"x"}}\' ({"metadata":{"name":"x"}})'
            ),
        ),
        ('{"kind":"Test"}', "the API version in the data () does not match the expected API version (g/v1)"),
        (
            '{"apiVersion":null,"kind":"Test"}',
            (
                'Test in version "" cannot be handled as a Test: '
                ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
            ),
        ),
        (
            f'{{{HEAD},"spec":{{"f":1e309}}}}',
            f"{FAILS}json: cannot unmarshal number 1e309 into Go value of type float64",
        ),
        ('{"apiVersion":"g/v1","kind":1e309}', f"{NO_TYPE}number into Go struct field .kind of type string"),
        ('{"apiVersion":[1e309],"kind":"\\ud800"}', f"{NO_TYPE}array into Go struct field .apiVersion of type string"),
        ('{"kind":{"a":1e309}}', f"{NO_TYPE}object into Go struct field .kind of type string"),
        ("[1e309]", f"{NO_TYPE}array into Go value of type struct"),
        (f'{{"kind":1e309,"a":{DEEP}}}', f"{NO_TYPE}number into Go struct field .kind of type string"),
        (" 1e309", f"{NO_TYPE}number into Go value of type struct"),
        (f'{{{HEAD},"Kind":1e309}}', f"{NO_TYPE}number into Go struct field .kind of type string"),
        (
            '{"apiVersion":"g/v1","kind":"Test","KIND":"Other","x":1e309}',
            'Other in version "v1" cannot be handled as a Test: json: cannot unmarshal number 1e309 into Go value of type float64',
        ),
        (
            '{"apiVersion":"g/v1","x":1e309}',
            f"{FAILS}json: cannot unmarshal number 1e309 into Go value of type float64",
        ),
        (
            '{"apiVersion":"g/v1","kind":"Test","metadata":{"labels":5}}',
            f"{FAILS}json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string",
        ),
        (f'{{{HEAD},"spec":{{"e":{{"kind":1}}}}}}', f"{FAILS}spec.e.kind: Invalid value: 1: must be a string"),
        (
            '{"apiVersion":"g/v1","kind":"Other","metadata":{"name":"x"}}',
            'Other.g "x" is invalid: kind: Invalid value: "Other": must be Test',
        ),
    ],
)
def test_a_wrong_body_is_refused_in_upstreams_words(text: str, message: str) -> None:
    assert message in refusal(text)


def test_missing_kind_has_another_message_without_validation() -> None:
    assert refusal("{}", validation="Ignore") == f"{FAILS}Object 'Kind' is missing in '{{}}'"


def test_strict_validation_refuses_unknown_members() -> None:
    text = f'{{{HEAD},"spec":{{"a":"1","a":"2","zz":1}}}}'
    strict = 'strict decoding error: duplicate field "spec.a", unknown field "spec.zz"'
    assert refusal(text, validation="Strict") == f"{FAILS}{strict}"


def test_all_members_of_an_unknown_version_are_unknown() -> None:
    text = '{"apiVersion":"g/v2","kind":"Test","spec":{},"b":1}'
    assert refusal(text, validation="Strict").endswith('strict decoding error: unknown field "b", unknown field "spec"')


def test_protobuf_is_refused() -> None:
    assert refusal("k8s\0", media="application/vnd.kubernetes.protobuf") == (
        "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml"
    )


def test_integers_beyond_64_bits_become_floats() -> None:
    found, _ = decode(f'{{{HEAD},"spec":{{"free":{{"i":9223372036854775807,"f":9223372036854775808}}}}}}')
    assert {name: type(x) for name, x in found["spec"]["free"].items()} == {"i": int, "f": float}


@pytest.mark.parametrize("levels", [501, 900, 5_000])
def test_a_value_that_is_too_deep_to_be_stored_is_refused(levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    assert "exceeded max depth" in refusal(f'{{{HEAD},"spec":{{"free":{deep}}}}}')


def test_a_deep_unknown_member_is_pruned() -> None:
    deep = '{"a":' * 800 + "1" + "}" * 800
    assert decode(f'{{{HEAD},"spec":{{"zz":{deep}}}}}') == (
        {"metadata": {"name": "x"}, "spec": {"d": "x"}},
        ['unknown field "spec.zz"'],
    )


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"kind": "Other"}, 422, 'Other.g "x" is invalid: kind: Invalid value: "Other": must be Test'),
        (
            {"kind": "Other", "apiVersion": "g/v9"},
            422,
            (
                'Other.g "x" is invalid: [kind: Invalid value: "Other": must be Test, '
                'apiVersion: Invalid value: "g/v9": must be g/v1]'
            ),
        ),
        (
            {"apiVersion": ""},
            500,
            "Internal error occurred: Object 'apiVersion' is missing in 'object has no apiVersion field'",
        ),
        ({"spec": {"e": {"kind": 1}}}, 422, "spec.e.kind: Invalid value: 1: must be a string"),
        ({"kind": ""}, 422, "Object 'Kind' is missing in '"),
    ],
)
def test_a_wrong_result_of_a_patch_is_refused(change: Any, code: int, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        patched({"apiVersion": "g/v1", "kind": "Test", "metadata": {"name": "x"}, **change})
    assert refused.value.code == code
    assert message in refused.value.message


def test_the_result_of_a_patch_is_pruned_and_completed() -> None:
    value = {"apiVersion": "g/v1", "kind": "Test", "metadata": {"name": "x"}, "spec": {"zz": 1}}
    assert patched(value) == {"metadata": {"name": "x"}, "spec": {"d": "x"}}
    with pytest.raises(StatusError, match="strict decoding error"):
        patched(json.dumps(value).encode(), validation="Strict")


def test_the_result_of_an_apply_keeps_nulls_and_gets_no_defaults() -> None:
    terms = body.Terms(resource=TESTS, kinds=KINDS, now=NOW, validation="Warn", warnings=Warnings())
    value = {"apiVersion": "g/v1", "kind": "Test", "metadata": {"name": "x"}, "spec": {"a": None}}
    found = body.decode_applied(terms, value, Document({"metadata": {"name": "x"}}))
    assert found == {"metadata": {"name": "x"}, "spec": {"a": None}}
