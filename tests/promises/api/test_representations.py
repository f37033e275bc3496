"""One object in many forms: Table, partial metadata, YAML, pretty JSON, gzip; and the forms there are not."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import pytest
import yaml

from tests.promises.api.client import (
    MERGE,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    Client,
    at,
    claim,
    names,
    resource_slice,
    version,
)

YAML, PROTOBUF = "application/yaml", "application/vnd.kubernetes.protobuf"
THRESHOLD = 131072
TEXT = 'ü <&> \u2028 "q" 😀 yes 0x1 1e3 2001-01-01 ~\nnext: line # no\ttab'


def accept(form: str, **more: str) -> dict[str, str]:
    return {"Accept": form, **more}


@pytest.fixture
def path(api: Client, mine: str) -> str:
    api.create(api.claims(mine), claim("one", annotations={"text": TEXT, "empty": "", "number": "1"}))
    return f"{api.claims(mine)}/one"


# Table


def test_a_table_has_the_kinds_columns_and_a_row_for_each_object(api: Client, mine: str) -> None:
    for i in range(2):
        api.create(api.slices, resource_slice(f"{mine}-{i}", f"{mine}-node"))
    selector = {"fieldSelector": f"spec.nodeName={mine}-node"}

    table = api.ask("GET", api.slices, headers=accept(TABLE), **selector).json

    listed = api.get(api.slices, **selector, **at(table))
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert table["metadata"] == listed["metadata"]
    columns = table["columnDefinitions"]
    assert [column["name"] for column in columns] == ["Name", "Node", "Driver", "Pool", "Age"]
    assert all(column.keys() == {"name", "type", "format", "description", "priority"} for column in columns)
    assert [row["cells"][:4] for row in table["rows"]] == [
        [f"{mine}-{i}", f"{mine}-node", "gpu.example.com", f"{mine}-node"] for i in range(2)
    ]
    for row, item in zip(table["rows"], listed["items"], strict=True):
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}
        assert row["object"] == partial


def test_a_table_of_a_chunk_goes_on_like_the_list(api: Client, mine: str) -> None:
    for name in "abc":
        api.create(api.claims(mine), claim(name))

    first = api.ask("GET", api.claims(mine), headers=accept(TABLE), limit=2).json
    onward = first["metadata"]["continue"]
    rest = api.ask("GET", api.claims(mine), headers=accept(TABLE), limit=2, continue_=onward).json

    assert first["metadata"]["remainingItemCount"] == 1
    assert [row["cells"][0] for row in first["rows"] + rest["rows"]] == ["a", "b", "c"]
    assert rest["columnDefinitions"] == first["columnDefinitions"]


@pytest.mark.parametrize("wanted", ["None", "Metadata", "Object", ""])
def test_include_object_says_what_a_row_carries(api: Client, path: str, wanted: str) -> None:
    table = api.ask("GET", path, headers=accept(TABLE), includeObject=wanted).json

    (row,) = table["rows"]
    stored = api.get(path)
    expected = {"None": None, "Object": stored}.get(wanted, row["object"])
    assert row["object"] == expected
    if wanted in ("", "Metadata"):
        assert (row["object"]["kind"], row["object"]["metadata"]) == ("PartialObjectMetadata", stored["metadata"])
    assert table["metadata"] == {"resourceVersion": stored["metadata"]["resourceVersion"]}


def test_a_bad_include_object_comes_after_the_read(api: Client, path: str) -> None:
    text = "Unable to convert to Table as requested: includeObject: Invalid value: \"x\": must be 'Metadata', 'Object', 'None', or empty"
    assert api.ask("GET", path, headers=accept(TABLE), includeObject="x").json["message"] == text
    assert api.ask("GET", f"{path}-none", headers=accept(TABLE), includeObject="x").status == 404
    assert api.ask("GET", path, includeObject="x").status == 200


def test_writes_answer_in_the_form_that_was_asked_for(api: Client, mine: str) -> None:
    made = api.ask("POST", api.claims(mine), claim("one"), headers=accept(TABLE))
    put = api.ask("PUT", f"{api.claims(mine)}/one", claim("one", labels={"a": "b"}), headers=accept(PARTIAL))
    patched = api.ask("PATCH", f"{api.claims(mine)}/one", "{}", headers=accept(YAML, **{"Content-Type": MERGE}))
    listed = api.ask("DELETE", api.claims(mine), headers=accept(TABLE))

    assert (made.status, made.json["rows"][0]["cells"][:2]) == (201, ["one", "pending"])
    assert (put.json["kind"], put.json.keys()) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})
    assert yaml.safe_load(patched.body)["metadata"]["labels"] == {"a": "b"}
    assert [row["cells"][0] for row in listed.json["rows"]] == ["one"]


# Partial metadata


def test_partial_metadata_is_the_metadata_alone(api: Client, path: str) -> None:
    stored, collection = api.get(path), path.rpartition("/")[0]

    one = api.ask("GET", path, headers=accept(PARTIAL)).json
    listed = api.ask("GET", collection, headers=accept(PARTIAL_LIST)).json

    assert one == {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": stored["metadata"]}
    assert (listed["kind"], listed["items"]) == ("PartialObjectMetadataList", [one])
    assert listed["metadata"] == {"resourceVersion": listed["metadata"]["resourceVersion"]}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_an_empty_list_of_partial_metadata_has_null_for_items(api: Client, mine: str, version: str) -> None:
    form = accept(PARTIAL_LIST.removesuffix("v1") + version)

    assert b'"items":null' in api.ask("GET", api.claims(mine), headers=form).body
    assert b'"items":null' in api.ask("DELETE", api.claims(mine), headers=form).body
    as_yaml = accept(form["Accept"].replace("json", "yaml", 1))
    assert yaml.safe_load(api.ask("GET", api.claims(mine), headers=as_yaml).body)["items"] is None


def test_a_list_is_no_partial_object_and_an_object_no_partial_list(api: Client, path: str) -> None:
    collection = path.rpartition("/")[0]
    assert "but the requested object is a list" in api.ask("GET", collection, headers=accept(PARTIAL)).json["message"]
    single = api.ask("GET", path, headers=accept(PARTIAL_LIST))
    assert (single.status, "is not a list" in single.json["message"]) == (406, True)
    assert api.ask("GET", f"{path}-none", headers=accept(PARTIAL_LIST)).status == 404, "the read comes first"


def test_write_with_an_unserved_answer_form_has_happened_all_the_same(api: Client, mine: str) -> None:
    reply = api.ask("POST", api.claims(mine), claim("one"), headers=accept(PARTIAL_LIST))

    assert reply.status == 406
    assert names(api.get(api.claims(mine))) == ["one"]


# YAML, pretty JSON


def test_yaml_says_the_same_as_json(api: Client, path: str) -> None:
    collection = path.rpartition("/")[0]
    for where, query in ((path, {}), (collection, at(api.get(collection))), (f"{path}-none", {})):
        reply = api.ask("GET", where, headers=accept(YAML), **query)
        assert reply.headers["Content-Type"] == YAML
        assert reply.body.endswith(b"\n")
        assert yaml.safe_load(reply.body) == api.ask("GET", where, **query).json
    table = api.ask("GET", collection, headers=accept(TABLE.replace("json", "yaml")))
    assert yaml.safe_load(table.body)["kind"] == "Table"


def test_yaml_is_taken_as_json_is(api: Client, mine: str) -> None:
    text = yaml.safe_dump(claim("one", annotations={"text": TEXT, "yes": "on"}), allow_unicode=True)

    reply = api.ask("POST", api.claims(mine), text, headers={"Content-Type": "application/yaml; charset=utf-8"})

    assert reply.status == 201, reply.text
    assert reply.json["metadata"]["annotations"] == {"text": TEXT, "yes": "on"}


@pytest.mark.parametrize(
    ("headers", "query", "pretty"),
    [
        ({}, {}, False),
        ({}, {"pretty": "true"}, True),
        ({}, {"pretty": "0"}, False),
        ({}, {"pretty": "nonsense"}, False),
        ({}, {"pretty": ""}, False),
        ({"User-Agent": "curl/8"}, {}, True),
        ({"User-Agent": "Mozilla/5.0 (X)"}, {"pretty": "false"}, False),
        ({"Accept": "application/json;pretty=1"}, {"pretty": "0"}, True),
    ],
)
def test_json_is_indented_for_people(
    api: Client, path: str, headers: dict[str, str], query: dict[str, Any], pretty: bool
) -> None:
    collection = path.rpartition("/")[0]
    for where, state in ((path, {}), (collection, at(api.get(collection))), (f"{path}-none", {})):
        reply = api.ask("GET", where, headers=headers, **query, **state)
        assert reply.body.startswith(b'{\n  "kind": "') is pretty
        assert reply.body.endswith(b"\n") is not pretty
        assert reply.json == api.ask("GET", where, **state).json


def test_json_is_escaped_as_go_does_it(api: Client, path: str) -> None:
    body = api.ask("GET", path).body

    assert b"\\u003c\\u0026\\u003e \\u2028" in body
    assert "ü".encode() in body
    assert body.count(b"\n") == 1
    assert list(json.loads(body)) == ["kind", "apiVersion", "metadata", "spec", "status"]


# gzip


def sized(api: Client, path: str, size: int) -> None:
    """Makes the answer to a GET exactly so many bytes long."""
    api.patch(path, {"metadata": {"annotations": {"padding": "x"}}})
    missing = size - len(api.ask("GET", path).body)
    api.patch(path, {"metadata": {"annotations": {"padding": "x" * (1 + missing)}}})
    assert len(api.ask("GET", path).body) == size


@pytest.mark.parametrize(
    ("size", "encoding", "compressed"),
    [
        (THRESHOLD, "gzip", False),
        (THRESHOLD + 1, "gzip", True),
        (THRESHOLD + 1, "deflate, gzip", True),
        (THRESHOLD + 1, "gzip;q=1.0", False),
        (THRESHOLD + 1, "GZIP", False),
        (THRESHOLD + 1, "*", False),
        (THRESHOLD + 1, "", False),
    ],
)
def test_answers_above_128_kibibytes_are_compressed_on_request(
    api: Client, path: str, size: int, encoding: str, compressed: bool
) -> None:
    sized(api, path, size)

    reply = api.ask("GET", path, headers={"Accept-Encoding": encoding})

    assert reply.headers["Content-Encoding"] == ("gzip" if compressed else None)
    assert reply.headers["Vary"] == ("Accept-Encoding" if compressed else None)
    plain = api.ask("GET", path).body
    assert (gzip.decompress(reply.body) if compressed else reply.body) == plain


def test_large_lists_are_compressed_whole(api: Client, mine: str) -> None:
    for i in range(8):
        api.create(api.claims(mine), claim(f"c{i}", annotations={"padding": f"{i}" * 60_000}))
    state = at(api.get(api.claims(mine)))
    for form in ("application/json", YAML, TABLE, PARTIAL_LIST):
        plain = api.ask("GET", api.claims(mine), headers=accept(form), **state)
        reply = api.ask("GET", api.claims(mine), headers=accept(form, **{"Accept-Encoding": "gzip"}), **state)
        assert reply.headers["Content-Encoding"] == "gzip"
        assert ageless(gzip.decompress(reply.body)) == ageless(plain.body)


def ageless(body: bytes) -> bytes:
    """An answer without the ages of a table, which go on between two of them."""
    return re.sub(rb'"\d+s"', b'"age"', body)


# Protobuf


def test_protobuf_is_served_on_request(api: Client, path: str) -> None:
    for where in (path, path.rpartition("/")[0]):
        reply = api.ask("GET", where, headers=accept(f"{PROTOBUF},application/json"))
        assert (reply.status, reply.headers["Content-Type"]) == (200, PROTOBUF)
        assert reply.body.startswith(b"k8s\0")


def test_protobuf_is_read_as_it_is_given(api: Client, mine: str) -> None:
    rehearsed = api.ask(
        "POST", api.claims(mine), claim("one", labels={"a": "b"}), headers=accept(PROTOBUF), dryRun="All"
    )
    assert rehearsed.status == 201

    made = api.ask("POST", api.claims(mine), rehearsed.body, headers={"Content-Type": PROTOBUF})

    assert made.status == 201, made.text
    assert made.json["metadata"]["labels"] == {"a": "b"}
    assert made.json["spec"] == api.create(api.claims(mine), claim("two"))["spec"]


# Missing forms


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ("text/html", 406),
        ("application/xml;q=1, application/json;q=0.1", 200),
        ("*/*", 200),
        ("", 200),
        ("application/json;as=Table;g=meta.k8s.io;v=v2", 406),
        ("application/json;as=Nothing;g=meta.k8s.io;v=v1,application/json", 200),
        (f"{TABLE},application/json", 200),
    ],
)
def test_form_that_cannot_be_served_is_406(api: Client, path: str, form: str, code: int) -> None:
    reply = api.ask("GET", path, headers=accept(form))

    assert reply.status == code
    if code == 406:
        assert reply.json["reason"] == "NotAcceptable"


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "json", "application/json;;"])
def test_body_that_cannot_be_read_is_415(api: Client, mine: str, media: str) -> None:
    for method, path in (
        ("POST", api.claims(mine)),
        ("PUT", f"{api.claims(mine)}/one"),
        ("DELETE", f"{api.claims(mine)}/one"),
    ):
        refusal = api.refusal(method, path, json.dumps(claim("one")), kind=media)
        assert (refusal.code, refusal.reason) == (415, "UnsupportedMediaType")


def test_a_watch_is_never_yaml_nor_compressed(api: Client, path: str) -> None:
    collection = path.rpartition("/")[0]
    sized(api, path, THRESHOLD + 5)

    assert api.ask("GET", collection, headers=accept(YAML), watch="1").status == 406
    reply = api.ask("GET", collection, headers={"Accept-Encoding": "gzip"}, watch="1", timeoutSeconds=1)
    assert reply.headers["Content-Encoding"] is None
    assert json.loads(reply.body.splitlines()[0])["type"] == "ADDED"


def test_every_answer_forbids_caching(api: Client, path: str) -> None:
    for where in (path, path.rpartition("/")[0], f"{path}-none", api.classes):
        reply = api.ask("GET", where)
        assert reply.headers["Cache-Control"] == "no-cache, private"
        assert reply.headers["Audit-Id"]
        assert reply.headers["Content-Type"] == "application/json"


def test_the_forms_of_a_list_agree_on_its_version(api: Client, path: str) -> None:
    collection = path.rpartition("/")[0]
    now = api.get(collection)
    for form in ("", TABLE, PARTIAL_LIST):
        assert version(api.ask("GET", collection, headers=accept(form), **at(now)).json) == version(now)
