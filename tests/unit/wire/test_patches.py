"""Media types of patches, and messages about malformed bodies."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.wire import patches
from tests.fixtures.cases import each_case

JSON = "application/json"
UNKNOWN_FORMAT = "the body of the request was in an unknown format - accepted media types include: "
SERVED = JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
READ = {JSON_PATCH: patches.read_json_patch, MERGE_PATCH: patches.read_merge_patch}


@pytest.mark.parametrize(
    "content_type",
    ["application/merge-patch+json", "application/merge-patch+json; charset=utf-8", "application/merge-patch+json;"],
)
def test_a_patch_type_is_compared_up_to_its_parameters(content_type: str) -> None:
    assert patches.media_type(content_type, SERVED) == MERGE_PATCH


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        JSON,
        "text/plain",
        "application/Merge-Patch+json",
        "application/apply-patch+cbor",
        "application/apply-patch+yaml",
        "application/strategic-merge-patch+json",
    ],
)
def test_the_router_refuses_other_patches(content_type: str) -> None:
    with pytest.raises(StatusError) as refused:
        patches.media_type(content_type, SERVED)
    assert (refused.value.code, refused.value.message, refused.value.details) == (
        415,
        "415: Unsupported Media Type",
        {},
    )


def test_type_that_only_the_router_understands_is_refused_by_the_handler() -> None:
    with pytest.raises(StatusError) as refused:
        patches.media_type("application/json-patch+json,x", [*SERVED, "application/x-patch"])
    assert refused.value.message == UNKNOWN_FORMAT + (
        "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml, "
        "application/x-patch"
    )
    assert refused.value.details is None


def patch_refusal(kind: str, raw: bytes, validation: str = "Warn") -> str:
    with pytest.raises(StatusError) as refused:
        READ[kind](raw, validation)
    assert (refused.value.code, refused.value.reason, refused.value.details) == (400, "BadRequest", None)
    return refused.value.message


NOT_OPS = "json: cannot unmarshal {} into Go value of type []handlers.jsonPatchOp"
NO_OPERATION = "json: cannot unmarshal number into Go value of type "


@pytest.mark.parametrize(
    ("raw", "strictly", "leniently"),
    [
        (b"", "unexpected end of JSON input", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input", "unexpected end of JSON input"),
        (
            b"abc",
            "invalid character 'a' looking for beginning of value",
            "invalid character 'a' looking for beginning of value",
        ),
        (b'"x"', NOT_OPS.format("string"), "json: cannot unmarshal string into Go value of type jsonpatch.Patch"),
        (b"{}", NOT_OPS.format("object"), "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (b"[5]", f"{NO_OPERATION}handlers.jsonPatchOp", f"{NO_OPERATION}jsonpatch.Operation"),
        (b'[{"op":5}]', "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string", ""),
        (b'[{"path":{}}]', "json: cannot unmarshal object into Go struct field jsonPatchOp.path of type string", ""),
    ],
)
def test_an_undecodable_json_patch_is_400(raw: bytes, strictly: str, leniently: str) -> None:
    for validation in ("Warn", "Strict"):
        assert patch_refusal(JSON_PATCH, raw, validation) == f"error decoding patch: {strictly}"
    if leniently:
        assert patch_refusal(JSON_PATCH, raw, "Ignore") == leniently
    else:
        assert READ[JSON_PATCH](raw, "Ignore").value == raw


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"abc", "invalid character 'a' looking for beginning of value"),
        (b'"x"', "json: cannot unmarshal string into Go value of type map[string]interface {}"),
        (b"[]", "json: cannot unmarshal array into Go value of type map[string]interface {}"),
    ],
)
def test_an_undecodable_merge_patch_is_400(raw: bytes, text: str) -> None:
    assert patch_refusal(MERGE_PATCH, raw) == f"error decoding patch: {text}"
    if raw != b"[]":
        assert patch_refusal(MERGE_PATCH, raw, "Ignore") == "Invalid JSON Patch"


def test_null_is_no_operation_but_no_merge_patch() -> None:
    assert READ[JSON_PATCH](b"null", "Warn").value == b"null"
    for validation in ("Warn", "Strict", "Ignore"):
        assert patch_refusal(MERGE_PATCH, b"null", validation) == "Invalid JSON Patch"


def test_oddities_of_a_patch_are_noted() -> None:
    raw = b'[{"op":"add","op":"add","path":"/a","value":{"x":1,"x":2},"foo":1},{"op":"test","path":"/a"}]'
    assert READ[JSON_PATCH](raw, "Warn").complaints == [
        'json patch duplicate field "[0].op"',
        'json patch duplicate field "[0].value.x"',
        'json patch unknown field "[0].foo"',
    ]
    assert READ[JSON_PATCH](raw, "Ignore").complaints == ()
    merge = b'{"metadata":{"name":"a","name":"b"},"anything":1}'
    assert READ[MERGE_PATCH](merge, "Strict").complaints == ['duplicate field "metadata.name"']


@pytest.mark.parametrize("kind", [JSON_PATCH, MERGE_PATCH])
def test_too_deep_a_patch_is_refused_and_does_not_fail(kind: str) -> None:
    for depth in (400, 600, 5000, 9990):
        raw = b"[" * depth + b"]" * depth
        raw = b'[{"op":"add","path":"/a","value":%b}]' % raw if kind == JSON_PATCH else b'{"a":%b}' % raw
        if depth < patches.DEPTH:
            READ[kind](raw, "Strict")
        else:
            assert patch_refusal(kind, raw).endswith("exceeded max depth")


APPLIED = [
    json.loads(line) for line in pathlib.Path(__file__).with_name("go_apply_patch.jsonl").read_text().splitlines()
]


@each_case("recorded", APPLIED, ids=lambda recorded: recorded["patch"])
def test_an_applied_configuration_is_read_as_upstream_reads_it(recorded: dict[str, Any]) -> None:
    raw = recorded["patch"].encode("latin-1")
    if "err" in recorded:
        with pytest.raises(StatusError) as refused:
            patches.read_apply_patch(raw, "Warn", noun="YAML")
        assert (refused.value.code, refused.value.message) == (400, recorded["err"])
        return
    read = patches.read_apply_patch(raw, "Strict")
    assert read.value == recorded["value"]
    assert read.complaints == ([recorded["strict"]] if "strict" in recorded else [])
    assert patches.read_apply_patch(raw, "Ignore").complaints == []


def test_64_bit_integers_are_exact_in_an_apply_and_larger_ones_floats() -> None:
    read = patches.read_apply_patch(b'{"a":[9223372036854775807,9223372036854775808,1.0,"1.0",true]}', "Warn").value[
        "a"
    ]
    assert [(type(x), x) for x in read] == [(int, 2**63 - 1), (float, 2.0**63), (int, 1), (str, "1.0"), (bool, True)]


NO_KEY = "did not find expected ',' or '}'"


@pytest.mark.parametrize("filled", ["a", "ü", "\\u00e9", '\\"'])
def test_json_that_is_applied_has_keys_as_long_as_those_of_yaml(filled: str) -> None:
    """Its first quote and its colon are at most 1024 characters apart."""
    most = 1022 // len(filled)
    for blanks in (0, 1, 30, 1022):
        length = (1022 - blanks) // len(filled)
        key = filled * length + "k" * (1022 - blanks - len(filled) * length)
        taken, refused = (f'{{"x":{{"{key}"{" " * (blanks + more)}:1}}}}' for more in (0, 1))
        assert patches.read_apply_patch(taken.encode(), "Warn").value == {"x": {json.loads(f'"{key}"'): 1}}
        with pytest.raises(StatusError) as told:
            patches.read_apply_patch(refused.encode(), "Warn")
        assert (told.value.code, told.value.message) == (400, f"{CONVERTING}: yaml: {NO_KEY}")
    assert patches.read_apply_patch(f'{{"a":"{filled * 3 * most}"}}'.encode(), "Warn").value != {}


@pytest.mark.parametrize("end", ["\n", "\r\n", "  \n\t", "\r"])
def test_json_that_is_applied_has_its_colons_on_the_lines_of_the_keys(end: str) -> None:
    with pytest.raises(StatusError) as told:
        patches.read_apply_patch(f'{{"a"{end}:1}}'.encode(), "Warn")
    assert (told.value.code, told.value.message) == (400, f"{CONVERTING}: yaml: line 1: {NO_KEY}")
    assert patches.read_apply_patch(f'{{"a":{end.rstrip()}1}}'.encode(), "Warn").value == {"a": 1}


CONVERTING = "error decoding patch: error converting YAML to JSON"


@pytest.mark.parametrize(
    ("raw", "wrong"),
    [
        (b'{"a":"x\\/y"}', "yaml: found unknown escape character"),
        (b'{\n "a":\n  "x\\\\\\/y"}', "yaml: line 3: found unknown escape character"),
        (b'{"%s":1}' % (b"k" * 1023), "yaml: did not find expected ',' or '}'"),
        (b'{"a":1,"%s"     :1}' % (b"k" * 1018), "yaml: did not find expected ',' or '}'"),
        (b'{"%s":1}' % ("é" * 1023).encode(), "yaml: did not find expected ',' or '}'"),
        (b'{"a"\n :1}', "yaml: line 1: did not find expected ',' or '}'"),
    ],
)
def test_patch_valid_only_in_json_is_no_apply_configuration(raw: bytes, wrong: str) -> None:
    with pytest.raises(StatusError) as refused:
        patches.read_apply_patch(raw, "Warn")
    assert (refused.value.code, refused.value.message) == (
        400,
        f"error decoding patch: error converting YAML to JSON: {wrong}",
    )


@pytest.mark.parametrize(
    "document",
    [
        {"k" * 1022: "x" * 5000},
        {"é" * 1022: 1},
        {"a": "/" * 2000 + '"'},
        {"a": "\\/", "b": ["k" * 3000, {"c": "x" * 3000 + ":"}]},
    ],
)
def test_long_texts_and_slashes_are_applied_as_they_are(document: dict[str, Any]) -> None:
    for indent in (None, 2):
        raw = json.dumps(document, ensure_ascii=False, indent=indent).encode()
        assert patches.read_apply_patch(raw, "Strict").value == document


def test_an_applied_configuration_may_not_nest_too_deep() -> None:
    raw = b'{"a":' * 600 + b"1" + b"}" * 600
    with pytest.raises(StatusError) as refused:
        patches.read_apply_patch(raw, "Warn")
    assert (refused.value.code, refused.value.message) == (400, "error decoding patch: exceeded max depth of 500")


BEYOND = "3" * 400
"""A number of more digits than floats have."""


def test_a_number_beyond_floats_is_no_strategic_patch() -> None:
    for validation in ("Strict", "Warn", "Ignore"):
        with pytest.raises(StatusError) as told:
            patches.read_strategic_patch(b'{"spec":{"a":[1,-%b]}}' % BEYOND.encode(), validation)
        assert told.value.code == 400
        assert told.value.message == f"json: cannot unmarshal number -{BEYOND} into Go value of type float64"


def test_a_number_beyond_floats_is_a_text_in_yaml_also_if_that_is_json() -> None:
    for text in (f'{{"a":{BEYOND}}}', f"a: {BEYOND}"):
        assert patches.read_apply_patch(text.encode(), "Strict").value == {"a": BEYOND}


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"abc", b"{} x", b"[1,]", b'"\x01"', b"\xef\xbb\xbf{}", b"[" * 10_001 + b"]" * 10_001]
)
def test_patch_that_is_not_json_is_refused_without_a_reason(raw: bytes) -> None:
    with pytest.raises(StatusError) as refused:
        patches.check_json(raw)
    assert (refused.value.code, refused.value.message) == (400, "invalid JSON patch")


@pytest.mark.parametrize(
    "raw", [b"null", b" 1\n", b'{"a":1,"a":2}', b'["\\ud800",1e999]', b'"\xff"', b"[" * 5_000 + b"]" * 5_000]
)
def test_patch_of_any_json_passes_the_first_check(raw: bytes) -> None:
    patches.check_json(raw)


def test_configuration_that_is_not_yaml_is_refused_with_the_reason() -> None:
    with pytest.raises(StatusError) as refused:
        patches.check_yaml(b"a: b: c")
    assert (refused.value.code, refused.value.message) == (
        400,
        "error encoding patch: yaml: mapping values are not allowed in this context",
    )


@pytest.mark.parametrize("raw", [b"", b"a: 1", b"a: 1\na: 2", b"[1]", b"text", b'{"a":1}'])
def test_configuration_in_yaml_passes_the_first_check(raw: bytes) -> None:
    patches.check_yaml(raw)


@pytest.mark.parametrize(("noun", "raw"), [("YAML", b"[]"), ("patch", b"[]")])
def test_applied_configuration_is_called_patch_since_1_37(noun: str, raw: bytes) -> None:
    with pytest.raises(StatusError) as refused:
        patches.read_apply_patch(raw, "Strict", noun=noun)
    assert refused.value.message.startswith(f"error decoding {noun}: error unmarshaling JSON: while decoding JSON: ")
