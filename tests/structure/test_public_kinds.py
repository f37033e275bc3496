"""`sluice.kinds` keeps its promise: its names exist and are documented, and packages of kinds import from nowhere else in Sluice."""

from __future__ import annotations

import ast
import inspect
import pathlib
import re
from collections.abc import Iterator

import pytest

import sluice.kinds
from tests.e2e import test_kinds_of_a_package
from tests.fixtures import example_kind

OURS = {"apiserver", "kubecel", "kubetext", "sluice", "structuredmerge"}
"""The top-level packages of Sluice."""


def sources() -> Iterator[str]:
    """The packages of kinds in docs/kinds.md and in the test that serves them."""
    yield from re.findall(r"^```python\n(.*?)^```", example_kind.PAGE.read_text(), re.DOTALL | re.MULTILINE)
    test = ast.parse(pathlib.Path(test_kinds_of_a_package.__file__).read_text())
    for node in ast.walk(test):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import " in node.value:
            yield node.value


def imports(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of each import from Sluice; the name is empty for a whole module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found = [(node.module or "", alias.name) for alias in node.names]
        else:
            continue
        yield from ((module, name) for module, name in found if module.partition(".")[0] in OURS)


@pytest.mark.parametrize("name", sluice.kinds.__all__)
def test_a_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(sluice.kinds, name)
    if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
        doc = value.__doc__ or ""
        assert doc
        assert not doc.startswith(f"{name}("), "dataclasses write this docstring themselves"


def test_packages_of_kinds_import_public_names_only() -> None:
    found = {one for source in sources() for one in imports(source)}

    assert len(found) > 10
    assert {module for module, _ in found} == {"sluice.kinds"}
    assert {name for _, name in found} <= set(sluice.kinds.__all__)


def test_the_page_lists_the_public_names() -> None:
    _, _, section = example_kind.PAGE.read_text().partition("\n## Compatibility\n")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)

    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(sluice.kinds.__all__)
