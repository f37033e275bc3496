"""Pages name what the code declares: every filter, every metric."""

from __future__ import annotations

import pathlib
import re
from functools import partial
from typing import Any, cast

from prometheus_client import PlatformCollector, ProcessCollector

from apiserver import app, collectors, config, delegation, metrics
from apiserver.audit.record import Auditor
from apiserver.filters.authenticate import Trust
from apiserver.filters.drain import Drain
from apiserver.storage.store import Stores
from apiserver.workers import RENDERING

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def rows(page: str, heading: str = "# ") -> list[list[str]]:
    """The cells of each row of the tables behind a heading, without backquotes, heads and rules."""
    text = (PROJECT / "docs" / page).read_text()
    _, found, section = text.partition(heading)
    assert found == heading
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in lines]


def filters() -> list[Any]:
    """`app.filters` of a server that records requests, outermost first."""
    settings = config.parse(["dev"], {})
    served = app.kinds(settings.serving)
    return app.filters(
        settings,
        app.App(cast(Any, None), Drain(), cast(Stores, None)),
        served,
        trust=lambda: Trust(client=None, proxy=None),
        delegates=delegation.alone(settings),
        auditor=cast(Auditor, object()),
        workers=RENDERING,
        gates=app.gates(settings.serving, served),
    )


def test_the_page_about_the_flow_names_every_filter_in_its_order() -> None:
    functions = [one.func if isinstance(one, partial) else one for one in filters()]
    expected = [
        (function.__name__, function.__module__.partition(".")[2].replace(".", "/") + ".py") for function in functions
    ]
    named = [(cells[0], cells[1]) for cells in rows("flow.md", "`app.filters`") if cells[1].startswith("filters/")]
    assert named == expected


def declared() -> dict[str, tuple[str, str]]:
    """Type and labels of each metric by its name in the text that scrapers get."""
    found = {
        value.name: (type(value).__name__.lower(), ", ".join(value.label_names))
        for value in vars(metrics).values()
        if isinstance(value, collectors.Counter | collectors.Gauge | collectors.Histogram | collectors.Summary)
    }
    for collector in (ProcessCollector(registry=None), PlatformCollector(registry=None)):
        for family in collector.collect():
            name = family.name + "_total" * (family.type == "counter")
            found[name] = family.type, ", ".join(family.samples[0].labels)
    return found


def test_the_page_about_metrics_names_every_metric_with_its_type_and_labels() -> None:
    named = {cells[0]: (cells[1], cells[2]) for cells in rows("metrics.md")}
    assert named == declared()


def test_the_page_about_metrics_says_of_each_what_it_tells_and_what_to_do() -> None:
    assert [cells[0] for cells in rows("metrics.md") if len(cells) != 5 or not all((cells[3], cells[4]))] == []


def test_all_metrics_are_declared_in_one_module() -> None:
    declaring = re.compile(r"import .*\b(Counter|Gauge|Histogram|Summary)\b")
    modules = {
        file.relative_to(PROJECT).as_posix()
        for file in (PROJECT / "apiserver").rglob("*.py")
        if any(declaring.search(line) for line in file.read_text().splitlines() if "apiserver.collectors" in line)
    }
    assert modules == {"apiserver/metrics.py"}
