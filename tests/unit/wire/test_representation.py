from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import pytest
import yaml

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Query
from apiserver.schema.resource import Column, Object, Resource
from apiserver.wire import as_json, as_partial, as_table, negotiation, representation
from apiserver.wire.negotiation import Representation
from tests.unit.wire.served import CLAIMS, CLASSES, SLICES

NOW = 1_700_000_000.0
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
BARE = dataclasses.replace(CLASSES, columns=())


def rep(accept: str = "", query: str = "") -> Representation:
    return negotiation.negotiate(accept, Query(query), "")


def stored(name: str, **more: Any) -> bytes:
    metadata = {"name": name, "uid": "u", "resourceVersion": "7", "creationTimestamp": "2023-11-14T22:12:20Z", **more}
    return as_json.dumps({"metadata": metadata, "spec": {"selectors": [{"cel": {"expression": 'a<b && "é"'}}]}})


def single(
    accept: str, body: bytes, resource: Resource = CLASSES, *, query: str = "", include: str = "Metadata"
) -> bytes:
    return representation.single(rep(accept, query), resource, body, include_object=include, now=NOW)


def listed(
    accept: str,
    bodies: Sequence[bytes],
    resource: Resource = CLASSES,
    *,
    query: str = "",
    include: str = "Metadata",
    **more: Any,
) -> bytes:
    length, pieces = representation.listing(
        rep(accept, query), resource, bodies, revision=9, include_object=include, now=NOW, **more
    )
    data = b"".join(pieces)
    assert length in (None, len(data))
    return data


def head(resource: Resource = CLASSES) -> bytes:
    return b'{"kind":"%b","apiVersion":"resource.k8s.io/v1",' % resource.kind.encode()


def test_an_object_is_its_stored_bytes_behind_kind_and_version() -> None:
    body = stored("a")
    assert single("", body) == head() + body[1:] + b"\n"


def test_pretty_and_yaml_say_the_same_as_compact() -> None:
    body = stored("a", annotations={"z": "<&>", "a": "1"}, generation=1 << 70)
    compact = json.loads(single("", body))
    pretty = single("", body, query="pretty=1")
    assert json.loads(pretty) == compact
    assert pretty.startswith(b'{\n  "kind": "DeviceClass",\n  "apiVersion"')
    assert pretty.endswith(b"\n}")
    text = single("application/yaml", body)
    assert text.startswith(b"apiVersion: resource.k8s.io/v1\nkind: DeviceClass\nmetadata:\n  annotations:\n    a: ")
    assert text.endswith(b"\n")
    text = single("application/yaml", stored("a", annotations={"z": "<&>", "a": "1"}, generation=5))
    assert yaml.load(text, Loader=yaml.CBaseLoader) == as_text(
        {**compact, "metadata": {**compact["metadata"], "generation": 5}}
    )


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_list_is_its_objects_bytes_and_its_length_is_known(count: int) -> None:
    bodies = [stored(f"o{i}") for i in range(count)]
    data = listed("", bodies)
    assert data == (
        b'{"kind":"DeviceClassList","apiVersion":"resource.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":['
        + b",".join(bodies)
        + b"]}\n"
    )


def test_a_long_list_comes_in_pieces_of_stored_bytes() -> None:
    body = stored("a", annotations={"x": "y" * 3000})
    bodies = [body] * 1000
    length, pieces = representation.listing(rep(), CLASSES, bodies, revision=9, include_object="Metadata", now=NOW)
    parts = list(pieces)
    assert len(parts) > 10
    assert max(map(len, parts)) < representation.PIECE + 2 * len(body)
    assert sum(map(len, parts)) == length
    assert len(json.loads(b"".join(parts))["items"]) == 1000


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_list_that_ends_with_a_piece_is_closed(extra: int) -> None:
    body = b'{"a":"%b"}' % (b"x" * (representation.PIECE - 8 + extra))
    assert json.loads(listed("", [body, body]))["items"] == [json.loads(body)] * 2


@pytest.mark.parametrize("accept", ["", TABLE, PARTIALS])
def test_list_metadata_says_how_to_go_on(accept: str) -> None:
    data = json.loads(listed(accept, [stored("a")], continue_token="abc", remaining=0))
    assert data["metadata"] == {"resourceVersion": "9", "continue": "abc", "remainingItemCount": 0}
    assert json.loads(listed(accept, []))["metadata"] == {"resourceVersion": "9"}


LISTS = [
    (accept, resource, count)
    for accept in ("application/json", TABLE, PARTIALS)
    for resource in (CLASSES, BARE)
    for count in (0, 1, 3, 70)
]


