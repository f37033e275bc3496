"""Escapes of lone surrogates (`\\ud800`) in raw JSON: kept as they were sent, until something gives the JSON a new text."""

from __future__ import annotations

import json

import pytest

from apiserver.apimachinery.releases import V1_37, Release
from tests.fixtures.protobuf import document, field
from tests.promises.api.client import JSON_PATCH, MERGE, PARTIAL, TABLE, Client, with_query
from tests.promises.api.test_raw_json import (
    APPLY,
    PROTOBUF,
    STRATEGIC,
    claim,
    device_class,
    generation,
    patch,
    send,
    sent,
    version,
)

COMPACT = r'{"k\udc00":"a\ud800b","n":null,"pair":"\ud83d\ude00\\ud800","nul":"\u0000\u0000d800","upper":"\uD800"}'
LOOSE = COMPACT.replace(":", " : ")
READ = '{"k�":"a�b","n":null,"nul":"\\u0000\\u0000d800","pair":"😀\\\\ud800","upper":"�"}'
"""The same once Go has decoded and encoded it."""
OTHER = COMPACT.replace("ud800b", "ud801b")
RENEWED = (STRATEGIC, APPLY)
"""The kinds of patches for which upstream decodes the raw JSON of the whole object."""


def shown(text: str) -> bytes:
    return f'"parameters":{text}'.encode()


def test_every_answer_in_json_and_protobuf_keeps_lone_surrogates(api: Client, mine: str) -> None:
    path, chosen = f"{api.classes}/{mine}", {"fieldSelector": f"metadata.name={mine}"}
    created = send(api, "POST", api.classes, device_class(mine, LOOSE, "{}", LOOSE))
    assert created.body.count(shown(COMPACT)) == 2
    for where, query in ((path, {}), (api.classes, chosen)):
        for version_ in ("v1", "v1beta1", "v1beta2"):
            asked = where.replace("/v1/", f"/{version_}/", 1)
            assert send(api, "GET", asked, **query).body.count(shown(COMPACT)) == 2
            sent(send(api, "GET", asked, accept=PROTOBUF, **query), LOOSE, "{}", LOOSE)
        table = send(api, "GET", where, accept=TABLE, includeObject="Object", **query)
        assert table.body.count(shown(COMPACT)) == 2
        pretty = send(api, "GET", where, pretty="true", **query).body
        assert pretty.count(rb'"k\udc00": "a\ud800b",') == pretty.count(rb'"upper": "\uD800"') == 2
    assert send(api, "GET", path, accept=PARTIAL).json["metadata"]["name"] == mine
    assert send(api, "DELETE", path).body.count(shown(COMPACT)) == 2


def test_a_watch_keeps_lone_surrogates(api: Client, mine: str) -> None:
    created = send(api, "POST", api.classes, device_class(mine, LOOSE))
    since = str(int(version(created)) - 1)
    query = {"watch": "1", "fieldSelector": f"metadata.name={mine}", "timeoutSeconds": "120"}
    for more in ({}, {"resourceVersion": since}):
        connection = api.target.connect()
        connection.request("GET", with_query(api.classes, query | more))
        assert shown(COMPACT) in connection.getresponse().readline()
        connection.close()
        connection.request("GET", with_query(api.classes, query | more), headers={"Accept": f"{PROTOBUF};stream=watch"})
        answer = connection.getresponse()
        assert field(1, LOOSE.encode()) in answer.read(int.from_bytes(answer.read(4), "big"))
        connection.close()
    assert send(api, "DELETE", f"{api.classes}/{mine}").status == 200


def test_a_message_in_protobuf_keeps_lone_surrogates(api: Client, mine: str) -> None:
    opaque = field(2, field(1, field(1, field(1, b"d.example.com") + field(2, field(1, LOOSE.encode())))))
    message = document(f"{api.group}/v1", "DeviceClass", field(1, field(1, mine.encode())) + field(2, opaque))
    created = send(api, "POST", api.classes, message, kind=PROTOBUF)
    assert shown(COMPACT) in created.body
    path = f"{api.classes}/{mine}"
    for kind, body in ((PROTOBUF, message), ("application/json", device_class(mine, LOOSE))):
        assert version(send(api, "PUT", path, body, kind=kind)) == version(created)
    assert send(api, "DELETE", path).status == 200


def test_two_spellings_of_a_lone_surrogate_are_two_values(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/c"
    created = send(api, "POST", api.claims(mine), claim("c", COMPACT))
    assert version(send(api, "PUT", path, created.body)) == version(created)
    for other in (OTHER, COMPACT.replace("ud800b", "uD800b"), COMPACT.replace("ud800b", "ufffdb"), READ):
        refused = send(api, "PUT", path, claim("c", other))
        assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "spec")


def test_an_error_shows_lone_surrogates_as_they_were_sent(api: Client, mine: str, release: Release) -> None:
    """Since 1.37, the error of a fixed member shows nothing of it."""
    send(api, "POST", api.claims(mine), claim("c", COMPACT))
    message = send(api, "PUT", f"{api.claims(mine)}/c", claim("c", '{ "a" : "\\ud800" }')).json["message"]
    shows = release < V1_37
    assert ('"Parameters":{"a":"\\ud800"}' in message) is shows
    assert ("spec: Invalid value: null: field is immutable" in message) is not shows


