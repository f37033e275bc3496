from __future__ import annotations

import contextlib
from typing import Any

import pytest

from apiserver.apimachinery.errors import StatusError
from apiserver.apimachinery.request import Query
from apiserver.wire import negotiation
from apiserver.wire.negotiation import JSON, YAML
from apiserver.wire.representation import Representation, Target
from tests.fixtures.cases import each_case
from tests.fixtures.cpu import Spent
from tests.unit.wire import recorded

NOTHING = Query("")
ONLY = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
STREAMS = "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"


def negotiated(accept: str, *, watch: bool = False, **how: Any) -> Representation:
    found = negotiation.negotiate(accept, NOTHING, "", **how)
    return negotiation.streamed(found) if watch else found


def form(accept: str, **how: Any) -> tuple[str, bool, Target | None]:
    found = negotiated(accept, **how)
    return found.media, found.pretty, found.target


def refused(accept: str, **how: Any) -> str:
    with pytest.raises(StatusError) as refusal:
        negotiated(accept, **how)
    assert (refusal.value.code, refusal.value.reason, refusal.value.details) == (406, "NotAcceptable", None)
    return refusal.value.message


@each_case("case", recorded.cases("go_accept.jsonl"), ids=lambda c: c["accept"])
def test_clauses_are_parsed_and_ordered_as_upstream_does(case: dict[str, Any]) -> None:
    def shown(clause: negotiation._Clause) -> str:
        parameters = " ".join(f"{k}:{v}" for k, v in sorted(clause.parameters.items()))
        return f"{clause.kind}|{clause.subkind}|map[{parameters}]"

    assert [shown(c) for c in negotiation._clauses(case["accept"])] == case["clauses"]


@pytest.mark.parametrize(
    "accept",
    [
        "",
        JSON,
        "*/*",
        "application/*",
        "*",
        f"{JSON}, {PROTOBUF}",
        f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1, */*",
        f"{PROTOBUF};q=0.9, */*;q=0.9, {JSON}",
        f"text/html, {JSON};q=0",
        f"{JSON};export=1;profile=x;foo=bar",
        f"{JSON};stream=watch",
        f"{JSON};sv=v1",
    ],
)
def test_json_is_the_answer_to_nearly_everything(accept: str) -> None:
    assert form(accept) == (JSON, False, None)


@pytest.mark.parametrize(
    "accept",
    [
        PROTOBUF,
        f"{PROTOBUF}, */*",
        f"{PROTOBUF},{JSON}",
        f"{JSON};q=0.9,{PROTOBUF}",
        f"{PROTOBUF};stream=watch",
        f"{PROTOBUF};sv=v1;pretty=1",
        f"text/html,{PROTOBUF};q=0",
    ],
)
def test_protobuf_is_the_answer_to_clients_that_prefer_it(accept: str) -> None:
    assert form(accept) == (PROTOBUF, False, None)
    assert form(accept, watch=True) == (PROTOBUF, False, None)


def test_the_first_acceptable_clause_wins_by_its_weight() -> None:
    assert form(f"{YAML},{JSON}")[0] == YAML
    assert form(f"{YAML};q=0.5,{JSON}")[0] == JSON
    assert form(f"*/*,{YAML}")[0] == YAML
    assert form(f"{YAML};q=nonsense,{JSON};q=0.5")[0] == JSON


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "APPLICATION/JSON",
        "application/xml;q=1",
        "application/vnd.kubernetes.PROTOBUF",
        "json",
        f"{JSON};stream=other",
        f"{YAML};stream=watch",
        f"{JSON};sv=v2",
        f"{JSON};as=Table",
        f"{JSON};g=meta.k8s.io;v=v1",
        f"{JSON};as=Table;g=meta.k8s.io;v=v2",
        f"{JSON};as=Table;g=other;v=v1",
        f"{JSON};as=Foo;g=meta.k8s.io;v=v1",
        f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1",
    ],
)
def test_form_that_cannot_be_written_is_406(accept: str) -> None:
    assert refused(accept) == ONLY


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("kind", ["Table", "PartialObjectMetadata", "PartialObjectMetadataList"])
@pytest.mark.parametrize("media", [JSON, YAML, PROTOBUF])
def test_an_object_can_be_asked_for_as_a_kind_of_meta(media: str, kind: str, version: str) -> None:
    accept = f"{media};as={kind};v={version};g=meta.k8s.io"
    if (media, kind) == (PROTOBUF, "Table"):
        assert refused(accept) == ONLY
    else:
        assert form(accept) == (media, False, Target(kind, version))


def test_kubectl_gets_a_table_and_its_errors_are_plain() -> None:
    accept = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
    assert form(accept) == (JSON, False, Target("Table", "v1"))
    error = negotiation.for_error(accept, NOTHING, "")
    assert error is not None
    assert (error.media, error.pretty, error.target) == (JSON, False, None)


def test_a_status_endpoint_has_no_table() -> None:
    assert refused(TABLE, tables=False) == ONLY
    assert form(f"{TABLE},{JSON}", tables=False) == (JSON, False, None)
    assert form(TABLE.replace("Table", "PartialObjectMetadata"), tables=False)[2] == Target(
        "PartialObjectMetadata", "v1"
    )


