import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from bench import picture, tables
from bench.results import OURS, THEIRS, Results

SVG = "{http://www.w3.org/2000/svg}"
FACTS = {
    "date": "2026-01-01",
    "slices": 10_000,
    "quick": False,
    "machine": {"cores": 2, "processor": "<any> & all", "memory_gb": 8, "kernel": "6.1"},
    "versions": {"sluice": "0.1.0"},
}


@pytest.fixture
def found() -> Results:
    """A list within its bound and one beyond, one without a bound, and what is not drawn."""
    found = Results(FACTS)
    for name, ours, theirs in (
        ("LIST gzip c1", 11.0, 600.0),
        ("LIST Table c1", 16.0, 160.0),
        ("LIST Table c8", 17.0, 170.0),
        ("walk by 500 <&>", 0.5, 700.0),
    ):
        found.add("lists", name, OURS, {"cpu_ms": ours, "p50_ms": ours, "p99_ms": 2 * ours})
        found.add("lists", name, THEIRS, {"cpu_ms": theirs})
    found.add("cold", "LIST gzip cold", OURS, {"cpu_ms": 50.0})
    found.add("cold", "LIST metadata cold", OURS, {"cpu_ms": 9.0})
    found.add("writes", "PUT c16", OURS, {"cpu_ms": 1.0})
    return found


def drawn(found: Results) -> ET.Element:
    return ET.fromstring(picture.draw(found))


def test_every_list_of_one_client_has_its_bars_and_its_figures_as_text(found: Results) -> None:
    groups = drawn(found).findall(f"{SVG}g")
    said = [[text.text for text in group.findall(f"{SVG}text")] for group in groups]
    assert said == [
        ["LIST gzip", "11.0 ms", "600 ms, 54.5 times"],
        ["LIST Table", "16.0 ms, missed 15", "160 ms, 10.0 times"],
        ["walk by 500 <&>", "0.500 ms", "700 ms, 1400.0 times"],
        ["LIST gzip cold", "50.0 ms, missed 45", "600 ms, 12.0 times"],
    ]
    assert [[bar.get("class") for bar in group.findall(f"{SVG}rect")] for group in groups] == [["ours", "theirs"]] * 4


def test_bar_beyond_its_bound_is_marked_before_its_end(found: Results) -> None:
    for group in drawn(found).findall(f"{SVG}g"):
        bar = group.find(f"{SVG}rect[@class='ours']")
        assert bar is not None
        end = float(bar.get("x", "")) + float(bar.get("width", ""))
        beyond = any(float(tick.get("x1", "")) < end for tick in group.findall(f"{SVG}line"))
        assert beyond is ("missed" in group.get("class", "").split())


def test_a_bar_ten_times_as_long_in_time_is_one_step_longer(found: Results) -> None:
    table = drawn(found).findall(f"{SVG}g")[1]
    ours, theirs = [float(bar.get("width", "")) for bar in table.findall(f"{SVG}rect")]
    lines = [float(line.get("x1", "")) for line in drawn(found).findall(f"{SVG}line[@class='grid']")]
    assert theirs - ours == pytest.approx(lines[1] - lines[0], abs=0.3)


def test_the_picture_can_be_read_without_being_seen(found: Results) -> None:
    root = drawn(found)
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == "title desc"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text == "CPU of one list of 10,000 slices: Sluice beside kube-apiserver"
    assert description is not None
    assert description.text is not None
    assert "LIST Table: Sluice 16.0 ms (missed bound 15), kube-apiserver 160 ms" in description.text


def test_results_without_a_list_have_no_picture() -> None:
    with pytest.raises(ValueError, match="no list"):
        picture.draw(Results(FACTS))


def test_the_program_draws_a_file_of_results(found: Results, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    found.write(file)
    command = [sys.executable, "-m", "bench.picture", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == picture.draw(found)


def test_tables_follow_from_the_results_and_show_missed_bounds(found: Results) -> None:
    text = tables.page(f"before\n{tables.BEGIN}\nstale\n{tables.END}\nafter", found)
    assert text.startswith("before\n")
    assert text.endswith("\nafter")
    assert "stale" not in text
    assert "| LIST Table c1 | 16.0 | **15: missed** | 16.0 / 32.0 |" in text
    assert "* LIST gzip cold: 50.0 instead of 45 ms of CPU" in text
    assert tables.page(text, found) == text


def test_a_page_without_a_place_for_tables_is_refused(found: Results) -> None:
    with pytest.raises(ValueError, match="must stand"):
        tables.page("nothing", found)
