from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Warnings
from apiserver.codecs.json import rawjson
from apiserver.kinds.served import Kinds
from apiserver.runtime import offload
from apiserver.schema.resource import Object, Resource, Version
from apiserver.wire import body
from apiserver.wire.patches import Document
from tests.fixtures.cases import each_case
from tests.unit.wire import recorded
from tests.unit.wire.served import CLAIMS, CLASSES, KINDS, SLICES

NOW = "2025-01-02T03:04:05Z"
JSON, YAML = "application/json", "application/yaml"
DECODED = recorded.cases("go_decode.jsonl")
ACCEPTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
UNKNOWN_FORMAT = "the body of the request was in an unknown format - accepted media types include: "


def scheme_of(text: str) -> str:
    return re.sub(r'in scheme "[^"]*"', 'in scheme "S"', text)


def decode(
    raw: bytes,
    resource: Resource = CLASSES,
    *,
    media: str = JSON,
    validation: str = "Warn",
    warnings: Warnings | None = None,
) -> Object:
    return asyncio.run(
        body.decode_object(
            resource, media, raw, kinds=KINDS, now=NOW, validation=validation, warnings=warnings or Warnings()
        )
    )


def refusal(raw: bytes, resource: Resource = CLASSES, **how: Any) -> str:
    with pytest.raises(StatusError) as refused:
        decode(raw, resource, **how)
    assert (refused.value.code, refused.value.reason, refused.value.details) == (400, "BadRequest", None)
    return refused.value.message


def warned(raw: bytes, resource: Resource = CLASSES, **how: Any) -> list[str]:
    warnings = Warnings()
    decode(raw, resource, warnings=warnings, **how)
    return [
        text.removeprefix('299 - "').removesuffix('"').replace('\\"', '"').replace("\\\\", "\\")
        for text in warnings.headers()
    ]


def expected(case: dict[str, Any], found: str) -> str:
    """Upstream's words around what its decoder said."""
    raw, (_, version, kind) = recorded.raw(case), case["meta"]
    if kind:
        return f'{kind} in version "{version}" cannot be handled as a {case["kind"]}: {found}'
    cut = raw[:30].decode("utf-8", "replace") if raw[:1] == b"{" else raw[:30].hex()
    summary = cut + (" ..." if len(raw) > 30 else "") if raw else "<empty>"
    return f"the object provided is unrecognized (must be of type {case['kind']}): {found} ({summary})"


def resource_of(case: dict[str, Any]) -> Resource:
    return next(r for r in KINDS if r.kind == case["kind"])


@each_case("case", DECODED, ids=lambda c: c["raw"][:70])
def test_a_body_is_decoded_or_refused_as_upstream_does(case: dict[str, Any]) -> None:
    raw, resource = recorded.raw(case), resource_of(case)
    if case["error"]:
        assert scheme_of(refusal(raw, resource, media=case["media"])) == scheme_of(expected(case, case["error"]))
        return
    strictly = [t for t in case["strict"] if "tab" not in t]
    lines = [line for t in strictly for line in t.removeprefix("yaml: unmarshal errors:\n  ").split("\n  ")]
    assert [w for w in warned(raw, resource, media=case["media"]) if "tab" not in w] == lines
    assert warned(raw, resource, media=case["media"], validation="Ignore") == []
    if case["strict"]:
        text = expected(case, f"strict decoding error: {', '.join(case['strict'])}")
        assert refusal(raw, resource, media=case["media"], validation="Strict") == text
    else:
        decode(raw, resource, media=case["media"], validation="Strict")


def test_kind_and_version_are_taken_off_and_defaults_filled_in() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    sent = {"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1", "spec": {"devices": {"requests": [request]}}}
    raw = json.dumps(sent).encode()
    found = decode(raw, CLAIMS)
    assert not found.keys() & {"kind", "apiVersion"}
    assert found["spec"]["devices"]["requests"][0]["exactly"] == {
        "deviceClassName": "c",
        "allocationMode": "ExactCount",
        "count": 1,
    }


def test_null_is_an_empty_object() -> None:
    assert decode(b"null") == decode(b"{}")


def test_whole_numbers_are_exact() -> None:
    raw = b'{"spec":{"pool":{"name":"p","generation":9007199254740993,"resourceSliceCount":1}}}'
    assert decode(raw, SLICES)["spec"]["pool"]["generation"] == 9007199254740993


def test_last_of_repeated_members_counts() -> None:
    assert decode(b'{"metadata":{"name":"a","name":"b"}}')["metadata"] == {"name": "b"}


