"""Opaque parameters of any content: what is stored can be read in every form, changed and deleted."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.protobuf import document, field
from tests.fixtures.server import DevServer, Reply

V1 = "/apis/resource.sluice.dev/v1"
CLASSES = f"{V1}/deviceclasses"
YAML = {"Content-Type": "application/yaml"}
PROTOBUF = "application/vnd.kubernetes.protobuf"
FORMS = [
    "application/json",
    "application/yaml",
    PROTOBUF,
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
]


@pytest.fixture(autouse=True)
def long_integers() -> Iterator[None]:
    """For this test's own reading."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    yield
    sys.set_int_max_str_digits(limit)


def device_class(name: str, parameters: str) -> str:
    metadata = json.dumps({"name": name, "labels": {"a": "b"}})
    config = f'{{"opaque":{{"driver":"d.example.com","parameters":{parameters}}}}}'
    return f'{{"metadata":{metadata},"spec":{{"config":[{config}]}}}}'


def parameters_of(reply: Reply) -> Any:
    return reply.json["spec"]["config"][0]["opaque"]["parameters"]


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


LONG_KEYS = json.dumps({"1" * 4300: 1, "1" * 4299 + "2": 2, "0" * 300: 3})
PARAMETERS = {
    "65 bits": '{"n":18446744073709551616}',
    "300-digits": '{"n":-%s}' % ("7" * 300),
    "4299-decimals": '{"n":-0.%s}' % ("7" * 4299),
    "long-keys": LONG_KEYS,
    "nested": nested(700),
    "half-characters": '{"n":"\\ud800"}',
    "many": json.dumps({"list": [0] * 4000}, separators=(",", ":")),
}


@pytest.mark.parametrize("case", sorted(PARAMETERS))
def test_parameters_that_are_stored_can_be_read_changed_and_deleted(dev: DevServer, case: str) -> None:
    name = case.replace(" ", "-")
    path, given = f"{CLASSES}/{name}", json.loads(PARAMETERS[case])
    created = dev.request(
        "POST", CLASSES, device_class(name, PARAMETERS[case]), headers={"Content-Type": "application/json"}
    )
    assert (created.status, parameters_of(created)) == (201, given)

    for query in ("", "?pretty=true"):
        assert parameters_of(dev.request("GET", path + query)) == given
    for form in FORMS:
        assert dev.request("GET", path, headers={"Accept": form}).status == 200
        if "Partial" not in form:
            assert dev.request("GET", CLASSES, headers={"Accept": form}).status == 200
    message = dev.request("GET", path, headers={"Accept": PROTOBUF})
    assert parameters_of(dev.request("PUT", path, message.body, headers={"Content-Type": PROTOBUF})) == given
    shown = dev.request("GET", path, headers={"Accept": "application/yaml"})
    assert dev.request("PUT", path, shown.body, headers=YAML).status == 200
    whole = dev.request("GET", path)
    assert dev.request("PUT", path, created.body, headers={"Content-Type": "application/json"}).status in (200, 409)
    assert whole.status == 200
    assert dev.request("DELETE", path).status == 200
    dev.request("POST", CLASSES, device_class(name, PARAMETERS[case]), headers={"Content-Type": "application/json"})
    for kind, patch in (
        ("merge-patch", {"metadata": {"labels": {"c": "d"}, "finalizers": ["example.com/x"]}}),
        ("json-patch", [{"op": "add", "path": "/metadata/labels/e", "value": "f"}]),
    ):
        patched = dev.request("PATCH", path, json.dumps(patch), headers={"Content-Type": f"application/{kind}+json"})
        assert (patched.status, parameters_of(patched)) == (200, given)
    assert parameters_of(dev.request("DELETE", path)) == given
    last = dev.request(
        "PATCH", path, '{"metadata":{"finalizers":null}}', headers={"Content-Type": "application/merge-patch+json"}
    )
    assert last.status == 200
    assert dev.request("GET", path).status == 404


SPELLED = (
    r"""{ "z": 1e3, "z":1.0, "a" : [-0, 1E+2, 12345678901234567890.12345678901234567890], "t":"<\/\u0041\u003c" }"""
)
COMPACT = r"""{"z":1e3,"z":1.0,"a":[-0,1E+2,12345678901234567890.12345678901234567890],"t":"\u003c\/\u0041\u003c"}"""
RESPELLED = COMPACT.replace("1e3", "1000")
JSON = {"Content-Type": "application/json"}
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}


