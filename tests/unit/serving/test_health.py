"""Health endpoints, byte for byte as upstream writes them."""

from __future__ import annotations

import gzip

import pytest
from aiohttp import web

from apiserver import collectors
from apiserver.apimachinery.errors import TextError
from apiserver.filters.state import Request
from apiserver.serving import health
from apiserver.serving.health import Check
from tests.fixtures.connection import Answer
from tests.unit.filters.chain import connect


async def ask(path: str, *checks: Check, method: str = "GET") -> Answer:
    documents = health.documents("readyz", [Check("ping", lambda: None), *checks])

    async def serve(request: Request) -> web.StreamResponse:
        document = documents.get(request.info.path)
        if document is None:
            raise TextError(404, "404 page not found\n")
        return await document(request)

    return await connect(serve).ask(method, path)


BROKEN = Check("caches", lambda: "memory is being filled")
GOOD = Check("caches", lambda: None)
STORE = Check("store", lambda: "gone", counted=False)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_all_is_well(method: str) -> None:
    answer = await ask("/readyz", GOOD, method=method)
    assert (answer.status, answer.text) == (200, "ok")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-cache, private"


async def test_head_says_it_without_words() -> None:
    answer = await ask("/readyz", GOOD, method="HEAD")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize("query", ["verbose", "verbose=", "verbose=false"])
async def test_verbose_has_a_line_for_each_check(query: str) -> None:
    answer = await ask(f"/readyz?{query}", GOOD)
    assert (answer.status, answer.text) == (200, "[+]ping ok\n[+]caches ok\nreadyz check passed\n")


async def test_a_failure_is_always_verbose_and_withholds_the_reason() -> None:
    answer = await ask("/readyz", BROKEN)
    assert (answer.status, answer.text) == (500, "[+]ping ok\n[-]caches failed: reason withheld\nreadyz check failed\n")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_checks_can_be_excluded_and_unknown_ones_are_warned_of() -> None:
    answer = await ask("/readyz?verbose&exclude=caches&exclude=b&exclude=a", BROKEN)
    assert answer.status == 200
    assert answer.text == (
        "[+]ping ok\n[+]caches excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "a","b"\nreadyz check passed\n'
    )
    assert (await ask("/readyz?exclude=caches", BROKEN)).text == "ok"


async def test_first_of_many_unknown_checks_are_repeated() -> None:
    unknown = [f"c{number:04}" for number in range(health.SHOWN + 7)]
    text = (await ask("/readyz?verbose" + "".join(f"&exclude={name}" for name in reversed(unknown)), GOOD)).text
    assert f',"{unknown[health.SHOWN - 1]}",… 7 more\n' in text


async def test_a_check_that_does_not_count_is_shown_and_fails_nothing() -> None:
    assert (await ask("/readyz", GOOD, STORE)).text == "ok"
    assert "[-]store failed, not counted: reason withheld\n" in (await ask("/readyz?verbose", GOOD, STORE)).text
    assert (await ask("/readyz/store", GOOD, STORE)).status == 500


async def test_single_check_shows_its_reason_and_is_not_marked_when_it_passes() -> None:
    good = await ask("/readyz/caches", GOOD)
    assert (good.status, good.text, good.headers["Content-Type"]) == (200, "ok", "text/plain; charset=utf-8")
    assert "X-Content-Type-Options" not in good.headers
    bad = await ask("/readyz/caches", BROKEN)
    assert (bad.status, bad.text) == (500, "internal server error: memory is being filled\n")


@pytest.mark.parametrize("path", ["/readyz/", "/readyz/nonsense", "/readyz/ping/"])
async def test_unknown_check_is_404(path: str) -> None:
    assert (await ask(path)).text == "404 page not found\n"


async def test_megabytes_of_metrics_are_compressed_and_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"".join(b"a %d\n" % number for number in range(300_000))
    monkeypatch.setattr(collectors, "exposition_text", lambda: text)
    answer = await connect(health.scrape).ask("GET", "/metrics", {"Accept-Encoding": "gzip"})
    assert answer.headers["Transfer-Encoding"] == "chunked"
    assert gzip.decompress(answer.body) == text


async def test_metrics_are_text_for_prometheus() -> None:
    answer = await connect(health.scrape).ask("GET", "/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b'kubernetes_healthcheck{name="ping",type="readyz"} 1.0' in answer.body


async def test_results_of_health_checks_can_be_scraped_separately() -> None:
    await ask("/readyz", BROKEN)
    answer = await connect(health.health_metrics).ask("GET", "/metrics/slis")
    assert answer.headers["Content-Type"] == collectors.CONTENT_TYPE
    assert 'kubernetes_healthcheck{name="caches",type="readyz"} 0.0' in answer.text
    assert 'kubernetes_healthchecks_total{name="caches",status="error",type="readyz"}' in answer.text
    families = {line.split()[2] for line in answer.text.splitlines() if line.startswith("# TYPE")}
    assert families == {"kubernetes_healthcheck", "kubernetes_healthchecks_total"}
