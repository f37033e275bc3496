"""A kind is one file: with the two-field kind of docs/kinds.md beside the others, the tests are as green as without it."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from apiserver import resources
from tests.fixtures import example_kind

TESTS = (
    "tests/structure/test_kinds.py",
    "tests/unit/discovery",
    "tests/unit/resources",
    "tests/unit/codecs/objects/test_canonical.py",
    "tests/unit/kinds/test_served.py",
    "tests/unit/schema/test_openapi.py",
    "tests/unit/wire/test_body.py",
    "tests/unit/test_app.py",
    "tests/unit/test_dev.py",
)
"""Tests of all kinds, or of files generated from them."""
ANY_OBJECT = "tests/unit/resources/test_any_object.py"
OF_ONE_KIND = (
    f"{ANY_OBJECT}::test_any_object_that_decodes_gets_a_verdict",
    f"{ANY_OBJECT}::test_an_object_that_was_written_is_read_back_as_it_was",
    f"{ANY_OBJECT}::test_a_verdict_and_its_words_take_linear_time",
    "tests/unit/resources/test_columns.py::test_column_shows_the_same_of_its_declared_members_as_of_the_object",
)
"""Tests that take seconds for each kind. They run once for kinds that have files already."""
SECONDS = 300


@pytest.mark.timeout(SECONDS)
def test_a_kind_of_two_fields_is_one_file_and_no_other_changes(tmp_path: pathlib.Path) -> None:
    tree = tmp_path / "sluice"
    tree.mkdir()
    for folder in (
        "apiserver",
        "kubecel",
        "kubetext",
        "sluice",
        "structuredmerge",
        "tests",
        "docs",
        "manifests",
        "certs",
    ):
        # With what Python and pytest have made of the files: it is as good for the copies.
        shutil.copytree(example_kind.ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("results", ".*"))
    for file in ("pyproject.toml", "README.md", "Makefile"):
        shutil.copy(example_kind.ROOT / file, tree)
    (tree / "apiserver" / "resources" / "ship.py").write_text(example_kind.in_the_house())
    environ = {**os.environ, "PYTHONPATH": str(tree)}
    for test in OF_ONE_KIND:
        file, name = test.split("::")
        assert f"def {name}(" in (example_kind.ROOT / file).read_text()
    known = [f"--deselect={test}[{resource.kind}]" for test in OF_ONE_KIND for resource in resources.RESOURCES]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--hypothesis-profile=brief",
        *known,
        *TESTS,
    ]

    done = subprocess.run(
        command,
        cwd=tree,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    plurals = "from apiserver import resources; print(*(r.plural for r in resources.RESOURCES))"
    told = subprocess.run(
        [sys.executable, "-c", plurals], cwd=tree, env=environ, capture_output=True, text=True, check=True
    )
    assert "ships" in told.stdout.split()
