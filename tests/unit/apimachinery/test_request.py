"""Parts of a request: the query as Go reads it, and the budget of warnings."""

import pytest

from apiserver.apimachinery import request
from apiserver.apimachinery.errors import GroupResource
from apiserver.apimachinery.request import Annotations, Level, Query, RequestInfo, User, Warnings


@pytest.mark.parametrize(
    ("raw", "pairs"),
    [
        ("", {}),
        ("&&", {}),
        ("a", {"a": [""]}),
        ("a=", {"a": [""]}),
        ("=a&a=b", {"a": ["b"]}),
        ("a=1&b=2&a=3", {"a": ["1", "3"], "b": ["2"]}),
        ("a=b=c", {"a": ["b=c"]}),
        ("a=c+d&a+b=e", {"a": ["c d"]}),
        ("%62%43=1&%41%=2&%4=3&%4g=4&%c3%a9=5&a%00=6", {"bC": ["1"]}),
        ("a=%2B+%20", {"a": ["+  "]}),
        ("%61=%C3%A9", {"a": ["é"]}),
        ("a=é", {"a": ["é"]}),
        ("a=1;b=2&c=3", {"c": ["3"]}),
        ("a=%&b=%4&c=%zz&d=4", {"d": ["4"]}),
        ("a=%%41&b=%41%&c=%=&d=%414%4", {}),
        ("a=%zz&a=%41&a=%", {"a": ["A"]}),
        ("%=1&a=2", {"a": ["2"]}),
        ("a=%25zz", {"a": ["%zz"]}),
        ("a=%FF", {"a": ["\ufffd"]}),
        ("a=\udcff", {"a": ["\ufffd"]}),
        ("a=\udcff%41", {"a": ["\ufffdA"]}),
        ("a=%00", {"a": ["\x00"]}),
        ("%61=1&a%=2&a=3&%26=4&%2%36=5&a%26b=6&%3D=7&a%3D=8&%=9&b=10&a%3=11", {"a": ["1", "3"], "b": ["10"]}),
        ("a%=1", {}),
        ("%%26=1&a%%=2&%61=3", {"a": ["3"]}),
    ],
)
def test_a_query_is_read_as_go_reads_it(raw: str, pairs: dict[str, list[str]]) -> None:
    query = Query(raw)
    assert {name: list(query.all(name)) for name in {*"abcd", "A", "", *pairs} if name in query} == pairs


def test_first_text_and_presence_distinguish_absent_from_empty() -> None:
    query = Query("a=1&a=2&b=")
    assert (query.first("a"), query.first("b"), query.first("c")) == ("1", "", None)
    assert (query.text("a"), query.text("b"), query.text("c")) == ("1", "", "")
    assert "b" in query
    assert "c" not in query
    assert list(query.all("c")) == []


def test_a_query_of_too_many_parameters_is_read_as_empty() -> None:
    assert "a" in Query("a&" * 9_999)
    assert "a" not in Query("a&" * 10_000)


def test_queries_that_say_the_same_are_one_unless_they_are_long() -> None:
    assert request.query_of("") is request.NO_QUERY
    assert request.query_of("fieldManager=m") is request.query_of("fieldManager=m")
    for long in ("a=" + "b" * 1000, "labelSelector=" + "a," * 20 + "b", "labelSelector=" + "a%2C" * 20 + "b"):
        assert request.query_of(long) is not request.query_of(long)


def test_warnings_become_headers_in_their_order_and_once() -> None:
    warnings = Warnings()
    for text in ('unknown field "spec.x"', "a\\b", 'unknown field "spec.x"', "", "ü"):
        warnings.add(text)
    assert warnings.headers() == ['299 - "unknown field \\"spec.x\\""', '299 - "a\\\\b"', '299 - "ü"']


@pytest.mark.parametrize("text", ["a\nb", "\x00", "\x7f", "\x85", "\udcff"])
def test_a_text_that_no_header_can_carry_is_dropped(text: str) -> None:
    warnings = Warnings()
    warnings.add(text)
    assert warnings.headers() == []


def lengths(*sizes: int) -> list[int]:
    """Lengths of the warnings that are sent, for warnings of these sizes."""
    warnings = Warnings()
    for i, size in enumerate(sizes):
        warnings.add(f"{i:03d}".ljust(size, "x"))
    return [len(header) - len('299 - ""') for header in warnings.headers()]


def test_warnings_within_the_budget_are_sent_whole() -> None:
    assert lengths(4000, 96) == [4000, 96]


def test_beyond_the_budget_all_warnings_are_cut() -> None:
    assert lengths(4000, 97) == [256, 97]
    assert lengths(5000) == [256]


def test_warnings_stop_with_the_one_that_uses_the_budget_up() -> None:
    assert len(lengths(*[90] * 60)) == 46
    assert lengths(4000, 300, *[256] * 20) == [256] * 16


def test_warning_that_crosses_the_budget_is_sent_even_if_it_is_used_up() -> None:
    assert lengths(*[256] * 17) == [256] * 17
    assert lengths(*[256] * 30) == [256] * 17


def test_runes_are_counted_not_bytes() -> None:
    warnings = Warnings()
    warnings.add("é" * request.TOTAL_RUNES)
    assert len(warnings.headers()[0]) == request.TOTAL_RUNES + len('299 - ""')


def test_only_a_watch_of_a_resource_runs_long() -> None:
    assert RequestInfo("/x", "watch", "GET", is_resource=True).long_running
    assert not RequestInfo("/x", "watch", "GET").long_running
    assert not RequestInfo("/x", "list", "GET", is_resource=True).long_running


def test_a_request_names_its_group_and_resource() -> None:
    info = RequestInfo("/x", "get", "GET", is_resource=True, group="g", resource="r")
    assert info.group_resource == GroupResource("g", "r")


def test_a_user_has_no_extra_by_default() -> None:
    assert dict(User("u").extra) == {}
    assert "system:unauthenticated" in request.ANONYMOUS.groups


def test_the_first_note_of_a_key_stays_and_each_counts_from_its_level_on() -> None:
    notes = Annotations()
    notes.add("a/b", "1")
    notes.add("a/b", "2")
    notes.add("a/c", "3", Level.REQUEST)
    assert notes.seen_at(Level.NONE) == {}
    assert notes.seen_at(Level.METADATA) == {"a/b": "1"}
    assert notes.seen_at(Level.REQUEST_RESPONSE) == {"a/b": "1", "a/c": "3"}
