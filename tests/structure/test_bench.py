import pathlib
import re

from bench import picture, results, tables

PROJECT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = results.read(results.PUBLISHED).workloads


def test_the_tables_of_the_benchmarks_are_those_of_the_published_results() -> None:
    page = tables.README.read_text()
    assert page == tables.page(page, results.read(results.PUBLISHED)), (
        "python -m bench.picture --publish bench/results/published.json"
    )


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
    page = " ".join((PROJECT / "README.md").read_text().split())
    assert f"cost kube-apiserver and etcd {ratio('LIST identity c1')} times the CPU" in page
    assert f"and {ratio('memory with 10000 slices')} times the memory" in page


def test_starts_of_the_page_about_restarts_are_those_of_the_benchmarks() -> None:
    row = re.compile(r"^\| ([\d,]+)(?: slices)? \|(.+)\|$", re.MULTILINE)
    number = re.compile(r"\d+(?:[.,]\d+)*")
    measured = {slices: set(number.findall(cells)) for slices, cells in row.findall(tables.README.read_text())}
    shown = row.findall((PROJECT / "docs" / "restarts.md").read_text())
    assert [slices for slices, _ in shown] == ["10,000", "100,000"]
    for slices, cells in shown:
        assert set(number.findall(cells)) <= measured[slices]