@pytest.mark.parametrize("validation", ["Warn", "Ignore"])
def test_value_of_a_repeated_member_is_merged_into_the_earlier_one(validation: str) -> None:
    raw = b'{"metadata":{"name":"a"},"metadata":{"labels":{"b":"c"},"name":null},"spec":{"selectors":[{}]},"spec":null}'
    found = decode(raw, validation=validation)
    assert found == {"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"selectors": [{}]}}


def test_error_in_a_repeated_member_is_reported() -> None:
    assert refusal(b'{"metadata":{"name":5,"name":"b"}}').endswith(
        "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.name of type string"
    )


def test_repeated_members_of_another_kind_are_read_by_its_shape() -> None:
    raw = b'{"kind":"DeviceClass","kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1","spec":{"pool":5,"pool":{}}}'
    assert refusal(raw) == (
        'ResourceSlice in version "v1" cannot be handled as a DeviceClass: json: cannot unmarshal number into Go struct field '
        "ResourceSliceSpec.spec.pool of type v1.ResourcePool"
    )


def test_number_in_an_unknown_member_is_not_parsed() -> None:
    raw = b'{"metadata":{"name":"a","x":[1e999]}}'
    assert warned(raw) == ['unknown field "metadata.x"']
    assert refusal(raw, validation="Strict").endswith(': strict decoding error: unknown field "metadata.x"')


def test_number_beyond_every_float_does_not_fit_64_bits() -> None:
    assert refusal(b'{"metadata":{"generation":1E400}}') == (
        'DeviceClass in version "v1" cannot be handled as a DeviceClass: json: cannot unmarshal number 1E400 into Go struct field '
        "ObjectMeta.metadata.generation of type int64"
    )


def test_an_error_of_another_served_kind_comes_before_the_kind_itself() -> None:
    raw = b'{"kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1","spec":{"pool":5}}'
    assert refusal(raw) == (
        'ResourceSlice in version "v1" cannot be handled as a DeviceClass: json: cannot unmarshal number into Go struct field '
        "ResourceSliceSpec.spec.pool of type v1.ResourcePool"
    )


@pytest.mark.parametrize("kind", ["List", "DeleteOptions", "WatchEvent"])
def test_meta_kind_that_every_server_knows_is_not_converted_to_a_kind(kind: str) -> None:
    assert refusal(b'{"kind":"%b","apiVersion":"v1"}' % kind.encode()) == (
        f'{kind} in version "v1" cannot be handled as a DeviceClass: converting (v1.{kind}) to (resource.DeviceClass): unknown conversion'
    )


def test_another_served_version_of_the_kind_is_not_the_expected_one() -> None:
    older = Version(name="v1beta1", shape=CLASSES.shape)
    kinds = Kinds([dataclasses.replace(CLASSES, versions=[older])])
    with pytest.raises(StatusError) as refused:
        asyncio.run(
            body.decode_object(
                CLASSES,
                JSON,
                b'{"apiVersion":"resource.k8s.io/v1beta1"}',
                kinds=kinds,
                now=NOW,
                validation="Warn",
                warnings=Warnings(),
            )
        )
    assert refused.value.message == (
        "the API version in the data (resource.k8s.io/v1beta1) does not match the expected API version (resource.k8s.io/v1)"
    )


def test_a_large_body_is_decoded_off_the_loop() -> None:
    labels = ",".join(f'"k{i}":"{"v" * 50}"' for i in range(6000))
    raw = f'{{"metadata":{{"name":"a","labels":{{{labels}}}}},"x":1}}'.encode()
    assert len(raw) > offload.DECODE.limit
    warnings = Warnings()
    assert len(decode(raw, warnings=warnings)["metadata"]["labels"]) == 6000
    assert warnings.headers() == ['299 - "unknown field \\"x\\""']


@pytest.mark.parametrize("depth", [500, 1000, 1100, 9000])
def test_depth_is_accepted_or_refused_and_never_fails(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    kept = b'{"spec":{"config":[{"opaque":{"driver":"d","parameters":{"a":%b}}}]}}' % nested
    assert decode(b'{"x":%b}' % nested)["metadata"] == {}
    found = outcome(lambda: decode(kept))
    if isinstance(found, StatusError):
        assert depth > 800
        assert (found.code, "exceeded max depth" in found.message) == (400, True)
    else:
        assert levels(rawjson.parsed(found["spec"]["config"][0]["opaque"]["parameters"])["a"]) == depth


def outcome(attempt: Callable[[], Object]) -> Object | StatusError:
    """For what depends on how much nesting the Python can handle."""
    try:
        return attempt()
    except StatusError as refused:
        return refused


def levels(value: Any) -> int:
    """The depth of lists that hold one list each."""
    found = 1
    while value:
        [value] = value
        found += 1
    return found


@pytest.mark.parametrize("outside", range(rawjson.LEVELS - 3, rawjson.LEVELS + 2))
def test_kept_part_of_a_deep_body_is_kept_whole_or_refused(outside: int) -> None:
    parameters: Any = 1
    for _ in range(outside):
        parameters = [parameters]
    spec = {"config": [{"opaque": {"driver": "d", "parameters": {"a": parameters}}}]}
    deep = b"[" * 9000 + b"]" * 9000
    raw = b'{"x":%b,"spec":%b}' % (deep, json.dumps(spec).encode())
    found = outcome(lambda: decode(raw))
    if isinstance(found, StatusError):
        assert 1 + outside > rawjson.LEVELS
        assert (found.code, "exceeded max depth" in found.message) == (400, True)
    else:
        assert rawjson.parsed(found["spec"]["config"][0]["opaque"]["parameters"]) == {"a": parameters}


def test_strict_decoding_reports_members_of_a_body_that_is_too_deep() -> None:
    nested = b'{"a":1,"a":' * 9000 + b"1" + b"}" * 9000
    warnings = Warnings()
    decode(b'{"x":%b,"metadata":{"name":"a","name":"b"}}' % nested, warnings=warnings)
    assert warnings.headers() == [
        '299 - "unknown field \\"x\\""',
        '299 - "duplicate field \\"metadata.name\\""',
    ]


def test_too_deep_a_body_is_unrecognized() -> None:
    assert refusal(b'{"x":' + b"[" * 10_001) == (
        "the object provided is unrecognized (must be of type DeviceClass): couldn't get version/kind; json parse error: "
        f"invalid character '[' exceeded max depth ({{\"x\":{'[' * 25} ...)"
    )


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        JSON,
        "Application/JSON",
        "application/json; charset=utf-8",
        'application/json;a="b;c"',
        'application/json;a=b;A="b"',
        r'application/json;a="\;b\c";a="\;b\c";a=";b\c"',
        "application/json;",
        " application/json ",
    ],
)
def test_json_by_any_correct_name_is_json(content_type: str) -> None:
    assert body.check_content_type(content_type) == JSON


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/json; charset",
        "application/json;a=b;a=c",
        "application/json;a=b;a=B",
        "json",
        "application/json, x",
        "application/json;;x=",
        "application/vnd.kubernetes.protobufs",
        "application/json-patch+json",
        "/",
    ],
)
def test_any_other_body_is_415(content_type: str) -> None:
    with pytest.raises(StatusError) as refused:
        body.check_content_type(content_type)
    assert (refused.value.code, refused.value.message, refused.value.details) == (415, UNKNOWN_FORMAT + ACCEPTED, None)


