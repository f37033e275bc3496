from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Query
from apiserver.listcache import group as groups
from apiserver.listcache.chunk import ListRange
from apiserver.listcache.encoding import EncodingCache, JoinedEncoding, Use
from apiserver.listcache.piece import LONG, MOST_JOINED, PORTION, FirstPiece, Piece, Pieces, Step, finished, text
from apiserver.schema.resource import Column, Object, Resource
from apiserver.watchcache.entry import NO_LABELS, Entry, Key, Revision
from apiserver.wire import as_json, negotiation
from apiserver.wire.forms import choice, media, partial, protobuf
from apiserver.wire.forms import form as forms
from apiserver.wire.forms.form import Form, ListMeta, NoFrame
from apiserver.wire.forms.protobuf import SHORT, Protobuf
from apiserver.wire.forms.syntax import Brackets, DocumentType, Text, fits_indented
from apiserver.wire.representation import Representation
from tests.fixtures import protobuf as messages
from tests.unit.wire.served import CLAIMS, CLASSES, KINDS, SLICES

NOW = 1_700_000_000.0
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
BARE = dataclasses.replace(CLASSES, columns=())


def rep(accept: str = "", query: str = "") -> Representation:
    return negotiation.negotiate(accept, Query(query), "")


def stored(name: str, **more: Any) -> bytes:
    metadata = {"name": name, "uid": "u", "resourceVersion": "7", "creationTimestamp": "2023-11-14T22:12:20Z", **more}
    return as_json.dumps({"metadata": metadata, "spec": {"selectors": [{"cel": {"expression": 'a<b && "é"'}}]}})


def form(
    accept: str = "",
    resource: Resource = CLASSES,
    *,
    query: str = "",
    now: float = NOW,
    cache: EncodingCache | None = None,
) -> Form:
    found = rep(accept, query)
    return choice.form(found, resource, query=Query(query), clock=lambda: now, cache=cache or EncodingCache())


def entry(body: bytes) -> Entry:
    return Entry(Key("a"), Revision(7), body, NO_LABELS, ())


def entries_of(bodies: Sequence[bytes]) -> list[Entry]:
    """Several objects: each at a revision of its own."""
    return [Entry(Key(f"o{at:04}"), Revision(7 + at), body, NO_LABELS, ()) for at, body in enumerate(bodies)]


def steps_of(pieces: Pieces) -> Iterator[Step[None]]:
    """Yield each step, then run it."""
    for piece in pieces:
        if isinstance(piece, Step):
            yield piece
            piece.run()


def sent(pieces: Pieces) -> bytes:
    return b"".join(map(text, finished(pieces)))


def single(accept: str, body: bytes, resource: Resource = CLASSES, *, query: str = "") -> bytes:
    return form(accept, resource, query=query).single(body)


def listed(
    accept: str,
    bodies: Sequence[bytes],
    resource: Resource = CLASSES,
    *,
    query: str = "",
    **more: Any,
) -> bytes:
    length, pieces, _ = form(accept, resource, query=query).listing(entries_of(bodies), ListMeta(9, **more))
    data = sent(pieces)
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
    bodies = [body] * 2000
    length, pieces, _ = form().listing(entries_of(bodies), ListMeta(9))
    parts = list(map(text, finished(pieces)))
    assert len(parts) > 10
    assert max(map(len, parts)) < PORTION + 2 * len(body)
    assert sum(map(len, parts)) == length
    assert len(json.loads(b"".join(parts))["items"]) == 2000


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_a_list_that_ends_with_a_piece_is_closed(extra: int) -> None:
    body = b'{"a":"%b"}' % (b"x" * (PORTION - 8 + extra))
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
        + partial.metadata_of(body)
        + b"}\n"
    )
    assert json.loads(partial.metadata_of(body)) == json.loads(body)["metadata"]
    both = json.loads(listed(PARTIALS.replace("v=v1", "v=v1beta1"), [body, body]))
    assert both["kind"] == "PartialObjectMetadataList"
    assert both["apiVersion"] == "meta.k8s.io/v1beta1"
    assert [(i["kind"], i["apiVersion"]) for i in both["items"]] == [
        ("PartialObjectMetadata", "meta.k8s.io/v1beta1")
    ] * 2


