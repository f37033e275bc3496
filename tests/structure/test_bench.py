import pathlib
import re

from bench import picture, results, tables

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_tables_of_the_benchmarks_are_those_of_the_published_results() -> None:
    page = tables.README.read_text()
    assert page == tables.page(page, results.read(results.PUBLISHED)), (
        "python -m bench.picture --publish bench/results/published.json"
    )


def test_the_picture_of_the_benchmarks_is_that_of_the_published_results() -> None:
    assert picture.PICTURE.read_text() == picture.draw(results.read(results.PUBLISHED))
    assert f"({picture.PICTURE.name})" in tables.README.read_text()


TOLD = [
    *((f"LIST {name} c1", "cpu_ms") for name in ("identity", "protobuf", "Table")),
    *((name, "cpu_ms") for name in ("GET c16", "GET c16 RV=0")),
    *((f"{name} c16", "cpu_ms") for name in ("CREATE", "PUT", "MERGE PATCH", "APPLY")),
    *((f"memory {name}", "memory_mb") for name in ("empty", "with 10000 slices", "after all")),
]
"""What the README says, in its order: what kube-apiserver takes of it, divided by what Sluice does."""


def test_how_the_readme_compares_us_with_kube_apiserver_is_what_was_measured() -> None:
    figures = results.read(results.PUBLISHED).workloads
    measured = [f"{figures[name]['kube-apiserver'][unit] / figures[name]['sluice'][unit]:.1f}" for name, unit in TOLD]
    told = README.read_text().partition("kube-apiserver and etcd take ")[2].partition("([bench/]")[0]
    assert re.findall(r"\d+\.\d", told) == measured