def test_spelling_of_parameters_is_kept_and_its_change_is_a_change(dev: DevServer) -> None:
    path, member = f"{CLASSES}/spelled", f'"parameters":{COMPACT}'.encode()
    created = dev.request("POST", CLASSES, device_class("spelled", SPELLED), headers=JSON)
    assert (created.status, created.json["metadata"]["generation"]) == (201, 1)
    assert member in created.body
    assert member in dev.request("GET", path).body
    assert member in dev.request("GET", CLASSES).body
    message = dev.request("GET", path, headers={"Accept": PROTOBUF})
    assert SPELLED.encode() in message.body
    assert member in dev.request("PUT", path, message.body, headers={"Content-Type": PROTOBUF}).body
    again = dev.request("PUT", path, device_class("spelled", SPELLED), headers=JSON)
    assert (again.json["metadata"]["generation"], member in again.body) == (1, True)
    for headers, patch in (
        (JSON_PATCH, '[{"op":"add","path":"/metadata/labels/x","value":"y"}]'),
        (MERGE_PATCH, '{"metadata":{"labels":{"x":"z"}}}'),
    ):
        patched = dev.request("PATCH", path, patch, headers=headers)
        assert (patched.status, patched.json["metadata"]["generation"], member in patched.body) == (200, 2, True)
    respelled = dev.request("PUT", path, device_class("spelled", RESPELLED), headers=JSON)
    assert respelled.json["metadata"]["generation"] == 3
    assert f'"parameters":{RESPELLED}'.encode() in respelled.body
    added = '[{"op":"add","path":"/spec/config/0/opaque/parameters/b","value": 1E0 }]'
    opened = dev.request("PATCH", path, added, headers=JSON_PATCH)
    assert (
        rb'"parameters":{"a":[-0,1E+2,12345678901234567890.12345678901234567890],"b":1E0,"t":"\u003c\/\u0041\u003c","z":1.0}'
        in opened.body
    )
    merged = dev.request("PATCH", path, '{"metadata":{"labels":{"x":"s"}}}', headers=STRATEGIC)
    assert rb'"parameters":{"a":[0,100,12345678901234567000],"b":1,"t":"\u003c/A\u003c","z":1}' in merged.body
    assert dev.request("DELETE", path).status == 200


@pytest.mark.parametrize("number", ["1e400", "-%s" % ("7" * 400)])
def test_a_number_that_no_float_comes_near_is_refused(dev: DevServer, number: str) -> None:
    refused = dev.request("POST", CLASSES, device_class("huge", f'{{"n":{number}}}'), headers=JSON)
    assert refused.status == 422
    assert (
        'spec.config[0].opaque.parameters: Invalid value: "<value omitted>": error parsing data as JSON: json: cannot unmarshal '
        f"number {number} into Go value of type float64"
    ) in refused.json["message"]


@pytest.mark.parametrize("levels", [801, 1100, 4000, 9000, 100_000])
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_documents_that_nest_too_deep_are_refused_in_every_form(dev: DevServer, levels: int, opening: str) -> None:
    closing = "]" if opening == "[" else "}"
    parameters = f'{{"deep":{opening * levels}{"1" if opening != "[" else ""}{closing * levels}}}'
    for headers in ({"Content-Type": "application/json"}, YAML):
        reply = dev.request("POST", CLASSES, device_class("deep", parameters), headers=headers)
        assert reply.status in (400, 413)
        assert "exceeded max depth" in reply.json["message"] or reply.status == 413
    opaque = field(1, b"gpu.example.com") + field(2, field(1, parameters.encode()))
    message = field(1, field(1, b"deep")) + field(2, field(2, field(1, field(1, opaque))))
    reply = dev.request("POST", CLASSES, document("", "", message), headers={"Content-Type": PROTOBUF})
    assert reply.status in (400, 413)
    assert "exceeded max depth" in reply.json["message"] or reply.status == 413
    dev.request("POST", CLASSES, device_class("shallow", "{}"), headers={"Content-Type": "application/json"})
    for kind, patch in (
        ("merge-patch", device_class("shallow", parameters)),
        ("json-patch", f'[{{"op":"add","path":"/spec/config/0/opaque/parameters","value":{parameters}}}]'),
    ):
        reply = dev.request("PATCH", f"{CLASSES}/shallow", patch, headers={"Content-Type": f"application/{kind}+json"})
        assert reply.status in (400, 413, 422)
        assert len(reply.body) <= 1 << 20
    assert dev.request("DELETE", f"{CLASSES}/shallow").status == 200