@pytest.mark.parametrize("kind", [MERGE, JSON_PATCH])
def test_a_patch_of_labels_keeps_lone_surrogates(api: Client, mine: str, kind: str) -> None:
    send(api, "POST", api.claims(mine), claim("c", COMPACT))
    path = f"{api.claims(mine)}/c"
    patched = patch(api, kind, path, "ResourceClaim")
    assert patched.status == 200, patched.text
    assert shown(COMPACT) in patched.body
    assert patched.json["metadata"]["labels"] == {"x": "y"}
    sent(send(api, "GET", path, accept=PROTOBUF), COMPACT)
    assert version(patch(api, kind, path, "ResourceClaim")) == version(patched)


@pytest.mark.parametrize("kind", RENEWED)
def test_a_patch_that_decodes_raw_json_replaces_lone_surrogates(api: Client, mine: str, kind: str) -> None:
    path = f"{api.classes}/{mine}"
    send(api, "POST", api.classes, device_class(mine, COMPACT))
    patched = patch(api, kind, path, "DeviceClass")
    assert shown(READ) in patched.body
    assert generation(patched) == 2
    sent(send(api, "GET", path, accept=PROTOBUF), READ)
    assert generation(send(api, "PUT", path, device_class(mine, COMPACT))) == 3
    assert send(api, "DELETE", path).status == 200

    send(api, "POST", api.claims(mine), claim("c", COMPACT))
    refused = patch(api, kind, f"{api.claims(mine)}/c", "ResourceClaim")
    assert refused.status == 422
    assert "field is immutable" in refused.json["message"]
    assert shown(COMPACT) in send(api, "GET", f"{api.claims(mine)}/c").body


def test_merge_and_json_patches_may_set_lone_surrogates(api: Client, mine: str) -> None:
    path, where = f"{api.classes}/{mine}", "/spec/config/0/opaque/parameters"
    send(api, "POST", api.classes, device_class(mine, "{}"))
    opaque = f'{{"driver":"d.example.com","parameters":{COMPACT}}}'
    merged = send(api, "PATCH", path, f'{{"spec":{{"config":[{{"opaque":{opaque}}}]}}}}', kind=MERGE)
    kept = COMPACT.replace('"k\\udc00"', '"k�"').replace('"n":null,', "")
    assert json.loads(shown_parameters(merged.body)) == json.loads(kept)
    assert rb'"a\ud800b"' in merged.body

    operations = [
        (f'{{"op":"replace","path":"{where}","value":{{ "z" : "\\ud803" }}}}', r'{"z":"\ud803"}'),
        (f'{{"op":"add","path":"{where}/w","value":"\\udfff"}}', r'{"w":"\udfff","z":"\ud803"}'),
        (f'{{"op":"copy","from":"{where}/w","path":"{where}/v"}}', r'{"v":"\udfff","w":"\udfff","z":"\ud803"}'),
        (f'{{"op":"move","from":"{where}/v","path":"{where}/\\ud800"}}', r'{"w":"\udfff","z":"\ud803","�":"\udfff"}'),
        (f'{{"op":"test","path":"{where}/z","value":"\\ud803"}}', r'{"w":"\udfff","z":"\ud803","�":"\udfff"}'),
    ]
    for operation, text in operations:
        patched = send(api, "PATCH", path, f"[{operation}]", kind=JSON_PATCH)
        assert patched.status == 200, patched.text
        assert shown(text) in patched.body
    for value in (r"\ud804", r"\uD803", r"\ufffd"):
        operation = f'[{{"op":"test","path":"{where}/z","value":"{value}"}}]'
        assert send(api, "PATCH", path, operation, kind=JSON_PATCH).status == 422
    assert send(api, "DELETE", path).status == 200


def shown_parameters(body: bytes) -> bytes:
    start = body.index(b'"parameters":') + len(b'"parameters":')
    return body[start : body.index(b"}", start) + 1]


