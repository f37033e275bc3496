"""The headers of W3C Trace Context, as Go's library reads them."""

from __future__ import annotations

import time

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from apiserver.runtime.spans import Remote
from apiserver.tracing import propagation

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    return CIMultiDictProxy(CIMultiDict(pairs))


def read(parent: str, state: str = "") -> Remote | None:
    return propagation.stated(headers(("Traceparent", parent), *([("Tracestate", state)] if state else [])))


def test_place_in_a_trace_is_read() -> None:
    assert read(PARENT) == Remote(int(TRACE, 16), int(SPAN, 16), 1)


@pytest.mark.parametrize(
    "parent",
    [
        "",
        "x",
        PARENT.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-04",
        f"00-{TRACE}-{SPAN}-1",
        f"{PARENT}-more",
        f"{PARENT} ",
        f"01-{TRACE}-{SPAN}-01-{'x' * 1000}",
    ],
)
def test_invalid_place_is_ignored(parent: str) -> None:
    assert read(parent) is None


def test_later_version_may_say_more() -> None:
    place = read(f"cc-{TRACE}-{SPAN}-09-what-is-to-come")
    assert place is not None
    assert propagation.written(place) == {"traceparent": PARENT}


@pytest.mark.parametrize(
    ("state", "kept"),
    [
        ("a=1,b@c=2 3", "a=1,b@c=2 3"),
        (" a=1\t,, b=2", "a=1,b=2"),
        ("a=1,a=2", ""),
        ("A=1", ""),
        ("a=1,b", ""),
        ("a=\u00e9", ""),
        (",".join(f"k{i}=1" for i in range(32)), ",".join(f"k{i}=1" for i in range(32))),
        (",".join(f"k{i}=1" for i in range(33)), ""),
        ("a=" + "x" * 257, ""),
    ],
)
def test_state_is_kept_when_all_of_it_is_valid(state: str, kept: str) -> None:
    place = read(PARENT, state)
    assert place is not None
    assert place.state == kept


def test_baggage_goes_on_up_to_its_limit() -> None:
    assert propagation.passed_on(headers(("baggage", "a=1;p"), ("baggage", "b=2"))) == {"baggage": "a=1;p,b=2"}
    assert propagation.passed_on(headers(("baggage", "a=" + "x" * 8191))) == {}
    assert propagation.passed_on(headers(("baggage", "a=\u00e9"))) == {}
    assert propagation.passed_on(headers(("accept", "*/*"))) == {}


@pytest.mark.parametrize(
    "hostile", [" " * (1 << 20), "\t," * (1 << 19), "a=" * (1 << 19), "a=1," * (1 << 18), " " * 16_000 + "x"]
)
def test_hostile_headers_are_read_in_one_step(hostile: str) -> None:
    began = time.thread_time()
    propagation.passed_on(headers(("traceparent", PARENT), ("tracestate", hostile), ("baggage", hostile)))
    propagation.passed_on(headers(("traceparent", hostile)))
    assert time.thread_time() - began < 0.02


def test_headers_of_a_request_that_is_over_go_nowhere() -> None:
    span = propagation.PassedOn({"traceparent": PARENT})
    with span:
        assert span.headers() == {"traceparent": PARENT}
    assert span.headers() == {}
