"""Raw JSON, `parameters` and `data` of drivers: kept byte by byte, shown compact in JSON; who spells it otherwise changes it."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
import yaml

from tests.fixtures.protobuf import document, field
from tests.fixtures.server import Reply
from tests.promises.api.client import JSON_PATCH, MERGE, Client, with_query

JSON = "application/json"
APPLY, STRATEGIC = "application/apply-patch+yaml", "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
LOOSE = '{ "b": 1.0,\n\t"a": "<ü>&\\u003c",  "a" : [ ] }'
COMPACT = '{"b":1.0,"a":"\\u003cü\\u003e\\u0026\\u003c","a":[]}'
REQUESTS = '"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu"}}]'
MOST = 10 << 10


def device_class(name: str, *parameters: str, metadata: str = "") -> str:
    config = ",".join(f'{{"opaque":{{"driver":"d.example.com","parameters": {text} }}}}' for text in parameters)
    return f'{{"metadata":{{"name":"{name}"{metadata}}},"spec":{{"config":[{config}]}}}}'


def claim(name: str, parameters: str, metadata: str = "") -> str:
    opaque = f'{{"driver":"d.example.com","parameters":{parameters}}}'
    spec = f'{{"devices":{{{REQUESTS},"config":[{{"opaque":{opaque}}}]}}}}'
    return f'{{"metadata":{{"name":"{name}"{metadata}}},"spec":{spec}}}'


def send(
    api: Client,
    method: str,
    path: str,
    body: str | bytes | None = None,
    *,
    kind: str = JSON,
    accept: str = JSON,
    **query: str,
) -> Reply:
    return api.ask(method, path, body, headers={"Content-Type": kind, "Accept": accept}, **query)


def sent(reply: Reply, *texts: str) -> None:
    """The message holds these texts of raw JSON, in this order."""
    assert reply.status in (200, 201), reply.body
    at = 0
    for text in texts:
        found = reply.body.find(field(1, text.encode()), at)
        assert found >= 0, (text, reply.body)
        at = found + len(text)


def version(reply: Reply) -> str:
    found: str = reply.json["metadata"]["resourceVersion"]
    return found


def generation(reply: Reply) -> int:
    found: int = reply.json["metadata"]["generation"]
    return found


def test_it_is_shown_compact_in_json_and_as_it_was_sent_in_protobuf(api: Client, mine: str) -> None:
    body, path, chosen = device_class(mine, LOOSE, "{}", LOOSE), f"{api.classes}/{mine}", {
        "fieldSelector": f"metadata.name={mine}"
    }  # fmt: skip
    member = f'"parameters":{COMPACT}'.encode()
    sent(send(api, "POST", api.classes, body, accept=PROTOBUF, dryRun="All"), LOOSE, "{}", LOOSE)
    created = send(api, "POST", api.classes, body)
    assert created.body.count(member) == 2
    for where, query in ((path, {}), (api.classes, chosen)):
        assert send(api, "GET", where, **query).body.count(member) == 2
        sent(send(api, "GET", where, accept=PROTOBUF, **query), LOOSE, "{}", LOOSE)
        for older in ("v1beta1", "v1beta2"):
            asked = where.replace("/v1/", f"/{older}/", 1)
            sent(send(api, "GET", asked, accept=PROTOBUF, **query), LOOSE, "{}", LOOSE)
            assert send(api, "GET", asked, **query).body.count(member) == 2
        shown = send(api, "GET", where, accept="application/yaml", **query)
        found = yaml.safe_load(shown.body)
        spec = (found["items"][0] if query else found)["spec"]
        assert [c["opaque"]["parameters"] for c in spec["config"]] == [{"b": 1, "a": []}, {}, {"b": 1, "a": []}]
    sent(send(api, "PUT", path, device_class(mine, '{"c": 1}', LOOSE), accept=PROTOBUF), '{"c": 1}', LOOSE)
    sent(send(api, "DELETE", path, accept=PROTOBUF), '{"c": 1}', LOOSE)


def test_a_watch_in_protobuf_shows_it_as_it_was_sent(api: Client, mine: str) -> None:
    chosen = {"fieldSelector": f"metadata.name={mine}", "timeoutSeconds": "120"}
    made = send(api, "POST", api.classes, device_class(mine, LOOSE))
    connection = api.target.connect()
    for since in ({}, {"resourceVersion": str(int(version(made)) - 1)}):
        query = {"watch": "1", **chosen, **since}
        connection.request("GET", with_query(api.classes, query), headers={"Accept": f"{PROTOBUF};stream=watch"})
        answer = connection.getresponse()
        frame = answer.read(int.from_bytes(answer.read(4), "big"))
        assert field(1, LOOSE.encode()) in frame
        connection.close()
    assert send(api, "DELETE", f"{api.classes}/{mine}").status == 200


def test_a_message_is_kept_as_it_is(api: Client, mine: str) -> None:
    opaque = field(2, field(1, field(1, field(1, b"d.example.com") + field(2, field(1, LOOSE.encode())))))
    message = document(f"{api.group}/v1", "DeviceClass", field(1, field(1, mine.encode())) + field(2, opaque))
    created = send(api, "POST", api.classes, message, kind=PROTOBUF)
    assert f'"parameters":{COMPACT}'.encode() in created.body
    path = f"{api.classes}/{mine}"
    read = send(api, "GET", path, accept=PROTOBUF)
    sent(read, LOOSE)
    for media, again in ((PROTOBUF, read.body), (JSON, device_class(mine, LOOSE))):
        unchanged = send(api, "PUT", path, again, kind=media)
        assert (generation(unchanged), version(unchanged)) == (1, version(created))
    assert send(api, "DELETE", path).status == 200


def test_other_spelling_of_raw_json_is_a_change(api: Client, mine: str) -> None:
    path = f"{api.classes}/{mine}"
    created = send(api, "POST", api.classes, device_class(mine, LOOSE))
    same = send(api, "PUT", path, device_class(mine, LOOSE))
    assert (generation(same), version(same)) == (1, version(created))
    shown = send(api, "GET", path)
    assert generation(send(api, "PUT", path, shown.body)) == 2
    sent(send(api, "GET", path, accept=PROTOBUF), COMPACT)
    blanks = send(api, "GET", path).body.replace(b",", b", ")
    assert generation(send(api, "PUT", path, blanks)) == 3
    assert send(api, "DELETE", path).status == 200


PATCHES: Mapping[str, str] = {
    MERGE: '{"metadata":{"labels":{"x":"y"}}}',
    JSON_PATCH: '[{"op":"add","path":"/metadata/labels","value":{"x":"y"}}]',
    STRATEGIC: '{"metadata":{"labels":{"x":"y"}}}',
    APPLY: '{"metadata":{"labels":{"x":"y"}}}',
}


def patch(api: Client, kind: str, path: str, what: str) -> Reply:
    text = PATCHES[kind]
    if kind == APPLY:
        text = json.dumps({"apiVersion": f"{api.group}/v1", "kind": what, **json.loads(text)})
    return send(api, "PATCH", path, text, kind=kind, fieldManager="m")


@pytest.mark.parametrize("kind", PATCHES)
def test_a_patch_of_something_else_respells_it(api: Client, mine: str, kind: str) -> None:
    path = f"{api.classes}/{mine}"
    for spelled, generations in ((LOOSE, 2), ('{"a":1}', 1)):
        send(api, "POST", api.classes, device_class(mine, spelled))
        patched = patch(api, kind, path, "DeviceClass")
        assert (patched.status, generation(patched)) == (200, generations), patched.text
        assert send(api, "DELETE", path).status == 200


@pytest.mark.parametrize("kind", PATCHES)
def test_immutable_raw_json_may_not_be_respelled(api: Client, mine: str, kind: str) -> None:
    path = f"{api.claims(mine)}/loose"
    created = send(api, "POST", api.claims(mine), claim("loose", LOOSE))
    refused = patch(api, kind, path, "ResourceClaim")
    assert refused.status == 422, refused.text
    assert "field is immutable" in refused.json["message"]
    refused = send(api, "PUT", path, created.body)
    assert (refused.status, refused.json["details"]["causes"][0]["field"]) == (422, "spec")
    metadata = ',"labels":{"x":"y"}'
    assert send(api, "PUT", path, claim("loose", LOOSE, metadata)).status == 200
    send(api, "POST", api.claims(mine), claim("compact", '{"a":1}'))
    assert patch(api, kind, f"{api.claims(mine)}/compact", "ResourceClaim").status == 200


def test_how_long_it_may_be_counts_what_was_sent(api: Client, mine: str) -> None:
    fits = '{"a":' + " " * (MOST - 7) + "1}"
    assert len(fits) == MOST
    assert send(api, "POST", api.classes, device_class(mine, fits)).status == 201
    refused = send(api, "POST", api.classes, device_class(f"{mine}-x", fits.replace(":", ": ")))
    assert (refused.status, refused.json["details"]["causes"][0]["reason"]) == (422, "FieldValueTooLong")
    assert send(api, "DELETE", f"{api.classes}/{mine}").status == 200


def test_the_data_of_a_device_is_kept_too(api: Client, mine: str) -> None:
    path = f"{api.claims(mine)}/data"
    made = send(api, "POST", api.claims(mine), claim("data", LOOSE)).json
    allocation = '{"devices":{"results":[{"request":"gpu","driver":"d.example.com","pool":"p","device":"g"}]}}'
    device = '{"driver":"d.example.com","pool":"p","device":"g","data": %s}'

    def body(data: str) -> str:
        status = f'"status":{{"allocation":{allocation},"devices":[{device % data}]}}'
        return claim("data", COMPACT, f',"uid":"{made["metadata"]["uid"]}"')[:-1] + "," + status + "}"

    written = send(api, "PUT", f"{path}/status", body(LOOSE))
    assert f'"data":{COMPACT}'.encode() in written.body
    sent(send(api, "GET", path, accept=PROTOBUF), LOOSE, LOOSE)
    same = send(api, "PUT", f"{path}/status", body(LOOSE))
    assert version(same) == version(written)
    respelled = send(api, "PUT", f"{path}/status", body(COMPACT))
    assert version(respelled) != version(written)
    sent(send(api, "GET", path, accept=PROTOBUF), LOOSE, COMPACT)
