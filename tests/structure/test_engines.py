"""The engines are libraries: their READMEs describe them completely, and their examples run without `apiserver`."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

import kubecel
import structuredmerge

PROJECT = pathlib.Path(__file__).resolve().parents[2]
ENGINES = ("kubecel", "structuredmerge", "kubetext")
EXAMPLE_LINES = 20
# Stands in front of the example, and makes each import of the server fail.
WITHOUT_SERVER = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("apiserver", "sluice"):
            raise ImportError(name + " is not installed")

sys.meta_path.insert(0, Without())
"""


def readme(engine: str) -> str:
    return (PROJECT / engine / "README.md").read_text()


def example(engine: str) -> str:
    """The only block of Python of the README."""
    [block] = re.findall(r"^```python\n(.*?)^```", readme(engine), re.MULTILINE | re.DOTALL)
    return str(block)


def first_cells(page: str) -> list[str]:
    """The names in backquotes in the first cell of each row."""
    return [name for row in re.findall(r"^\| (`.+?) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)", row)]


@pytest.mark.parametrize("engine", ENGINES)
def test_example_of_the_readme_runs_without_the_server(engine: str) -> None:
    program = WITHOUT_SERVER + example(engine)
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    for shown in re.findall(r"# prints: (.+)$", example(engine), re.MULTILINE):
        assert shown in finished.stdout.splitlines()


@pytest.mark.parametrize("engine", ENGINES)
def test_example_of_the_readme_is_short(engine: str) -> None:
    assert len([line for line in example(engine).splitlines() if line.strip()]) <= EXAMPLE_LINES


def test_an_engine_cannot_import_the_server_in_the_example() -> None:
    program = WITHOUT_SERVER + "import apiserver"
    finished = subprocess.run([sys.executable, "-c", program], cwd=PROJECT, capture_output=True, check=False)
    assert finished.returncode == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_reading_order_of_the_readme_names_each_module_once(engine: str) -> None:
    order = readme(engine).partition("## Reading order")[2].partition("\n## ")[0]
    named = []
    for section in re.split(r"^### ", order, flags=re.MULTILINE):
        folder = re.match(r"`(\w+/)`", section)
        named += [f"{folder[1] if folder else ''}{name}" for name in first_cells(section)]
    root = PROJECT / engine
    modules = [
        file.relative_to(root).with_suffix("").as_posix() for file in root.rglob("*.py") if file.stem != "__init__"
    ]
    assert sorted(named) == sorted(modules)


@pytest.mark.parametrize("engine", [kubecel, structuredmerge], ids=lambda engine: engine.__name__)
def test_readme_names_each_public_name_once(engine: object) -> None:
    name = getattr(engine, "__name__", "")
    table = readme(name).partition("## Public names")[2].partition("\n## ")[0]
    public = getattr(engine, "__all__", ())
    assert sorted(first_cells(table)) == sorted(public)
    assert all(hasattr(engine, one) for one in public)


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_marks_itself_as_typed_for_type_checkers(engine: str) -> None:
    assert (PROJECT / engine / "py.typed").exists()
