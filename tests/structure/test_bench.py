import pathlib
import re
from collections.abc import Callable

import pytest

from bench import picture, results, tables

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = results.read(results.PUBLISHED).workloads
AGGREGATED = results.read(results.PUBLISHED_AGGREGATED).workloads
"""Those through kube-apiserver."""


def test_the_tables_of_the_benchmarks_are_those_of_the_published_results() -> None:
    page = tables.README.read_text()
    assert page == tables.page(page, results.read(results.PUBLISHED)), (
        "python -m bench.picture --publish bench/results/published.json"
    )


@pytest.mark.parametrize(
    ("path", "made"),
    [(tables.README, tables.aggregated_page), (tables.PERFORMANCE, tables.performance_page)],
    ids=["benchmarks", "performance"],
)
def test_tables_through_kube_apiserver_are_the_published_results(
    path: pathlib.Path, made: Callable[[str, results.Results], str]
) -> None:
    page = path.read_text()
    assert page == made(page, results.read(results.PUBLISHED_AGGREGATED)), "python -m bench --aggregated --publish"


def test_the_picture_of_the_benchmarks_is_that_of_the_published_results() -> None:
    assert picture.PICTURE.read_text() == picture.draw(results.read(results.PUBLISHED))
    assert f"({picture.PICTURE.name})" in tables.README.read_text()


def ratio(workload: str) -> str:
    """The CPU or memory of kube-apiserver and etcd, divided by that of Sluice and its store."""
    unit = "memory_mb" if workload.startswith("memory") else "cpu_ms"
    return f"{FIGURES[workload]['kube-apiserver'][unit] / FIGURES[workload]['sluice'][unit]:.1f}"


def test_the_ratios_of_the_performance_page_are_the_published_results() -> None:
    page = (PROJECT / "docs" / "performance.md").read_text()
    rows = re.findall(r"^\| .+ \| `(.+)` \| (\d+\.\d) \|$", page, re.MULTILINE)
    assert len(rows) == 12
    assert rows == [(workload, ratio(workload)) for workload, _ in rows]


def test_figures_of_the_sizing_page_are_the_published_results() -> None:
    page = (PROJECT / "docs" / "sizing.md").read_text()
    rows = re.findall(r"^\| .+ \| `(.+)` \| ([\d.]+) \| (\d+) \|$", page, re.MULTILINE)
    assert len(rows) == 8
    for workload, milliseconds, in_a_second in rows:
        measured = FIGURES[workload]["sluice"]["cpu_ms"]
        assert (milliseconds, in_a_second) == (f"{measured:.3g}", f"{1000 / measured:.0f}"), workload


def test_the_ratios_of_the_readme_are_the_published_results() -> None:
    page = (PROJECT / "README.md").read_text()
    workloads = [f"{name} c1" for name in ("LIST identity", "LIST gzip")]
    workloads += [f"{name} c16" for name in ("GET", "CREATE", "PUT", "APPLY")]
    through = [AGGREGATED[name] for name in workloads]
    ratios = {
        "directly": [ratio(name) for name in workloads],
        "through kube-apiserver": [f"{e['kube-apiserver']['cpu_ms'] / e['through']['cpu_ms']:.1f}" for e in through],
    }
    for way, cells in ratios.items():
        assert f"| {way} | {' | '.join(cells)} |" in page
    assert f"{ratio('memory with 10000 slices')} times the memory" in " ".join(page.split())


def test_starts_of_the_page_about_restarts_are_those_of_the_benchmarks() -> None:
    row = re.compile(r"^\| ([\d,]+)(?: slices)? \|(.+)\|$", re.MULTILINE)
    number = re.compile(r"\d+(?:[.,]\d+)*")
    measured = {slices: set(number.findall(cells)) for slices, cells in row.findall(tables.README.read_text())}
    shown = row.findall((PROJECT / "docs" / "restarts.md").read_text())
    assert [slices for slices, _ in shown] == ["10,000", "100,000"]
    for slices, cells in shown:
        assert set(number.findall(cells)) <= measured[slices]
