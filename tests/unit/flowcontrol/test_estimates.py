"""The seats of a request, as kube-apiserver estimates them."""

from __future__ import annotations

import pytest

from apiserver.apimachinery.request import RequestInfo, query_of
from apiserver.filters.request_info import parse
from apiserver.flowcontrol.estimates import ONE, Estimate, Estimator, Stored
from apiserver.flowcontrol.retry_after import RetryAfter
from apiserver.flowcontrol.watches import Watches

V1 = "/apis/things.example.com/v1"
MANY = Stored(10_000, 10_000 * 2_000)
FEW = Stored(10, 10 * 2_000)
MILLISECOND = 1_000_000


def estimate(
    method: str, target: str, stored: Stored | None = MANY, *, level: int = 0, by_size: bool = True
) -> Estimate:
    made = Estimator(lambda _: stored, Watches({}), by_size=by_size)
    return made(parse(method, target), query_of(target.partition("?")[2]), level)


@pytest.mark.parametrize(
    ("target", "seats"),
    [
        ("/nodes", 10),
        ("/nodes?resourceVersion=0", 10),
        ("/nodes?limit=500", 10),
        ("/nodes?limit=100", 2),
        ("/nodes?limit=0", 10),
        ("/nodes?limit=100&resourceVersion=5", 2),
        ("/nodes?limit=5000&resourceVersion=5", 100),
        ("/nodes?resourceVersion=5", 10),
        ("/nodes?resourceVersion=5&resourceVersionMatch=Exact", 100),
        ("/nodes?resourceVersion=5&resourceVersionMatch=NotOlderThan", 10),
        ("/nodes?limit=100&continue=abc", 2),
        ("/nodes?limit=100&continue=abc&labelSelector=a", 100),
        ("/nodes?limit=100&labelSelector=a", 2),
        ("/nodes?fieldSelector=metadata.name=a", 1),
        ("/nodes?limit=x", 100),
        ("/nodes?limit=", 100),
        ("/nodes?timeoutSeconds=x", 100),
        ("/nodes/a", 1),
        ("/nodes?watch=1", 10),
        ("/nodes?watch=1&resourceVersion=0", 10),
        ("/nodes?watch=1&resourceVersion=5", 1),
        ("/nodes?watch=1&resourceVersion=5&sendInitialEvents=true", 10),
        ("/nodes?watch=1&resourceVersion=5&sendInitialEvents=false", 1),
        ("/nodes?watch=1&limit=x", 100),
    ],
)
def test_list_counts_by_the_bytes_that_it_reads(target: str, seats: int) -> None:
    assert estimate("GET", V1 + target) == Estimate(seats)


@pytest.mark.parametrize(
    ("target", "seats"),
    [
        ("/nodes", 10),
        ("/nodes?limit=100&continue=abc", 2),
        ("/nodes?limit=100", 10),
        ("/nodes?fieldSelector=metadata.name=a", 1),
    ],
)
def test_list_counts_by_objects_without_the_feature_gate(target: str, seats: int) -> None:
    assert estimate("GET", V1 + target, by_size=False) == Estimate(seats)


def test_small_and_unknown_resources_cost_one_seat() -> None:
    assert estimate("GET", f"{V1}/nodes", FEW) == ONE
    assert estimate("GET", f"{V1}/nodes", None) == ONE
    assert estimate("GET", f"{V1}/nodes", Stored(0, 0)) == ONE
    assert estimate("GET", "/version") == ONE


def test_unknown_sizes_count_as_the_largest_object() -> None:
    assert estimate("GET", f"{V1}/nodes", Stored(1, 0)) == Estimate(10)


def test_priority_level_limits_the_seats_of_a_request() -> None:
    assert estimate("GET", f"{V1}/nodes", level=4) == Estimate(4)
    assert estimate("GET", f"{V1}/nodes?limit=x", level=4) == Estimate(4)


def watched(count: int, target: str = f"{V1}/nodes?watch=1", **indexed: tuple[str, ...]) -> Watches:
    watches = Watches({("things.example.com", name): fields for name, fields in indexed.items()})
    for _ in range(count):
        watches.opened(parse("GET", target), query_of(target.partition("?")[2]))
    return watches


@pytest.mark.parametrize(
    ("watches", "level", "expected"),
    [
        (0, 0, ONE),
        (9, 0, ONE),
        (10, 0, Estimate(1, 1, 5 * MILLISECOND)),
        (95, 0, Estimate(1, 10, 5 * MILLISECOND)),
        (1000, 0, Estimate(1, 10, 50 * MILLISECOND)),
        (1000, 5, Estimate(1, 5, 100 * MILLISECOND)),
    ],
)
def test_write_counts_by_its_watches(watches: int, level: int, expected: Estimate) -> None:
    made = Estimator(lambda _: MANY, watched(watches))
    for method, target in (("POST", "/nodes"), ("PUT", "/nodes/a"), ("PATCH", "/nodes/a"), ("DELETE", "/nodes/a")):
        assert made(parse(method, V1 + target), query_of(""), level) == expected
    assert made(parse("DELETE", f"{V1}/nodes"), query_of(""), level) == ONE
    assert made(parse("GET", f"{V1}/nodes/a"), query_of(""), level) == ONE


def info(method: str, target: str) -> RequestInfo:
    return parse(method, V1 + target)


def test_write_concerns_watches_of_all_its_namespace_and_its_name() -> None:
    watches = Watches({})
    targets = [
        "/claims",
        "/namespaces/a/claims",
        "/namespaces/b/claims",
        "/namespaces/a/claims?fieldSelector=metadata.name%3Dx",
    ]
    places = []
    for target in targets:
        full = f"{V1}{target}{'&' if '?' in target else '?'}watch=1"
        places.append(watches.opened(parse("GET", full), query_of(full.partition("?")[2])))
    assert watches.concerned(info("PUT", "/namespaces/a/claims/x")) == 3
    assert watches.concerned(info("PUT", "/namespaces/a/claims/y")) == 2
    assert watches.concerned(info("POST", "/namespaces/a/claims")) == 2
    assert watches.concerned(info("PUT", "/nodes/x")) == 0
    for place in places:
        watches.closed(place)
    assert watches.concerned(info("PUT", "/namespaces/a/claims/x")) == 0


@pytest.mark.parametrize(
    ("selector", "counted"),
    [
        ("spec.nodeName%3Dn1", 0),
        ("spec.nodeName%3D", 5),
        ("spec.nodeName!%3Dn1", 5),
        ("spec.driver%3Dx", 5),
        ("no selector", 5),
    ],
)
def test_watch_of_one_indexed_value_is_not_counted(selector: str, counted: int) -> None:
    watches = watched(5, f"{V1}/nodes?watch=1&fieldSelector={selector}", nodes=("spec.nodeName",))
    assert watches.concerned(info("PUT", "/nodes/a")) == counted


def test_retry_after_doubles_while_many_are_refused_and_falls_again() -> None:
    found, seconds = RetryAfter(), []
    for second in range(1000, 1040):
        for _ in range(200):
            found.refused(second)
        seconds.append(found.seconds)
    assert seconds[:3] == [1, 2, 2]
    assert max(seconds) == 32
    for second in range(2000, 2200, 2):
        found.refused(second)
    assert found.seconds == 1
