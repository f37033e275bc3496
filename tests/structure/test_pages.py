"""Pages name every filter and metric of the code, link to what exists, and keep to their lengths."""

from __future__ import annotations

import pathlib
import re
from functools import partial
from typing import Any, cast

import pytest
import yaml
from prometheus_client import PlatformCollector, ProcessCollector

from apiserver import apigroups, app, collectors, delegation, metrics
from apiserver.audit.record import Auditor
from apiserver.config import config
from apiserver.filters.authenticate import Trust
from apiserver.filters.drain import Drain
from apiserver.runtime.spans import Tracer
from apiserver.runtime.workers import RENDERING
from apiserver.storage.store import Stores
from scripts import reference

PROJECT = pathlib.Path(__file__).resolve().parents[2]


def rows(page: str, heading: str = "# ") -> list[list[str]]:
    """The cells of each row of the tables behind a heading, without backquotes, heads and rules."""
    text = (PROJECT / "docs" / page).read_text()
    _, found, section = text.partition(heading)
    assert found == heading
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip(" `") for cell in line.strip("|").split(" | ")] for line in lines]


def filters() -> list[Any]:
    """`app.filters` of a server that records and traces requests, outermost first."""
    settings = config.parse(["dev"], {})
    served = apigroups.kinds(settings.serving)
    return app.filters(
        settings,
        app.App(cast(Any, None), Drain(), cast(Stores, None)),
        served,
        trust=lambda: Trust(client=None, proxy=None),
        delegates=delegation.alone(settings),
        auditor=cast(Auditor, object()),
        tracer=cast(Tracer, object()),
        workers=RENDERING,
        gates=apigroups.gates(settings.serving, served),
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


def test_metrics_page_names_every_metric_with_its_type_and_labels() -> None:
    named = {cells[0]: (cells[1], cells[2]) for cells in rows("metrics.md")}
    assert named == declared()


def test_metrics_page_gives_meaning_and_action_for_each_metric() -> None:
    assert [cells[0] for cells in rows("metrics.md") if len(cells) != 5 or not all((cells[3], cells[4]))] == []


def test_pages_name_no_metric_that_is_missing() -> None:
    series = re.compile(r"`(sluice_[a-z_]*[a-z])(?:\{[^`]*\})?`")
    found = {name for page in PAGES for name in series.findall(page.read_text())}
    missing = {
        name for name in found if re.sub("_(bucket|sum|count)$", "", name) not in declared() and name not in declared()
    }
    assert missing == set()


def test_all_metrics_are_declared_in_one_module() -> None:
    declaring = re.compile(r"import .*\b(Counter|Gauge|Histogram|Summary)\b")
    modules = {
        file.relative_to(PROJECT).as_posix()
        for file in (PROJECT / "apiserver").rglob("*.py")
        if any(declaring.search(line) for line in file.read_text().splitlines() if "apiserver.collectors" in line)
    }
    assert modules == {"apiserver/metrics.py"}


def test_texts_of_the_error_page_are_in_the_code() -> None:
    page = (PROJECT / "docs" / "errors.md").read_text()
    cells = [cell.strip() for line in page.splitlines() if line.startswith("|") for cell in line.split("|")]
    texts = [cell.strip("`") for cell in cells if re.fullmatch(r"`[^`]+`", cell)]
    code = "\n".join(file.read_text() for file in (PROJECT / "apiserver").rglob("*.py"))
    joined = re.sub(r'"\s*\n\s*f?"', "", code)
    assert len(texts) >= 15
    assert [text for text in texts if text not in joined] == []


def test_pages_that_are_read_from_declarations_are_up_to_date() -> None:
    assert [page.name for page, text in reference.pages().items() if page.read_text() != text] == []


PAGES = sorted(
    page
    for page in PROJECT.rglob("*.md")
    if not any(part.startswith(".") for part in page.relative_to(PROJECT).parts) and "cases" not in page.parts
)


def anchors(page: pathlib.Path) -> set[str]:
    """The fragments of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(PROJECT).as_posix())
def test_a_page_links_to_files_and_headings_that_exist(page: pathlib.Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        path, _, fragment = link.partition("#")
        target = page.parent / path if path else page
        if "://" not in link and not (target.exists() and (not fragment or fragment in anchors(target))):
            broken.append(link)
    assert broken == []


NAMED_TEST = re.compile(r"`(tests/[\w/.-]+\.py)(?:::|`: `)?(test_\w+)?")


def test_pages_name_tests_that_exist() -> None:
    named = {match for page in PAGES for match in NAMED_TEST.findall(page.read_text())}
    assert len(named) > 50
    files = {path: PROJECT / path for path, _ in named}
    missing = {path for path, file in files.items() if not file.exists()}
    assert missing == set()
    texts = {path: file.read_text() for path, file in files.items()}
    assert {(path, test) for path, test in named if test and f"def {test}(" not in texts[path]} == set()


def test_values_behind_flags_on_pages_are_the_defaults() -> None:
    """Compare texts such as `--max-requests-inflight` (400) with the default of `serve`."""
    flags = {flag.option: flag for flag in config.FLAGS}
    shown = re.compile(r"`(--[a-z-]+)`\s+\((\d+)( seconds)?\)")
    found = {match for page in PAGES for match in shown.findall(page.read_text())}
    assert len(found) >= 4
    for option, value, unit in found:
        default = flags[option].default_for(config.SERVE)
        assert default is not None
        assert flags[option].parse(default) == float(value), option
        assert default.endswith("s") == bool(unit), option


def test_pages_name_the_most_watches_of_a_process() -> None:
    for name in ("watches.md", "scaling.md"):
        assert f"{config.MAX_WATCHES:,}" in (PROJECT / "docs" / name).read_text(), name


def test_pages_forward_the_port_that_the_pods_have() -> None:
    [container] = yaml.safe_load((PROJECT / "manifests" / "base" / "deployment.yaml").read_text())["spec"]["template"][
        "spec"
    ]["containers"]
    ports = {str(port["containerPort"]) for port in container["ports"]}
    forwarded = re.compile(r"port-forward (?:POD|deployment/sluice) (\d+)")
    assert {port for page in PAGES for port in forwarded.findall(page.read_text())} == ports


def test_home_page_of_the_handbook_names_every_page() -> None:
    home = PROJECT / "docs" / "index.md"
    named = re.findall(r"\]\((\S+\.md)\)", home.read_text())
    assert sorted(named) == sorted(set(named))
    pages = {page.name for page in home.parent.glob("*.md")} - {"index.md"}
    assert pages <= set(named)


def test_the_readme_has_at_most_900_words() -> None:
    assert len((PROJECT / "README.md").read_text().split()) <= 900


@pytest.mark.parametrize(
    "record", sorted((PROJECT / "docs" / "decisions").glob("0*.md")), ids=lambda record: record.stem
)
def test_a_decision_is_short_complete_and_in_the_index(record: pathlib.Path) -> None:
    text = record.read_text()
    title = re.match(r"# \d+\. (.+)\n\nDate: \d{4}-\d\d-\d\d\. Status: (?:accepted|superseded by \d+)\.\n", text)
    assert title is not None
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert len(text.split()) <= 300
    assert f"({record.name}) | {title[1]} |" in (record.parent / "README.md").read_text()
