"""docs/sizing.md computes its examples from its own costs, and takes these from published runs."""

from __future__ import annotations

import json
import pathlib
import re

from bench import results

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs" / "sizing.md").read_text()
SCALE = {
    row["what"]: row["value"]
    for row in json.loads((PROJECT / "bench/results/published-scale.json").read_text())["rows"]
}
KEPT_SECONDS, WINDOW_MB = 600, 256 * 1.048576
"""A log keeps events for five to ten minutes, within a byte budget (apiserver/storage/options.py)."""


def rows(heading: str, at: int = 0) -> list[list[str]]:
    """Cells of the lines of a table under a heading: the first one, unless `at` names another."""
    section = PAGE.partition(f"\n{heading}\n")[2].partition("\n##")[0]
    table = [part for part in section.split("\n\n") if part.strip().startswith("|")][at].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table if not line.startswith("|---")]


def number(text: str) -> float:
    return float(text.replace(",", "").split()[0])


COSTS = {symbol.strip("`"): number(value) for symbol, _, value, *_ in rows("### Costs")[1:]}


def test_costs_of_the_sizing_page_are_those_of_published_runs() -> None:
    for symbol, _, value, _, source in rows("### Costs")[1:]:
        known = re.fullmatch(r"`(.+)`", source)
        if known and known[1] in SCALE:
            assert value == f"{SCALE[known[1]]:.3g}", symbol
        elif known:
            measured = results.read(results.PUBLISHED).figure(known[1], results.OURS, "cpu_ms")
            assert measured is not None, symbol
            assert value == f"{measured:.3g}", symbol


def computed(given: dict[str, float]) -> dict[str, float]:
    """The formulas of the page."""
    writes, objects, size = given["writes a second"], given["slices"], given["KB of a slice"]
    watches = given["watches of nodes"] + given["watches of everything"]
    events = writes * (given["watches of nodes"] / given["nodes"] + given["watches of everything"])
    lists = given["lists a second, gzip"]
    window = min(WINDOW_MB, writes * KEPT_SECONDS * (size + 0.6) / 1000)
    cpu = (
        writes * COSTS["write"]
        + events * COSTS["event"]
        + lists * objects / 10_000 * COSTS["list"]
        + watches / 450 * COSTS["start"]
        + watches * COSTS["idle"]
    )
    return {
        "events a second": events,
        "cores": cpu / 1000,
        "memory of a server, GB": (
            COSTS["server"] + 67 + (objects * (size + 0.25) + watches * COSTS["watch"]) / 1000 + window
        )
        / 1000,
        "memory of the store, GB": (objects * (size + COSTS["row"]) / 1000 + 2 * window) / 1000,
        "MB/s to clients": events * size / 1000,
        "start, s": 1 + (objects + min(writes * KEPT_SECONDS, WINDOW_MB * 1000 / (size + 0.6))) * COSTS["fill"] / 1000,
    }


def test_examples_of_the_sizing_page_follow_from_its_costs() -> None:
    head, *lines = rows("### Examples")
    table = {label: cells for label, *cells in lines}
    for at, example in enumerate(head[1:]):
        given = {label: number(cells[at]) for label, cells in table.items()}
        for name, value in computed(given).items():
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
            assert table[name][at] == shown, f"{example}: {name}"


def test_writes_of_several_replicas_follow_from_the_measured_costs() -> None:
    heading = "### Writes of several replicas"
    first, follower, store = (number(cost) for _, cost in rows(heading)[1:])
    for servers, shown in rows(heading, 1)[1:]:
        if servers == "the store alone":
            assert number(shown) == round(1000 / store)
            continue
        count = int(servers)
        each = (first + 7 * COSTS["event"]) / count + follower * (count - 1) / count
        assert number(shown) == round(1000 / each), servers