@pytest.mark.parametrize(("accept", "resource", "count"), LISTS)
def test_lists_in_every_syntax_say_the_same(accept: str, resource: Resource, count: int) -> None:
    bodies = [stored(f"o{i}", labels={"a": "b"}) for i in range(count)]
    compact = listed(accept, bodies, resource)
    assert compact.endswith(b"}\n")
    value = as_json.loads(compact)
    assert compact == as_json.dumps(value) + b"\n"
    assert listed(accept, bodies, resource, query="pretty=1") == as_json.pretty(value)
    as_yaml = listed(accept.replace("json", "yaml", 1), bodies, resource)
    assert yaml.load(as_yaml, Loader=yaml.CBaseLoader) == as_text(value)


def as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_text(x) for name, x in value.items()}
    if isinstance(value, list):
        return [as_text(x) for x in value]
    return "null" if value is None else str(value)


def test_partial_metadata_is_the_metadata_of_the_object() -> None:
    body = stored("a", labels={"x": '}{"'})
    assert single(PARTIAL, body) == (
        b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
        + as_partial.metadata_of(body)
        + b"}\n"
    )
    assert json.loads(as_partial.metadata_of(body)) == json.loads(body)["metadata"]
    both = json.loads(listed(PARTIALS.replace("v=v1", "v=v1beta1"), [body, body]))
    assert both["kind"] == "PartialObjectMetadataList"
    assert both["apiVersion"] == "meta.k8s.io/v1beta1"
    assert [(i["kind"], i["apiVersion"]) for i in both["items"]] == [
        ("PartialObjectMetadata", "meta.k8s.io/v1beta1")
    ] * 2


def test_a_form_for_lists_does_not_fit_an_object_nor_the_other_way_round() -> None:
    with pytest.raises(StatusError) as refused:
        single(PARTIALS, stored("a"), SLICES)
    assert (refused.value.code, refused.value.reason, refused.value.details) == (406, "NotAcceptable", None)
    assert refused.value.message == (
        "you requested PartialObjectMetadataList, but the requested object is not a list (*resource.ResourceSlice)"
    )
    with pytest.raises(StatusError) as refused:
        listed(PARTIAL, [], SLICES)
    assert refused.value.message == (
        "you requested PartialObjectMetadata, but the requested object is a list (*resource.ResourceSliceList)"
    )