@pytest.mark.parametrize(
    "metadata",
    [
        b'{"name":"a"}',
        b'{"annotations":{"a":"},\\"spec\\":{"},"name":"a"}',
        b'{"managedFields":[{"fieldsV1":{"a":{},"spec":{"b":1}}}],"name":"a"}',
        b'{"a":{"b":"x"},"spec":"y"}',
        b"{}",
    ],
)
@pytest.mark.parametrize(
    "behind", [b"", b',"spec":{}', b',"spec":{"metadata":{"name":"b"},"spec":{}},"status":{}', b',"data":1,"spec":2']
)
@pytest.mark.parametrize("before", [b"", b'"kind":"K",'])
def test_metadata_ends_where_it_ends(before: bytes, metadata: bytes, behind: bytes) -> None:
    assert partial.metadata_of(b'{%b"metadata":%b%b}' % (before, metadata, behind)) == metadata


@pytest.mark.parametrize("metadata", [b'{"name":"a"}', rb'{"annotations":{"a":",\"spec\":"},"f":"\ud83d\ude00\u0000"}'])
def test_metadata_ends_where_it_ends_before_lone_surrogates(metadata: bytes) -> None:
    for behind in (rb',"spec":"\ud800"', rb',"data":["\uDFFF","\\ud800"]'):
        assert partial.metadata_of(b'{"metadata":%b%b}' % (metadata, behind)) == metadata


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
    assert json.loads(single(TABLE, body, query="includeObject=Object"))["rows"][0]["object"] == json.loads(
        single("", body)
    )
    assert json.loads(single(TABLE, body, query="includeObject=None"))["rows"][0]["object"] is None
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


@pytest.mark.parametrize("order", ["A", "AB", "BA", "BAB", "AA", "ABBAB", "BB"])
def test_ages_may_stand_in_any_column(order: str) -> None:
    age = Column(name="Age", cell=lambda obj, now: "", since=lambda obj: NOW - 5 if obj["metadata"] else None)
    name = Column(name="Name", cell=lambda obj, now: obj["metadata"]["name"] + ',"5s"')
    odd = dataclasses.replace(CLASSES, columns=tuple(age if c == "A" else name for c in order))
    for include in ("Metadata", "None", "Object"):
        row = json.loads(single(TABLE, stored("a"), odd, query=f"includeObject={include}"))["rows"][0]
        assert row["cells"] == ["5s" if c == "A" else 'a,"5s"' for c in order]


def test_an_unknown_age_is_a_cell_like_others() -> None:
    body = b'{"metadata":{"name":"a"},"spec":{}}'
    assert b'"cells":["a","\\u003cunknown\\u003e"]' in single(TABLE, body)


@pytest.mark.parametrize("include", ["Metadata", "None", "Object"])
def test_a_row_is_made_of_what_its_columns_read_and_is_the_same(include: str) -> None:
    def cell(obj: Object, now: float) -> Any:
        return obj["metadata"]["annotations"]["x"]

    query = f"includeObject={include}"
    body = stored("a", annotations={"x": "<y>"}, labels={"z": "w"})
    column = Column(name="X", cell=cell)
    of_all = dataclasses.replace(CLASSES, columns=(column,))
    of_some = dataclasses.replace(CLASSES, columns=(dataclasses.replace(column, reads=["metadata.annotations"]),))
    assert single(TABLE, body, of_some, query=query) == single(TABLE, body, of_all, query=query)
    rows = [listed(TABLE, [body, body], kind, query=query) for kind in (of_some, of_all)]
    assert rows[0] == rows[1]


def test_cells_may_be_any_json_value() -> None:
    def cell(obj: Object, now: float) -> Any:
        return [obj["metadata"]["name"], None, now, "<"]

    odd = dataclasses.replace(CLASSES, columns=(Column(name="X", cell=cell, type="array"),))
    assert b'"cells":[["a",null,1700000000.0,"\\u003c"]]' in single(TABLE, stored("a"), odd)


def _spoilt(obj: Object, _: float = 0) -> Any:
    match obj["metadata"]["name"]:
        case "bad":
            raise ZeroDivisionError
        case "odd":
            return object()
    return 7