def patched(
    value: Any,
    *,
    validation: str = "Warn",
    found: tuple[str, ...] = (),
    warnings: Warnings | None = None,
    hurried: bool = False,
) -> Object:
    terms = body.Terms(
        resource=CLAIMS,
        kinds=KINDS,
        now=NOW,
        validation=validation,
        warnings=warnings or Warnings(),
        hurried=hurried,
    )
    return body.decode_patched(terms, value, Document(None, found))


def patched_refusal(value: Any, **how: Any) -> tuple[str, str]:
    """The shown value, and the message about it."""
    with pytest.raises(StatusError) as refused:
        patched(value, **how)
    error = refused.value
    assert (error.code, error.reason) == (422, "Invalid")
    [cause] = (error.details or {})["causes"]
    assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "patch")
    assert list(error.details or {}) == ["causes"]
    assert error.message == f' "" is invalid: patch: {cause["message"]}'
    match = re.fullmatch(r'Invalid value: ("(?:[^"\\]|\\.)*"): (.*)', cause["message"], re.DOTALL)
    assert match
    return json.loads(match.group(1)), match.group(2)


OBJECT = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "a"},
    "spec": {"devices": {}},
}


def test_the_result_of_a_patch_becomes_an_object() -> None:
    assert patched(OBJECT) == decode(json.dumps(OBJECT).encode(), CLAIMS)