def test_a_table_has_the_columns_of_the_kind_and_a_row_per_object() -> None:
    table = json.loads(listed(TABLE, [stored("a"), stored("b")]))
    assert list(table) == ["kind", "apiVersion", "metadata", "columnDefinitions", "rows"]
    assert [list(c) for c in table["columnDefinitions"]] == [["name", "type", "format", "description", "priority"]] * 2
    assert [(c["name"], c["type"], c["format"], c["priority"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", "name", 0),
        ("Age", "string", "", 0),
    ]
    assert [row["cells"] for row in table["rows"]] == [["a", "60s"], ["b", "60s"]]
    assert [list(row) for row in table["rows"]] == [["cells", "object"]] * 2
    assert table["rows"][0]["object"] == json.loads(single(PARTIAL, stored("a")))


def test_a_row_carries_what_was_asked_for() -> None:
    body = stored("a")
    assert json.loads(single(TABLE, body, include="Object"))["rows"][0]["object"] == json.loads(single("", body))
    assert json.loads(single(TABLE, body, include="None"))["rows"][0]["object"] is None
    beta = json.loads(single(TABLE.replace("v=v1", "v=v1beta1"), body))
    assert beta["apiVersion"] == beta["rows"][0]["object"]["apiVersion"] == "meta.k8s.io/v1beta1"


def test_the_table_of_one_object_is_at_its_version() -> None:
    assert json.loads(single(TABLE, stored("a")))["metadata"] == {"resourceVersion": "7"}
    untried = b'{"metadata":{"name":"a","uid":"u"},"spec":{}}'
    assert json.loads(single(TABLE, untried))["metadata"] == {}


def test_a_kind_without_columns_has_name_and_creation_time() -> None:
    table = json.loads(single(TABLE, stored("a"), BARE))
    assert [(c["name"], c["type"], c["format"]) for c in table["columnDefinitions"]] == [
        ("Name", "string", "name"),
        ("Created At", "date", ""),
    ]
    assert all(c["description"] for c in table["columnDefinitions"])
    assert table["rows"][0]["cells"] == ["a", "2023-11-14T22:12:20Z"]
    assert b'"rows":null' in listed(TABLE, [], BARE)
    assert b'"rows":[]' in listed(TABLE, [])


def test_cells_may_be_any_json_value() -> None:
    def cell(obj: Object, now: float) -> Any:
        return [obj["metadata"]["name"], None, now, "<"]

    odd = dataclasses.replace(CLASSES, columns=(Column(name="X", cell=cell, type="array"),))
    assert b'"cells":[["a",null,1700000000.0,"\\u003c"]]' in single(TABLE, stored("a"), odd)


@pytest.mark.parametrize(
    ("query", "include"),
    [
        ("", "Metadata"),
        ("includeObject=", "Metadata"),
        ("includeObject=None", "None"),
        ("includeObject=Object", "Object"),
    ],
)
def test_include_object_is_read_from_the_query(query: str, include: str) -> None:
    assert representation.include_object(rep(TABLE), Query(query)) == include


def test_a_wrong_include_object_is_400_for_tables_and_nobody_else() -> None:
    with pytest.raises(StatusError) as refused:
        representation.include_object(rep(TABLE), Query("includeObject=none"))
    assert (refused.value.code, refused.value.message) == (
        400,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"none\": must be 'Metadata', 'Object', 'None', or empty",
    )
    assert representation.include_object(rep(), Query("includeObject=none")) == "Metadata"
    assert representation.include_object(rep(PARTIAL), Query("includeObject=none")) == "Metadata"


def framed(accept: str, body: bytes, event: str = "ADDED", *, first: bool = True, include: str = "Metadata") -> bytes:
    return representation.frame(rep(accept), CLASSES, event, body, first=first, include_object=include, now=NOW)


def test_an_event_is_one_line_with_the_whole_object() -> None:
    body = stored("a")
    assert framed("", body, "MODIFIED") == b'{"type":"MODIFIED","object":' + head() + body[1:] + b"}\n"


def test_a_table_event_names_its_columns_once() -> None:
    first, later = json.loads(framed(TABLE, stored("a"))), json.loads(framed(TABLE, stored("b"), first=False))
    assert first["object"] == json.loads(single(TABLE, stored("a")))
    assert later["object"]["columnDefinitions"] is None
    assert later["object"]["rows"][0]["cells"] == ["b", "60s"]


def test_an_event_cannot_be_a_list_of_metadata() -> None:
    assert json.loads(framed(PARTIAL, stored("a")))["object"] == json.loads(single(PARTIAL, stored("a")))
    assert framed(PARTIALS, stored("a")) == b""


def bookmark(
    accept: str, resource: Resource, *, marker: bool = False, first: bool = False, include: str = "Metadata"
) -> Any:
    frame = representation.bookmark(
        rep(accept), resource, 12746, marker=marker, first=first, include_object=include, now=NOW
    )
    assert frame.endswith(b"}\n")
    return json.loads(frame)


def test_a_bookmark_is_the_zero_object_with_a_version() -> None:
    frame = representation.bookmark(rep(), SLICES, 12746, marker=False, first=False, include_object="Metadata", now=NOW)
    assert frame == (
        b'{"type":"BOOKMARK","object":{"kind":"ResourceSlice","apiVersion":"resource.k8s.io/v1","metadata":{"resourceVersion":"12746"},'
        b'"spec":{"driver":"","pool":{"name":"","generation":0,"resourceSliceCount":0}}}}\n'
    )
    assert bookmark("", CLASSES)["object"]["spec"] == {}
    claim = bookmark("", CLAIMS)["object"]
    assert (claim["spec"], claim["status"]) == ({"devices": {"requests": None}}, {})


def test_the_marker_of_the_end_of_the_initial_events_is_an_annotation() -> None:
    assert bookmark("", CLASSES, marker=True)["object"]["metadata"] == {
        "resourceVersion": "12746",
        "annotations": {"k8s.io/initial-events-end": "true"},
    }


@pytest.mark.parametrize("include", ["None", "Metadata"])
def test_the_row_of_the_marker_always_keeps_its_metadata(include: str) -> None:
    table = bookmark(TABLE, CLAIMS, marker=True, include=include)["object"]
    assert table["columnDefinitions"] is None
    assert table["metadata"] == {"resourceVersion": "12746"}
    [row] = table["rows"]
    assert row["cells"] == ["", "pending", "<unknown>"]
    assert row["object"]["metadata"]["annotations"] == {as_table.INITIAL_EVENTS_END: "true"}


STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "<x>", "code": 404}


def test_an_error_is_written_as_negotiated_or_indented() -> None:
    compact = representation.status(rep(), STATUS)
    assert compact == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"\\u003cx\\u003e","code":404}\n'
    )
    assert representation.status(None, STATUS) == as_json.pretty(STATUS)
    assert yaml.safe_load(representation.status(rep("application/yaml"), STATUS)) == STATUS


def test_an_error_event_is_a_status_in_every_form() -> None:
    for accept in ("", TABLE, PARTIAL):
        assert json.loads(representation.error_frame(rep(accept), STATUS)) == {"type": "ERROR", "object": STATUS}


GOLDEN = pathlib.Path(__file__).resolve().parents[4] / "shared" / "differential" / "golden.json"


@pytest.mark.skipif(not GOLDEN.exists(), reason="the recording of a kube-apiserver is not here")
def test_errors_have_the_bytes_that_a_kube_apiserver_sent() -> None:
    scenarios = json.loads(GOLDEN.read_text())["scenarios"]
    steps = [s for name in ("bytes.json", "format.pretty") for s in scenarios[name] if "bytes" in s]
    assert steps
    for step in steps:
        form = negotiation.INDENTED if "pretty" in step["format"] else rep()
        assert representation.status(form, step["body"]).decode() == step["bytes"]
