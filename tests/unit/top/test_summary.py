"""The figures of `sluice top`, from two readings, and the page that shows them."""

from __future__ import annotations

import asyncio
import math

import pytest
from rich.console import Console

from apiserver.cluster.errors import ClusterError
from apiserver.top import page
from apiserver.top.reading import Reading
from apiserver.top.summary import MOST_ROWS, summarised

FIRST = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",verb="GET",resource="pods",subresource=""} 100
apiserver_request_total{code="503",verb="GET",resource="pods",subresource=""} 7
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{le="0.005",verb="GET",resource="pods",subresource=""} 90
apiserver_request_duration_seconds_bucket{le="1",verb="GET",resource="pods",subresource=""} 107
apiserver_request_duration_seconds_bucket{le="+Inf",verb="GET",resource="pods",subresource=""} 107
apiserver_request_duration_seconds_sum{verb="GET",resource="pods",subresource=""} 1
apiserver_request_duration_seconds_count{verb="GET",resource="pods",subresource=""} 107
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 10
"""
SECOND = """
# TYPE apiserver_request_total counter
apiserver_request_total{code="200",verb="GET",resource="pods",subresource=""} 190
apiserver_request_total{code="503",verb="GET",resource="pods",subresource=""} 17
apiserver_request_total{code="404",verb="LIST",resource="pods",subresource="status"} 5
# TYPE apiserver_request_duration_seconds histogram
apiserver_request_duration_seconds_bucket{le="0.005",verb="GET",resource="pods",subresource=""} 180
apiserver_request_duration_seconds_bucket{le="1",verb="GET",resource="pods",subresource=""} 207
apiserver_request_duration_seconds_bucket{le="+Inf",verb="GET",resource="pods",subresource=""} 207
apiserver_request_duration_seconds_sum{verb="GET",resource="pods",subresource=""} 3
apiserver_request_duration_seconds_count{verb="GET",resource="pods",subresource=""} 207
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 15
# TYPE apiserver_storage_objects gauge
apiserver_storage_objects{resource="pods.core"} 7
apiserver_storage_objects{resource="namespaces."} 3
# TYPE sluice_watchers gauge
sluice_watchers{resource="pods.core",state="behind"} 2
sluice_watchers{resource="pods.core",state="in_sync"} 5
# TYPE sluice_store_writable gauge
sluice_store_writable{resource="pods.core"} 1
sluice_store_writable{resource="namespaces."} 0
"""
ONE, TWO = Reading.of(FIRST, 100.0), Reading.of(SECOND, 110.0)


def test_rates_are_those_between_the_readings() -> None:
    found = summarised(ONE, TWO)
    get, listed = found.requests
    assert (get.verb, get.resource, get.rate, get.failed, get.refused) == ("GET", "pods", 10.0, 1.0, 0.0)
    assert (listed.resource, listed.rate, listed.refused) == ("pods/status", 0.5, 0.5)
    assert get.mean == pytest.approx(0.02)
    assert get.p99 == 1
    assert found.cpu == 0.5
    assert {each.name: each.rate for each in found.codes} == {"200": 9.0, "503": 1.0, "404": 0.5}


def test_counters_of_a_restarted_process_begin_at_zero() -> None:
    later = Reading.of(FIRST, 120.0)
    assert summarised(TWO, later).cpu == 1.0


def test_resources_have_their_watchers_and_whether_the_store_takes_writes() -> None:
    pods, namespaces = summarised(ONE, TWO).kept
    assert (pods.objects, pods.watchers, pods.behind, pods.writable) == (7, 7, 2, True)
    assert not namespaces.writable
    assert math.isnan(pods.commit_p99)


def test_page_has_the_busiest_rows_only() -> None:
    lines = [f'apiserver_request_total{{code="200",verb="GET",resource="r{n}"}} {n}' for n in range(1, 50)]
    found = summarised(
        Reading.of("", 0), Reading.of("\n".join(["# TYPE apiserver_request_total counter", *lines, ""]), 1)
    )
    assert [each.resource for each in found.requests] == [f"r{n}" for n in range(49, 49 - MOST_ROWS, -1)]


def test_page_shows_requests_resources_and_the_store() -> None:
    console = Console(width=140, record=True, file=None)
    with console.capture() as shown:
        console.print(page.drawn(summarised(ONE, TWO), "https://here"))
    text = shown.get()
    assert "CPU 0.50 cores" in text
    assert "store writable in 1 of 2" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["GET", "pods", "10.0", "-", "1.0", "20", "ms", "1", "s"] in rows
    assert ["pods.core", "7", "0", "B", "7", "2", "-", "-", "-", "0", "ms"] in rows


async def test_one_page_is_printed_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    readings = iter([ONE, TWO])

    async def read() -> Reading:
        return next(readings)

    await page.followed(read, "https://here", interval=0.01, once=False, stop=asyncio.Event())
    assert capsys.readouterr().out.count("https://here") == 1


async def test_server_that_does_not_answer_at_first_is_an_error() -> None:
    async def read() -> Reading:
        raise ClusterError("refused")

    with pytest.raises(ClusterError):
        await page.followed(read, "https://here", interval=0.01, once=True, stop=asyncio.Event())