def test_a_result_that_does_not_fit_the_kind_is_a_422_about_the_patch() -> None:
    shown, said = patched_refusal({**OBJECT, "metadata": {"labels": 5}})
    assert shown == (
        '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"labels":5},"spec":{"devices":{}}}'
    )
    assert (
        said
        == "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type map[string]string"
    )


def test_a_strange_result_that_is_not_short_is_for_a_thread() -> None:
    labels = {f"{i}": "" for i in range(200)}
    large = {**OBJECT, "metadata": {"name": "a", "labels": labels}}
    warnings = Warnings()
    with pytest.raises(body.TakesLong):
        patched({**large, "x": 1}, warnings=warnings, hurried=True)
    assert warnings.headers() == []
    assert patched({**large, "x": 1}) == patched(large, hurried=True)
    assert patched({**OBJECT, "x": 1}, hurried=True) == patched(OBJECT)


def test_a_result_in_which_something_is_repeated_is_read_as_a_body_is() -> None:
    raw = json.dumps(OBJECT).encode().replace(b'"name"', b'"labels":{"a":"1"},"labels":{"b":"2"},"name"')
    assert patched(raw) == decode(raw, CLAIMS)


def test_a_very_deep_result_is_kept_whole_or_refused() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    config = {"config": [{"opaque": {"driver": "d", "parameters": deep}}]}
    found = outcome(lambda: patched({**OBJECT, "spec": {"devices": config}}))
    if isinstance(found, StatusError):
        # Where it is found to be too deep, and so whether it can be shown, depends on the Python.
        assert found.message.startswith(' "" is invalid: patch: Invalid value: "')
        assert found.message.endswith('": exceeded max depth')
    else:
        [kept] = found["spec"]["devices"]["config"]
        assert levels(kept["opaque"]["parameters"]) == 3001


def test_a_patch_cannot_change_what_an_object_is() -> None:
    assert scheme_of(patched_refusal({**OBJECT, "kind": "Foo"})[1]) == (
        'no kind "Foo" is registered for version "resource.k8s.io/v1" in scheme "S"'
    )
    assert scheme_of(patched_refusal({**OBJECT, "apiVersion": "v9"})[1]) == (
        'no kind "ResourceClaim" is registered for version "v9" in scheme "S"'
    )
    assert patched_refusal({**OBJECT, "kind": "DeviceClass"})[1] == (
        "converting (v1.DeviceClass) to (resource.ResourceClaim): unknown conversion"
    )
    assert patched_refusal([])[1].startswith(
        "couldn't get version/kind; json parse error: json: cannot unmarshal array into"
    )
    assert scheme_of(patched_refusal({"kind": "Foo"})[1]) == (
        'no kind "Foo" is registered for the internal version of group "resource.k8s.io" in scheme "S"'
    )


def test_a_result_without_version_is_an_object_without_anything() -> None:
    assert patched({}) == patched({"metadata": {"name": "a"}})
    assert "name" not in patched({"metadata": {"name": "a"}})["metadata"]
    assert patched_refusal({"metadata": {}, "kind": "ResourceClaim"}, validation="Strict")[1] == (
        'strict decoding error: unknown field "metadata"'
    )


def test_unjudged_result_without_version_gets_no_error() -> None:
    warnings = Warnings()
    patched({"metadata": {}, "spec": {}}, validation="Ignore", warnings=warnings)
    assert warnings.headers() == []


def test_complaints_about_the_patch_and_about_its_result_go_together() -> None:
    value = {**OBJECT, "spec": {"foo": 5}}
    found = ('json patch unknown field "[0].foo"',)
    warnings = Warnings()
    patched(value, found=found, warnings=warnings)
    assert warnings.headers() == [
        r'299 - "json patch unknown field \"[0].foo\""',
        r'299 - "unknown field \"spec.foo\""',
    ]
    assert patched_refusal(value, validation="Strict", found=found)[1] == (
        'strict decoding error: json patch unknown field "[0].foo", unknown field "spec.foo"'
    )
    assert patched(value, validation="Ignore") == patched(OBJECT | {"spec": {}})


def delete_options(raw: bytes, content_type: str = JSON) -> Object:
    return asyncio.run(body.decode_delete_options(content_type, raw))


