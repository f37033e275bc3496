"""Editors and commit hooks check what `make lint` checks, with programs that exist."""

from __future__ import annotations

import configparser
import pathlib
import re
import sys
import tomllib
from typing import Any

import yaml

PROJECT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = pathlib.Path(sys.executable).parent
"""Those of the environment in which the tests run; the hooks name those of `.venv`, which `make venv` makes of the same lock file."""


def hooks() -> list[dict[str, Any]]:
    [repository] = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    found: list[dict[str, Any]] = repository["hooks"]
    return found


def test_hooks_run_programs_and_scripts_that_exist() -> None:
    for hook in hooks():
        program, *arguments = hook["entry"].split()
        assert hook["language"] == "system"
        assert program.startswith(".venv/bin/")
        assert (PROGRAMS / pathlib.Path(program).name).exists(), program
        assert all((PROJECT / argument).exists() for argument in arguments if argument.endswith(".py"))


def test_hooks_run_every_check_of_make_lint() -> None:
    recipe = (PROJECT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    checks = {
        line.replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in re.findall(r"^\t(.+)$", recipe, re.MULTILINE)
    }
    assert {hook["entry"].removesuffix(" --force-exclude") for hook in hooks()} == checks


def test_editors_use_the_line_lengths_of_the_linter() -> None:
    ruff = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["ruff"]
    editor = configparser.ConfigParser()
    editor.read_string("[first]\n" + (PROJECT / ".editorconfig").read_text())
    assert editor["*.py"]["max_line_length"] == str(ruff["line-length"])
    assert editor["*"]["max_line_length"] == str(ruff["lint"]["pycodestyle"]["max-line-length"])