def test_an_error_that_nothing_acceptable_can_carry_falls_back() -> None:
    assert negotiation.for_error(TABLE, NOTHING, "") is None
    assert negotiation.for_error("text/html", NOTHING, "") is None
    assert negotiation.for_error(f"{JSON};sv=v1", NOTHING, "") is None
    assert (negotiation.INDENTED.media, negotiation.INDENTED.pretty) == (JSON, True)


def test_a_watch_does_not_look_for_a_second_choice() -> None:
    assert refused(YAML, watch=True) == STREAMS
    assert refused(f"{YAML},{JSON}", watch=True) == STREAMS
    assert refused("text/html", watch=True) == ONLY
    assert refused(f"{JSON};as=Table;g=meta.k8s.io;v=v2", watch=True) == ONLY


def test_a_watch_is_never_pretty() -> None:
    found = negotiation.streamed(negotiation.negotiate(f"{JSON};pretty=1", Query("pretty=1"), "curl/8"))
    assert not found.pretty
    assert found is negotiation.negotiate("", NOTHING, "")


@pytest.mark.parametrize(
    ("accept", "query", "user_agent", "pretty"),
    [
        ("", "pretty=true", "", True),
        ("", "pretty=1", "", True),
        ("", "pretty=t", "", True),
        ("", "pretty=TRUE", "", True),
        ("", "pretty=yes", "", False),
        ("", "pretty=false", "", False),
        ("", "pretty=", "", False),
        ("", "", "", False),
        ("", "", "curl/8.0", True),
        ("", "", "Wget/1.0", True),
        ("", "", "Mozilla/5.0 (X11)", True),
        ("", "", "Mozilla/4.0", False),
        ("", "", "kubectl/v1.36", False),
        ("", "", "Curl/8", False),
        ("", "pretty=false", "curl/8.0", False),
        ("", "pretty=x", "curl/8.0", False),
        ("", "pretty=", "curl/8.0", True),
        (f"{JSON};pretty=1", "", "", True),
        (f"{JSON};pretty=1", "pretty=false", "", True),
        (f"{JSON};pretty=0", "", "", False),
        (f"{JSON};pretty=true", "", "", False),
        (YAML, "pretty=true", "curl", False),
        (TABLE, "pretty=1", "", True),
    ],
)
def test_indented_answers_depend_on_query_and_user_agent(
    accept: str, query: str, user_agent: str, pretty: bool
) -> None:
    assert negotiation.negotiate(accept, Query(query), user_agent).pretty is pretty


def test_each_form_exists_once() -> None:
    assert negotiation.negotiate(TABLE, NOTHING, "") is negotiation.negotiate(TABLE + ";q=0.9", NOTHING, "x")
    assert negotiation.negotiate(JSON, Query("pretty=1"), "") is negotiation.INDENTED


@pytest.mark.parametrize("accept", ["", "*/*", JSON, YAML, PROTOBUF, f"text/html, {JSON};as=Table;g=x", " */* ;q=0.1"])
def test_the_router_lets_pass_what_names_a_produced_type(accept: str) -> None:
    negotiation.check_route(accept, watchable=False)


@pytest.mark.parametrize(
    "accept", ["application/*", "*", "APPLICATION/JSON", "text/html", f"{JSON}+x", "application/jsonx"]
)
def test_the_router_refuses_everything_else_letter_by_letter(accept: str) -> None:
    with pytest.raises(StatusError) as refusal:
        negotiation.check_route(accept, watchable=False)
    assert refusal.value.message == (
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"
    )
    assert refusal.value.details == {}
    with pytest.raises(StatusError) as refusal:
        negotiation.check_route(accept, watchable=True)
    assert refusal.value.message.endswith(
        ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
    )


# ---------------------------------------------------------------------------------------------------------------- long headers


@pytest.mark.parametrize(
    "accept",
    [
        "*," * 400_000 + "a/b," * 100_000,
        "a/b;q=0.1," * 100_000,
        "application/json;" + "a=b;" * 250_000,
        "," * 1_000_000,
        ";" * 1_000_000,
        " " * 1_000_000 + JSON,
        f"{JSON};q=" + "9" * 1_000_000,
        "*/*;q=0.5," * 400,
    ],
    ids=lambda accept: accept[:12],
)
def test_header_of_any_length_costs_little_and_is_not_kept(accept: str) -> None:
    with Spent() as spent:
        read = negotiation.readable(accept)
        negotiation.for_error(read, NOTHING, "")
        with contextlib.suppress(StatusError):
            negotiation.check_route(read, watchable=True)
    assert spent.below(0.05)
    assert len(read) <= negotiation.READ
    kept = negotiation._remembered_winner.cache_info().currsize
    negotiation.for_error("a/b," * 300 + JSON, NOTHING, "")
    assert negotiation._remembered_winner.cache_info().currsize == kept


def test_clauses_are_read_up_to_the_header_limit_and_none_beyond() -> None:
    assert form(negotiation.readable(YAML + "," + "a/b," * 10_000))[0] == YAML
    assert form(negotiation.readable(JSON)) == (JSON, False, None)
    refused(negotiation.readable("a/b," * 10_000 + JSON))
    refused(negotiation.readable(f"{JSON};a=" + "b" * 10_000))


def test_best_quality_of_very_many_clauses_wins() -> None:
    assert form("a/b;q=0.9," * 20 + f"{JSON};q=0.1," + f"{YAML};q=0.2")[0] == YAML