@pytest.mark.parametrize("version", ["v1", "meta.k8s.io/v1", "resource.k8s.io/v1", "nonsense/v9"])
def test_delete_options_may_be_of_any_version(version: str) -> None:
    raw = json.dumps({"kind": "DeleteOptions", "apiVersion": version, "gracePeriodSeconds": 0, "unknown": 1}).encode()
    assert delete_options(raw)["gracePeriodSeconds"] == 0
    assert delete_options(b"kind: DeleteOptions\ndryRun: [All]\n", YAML)["dryRun"] == ["All"]
    assert delete_options(b'{"apiVersion":"foo/v1"}') == {"apiVersion": "foo/v1"}
    assert delete_options(b"null") == {}


def test_value_of_a_repeated_member_of_delete_options_is_merged() -> None:
    assert delete_options(b'{"preconditions":{"uid":"x"},"preconditions":{},"dryRun":["All"],"dryRun":null}') == {
        "preconditions": {"uid": "x"}
    }
    assert delete_options(b'{"x":1e999,"gracePeriodSeconds":0}') == {"gracePeriodSeconds": 0}


@pytest.mark.parametrize("number", ["5e0", "1e30", "1E999", "-0.0"])
def test_delete_options_are_refused_with_their_number_as_it_was_written(number: str) -> None:
    with pytest.raises(StatusError) as refused:
        delete_options(b'{"gracePeriodSeconds":%b}' % number.encode())
    assert refused.value.message == (
        f"json: cannot unmarshal number {number} into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'{"kind":"Foo","apiVersion":"v1"}', 'no kind "Foo" is registered for version "v1" in scheme "S"'),
        (
            b'{"kind":"Bar","apiVersion":"resource.k8s.io/v1"}',
            'no kind "Bar" is registered for version "resource.k8s.io/v1" in scheme "S"',
        ),
        (b'{"kind":"DeviceClass"}', 'no kind "DeviceClass" is registered for version "meta.k8s.io/v1" in scheme "S"'),
        (b'{"kind":"Status"}', "converting (v1.Status) to (v1.DeleteOptions): unknown conversion"),
        (b'{"kind":"ListOptions"}', "converting (v1.ListOptions) to (v1.DeleteOptions): unknown conversion"),
        (
            b'{"kind":"CreateOptions","apiVersion":"v1"}',
            "converting (v1.CreateOptions) to (v1.DeleteOptions): unknown conversion",
        ),
        (
            b'{"kind":"UpdateOptions","apiVersion":"nonsense/v9"}',
            "converting (v1.UpdateOptions) to (v1.DeleteOptions): unknown conversion",
        ),
        (
            b'{"kind":"ListOptions","apiVersion":"v1"}',
            'no kind "ListOptions" is registered for version "v1" in scheme "S"',
        ),
        (b"{", "couldn't get version/kind; json parse error: unexpected end of JSON input"),
        (b"abc", "couldn't get version/kind; json parse error: invalid character 'a' looking for beginning of value"),
        (b'{"apiVersion":"a/b/c"}', "unexpected GroupVersion string: a/b/c"),
    ],
)
def test_other_bodies_of_a_delete_are_400_with_the_bare_text(raw: bytes, text: str) -> None:
    with pytest.raises(StatusError) as refused:
        delete_options(raw)
    assert (refused.value.code, scheme_of(refused.value.message)) == (400, text)


def test_the_media_type_of_delete_options_counts() -> None:
    with pytest.raises(StatusError, match="unknown format"):
        delete_options(b"{}", "text/plain")


@pytest.mark.parametrize(
    ("written", "amount"),
    [("0.00001", "10u"), ("1.5e-5", "15u"), ("0.000001", "1u"), ("1e20", "100E"), ("1e-7", "100e-9")],
)
def test_number_in_yaml_is_the_amount_that_go_writes(written: str, amount: str) -> None:
    raw = f"metadata: {{name: s}}\nspec: {{devices: [{{name: d, capacity: {{memory: {{value: {written}}}}}}}]}}\n"
    made = decode(raw.encode(), SLICES, media=YAML)
    assert made["spec"]["devices"][0]["capacity"] == {"memory": {"value": amount}}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("1e21", "1e+21"),
        ("0.0000001", "1e-7"),
        ("0.000001", "0.000001"),
        ("123456789012345678901", "123456789012345680000"),
    ],
)
def test_misfitting_number_in_yaml_is_quoted_as_go_writes_it(written: str, told: str) -> None:
    raw = f"metadata: {{name: c, generation: {written}}}\nspec: {{}}\n"
    where = "Go struct field ObjectMeta.metadata.generation of type int64"
    assert f"json: cannot unmarshal number {told} into {where}" in refusal(raw.encode(), media=YAML)