def test_a_strategic_patch_sets_the_replacement_character(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    send(api, "POST", api.classes, device_class(mine, "{}"))
    text = f'{{"spec":{{"config":[{{"opaque":{{"driver":"d.example.com","parameters":{COMPACT}}}}}]}}}}'
    patched = send(api, "PATCH", path, text, kind=STRATEGIC)
    assert shown(READ) in patched.body
    assert send(api, "DELETE", path).status == 200


@pytest.mark.parametrize("kind", [APPLY, "application/yaml"])
def test_yaml_with_a_lone_surrogate_is_400(api: Client, mine: str, kind: str) -> None:
    meta = f'"apiVersion":"{api.group}/v1","kind":"DeviceClass",'
    body = "{" + meta + device_class(mine, COMPACT)[1:]
    method, path = ("PATCH", f"{api.classes}/{mine}") if kind == APPLY else ("POST", api.classes)
    refused = send(api, method, path, body, kind=kind, fieldManager="m")
    assert refused.status == 400
    assert "yaml: found invalid Unicode character escape code" in refused.json["message"]


@pytest.mark.parametrize("text", [COMPACT, r'{"pair":"\ud83d\ude00"}'], ids=["lone", "paired"])
def test_yaml_answers_show_what_escapes_of_surrogates_mean(api: Client, mine: str, text: str) -> None:
    send(api, "POST", api.classes, device_class(mine, text))
    chosen = {"fieldSelector": f"metadata.name={mine}"}
    answers = [
        send(api, "GET", f"{api.classes}/{mine}", accept="application/yaml"),
        send(api, "GET", api.classes, accept="application/yaml", **chosen),
    ]
    assert send(api, "DELETE", f"{api.classes}/{mine}").status == 200
    for answer in answers:
        assert answer.status == 200, answer.body
        assert b"U0001F600" in answer.body
        assert (("a�b" in answer.text) and ("k�:" in answer.text)) == (text == COMPACT)


def test_the_data_of_a_device_keeps_lone_surrogates(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/c"
    send(api, "POST", api.claims(mine), claim("c", COMPACT))
    result = '{"request":"gpu","driver":"d.example.com","pool":"p","device":"%s"}'
    device = '{"driver":"d.example.com","pool":"p","device":"%s","data":%s}'
    results = ",".join(result % name for name in ("g0", "g1"))
    devices = ",".join((device % ("g0", LOOSE), device % ("g1", r'{"a":"\udbff"}')))
    status = f'"status":{{"allocation":{{"devices":{{"results":[{results}]}}}},"devices":[{devices}]}}'
    body = claim("c", "{}")[:-1] + f",{status}}}"

    written = send(api, "PUT", f"{path}/status", body)
    assert f'"data":{COMPACT}'.encode() in written.body
    assert rb'"data":{"a":"\udbff"}' in written.body
    sent(send(api, "GET", path, accept=PROTOBUF), COMPACT, LOOSE, r'{"a":"\udbff"}')
    assert version(send(api, "PUT", f"{path}/status", body)) == version(written)

    reserved = '{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"1"}]}}'
    merged = send(api, "PATCH", f"{path}/status", reserved, kind=MERGE)
    assert merged.status == 200, merged.text
    sent(send(api, "GET", path, accept=PROTOBUF), COMPACT, COMPACT, r'{"a":"\udbff"}')
    renewed = send(api, "PATCH", f"{path}/status", reserved.replace("1", "2"), kind=STRATEGIC)
    assert '"data":{"a":"�"}' in renewed.text
    assert shown(COMPACT) in renewed.body


def test_a_duplicate_and_an_unknown_member_beside_lone_surrogates(api: Client, mine: str) -> None:
    repeated = r'{"a":"\ud800","a":1}'
    made = send(api, "POST", api.classes, device_class(mine, repeated), fieldValidation="Strict")
    assert shown(repeated) in made.body
    body = device_class(f"{mine}-x", COMPACT, metadata=r',"nope\ud800":1,"annotations":{"a":"\ud800"}')
    refused = send(api, "POST", api.classes, body, fieldValidation="Strict")
    assert 'unknown field "metadata.nope�"' in refused.json["message"]
    lenient = send(api, "POST", api.classes, body, fieldValidation="Ignore")
    assert shown(COMPACT) in lenient.body
    assert lenient.json["metadata"]["annotations"] == {"a": "�"}
    for name in (mine, f"{mine}-x"):
        assert send(api, "DELETE", f"{api.classes}/{name}").status == 200


def test_field_sets_do_not_keep_lone_surrogates(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    entry = (
        f'{{"manager":"m\\ud800","operation":"Update","apiVersion":"{api.group}/v1","fieldsType":"FieldsV1",'
        '"fieldsV1":{"f:metadata":{"f:labels":{"f:\\ud800":{}}}}}'
    )
    send(api, "POST", api.classes, device_class(mine, COMPACT))
    body = device_class(mine, COMPACT, metadata=f',"labels":{{"a":"b"}},"managedFields":[{entry}]')
    put = send(api, "PUT", path, body)
    assert put.status == 200, put.text
    assert put.json["metadata"]["managedFields"][0]["manager"] == "m�"
    assert '"fieldsV1":{"f:metadata":{"f:labels":{"f:�":{}}}}' in put.text
    assert send(api, "DELETE", path).status == 200


def test_how_long_raw_json_may_be_counts_escapes_as_they_were_sent(api: Client, mine: str) -> None:
    fits = '{"a":"' + r"\ud800" * 1705 + "xx" + '"}'
    assert len(fits) == 10 << 10
    assert send(api, "POST", api.classes, device_class(mine, fits)).status == 201
    refused = send(api, "POST", api.classes, device_class(f"{mine}-x", fits.replace("xx", "xxx")))
    assert (refused.status, refused.json["details"]["causes"][0]["reason"]) == (422, "FieldValueTooLong")
    assert send(api, "DELETE", f"{api.classes}/{mine}").status == 200