@pytest.mark.parametrize("accept", [TABLE, TABLE.replace("json", "yaml", 1)])
@pytest.mark.parametrize("query", ["", "includeObject=None", "includeObject=Object"])
def test_a_cell_that_raises_is_an_error_in_its_row_alone(
    accept: str, query: str, caplog: pytest.LogCaptureFixture
) -> None:
    reads = ["metadata.name"]
    bad = Column(name="Bad", cell=_spoilt, reads=reads, type="integer")
    since = dataclasses.replace(bad, name="Since", since=_spoilt, type="date")
    kind = dataclasses.replace(CLASSES, columns=(CLASSES.columns[0], bad, since, CLASSES.columns[-1]))
    bodies = [stored("good"), stored("bad", namespace="ns"), stored("odd")]

    def rows(data: bytes) -> list[list[Any]]:
        return [row["cells"] for row in yaml.load(data, Loader=yaml.CBaseLoader)["rows"]]

    listing = rows(listed(accept, bodies, kind, query=query))
    assert [cells[:3] for cells in listing] == [
        ["good", "7", "53y"],
        ["bad", "<error>", "<error>"],
        ["odd", "<error>", "<error>"],
    ]
    assert [cells[-1] for cells in listing] == [listing[0][-1]] * 3
    assert rows(single(accept, bodies[1], kind, query=query))[0][:2] == ["bad", "<error>"]
    told = [(record.message, record.__dict__.get("column"), record.__dict__["key"]) for record in caplog.records]
    assert ("a cell of a table failed", "Bad", "ns/bad") in told
    assert "ZeroDivisionError" in str([record.__dict__["error"] for record in caplog.records])


def test_events_of_a_cell_that_raises_go_on() -> None:
    kind = dataclasses.replace(CLASSES, columns=(Column(name="Bad", cell=_spoilt, reads=["metadata.name"]),))
    event = json.loads(form(TABLE, kind).frame("ADDED", entry(stored("bad"))))
    assert event["object"]["rows"][0]["cells"] == ["<error>"]


@pytest.mark.parametrize(
    ("query", "include"),
    [
        ("", "PartialObjectMetadata"),
        ("includeObject=", "PartialObjectMetadata"),
        ("includeObject=None", None),
        ("includeObject=Object", "DeviceClass"),
    ],
)
def test_include_object_is_read_from_the_query(query: str, include: str | None) -> None:
    kind = json.loads(single(TABLE, stored("a"), query=query))["rows"][0]["object"]
    assert (kind and kind["kind"]) == include


def test_malformed_include_object_is_400_for_tables_only() -> None:
    with pytest.raises(StatusError) as refused:
        form(TABLE, query="includeObject=none")
    assert (refused.value.code, refused.value.message) == (
        400,
        "Unable to convert to Table as requested: includeObject: Invalid value: \"none\": must be 'Metadata', 'Object', 'None', or empty",
    )
    body = stored("a")
    for accept in ("", PARTIAL):
        assert single(accept, body, query="includeObject=none") == single(accept, body)


def framed(accept: str, body: bytes, event: str = "ADDED", *, first: bool = True) -> bytes:
    return form(accept).frame(event, entry(body), first=first)


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
    with pytest.raises(NoFrame):
        framed(PARTIALS, stored("a"))


def bookmark(
    accept: str, resource: Resource, *, marker: bool = False, first: bool = False, include: str = "Metadata"
) -> Any:
    query = f"includeObject={include}"
    frame = form(accept, resource, query=query).bookmark(12746, marker=marker, first=first)
    assert frame.endswith(b"}\n")
    return json.loads(frame)


def test_a_bookmark_is_the_zero_object_with_a_version() -> None:
    frame = form("", SLICES).bookmark(12746, marker=False)
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
    assert row["object"]["metadata"]["annotations"] == {forms.INITIAL_EVENTS_END: "true"}


STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "<x>", "code": 404}


def test_an_error_is_written_as_negotiated_or_indented() -> None:
    compact = forms.status(rep(), STATUS).run()
    assert compact == (
        b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"\\u003cx\\u003e","code":404}\n'
    )
    assert forms.status(negotiation.INDENTED, STATUS).run() == as_json.pretty(STATUS)
    assert yaml.safe_load(forms.status(rep("application/yaml"), STATUS).run()) == STATUS


def test_an_error_event_is_a_status_in_every_form() -> None:
    for accept in ("", TABLE, PARTIAL):
        assert json.loads(form(accept).error(STATUS)) == {"type": "ERROR", "object": STATUS}


ALL = [
    (accept, query)
    for accept in ("application/json", "application/yaml", TABLE, PARTIALS, TABLE.replace("json", "yaml", 1))
    for query in ("", "pretty=1")
]


@pytest.mark.parametrize(("accept", "query"), ALL)
def test_a_list_is_the_same_when_its_elements_are_remembered(accept: str, query: str) -> None:
    cache = EncodingCache()
    entries = entries_of([stored(f"o{i}", labels={"a": "é<"}) for i in range(70)])

    def listing() -> bytes:
        asked = form(accept, query=query, cache=cache).listing(entries, ListMeta(9))
        return sent(asked.pieces)

    first, held = listing(), cache.size
    assert listing() == first
    assert cache.size == held


def test_cached_row_shows_the_current_age() -> None:
    cache, one = EncodingCache(), entry(stored("a"))
    for now, age in ((NOW, "60s"), (NOW + 600, "11m")):
        pieces = form(TABLE, now=now, cache=cache).listing([one], ListMeta(9)).pieces
        assert json.loads(sent(pieces))["rows"][0]["cells"] == ["a", age]
    group = groups.group_of(one)
    assert group is not None
    assert len(group) == 2, "the row, and what it looked like last"


def test_two_versions_of_a_kind_and_two_forms_never_share_a_cache_entry() -> None:
    other = dataclasses.replace(CLASSES, version="v1beta1")
    elsewhere = dataclasses.replace(CLASSES, group="other.example.com")
    accepts = ["", "application/yaml", TABLE, PARTIAL, PARTIALS, TABLE.replace("v=v1", "v=v1beta1")]
    made = [form(accept, resource) for accept in accepts for resource in (CLASSES, other, elsewhere)]
    made += [form(TABLE, query=f"includeObject={what}") for what in ("None", "Object")]
    made += [form("", query="pretty=1")]
    assert len({one.key for one in made}) == len(made)
    assert form(TABLE).key is form(TABLE).key


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", TABLE, PARTIAL])
@pytest.mark.parametrize("query", ["", "pretty=1"])
def test_slow_object_is_encoded_in_a_thread_and_alone_in_a_list(accept: str, query: str) -> None:
    small, large = stored("a"), stored("b", annotations={"x": "y" * (3 << 20)})
    asked = form(accept, query=query)
    assert not asked.heavy(len(small))
    assert asked.heavy(len(large))
    verbatim = (accept, query) == ("application/json", "")
    if verbatim:
        assert not asked.heavy(1 << 20)  # a copy takes half a millisecond
    if accept == PARTIAL or verbatim:
        return
    _, pieces, _ = asked.listing(entries_of([small, small, large, small]), ListMeta(9))
    heavy = [step.heavy for step in steps_of(pieces)]
    # The borders of groups depend on the hash of keys: the small ones before it may be two pieces.
    assert [each for each, _ in itertools.groupby(heavy)] == [False, True, False]
    assert heavy.count(True) == 1


@pytest.mark.parametrize(("accept", "query"), ALL)
def test_no_piece_of_a_list_is_made_of_more_than_a_step_allows(
    accept: str, query: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = form(accept, query=query)
    entries = entries_of([stored(f"o{i}", annotations={"x": "y" * (i % 40) * 97}) for i in range(600)])
    seen: list[list[Entry]] = []
    made = asked.encodings_of

    def watched(several: Sequence[Entry]) -> Sequence[Any]:
        seen[-1] += several
        return made(several)

    monkeypatch.setattr(asked, "encodings_of", watched)
    for _ in steps_of(asked.listing(entries, ListMeta(9)).pieces):
        seen.append([])  # noqa: PERF401 - the step that follows fills it
    verbatim = (accept, query) == ("application/json", "")
    assert [one for taken in seen for one in taken] == ([] if verbatim else entries)
    for taken in filter(None, seen):
        assert len(taken) <= groups.MOST
        assert len(taken) == 1 or sum(len(one.body) for one in taken) <= asked.reach


def nested(levels: int, times: int = 1) -> bytes:
    return b"[" + b",".join([b"[" * levels + b'"[[[["' + b"]" * levels] * times) + b"]"


@pytest.mark.parametrize(
    "value", [nested(100), nested(1500), nested(5000), nested(50, 6000), b"[" + b"{}," * 9000 + b'"]]]"]']
)
def test_deep_object_is_not_blown_up_by_indentation(value: bytes) -> None:
    body = stored("a")[:-1] + b',"x":%b}' % value
    for accept, query in (("", "pretty=1"), ("application/yaml", "")):
        for shown in (single(accept, body, query=query), listed(accept, [body, body], query=query)):
            assert len(shown) < 3 * len(body) + (32 << 20)
            assert shown.count(b'"[[[["') in (body.count(b'"[[[["'), 2 * body.count(b'"[[[["')) or accept
    if value != nested(1500):  # how deep one may read is for the Python to say
        assert (b"\n" in single("", body, query="pretty=1")) is fits_indented(body)


UNREADABLE = {
    "no JSON": b'{"metadata":',
    "another shape": b'{"metadata":{"name":"a","annotations":7},"spec":[]}',
    "no metadata": b'{"spec":{}}',
    "too deep": stored("a")[:-1] + b',"x":%b}' % nested(100_000),  # Python 3.13 lets C code go 10,000 levels deep
}


@pytest.mark.parametrize("why", UNREADABLE)
@pytest.mark.parametrize("accept", [TABLE, PARTIALS, TABLE.replace("json", "yaml", 1)])
def test_an_object_that_cannot_be_read_hides_no_other_and_is_named(
    accept: str, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad = Entry(Key("ns/bad"), Revision(8), UNREADABLE[why], NO_LABELS, ())
    entries = [entry(stored("before")), bad, entry(stored("behind"))]
    data = sent(form(accept, SLICES).listing(entries, ListMeta(9)).pieces)
    value = yaml.load(data, Loader=yaml.CBaseLoader)
    shown = [row["object"] for row in value["rows"]] if "Table" in accept else value["items"]
    assert [shown[0]["metadata"]["name"], shown[2]["metadata"]["name"]] == ["before", "behind"]
    assert shown[1]["metadata"].get("name", "bad") in ("a", "bad")
    if accept != PARTIALS or why not in ("another shape", "too deep"):  # the metadata of those can be read
        assert shown[1]["metadata"] == {"name": "bad", "namespace": "ns", "resourceVersion": "8"}
        assert [record.__dict__["key"] for record in caplog.records] == ["ns/bad"]


def test_a_frame_of_an_object_that_cannot_be_read_says_its_name() -> None:
    bad = Entry(Key("bad"), Revision(8), UNREADABLE["too deep"], NO_LABELS, ())
    event = json.loads(form(TABLE).frame("DELETED", bad))
    assert event["type"] == "DELETED"
    assert event["object"]["rows"][0]["object"]["metadata"] == {"name": "bad", "resourceVersion": "8"}


def test_brackets_in_texts_are_no_levels() -> None:
    body = stored("a", annotations={"x": '[{\\"' * 5000, "y": "," * 5000})
    assert b"\n" in single("", body, query="pretty=1")


class Lines(Text):
    """A syntax as another file would add it: each document a line that begins with its kind."""

    step, costly, separator = 1 << 20, True, b""

    def document(self, type_: DocumentType, members: bytes) -> bytes:
        return type_.kind.encode() + b" " + members + b"\n"

    def element(self, type_: DocumentType, members: bytes) -> bytes:
        return members + b"\n"

    def brackets(self, type_: DocumentType, members: bytes, name: str) -> Brackets:
        head = self.document(type_, members)
        return Brackets(head, b"", head, head)


def test_a_syntax_is_a_class_and_a_line_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "_SYNTAXES", {**media._SYNTAXES, ("text/lines", False): Lines()})
    lines = Representation("text/lines")
    asked = choice.form(lines, CLASSES, query=Query(""), clock=lambda: NOW, cache=EncodingCache())
    body = stored("a")
    assert asked.single(body) == b"DeviceClass " + body + b"\n"
    data = sent(asked.listing(entries_of([body, body]), ListMeta(9)).pieces)
    assert data == b'DeviceClassList {"metadata":{"resourceVersion":"9"}}\n' + (body + b"\n") * 2


MEMORY = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class Counted(JoinedEncoding):
    """JoinedEncoding that are known for as long as they are in memory."""

    __slots__ = ("__weakref__",)

    def __init__(self, parts: Sequence[bytes], separator: bytes, there: weakref.WeakSet[Counted]) -> None:
        super().__init__(parts, separator)
        there.add(self)


def pieces_of(asked: Form, entries: Sequence[Entry]) -> list[bytes]:
    length, pieces, _ = asked.listing(entries, ListMeta(9))
    assert length is None
    return list(map(text, finished(pieces)))


def test_a_list_in_protobuf_is_an_envelope_of_its_length() -> None:
    data = b"".join(pieces_of(form(PROTOBUF), entries_of([stored(f"o{i}") for i in range(20)])))
    _, kind, message = messages.opened(data)
    assert kind == "DeviceClassList"
    assert len(messages.messages(message, 2)) == 20


def test_long_protobuf_list_starts_before_its_objects_are_encoded() -> None:
    cache = EncodingCache()
    entries = entries_of([stored(f"o{i}", annotations={"x": "y" * 20}) for i in range(2200)])
    made = map(text, finished(form(PROTOBUF, cache=cache).listing(entries, ListMeta(9)).pieces))
    first = next(part for part in made if part)
    assert first.startswith(b"k8s\0")
    assert b"DeviceClassList" in first
    assert not cache.uses[Use.OBJECT_MADE]
    assert len(messages.messages(messages.opened(first + b"".join(made))[2], 2)) == 2200


@pytest.mark.parametrize("accept", ["application/json", PROTOBUF, MEMORY, TABLE])
def test_step_of_a_compressed_list_takes_few_sections_of_any_size(accept: str) -> None:
    cache = EncodingCache()
    entries = entries_of([stored(f"o{i:05}") for i in range(3 * MOST_JOINED * groups.MOST)])

    def parts() -> list[bytes | Piece]:
        return list(finished(form(accept, cache=cache).listing(entries, ListMeta(9), compressed=True).pieces))

    for part in parts():
        if not isinstance(part, bytes):
            list(part.compressed())
    again = [len(list(part.compressed())) for part in parts() if not isinstance(part, bytes)]

    assert MOST_JOINED <= max(again) <= 2 * MOST_JOINED


SPECS: dict[str, Any] = {"resourceclaims": {"devices": {}}, "resourceclaimtemplates": {"spec": {"devices": {}}}}


def smallest(name: str = "a", plural: str = "") -> bytes:
    """As little as an object can be that was stored at all."""
    metadata = {"name": name, "uid": "0" * 36, "resourceVersion": "1", "creationTimestamp": "1970-01-01T00:00:00Z"}
    return as_json.dumps({"metadata": metadata, "spec": SPECS.get(plural, {})})


@pytest.mark.parametrize("resource", [*KINDS, BARE], ids=lambda one: f"{one.plural}.{one.version}")
def test_no_object_is_shown_in_less_than_its_form_counts_with(resource: Resource) -> None:
    for media_type, kind, version in itertools.product(
        ("application/json", "application/yaml", PROTOBUF),
        ("", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"),
        ("v1", "v1beta1"),
    ):
        if (media_type, kind) == (PROTOBUF, "Table"):
            continue
        accept = f"{media_type};as={kind};g=meta.k8s.io;v={version}" if kind else media_type
        for query in ("", "pretty=1", *(f"includeObject={what}" for what in ("None", "Metadata", "Object"))):
            asked = form(accept, resource, query=query, now=1)
            element = asked.element(entry(smallest(plural=resource.plural)))
            assert len(element) >= asked.least > 25, (accept, query)


@pytest.mark.parametrize("media_type", ["application/json", "application/yaml"])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_list_of_rows_alone_is_certain_to_be_long_only_when_it_is(media_type: str, version: str) -> None:
    accept = f"{media_type};as=Table;g=meta.k8s.io;v={version}"
    entries = entries_of([smallest(f"{at:x}") for at in range(5000)])
    asked = form(accept, query="includeObject=None", now=1)
    for count in (2049, 2200, 3000, 5000):
        _, pieces, large = asked.listing(entries[:count], ListMeta(9))
        long = len(sent(pieces)) > LONG
        assert large <= long
        assert long == (count > 3000)
    assert large


def test_shorter_protobuf_list_starts_once_it_is_certainly_long() -> None:
    cache = EncodingCache()
    entries = entries_of([stored(f"o{i}", annotations={"x": "y" * 2000}) for i in range(600)])
    made = finished(form(PROTOBUF, cache=cache).listing(entries, ListMeta(9)).pieces)
    first = next(part for part in made if part)
    assert isinstance(first, FirstPiece)
    assert b"DeviceClassList" in first.data
    assert cache.uses[Use.OBJECT_MADE] < 200
    whole = first.data + b"".join(map(text, made))
    assert len(messages.messages(messages.opened(whole)[2], 2)) == 600

    again = list(finished(form(PROTOBUF, cache=cache).listing(entries, ListMeta(9)).pieces))
    assert b"".join(map(text, again)) == whole
    assert not any(isinstance(part, FirstPiece) for part in again), "nothing had to be made"


@pytest.mark.parametrize("budget", [64 << 20, 1 << 20, 0])
def test_a_long_list_in_protobuf_is_the_same_whatever_is_remembered(budget: int) -> None:
    entries = entries_of([stored(f"o{i}", annotations={"x": "y" * (i % 7) * 1000}) for i in range(600)])
    cache = EncodingCache(budget)
    asked = form(PROTOBUF, cache=cache)

    first, second = pieces_of(asked, entries), pieces_of(asked, entries)

    assert b"".join(first) == b"".join(second)
    _, _, message = messages.opened(b"".join(first))
    singles = [messages.opened(single(PROTOBUF, one.body))[2] for one in entries]
    assert messages.messages(message, 2) == singles
    assert max(map(len, first)) <= PORTION + groups.MOST_BYTES
    assert cache.size <= budget


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("budget", [1 << 20, 0])
def test_a_long_list_in_protobuf_is_never_in_memory_as_a_whole(
    budget: int, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = weakref.WeakSet[Counted]()
    monkeypatch.setattr(Protobuf, "joined", lambda self, parts: Counted(parts, b"", there))
    entries = entries_of([stored(f"o{i}", annotations={"x": "y" * 2000}) for i in range(1200)])
    pieces = form(PROTOBUF, cache=EncodingCache(budget)).listing(entries, ListMeta(9), compressed=compressed).pieces
    most = 0
    for piece in finished(pieces):
        text(piece)
        most = max(most, sum(one.size for one in there))

    assert most <= budget + SHORT + 2 * groups.MOST_BYTES


def test_long_list_does_not_hold_encodings_that_the_cache_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    there, cache = weakref.WeakSet[Counted](), EncodingCache()
    monkeypatch.setattr(Protobuf, "joined", lambda self, parts: Counted(parts, b"", there))
    monkeypatch.setattr(protobuf, "LONGEST_HELD", 512 << 10)
    entries = entries_of([stored(f"o{i}", annotations={"x": "y" * 2000}) for i in range(1200)])
    pieces = form(PROTOBUF, cache=cache).listing(entries, ListMeta(9)).pieces
    while sum(one.size for one in there) < 2 << 20:
        piece = next(pieces)
        if isinstance(piece, Step):
            piece.run()
    for group in map(groups.group_of, entries):
        if group is not None:
            group.forget()

    assert sum(one.size for one in there) <= (512 << 10) + SHORT + 2 * groups.MOST_BYTES
    assert sum(map(len, map(text, finished(pieces)))) > 2 << 20


@pytest.mark.parametrize("accept", [PROTOBUF, MEMORY])
def test_an_element_in_protobuf_is_made_once_for_lists_and_watches(accept: str) -> None:
    cache, one = EncodingCache(), entry(stored("a"))
    asked = form(accept.replace("List", ""), cache=cache)
    frame = sent(asked.initial([one], ListRange(9), first=True))
    group = groups.group_of(one)
    assert group is not None
    (held,) = group.values()
    assert messages.frames(frame)[0][1] == asked.single(one.body)
    assert messages.opened(asked.single(one.body))[2] in held.text
    size = cache.size
    assert sent(asked.initial([one], ListRange(9), first=True)) == frame == asked.frame("ADDED", one)
    assert messages.frames(asked.frame("MODIFIED", one)) == [("MODIFIED", asked.single(one.body))]
    assert cache.size == size


@pytest.mark.parametrize("accept", ["", TABLE, PARTIAL, PARTIALS, "application/yaml", PROTOBUF, MEMORY])
@pytest.mark.parametrize("resource", [CLASSES, SLICES])
def test_encoding_cached_by_lists_is_what_a_get_answers(accept: str, resource: Resource) -> None:
    asked, one = form(accept, resource), entry(stored("a"))
    assert asked.cached_document(one) is None
    if accept != PARTIAL:  # partial metadata has no lists
        sent(asked.listing([one], ListMeta(9)).pieces)
    answer = asked.cached_document(one)
    assert answer is None or answer == asked.single(one.body)
    assert (answer is not None) == (accept == PROTOBUF)


def test_get_of_partial_metadata_in_protobuf_uses_the_watch_cache() -> None:
    asked, one = form(MEMORY.replace("List", "")), entry(stored("a"))
    sent(asked.initial([one], ListRange(9), first=True))
    assert asked.cached_document(one) == asked.single(one.body)


def test_large_protobuf_objects_use_a_thread_until_they_are_cached() -> None:
    asked = form(PROTOBUF)
    entries = entries_of([stored("a"), stored("b", annotations={"x": "y" * (1 << 20)}), stored("c")])
    assert asked.heavy(entries[1].size)
    pieces = asked.listing(entries, ListMeta(9)).pieces
    heavy = [step.heavy for step in steps_of(pieces)]
    # Found out how long they are one after the other, then sent.
    assert heavy == [False, True, False]


def test_an_object_that_cannot_be_read_hides_no_other_in_protobuf(caplog: pytest.LogCaptureFixture) -> None:
    bad = Entry(Key("ns/bad"), Revision(8), b'{"metadata":{"name":5}}', NO_LABELS, ())
    data = b"".join(pieces_of(form(PROTOBUF), [entry(stored("before")), bad, entry(stored("behind"))]))
    shown = messages.messages(messages.opened(data)[2], 2)
    assert [messages.inside(one, 1, 1) for one in shown] == [b"before", b"bad", b"behind"]
    assert {record.__dict__["key"] for record in caplog.records} == {"ns/bad"}


@pytest.mark.parametrize("accept", [PROTOBUF, f"{PROTOBUF};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"])
def test_a_bookmark_in_protobuf_is_the_zero_object(accept: str) -> None:
    ((kind, document),) = messages.frames(form(accept).bookmark(70000, marker=True))
    assert kind == "BOOKMARK"
    _, _, message = messages.opened(document)
    assert messages.inside(message, 1, 6) == b"70000"
    assert messages.inside(message, 1, 12) == messages.field(1, b"k8s.io/initial-events-end") + messages.field(
        2, b"true"
    )


GOLDEN = pathlib.Path(__file__).resolve().parents[4] / "shared" / "differential" / "golden.json"


@pytest.mark.skipif(not GOLDEN.exists(), reason="the recording of a kube-apiserver is not here")
def test_errors_have_the_bytes_that_a_kube_apiserver_sent() -> None:
    scenarios = json.loads(GOLDEN.read_text())["scenarios"]
    steps = [s for name in ("bytes.json", "format.pretty") for s in scenarios[name] if "bytes" in s]
    assert steps
    for step in steps:
        chosen = negotiation.INDENTED if "pretty" in step["format"] else rep()
        assert forms.status(chosen, step["body"]).run().decode() == step["bytes"]
